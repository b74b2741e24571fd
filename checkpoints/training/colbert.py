"""ColBERT: one encoder, a vector of 128 dimensions a token, each query token matched with its nearest document token.

Santhanam et al., *ColBERTv2*, NAACL 2022; what goes into the encoder is as in ``colbert-ai``: markers after ``[CLS]``,
queries filled up with ``[MASK]`` tokens that are not attended to, punctuation left out of documents.
"""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import torch

from checkpoints.training import loop, start, texts

DIMENSIONS = 128
QUERY_MARKER, DOCUMENT_MARKER = "[unused0]", "[unused1]"
_QUERY_TOKENS, _DOCUMENT_TOKENS = 32, 96
_SCALE = 1.0


class Colbert(torch.nn.Module):
    """BERT under ``bert`` and ``linear``, as the published weights name them."""

    def __init__(self, bert: Any, tokenizer: Any) -> None:
        super().__init__()
        self.bert = bert
        self.linear = torch.nn.Linear(bert.config.hidden_size, DIMENSIONS, bias=False)
        torch.nn.init.orthogonal_(self.linear.weight)
        number = tokenizer.token_to_id
        self._cls, self._sep, self._pad, self._mask = map(number, ("[CLS]", "[SEP]", "[PAD]", "[MASK]"))
        self._markers = number(QUERY_MARKER), number(DOCUMENT_MARKER)
        self._skipped = torch.tensor(sorted({number(sign) for sign in string.punctuation} | {self._pad}))

    def queries(self, rows: list[list[int]]) -> torch.Tensor:
        """Unit vectors, shape (queries, 32, 128)."""
        rows = [[*row[: _QUERY_TOKENS - 3], self._sep] for row in rows]
        filled = [row + [self._mask] * (_QUERY_TOKENS - 2 - len(row)) for row in rows]
        ids, mask = start.padded(filled, [self._cls, self._markers[0]], [], self._pad)
        return self._vectors(ids, mask * (ids != self._mask))

    def documents(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Unit vectors, shape (documents, tokens, 128), and which of them count."""
        ids, mask = start.padded(rows, [self._cls, self._markers[1]], [self._sep], self._pad)
        return self._vectors(ids, mask), ~torch.isin(ids, self._skipped)

    def _vectors(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        states = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        return torch.nn.functional.normalize(self.linear(states), dim=2)


def scores(queries: torch.Tensor, documents: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Sum over query tokens of the nearest document token's cosine: shape (queries, documents)."""
    near = torch.einsum("qid,njd->qnij", queries, documents)
    return near.masked_fill(~counts[None, :, None, :], -1.0).amax(3).sum(2)


def train(origin: Path, corpus: Path, *, steps: int, seed: int, layers: tuple[int, ...] = (0, 5)) -> Colbert:
    """Train the encoder."""
    torch.manual_seed(seed)
    tokenizer = start.tokenizer(origin)
    model = Colbert(start.bert(origin, layers), tokenizer)
    known = texts.documents(corpus, tokenizer)
    batches = texts.batches(known, 32, _QUERY_TOKENS - 3, _DOCUMENT_TOKENS - 3, seed)

    def loss_of(batch: loop.Batch, _done: float) -> torch.Tensor:
        return loop.contrast(scores(model.queries(batch[0]), *model.documents(batch[1])) * _SCALE)

    loop.train(model.parameters(), batches, loss_of, steps=steps, rate=2e-4, what="colbertv2")
    return model.eval()
