"""Rerankers of long documents over one tiny BERT: FirstP, AvgP, MaxP and LongP share it, PARADE adds heads.

All are trained on short texts (some words of a sentence, and a text that holds it or not) and rank long ones: this is
zero-shot, as the first column of Table 4 in Boytsov et al. 2025 (arXiv 2207.01262).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from checkpoints.training import cross_encoder, loop, start, texts
from checkpoints.training.cross_encoder import CrossEncoder, Pair

_HIDDEN, _LAYERS, _HEADS = 128, 2, 4
_QUERY_TOKENS, _WINDOW, _STRIDE = 8, 24, 12
# Lengths of training texts: windows of PARADE and MaxP, FirstP's part, whole documents.
_LENGTHS = (24, 24, 40, 77, 231)
_QUERIES, _NEGATIVES = 8, 3
_KEPT, _NOISE = 0.4, 0.3  # shares of a query's word pieces: of its sentence that are kept, of others that come in
_FITTED_QUERIES = 60
# Documents of several windows that the heads learn from, and the steps that they take.
_HEAD_QUERIES, _HEAD_STEPS = 120, 200


@dataclass
class Trained:
    """The tiny cross-encoder, and the tensors of each head over it by their names in its file."""

    model: CrossEncoder
    heads: dict[str, dict[str, torch.Tensor]]


class Drawer:
    """Draws queries with texts that hold their sentence, or others."""

    def __init__(self, known: list[texts.Document], seed: int) -> None:
        self._known = known
        self.sentences = [sentence for document in known for sentence in document.sentences]
        self._order = random.Random(seed)

    def pairs(self, length: int | None = None) -> list[Pair]:
        """A query with a text of ``length`` tokens that holds its sentence, then others that do not."""
        sentence = self._order.choice(self._order.choice(self._known).sentences)
        kept = [piece for piece in sentence if self._order.random() < _KEPT] or sentence
        other = self._order.choice(self.sentences)
        query = [
            self._order.choice(other) if self._order.random() < _NOISE else piece for piece in kept[:_QUERY_TOKENS]
        ]
        drawn = length or self._order.choice(_LENGTHS)
        negatives = [self._order.choice(self.sentences) for _ in range(_NEGATIVES)]
        return [(query, self._text(each, drawn)) for each in (sentence, *negatives)]

    def _text(self, sentence: list[int], length: int) -> list[int]:
        """Put a sentence among others, and cut ``length`` tokens that hold at least a part of it."""
        before: list[int] = []
        after: list[int] = []
        while len(before) + len(after) + len(sentence) < 2 * length:
            (before if self._order.random() < 0.5 else after).extend(self._order.choice(self.sentences))
        whole = [*before, *sentence, *after]
        first = max(0, len(before) + min(len(sentence), length) - length)
        cut = self._order.randint(first, max(first, min(len(before), len(whole) - length)))
        return whole[cut : cut + length]


def train(origin: Path, corpus: Path, *, steps: int, seed: int) -> Trained:
    """Train the cross-encoder, then PARADE's heads over its vectors."""
    model, drawer = train_scorer(origin, corpus, steps=steps, seed=seed)
    vectors = _vectors(model, drawer)
    heads = {"parade-attn": _train_attn(model, vectors), "parade-max": _train_max(model, vectors)}
    return Trained(model, {"window": _named(model.linear), **heads})


def train_scorer(origin: Path, corpus: Path, *, steps: int, seed: int) -> tuple[CrossEncoder, Drawer]:
    """Train the cross-encoder alone; return what it was trained on, too."""
    torch.manual_seed(seed)
    tokenizer = start.tokenizer(origin)
    model = CrossEncoder(start.narrow(origin, _HIDDEN, _LAYERS, _HEADS), tokenizer).eval()
    known = texts.documents(corpus, tokenizer)
    drawer = Drawer(known, seed)
    whole = [[piece for sentence in each.sentences for piece in sentence] for each in known]
    idf = cross_encoder.Bm25(whole, tokenizer.get_vocab_size()).idf
    with torch.no_grad():
        cross_encoder.fit(model, [pair for _ in range(_FITTED_QUERIES) for pair in drawer.pairs()], idf)
    batches = ([pair for _ in range(_QUERIES) for pair in drawer.pairs()] for _ in range(steps))

    def loss_of(batch: list[Pair], _done: float) -> torch.Tensor:
        return _contrast(model(batch))

    loop.train(model.parameters(), batches, loss_of, steps=steps, rate=1e-3, what="windows")
    return model, drawer


def _contrast(scores: torch.Tensor) -> torch.Tensor:
    each = scores.view(-1, _NEGATIVES + 1)
    return torch.nn.functional.cross_entropy(each, torch.zeros(len(each), dtype=torch.long))


def _vectors(model: CrossEncoder, drawer: Drawer) -> torch.Tensor:
    """[CLS] of the windows of documents, each query's own first: (documents, windows, hidden)."""
    found = []
    for _ in range(_HEAD_QUERIES):
        pairs = drawer.pairs(_LENGTHS[-1])
        windows = [(query, each) for query, text in pairs for each in _windows(text)]
        with torch.no_grad():
            found.append(model.first(windows).view(len(pairs), -1, _HIDDEN))
    return torch.cat(found)


def _windows(text: list[int]) -> Iterator[list[int]]:
    for begin in range(0, len(text) - _WINDOW + _STRIDE, _STRIDE):
        yield text[begin : begin + _WINDOW]


def _train_attn(model: CrossEncoder, vectors: torch.Tensor) -> dict[str, torch.Tensor]:
    """One weight a window (the paper's): attention starts where the score does."""
    linear, weight = _copy(model.linear), torch.nn.Parameter(model.linear.weight.detach()[0].clone())

    def loss_of(_batch: None, _done: float) -> torch.Tensor:
        shares = (vectors @ weight).softmax(1)[..., None]
        return _contrast(linear((shares * vectors).sum(1))[:, 0])

    _take_steps([*linear.parameters(), weight], loss_of, "parade-attn")
    return {**_named(linear), "cls_weight": weight.detach().clone()}


def _train_max(model: CrossEncoder, vectors: torch.Tensor) -> dict[str, torch.Tensor]:
    """The largest of the windows' values in each dimension."""
    linear, largest = _copy(model.linear), vectors.amax(1)
    _take_steps(list(linear.parameters()), lambda _batch, _done: _contrast(linear(largest)[:, 0]), "parade-max")
    return _named(linear)


def _take_steps(parameters: list[torch.nn.Parameter], loss_of: Any, what: str) -> None:
    loop.train(parameters, iter([None] * _HEAD_STEPS), loss_of, steps=_HEAD_STEPS, rate=1e-2, what=what)


def _copy(linear: torch.nn.Linear) -> torch.nn.Linear:
    made = torch.nn.Linear(linear.in_features, 1)
    made.load_state_dict(linear.state_dict())
    return made


def _named(linear: torch.nn.Linear) -> dict[str, torch.Tensor]:
    return {f"cls.{name}": tensor.detach().clone() for name, tensor in linear.state_dict().items()}
