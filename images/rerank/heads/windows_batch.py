"""Inputs and base class of the heads that score whole documents: hidden states of all windows of a micro-batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from encoder.heads import Tensors


class Windows(NamedTuple):
    """The transformer's hidden states of a micro-batch: all windows of some documents, and one query.

    A window is ``[CLS] query [SEP] part of the document [SEP]``; for a head that encodes query and document apart it
    is ``[CLS] [SEP] part of the document [SEP]``, and the query has states of its own.

    Attributes:
        states: (layers, windows, length, hidden): embeddings first, then each layer; the last layer alone unless the
            head asks for ``all_layers``.  Rows beyond a window's tokens are padding: mask them.
        mask: 1 for a token, 0 for padding, int64 (windows, length).
        pair: index of the document that a window is of, int64 (windows,), ascending from 0.  Windows of a document
            are in their order, and all of them are here.
        pairs: number of documents; each has at least one window.
        query: positions of the query's tokens in every window, special tokens left out; empty for a query without
            tokens.  With ``pad_windows = s3`` it is ``query_tokens`` long, and the mask tells its padding.
        document: positions of the document's tokens in every window, special tokens left out; a shorter window ends
            earlier, with its last special token and padding.
        document_mask: 1 where a position holds a token of the document, int64 (windows, length): neither special
            tokens nor padding.  A window without any is empty (an empty document, or ``pad_windows = s3``).
        query_states: (layers, 1, length, hidden) of ``[CLS] [SEP] query [SEP]``, where the head encodes apart.
        query_mask: 1 for a token of these, 0 for padding, int64 (1, length).
    """

    states: torch.Tensor
    mask: torch.Tensor
    pair: torch.Tensor
    pairs: int
    query: slice
    document: slice
    document_mask: torch.Tensor
    query_states: torch.Tensor | None = None
    query_mask: torch.Tensor | None = None

    @property
    def first(self) -> torch.Tensor:
        """The last layer's first token of each window, float32 (windows, hidden)."""
        return self.states[-1, :, 0].to(torch.float32)

    @property
    def real(self) -> torch.Tensor:
        """True for windows that hold a token of their document, bool (windows,)."""
        return self.document_mask.any(1)


class DocumentHead(torch.nn.Module):
    """Base of the heads that score whole documents.

    Args:
        config: the checkpoint's configuration, as transformers reads it.
        tensors: reads a tensor of the checkpoint by name; raises BadCheckpoint when it is missing.
        params: the system's parameters, complete: ``query_tokens``, ``pad_windows``, ``attention``,
            ``interaction_padding`` ... .
    """

    # Prefixes of the checkpoint's tensor names that this head reads itself.
    reads: tuple[str, ...] = ()
    # The rule that cuts a document (windows.SPLITS), with its tokens of window and stride where the system names none.
    split = "sliding"
    window, stride = 150, 75
    # Whether states hold the embeddings and every layer, or the last layer alone.
    all_layers = False
    # Whether windows' first tokens are all that is read: then states have one position.
    first_only = False
    # Whether the transformer reads query and windows apart.
    apart = False

    def __init__(self, config: Any, tensors: Tensors, params: dict[str, Any]) -> None:  # noqa: ARG002
        super().__init__()

    def forward(self, windows: Windows) -> torch.Tensor:
        """Return one float32 score a document, (pairs,)."""
        raise NotImplementedError
