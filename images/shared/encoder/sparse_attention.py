"""Longformer and BigBird, called so that a result depends on its own text alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from encoder.config import Config


class Wrapped(torch.nn.Module):
    """A model of transformers that attends sparsely, behind the call of a dense one.

    Texts are padded here to the length that the attention needs.  Under it BigBird would turn to full attention and
    keep it (huggingface/transformers issue 20031), so that a score would depend on the texts before.

    Longformer takes token type 1 as the mark of global attention; the first token always has it.
    """

    def __init__(self, model: Any, declared: Config) -> None:
        super().__init__()
        self.model = model
        self.config = model.config
        self._declared = declared

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        output_hidden_states: bool = False,
    ) -> SimpleNamespace:
        """Return ``last_hidden_state``, ``pooler_output`` and ``hidden_states`` of the tokens that were given."""
        length = input_ids.shape[1]
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        beyond = (0, self._declared.padded(length) - length)
        ids = torch.nn.functional.pad(input_ids, beyond, value=int(self.config.pad_token_id or 0))
        mask, types = (torch.nn.functional.pad(each, beyond) for each in (attention_mask, types))
        if self._declared.kind.marks:
            marked = types * mask
            marked[:, 0] = 1
            further = {"global_attention_mask": marked}
        else:
            further = {"token_type_ids": types}
        found = self.model(ids, attention_mask=mask, output_hidden_states=output_hidden_states, **further)
        return SimpleNamespace(
            last_hidden_state=found.last_hidden_state[:, :length],
            pooler_output=found.pooler_output,
            hidden_states=[each[:, :length] for each in found.hidden_states] if output_hidden_states else None,
        )
