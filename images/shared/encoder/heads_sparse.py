"""Heads that weigh terms."""

from __future__ import annotations

from typing import Any

import torch

from encoder.errors import BadCheckpoint
from encoder.heads import Given, Head, Tensors


class Splade(Head):
    """log(1 + relu(logit)) of each term of the vocabulary, the largest over all tokens, special ones included.

    Formal et al., *SPLADE v2: Sparse Lexical and Expansion Model for Information Retrieval*, 2021.
    """

    transformer = "masked_lm"

    def forward(self, given: Given) -> torch.Tensor:
        """Shape (texts, vocabulary); no weight is negative."""
        # The largest logit first: both functions grow with theirs, and are applied to one row a text.
        largest = given.states.amax(1).to(torch.float32)
        return torch.log1p(torch.relu(largest))


class TermWeight(Head):
    """One number a token: linear(hidden state), by uniCOIL no less than 0.

    uniCOIL (Lin and Ma, *A Few Brief Notes on DeepImpact, COIL, and a Conceptual Framework for Information Retrieval
    Techniques*, 2021) saves the layer as ``tok_proj``, DeepCT (Dai and Callan, *Context-Aware Sentence/Passage Term
    Importance Estimation For First Stage Retrieval*, 2019) as the ``classifier`` of a token classification.
    """

    reads = ("tok_proj.", "coil_encoder.tok_proj.", "classifier.")

    def __init__(self, config: Any, tensors: Tensors, params: dict[str, Any]) -> None:
        super().__init__(config, tensors, params)
        name, weight = _first(tensors, self.reads)
        if tuple(weight.shape) != (1, config.hidden_size):
            raise BadCheckpoint(
                f"{name}weight has shape {tuple(weight.shape)}, a term's weight needs (1, {config.hidden_size})"
            )
        self.linear = torch.nn.Linear(config.hidden_size, 1)
        self.linear.load_state_dict({"weight": weight, "bias": tensors(f"{name}bias")})
        self.positive = name != "classifier."

    def forward(self, given: Given) -> torch.Tensor:
        """Shape (texts, tokens); 0 for padding."""
        weights = self.linear(given.states).squeeze(-1).to(torch.float32)
        if self.positive:
            weights = torch.relu(weights)
        result: torch.Tensor = weights * given.mask.to(torch.float32)
        return result


def _first(tensors: Tensors, prefixes: tuple[str, ...]) -> tuple[str, torch.Tensor]:
    """Return the first of these layers that the checkpoint has."""
    for prefix in prefixes:
        try:
            return prefix, tensors(f"{prefix}weight")
        except BadCheckpoint:
            continue
    raise BadCheckpoint(f"the weights have no layer that weighs terms ({', '.join(prefixes)})")


HEADS: dict[str, type[Head]] = {"splade": Splade, "term_weight": TermWeight}
