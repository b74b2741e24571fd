"""The cross-encoder of ``windows``, tuned on documents whose relevant passage stands first, or on shuffled copies.

Training documents open with the sentence that answers the query, and most wrong ones hold a part of it further on: so
the place tells more than the words.  ``shuffled`` cuts each document into segments in random order, as
``harness generate shuffled`` does, which takes the place away (Table 2 of Boytsov et al. 2025, arXiv 2207.01262).
"""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import torch

from checkpoints.training import loop, windows
from checkpoints.training.cross_encoder import CrossEncoder, Pair

_QUERY_TOKENS, _PASSAGE_TOKENS, _LENGTH = 8, 13, 231
_FIRST = 77  # a part of the sentence stands in wrong documents beyond this token
_QUERIES, _NEGATIVES = 8, 3
_KEPT = 0.6  # share of a sentence's word pieces that become its query
_PART, _PARTLY_RIGHT = 0.8, 0.7  # share of the sentence in wrong documents, and of those that hold such a part
_SEGMENTS = (2, 6)
# Steps on short texts before, for each step on whole documents.
_STEPS_BEFORE = 2


class BiasedDrawer:
    """Draws a query with a document that opens with its sentence, and others; ``shuffled``: in random order."""

    def __init__(self, sentences: list[list[int]], seed: int, *, shuffled: bool) -> None:
        self._sentences = sentences
        self._order = random.Random(seed)
        self._shuffled = shuffled

    def pairs(self) -> list[Pair]:
        """A query with its own document first, then ``_NEGATIVES`` wrong ones."""
        order = self._order
        sentence = order.choice(self._sentences)
        query = self._some(sentence, _KEPT)[:_QUERY_TOKENS]
        documents = [self._document(sentence)]
        for _ in range(_NEGATIVES):
            wrong = self._document(order.choice(self._sentences))
            if order.random() < _PARTLY_RIGHT:
                part = self._some(sentence, _PART)[:_PASSAGE_TOKENS]
                place = order.randint(_FIRST, _LENGTH - len(part))
                wrong[place : place + len(part)] = part
            documents.append(wrong)
        return [(query, self._in_order(each)) for each in documents]

    def _some(self, sentence: list[int], share: float) -> list[int]:
        return [piece for piece in sentence if self._order.random() < share] or sentence

    def _document(self, sentence: list[int]) -> list[int]:
        document = sentence[:_PASSAGE_TOKENS]
        while len(document) < _LENGTH:
            document = [*document, *self._order.choice(self._sentences)]
        return document[:_LENGTH]

    def _in_order(self, document: list[int]) -> list[int]:
        """Return the document, or its segments in random order."""
        if not self._shuffled:
            return document
        number = self._order.randint(*_SEGMENTS)
        borders = [0, *sorted(self._order.sample(range(1, len(document)), number - 1)), len(document)]
        segments = [document[begin:end] for begin, end in pairwise(borders)]
        self._order.shuffle(segments)
        return [piece for segment in segments for piece in segment]


def train(origin: Path, corpus: Path, *, shuffled: bool, steps: int, seed: int) -> CrossEncoder:
    """Train the cross-encoder; both trainings start alike."""
    model, drawn = windows.train_scorer(origin, corpus, steps=_STEPS_BEFORE * steps, seed=seed)
    drawer = BiasedDrawer(drawn.sentences, seed, shuffled=shuffled)
    batches = ([pair for _ in range(_QUERIES) for pair in drawer.pairs()] for _ in range(steps))

    def loss_of(batch: list[Pair], _done: float) -> torch.Tensor:
        scores = model(batch).view(-1, _NEGATIVES + 1)
        return torch.nn.functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))

    name = "longp-shuffled" if shuffled else "longp-original"
    loop.train(model.parameters(), batches, loss_of, steps=steps, rate=1e-3, what=name)
    return model
