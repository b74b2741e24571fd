"""Transformer and head as one torch module: what the torch backends run, and what is exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from encoder import heads
from encoder.checkpoint import transformer
from encoder.config import read_config
from encoder.errors import BadCheckpoint
from encoder.weights import Weights, side


class Graph(torch.nn.Module):
    """Token ids in, one float32 result a text out.

    Args:
        folder: a checkpoint in the hub's format.
        head: name of the head.
        params: what the system says of the head.  ``original_positions`` of a BERT whose positions were stretched:
            texts of at most so many tokens are spread over all positions, as E5-4K's short texts are.

    Raises:
        BadCheckpoint: see :mod:`encoder.checkpoint`, :mod:`encoder.config` and :mod:`encoder.weights`.
    """

    def __init__(self, folder: Path, head: str, params: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.declared = read_config(folder)
        kind = heads.find(head).of(self.declared.model_type)
        weights = Weights(folder, kind.parts)
        if strangers := [name for name in weights.part_names if not name.startswith(kind.reads)]:
            raise BadCheckpoint(
                f"{folder.name}: the weights hold {strangers[0]}, which the head {head!r} does not read"
            )
        self.side = side(weights.names)
        self._masked_lm = kind.transformer == "masked_lm"
        self._pooler = kind.pooler
        self.transformer: Any = transformer(
            folder, self.declared, weights, masked_lm=self._masked_lm, pooler=kind.pooler, reads=kind.reads
        )
        given = {**(params or {}), **({"side": self.side} if self.side else {})}
        try:
            self.head = kind(self.transformer.config, weights, given)
        except (KeyError, RuntimeError) as error:
            raise BadCheckpoint(f"{folder.name}: the head {head!r} does not fit the weights: {error}") from error
        self.parts = kind.parts
        self._original = int(given.get("original_positions", 0))
        self._spread = self.declared.max_tokens // self._original if self._original else 1
        if self._original and (self.declared.model_type != "bert" or self._spread < 2):
            raise BadCheckpoint(
                f"{folder.name}: original_positions {self._original} needs a bert of at least twice as many positions; "
                f"this is a {self.declared.model_type} of {self.declared.max_tokens}"
            )
        if self._masked_lm:
            self.transformer.get_output_embeddings().register_forward_pre_hook(self._hide_padding)
        self.plain_mask = True
        self.eval()

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Run the graph; inputs are int64 of shape (texts, tokens), the result has the head's shape."""
        plain = self.plain_mask or self.declared.kind.plain_mask
        mask = attention_mask if plain else additive(attention_mask)
        inputs = {"input_ids": input_ids, "attention_mask": mask}
        if self.declared.kind.token_types:
            inputs["token_type_ids"] = token_type_ids
        if self._original:
            inputs["position_ids"] = self._positions(attention_mask)
        self._mask = attention_mask
        outputs = self.transformer(**inputs)
        states = outputs.logits if self._masked_lm else outputs.last_hidden_state
        pooled = outputs.pooler_output if self._pooler else None
        result: torch.Tensor = self.head(heads.Given(states, pooled, attention_mask))
        return result

    def _hide_padding(self, _: torch.nn.Module, given: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        """Replace padding's hidden states by the first token's, before they become logits: no largest logit changes."""
        (states,) = given
        return (torch.where(self._mask.unsqueeze(-1).bool(), states, states[:, :1]),)

    def _positions(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the position of each token: its number, times the spread in a short text."""
        short = mask.sum(1, keepdim=True) <= self._original
        numbers = torch.cumsum(torch.ones_like(mask), 1) - 1
        # Padding would count beyond the last position.
        return (numbers * torch.where(short, self._spread, 1)).clamp(max=self.declared.max_tokens - 1)


def additive(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask to add to attention's logits; an export cannot follow how transformers makes its own."""
    return (1.0 - mask[:, None, None, :].to(torch.float32)) * torch.finfo(torch.float32).min


def check_numbers(graph: torch.nn.Module, name: str) -> None:
    """Refuse weights that are no numbers: texts that meet them would silently fall out of every ranking.

    Raises:
        BadCheckpoint: a tensor holds NaN or infinity; ``name`` is the checkpoint's.
    """
    for tensor, values in graph.named_parameters():
        if not torch.isfinite(values).all():
            raise BadCheckpoint(f"{name}: {tensor!r} holds NaN or infinity: the weights are damaged; fetch them anew")
