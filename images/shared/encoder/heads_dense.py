"""Heads that make one vector of a text."""

from __future__ import annotations

from typing import Any

import torch

from encoder.heads import Given, Head, Tensors


class Mean(Head):
    """The mean of the hidden states of all tokens, special ones included."""

    def forward(self, given: Given) -> torch.Tensor:
        """Shape (texts, hidden)."""
        weights = given.mask.unsqueeze(-1).to(torch.float32)
        total: torch.Tensor = (given.states.to(torch.float32) * weights).sum(1)
        return total / weights.sum(1).clamp(min=1e-9)


class Cls(Head):
    """The hidden state of the first token."""

    def forward(self, given: Given) -> torch.Tensor:
        """Shape (texts, hidden)."""
        return given.states[:, 0].to(torch.float32)


class Pooler(Head):
    """The transformer's own pooler: tanh(linear(first token))."""

    pooler = True

    def forward(self, given: Given) -> torch.Tensor:
        """Shape (texts, hidden)."""
        assert given.pooled is not None
        return given.pooled.to(torch.float32)


class Dpr(Head):
    """DPR: the first token, through ``encode_proj`` where the checkpoint has one (``projection_dim`` > 0).

    Karpukhin et al., *Dense Passage Retrieval for Open-Domain Question Answering*, EMNLP 2020.
    """

    reads = ("question_encoder.encode_proj.", "ctx_encoder.encode_proj.")

    def __init__(self, config: Any, tensors: Tensors, params: dict[str, Any]) -> None:
        super().__init__(config, tensors, params)
        self.projection: torch.nn.Linear | None = None
        dims = int(getattr(config, "projection_dim", 0) or 0)
        if dims > 0:
            side = "question_encoder" if params["side"] == "question" else "ctx_encoder"
            self.projection = torch.nn.Linear(config.hidden_size, dims)
            self.projection.load_state_dict(
                {name: tensors(f"{side}.encode_proj.{name}") for name in ("weight", "bias")}
            )

    def forward(self, given: Given) -> torch.Tensor:
        """Shape (texts, hidden or projection)."""
        first = given.states[:, 0]
        return (first if self.projection is None else self.projection(first)).to(torch.float32)


class Ance(Head):
    """ANCE: LayerNorm(embeddingHead(first token)) over RoBERTa.

    Xiong et al., *Approximate Nearest Neighbor Negative Contrastive Learning for Dense Text Retrieval*, ICLR 2021;
    tensors ``embeddingHead.*`` and ``norm.*``.
    """

    reads = ("embeddingHead.", "norm.", "classifier.")

    def __init__(self, config: Any, tensors: Tensors, params: dict[str, Any]) -> None:
        super().__init__(config, tensors, params)
        weight = tensors("embeddingHead.weight")
        self.linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
        self.linear.load_state_dict({"weight": weight, "bias": tensors("embeddingHead.bias")})
        self.norm = torch.nn.LayerNorm(weight.shape[0])  # the original leaves epsilon at torch's default
        self.norm.load_state_dict({"weight": tensors("norm.weight"), "bias": tensors("norm.bias")})

    def forward(self, given: Given) -> torch.Tensor:
        """Shape (texts, dims)."""
        vectors: torch.Tensor = self.norm(self.linear(given.states[:, 0]))
        return vectors.to(torch.float32)


HEADS: dict[str, type[Head]] = {"mean": Mean, "cls": Cls, "pooler": Pooler, "dpr": Dpr, "ance": Ance}
