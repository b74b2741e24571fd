"""Heads: what is made of a transformer's hidden states.  Each is a torch module that an export carries along."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import torch

from encoder.errors import BadCheckpoint

# Reads tensors of the checkpoint by name; raises BadCheckpoint when one is missing.
Tensors = Callable[[str], torch.Tensor]

# name -> module of this package that defines it in its table HEADS.
_MODULES = {
    "mean": "heads_dense",
    "cls": "heads_dense",
    "pooler": "heads_dense",
    "ance": "heads_dense",
    "dpr": "heads_dense",
    "splade": "heads_sparse",
    "term_weight": "heads_sparse",
    "linear": "heads_score",
    "linear_mean": "heads_score",
    "classifier": "heads_score",
    "modules": "heads_score",
}


class Given(NamedTuple):
    """The transformer's results of a batch.

    Attributes:
        states: hidden states (texts, tokens, hidden), or logits (texts, tokens, vocabulary), where padding has the
            first token's.
        pooled: the transformer's pooler output (texts, hidden), where the head asks for it.
        mask: 1 for a token, 0 for padding (texts, tokens).
    """

    states: torch.Tensor
    pooled: torch.Tensor | None
    mask: torch.Tensor


class Head(torch.nn.Module):
    """Base of all heads.

    Args:
        config: the checkpoint's configuration, as transformers reads it.
        tensors: the checkpoint's own tensors, for a head that transformers does not load.
        params: what the system's TOML says of the head; may be empty.
    """

    # "base": hidden states; "masked_lm": logits over the vocabulary.
    transformer = "base"
    # Prefixes of the checkpoint's tensor names that this head reads itself.
    reads: tuple[str, ...] = ()
    # Whether the transformer's own pooler is needed.
    pooler = False
    # Folders of the checkpoint whose tensors this head reads, each as ``<folder>.<name>``.
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, model_type: str) -> type[Head]:  # noqa: ARG003
        """Return the head of this name over a type of transformer; most are the same for all."""
        return cls

    def __init__(self, config: Any, tensors: Tensors, params: dict[str, Any]) -> None:  # noqa: ARG002
        super().__init__()

    def forward(self, given: Given) -> torch.Tensor:
        """Return one float32 result a text."""
        raise NotImplementedError


def find(name: str) -> type[Head]:
    """Return the head of a name.

    Raises:
        BadCheckpoint: there is none.
    """
    if name not in _MODULES:
        raise BadCheckpoint(f"no head {name!r}; there are {', '.join(sorted(_MODULES))}")
    found: type[Head] = import_module(f"encoder.{_MODULES[name]}").HEADS[name]
    return found
