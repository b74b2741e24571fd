"""PARADE with late interaction: query and windows are encoded apart, meet in a small transformer, then aggregate.

Boytsov et al., *Understanding Performance of Long-Document Ranking Models through Comprehensive Evaluation and
Leaderboarding* (arXiv 2207.01262), the variant LATEIR; tensors have FlexNeuART's names.
"""

from __future__ import annotations

from typing import Any

import torch
from encoder.heads import Tensors

from heads.documents import read_strictly
from heads.parade import LEFT_OVER, ParadeTransformer, first_state, small_transformer
from heads.windows_batch import DocumentHead, Windows


class Lateir(ParadeTransformer):
    """``[CLS] [SEP] query [SEP] window [SEP]`` in one transformer, its first states in another.

    Query and window keep the states of their own special tokens.  ``config.json`` describes the transformers under
    ``interaction`` and ``aggregator``; ``proj_agg`` and ``proj_out`` stand before them where sizes differ.
    """

    reads = (
        *ParadeTransformer.reads,
        "bert_interact.",
        "bert_interact_cls_embed",
        "bert_interact_sep_embed",
        "proj_agg.",
    )
    apart = True
    first_only = False

    def __init__(self, config: Any, tensors: Tensors, params: dict[str, Any]) -> None:
        DocumentHead.__init__(self, config, tensors, params)
        self.bert_interact = small_transformer(config, "interaction")
        self.bert_aggreg = small_transformer(config, "aggregator")
        inner, size = int(self.bert_interact.config.hidden_size), int(self.bert_aggreg.config.hidden_size)
        hidden = int(config.hidden_size)
        for name, length in (("interact", inner), ("aggreg", size)):
            for token in ("cls", "sep"):
                setattr(self, f"bert_{name}_{token}_embed", torch.nn.Parameter(torch.zeros(length)))
        self.proj_agg = torch.nn.Linear(hidden, inner) if inner != hidden else None
        self.proj_out = torch.nn.Linear(inner, size) if size != inner else None
        self.cls = torch.nn.Linear(size, 1)
        read_strictly(
            self,
            tensors,
            [f"bert_{name}.{left}" for name in ("interact", "aggreg") for left in LEFT_OVER],
        )

    def forward(self, windows: Windows) -> torch.Tensor:
        """See :class:`DocumentHead`."""
        return self.document_scores(self._interact(windows), windows)

    def _interact(self, windows: Windows) -> torch.Tensor:
        """Return one vector a window of query and window together, (windows, hidden of the interaction)."""
        assert windows.query_states is not None
        states = windows.states[-1].to(torch.float32)
        query = windows.query_states[-1].to(torch.float32)
        if self.proj_agg is not None:
            states, query = self.proj_agg(states), self.proj_agg(query)
        count, longest, size = states.shape
        asked = query.shape[1]
        sequence = states.new_zeros((count, longest + asked + 4, size))
        sequence[:, 0], sequence[:, 1] = self.bert_interact_cls_embed, self.bert_interact_sep_embed
        sequence[:, 2 : asked + 2], sequence[:, asked + 2] = query, self.bert_interact_sep_embed
        sequence[:, asked + 3 : -1] = states
        mask = torch.zeros(sequence.shape[:2], dtype=torch.bool, device=states.device)
        mask[:, : asked + 3] = True
        if windows.query_mask is not None:
            mask[:, 2 : asked + 2] = windows.query_mask.to(torch.bool)
        mask[:, asked + 3 : -1] = windows.mask.to(torch.bool)
        # The last separator stands behind the window's own, which is its last token.
        places = torch.arange(longest, device=states.device)
        end = asked + 4 + (places * windows.mask).amax(1)
        rows = torch.arange(count, device=states.device)
        sequence[rows, end], mask[rows, end] = self.bert_interact_sep_embed, True
        return first_state(self.bert_interact, sequence, mask, torch.zeros_like(mask, dtype=torch.int64))


HEADS: dict[str, type[DocumentHead]] = {"lateir": Lateir}
