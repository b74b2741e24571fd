"""Rerankers of long documents: one tiny BERT for FirstP, AvgP, MaxP and LongP, and one for both kinds of PARADE.

Both are trained alike: on short texts (some words of a sentence, and a text that holds it or not), PARADE through its
windows.  They rank long ones: this is zero-shot, as the first column of Table 4 in Boytsov et al. 2025 (arXiv
2207.01262).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
_RATE = 1e-3


@dataclass(frozen=True)
class Trained:
    """A tiny cross-encoder, and the tensors of the head over it by their names in its file."""

    model: CrossEncoder
    head: dict[str, torch.Tensor]


class Drawer:
    """Draws queries with texts that hold their sentence, or others."""

    def __init__(self, known: list[texts.Document], seed: int) -> None:
        self._known = known
        self.sentences = [sentence for document in known for sentence in document.sentences]
        self._order = random.Random(seed)

    def pairs(self) -> list[Pair]:
        """A query with a text that holds its sentence, then others of the same length that do not."""
        sentence = self._order.choice(self._order.choice(self._known).sentences)
        kept = [piece for piece in sentence if self._order.random() < _KEPT] or sentence
        other = self._order.choice(self.sentences)
        query = [
            self._order.choice(other) if self._order.random() < _NOISE else piece for piece in kept[:_QUERY_TOKENS]
        ]
        length = self._order.choice(_LENGTHS)
        negatives = [self._order.choice(self.sentences) for _ in range(_NEGATIVES)]
        return [(query, self._text(each, length)) for each in (sentence, *negatives)]

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


class Parade(torch.nn.Module):
    """Scores of documents from the first tokens of their windows, by each kind; both start where the scorer starts."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model
        self.attn, self.max = _copy(model.linear), _copy(model.linear)
        self.weight = torch.nn.Parameter(model.linear.weight.detach()[0].clone())

    def forward(self, pairs: list[Pair]) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores of Attn (one weight a window, the paper's) and of Max, each of shape (pairs,)."""
        windows = [[(query, each) for each in _windows(text)] for query, text in pairs]
        vectors = self.model.first([each for some in windows for each in some]).split(list(map(len, windows)))
        weighted = torch.stack([(each @ self.weight).softmax(0) @ each for each in vectors])
        largest = torch.stack([each.amax(0) for each in vectors])
        return self.attn(weighted)[:, 0], self.max(largest)[:, 0]


def train(origin: Path, corpus: Path, *, steps: int, seed: int) -> dict[str, Trained]:
    """Train the scorer of windows, and PARADE; return them by the names of their folders."""
    scorer, _ = train_scorer(origin, corpus, steps=steps, seed=seed)
    model, drawer = _fitted(origin, corpus, seed)
    parade = Parade(model)
    loop.train(
        parade.parameters(),
        _batches(drawer, steps),
        lambda batch, _done: torch.stack([_contrast(scores) for scores in parade(batch)]).sum(),
        steps=steps,
        rate=_RATE,
        what="parade",
    )
    return {
        "window": Trained(scorer, named(scorer.linear)),
        "parade-attn": Trained(model, {**named(parade.attn), "cls_weight": parade.weight.detach().clone()}),
        "parade-max": Trained(model, named(parade.max)),
    }


def train_scorer(origin: Path, corpus: Path, *, steps: int, seed: int) -> tuple[CrossEncoder, Drawer]:
    """Train the cross-encoder alone; return what it was trained on, too."""
    model, drawer = _fitted(origin, corpus, seed)
    loop.train(
        model.parameters(),
        _batches(drawer, steps),
        lambda batch, _done: _contrast(model(batch)),
        steps=steps,
        rate=_RATE,
        what="windows",
    )
    return model, drawer


def named(linear: torch.nn.Linear) -> dict[str, torch.Tensor]:
    """Return the tensors of a head's linear map by their names in its file."""
    return {f"cls.{name}": tensor.detach().clone() for name, tensor in linear.state_dict().items()}


def _fitted(origin: Path, corpus: Path, seed: int) -> tuple[CrossEncoder, Drawer]:
    """Return a cross-encoder that matches words, and what it is to be trained on."""
    torch.manual_seed(seed)
    tokenizer = start.tokenizer(origin)
    model = CrossEncoder(start.narrow(origin, _HIDDEN, _LAYERS, _HEADS), tokenizer).eval()
    known = texts.documents(corpus, tokenizer)
    drawer = Drawer(known, seed)
    whole = [[piece for sentence in each.sentences for piece in sentence] for each in known]
    idf = cross_encoder.Bm25(whole, tokenizer.get_vocab_size()).idf
    with torch.no_grad():
        cross_encoder.fit(model, [pair for _ in range(_FITTED_QUERIES) for pair in drawer.pairs()], idf)
    return model, drawer


def _batches(drawer: Drawer, steps: int) -> Iterator[list[Pair]]:
    return ([pair for _ in range(_QUERIES) for pair in drawer.pairs()] for _ in range(steps))


def _contrast(scores: torch.Tensor) -> torch.Tensor:
    each = scores.view(-1, _NEGATIVES + 1)
    return torch.nn.functional.cross_entropy(each, torch.zeros(len(each), dtype=torch.long))


def _windows(text: list[int]) -> list[list[int]]:
    return [text[begin : begin + _WINDOW] for begin in range(0, max(1, len(text) - _WINDOW + _STRIDE), _STRIDE)]


def _copy(linear: torch.nn.Linear) -> torch.nn.Linear:
    made = torch.nn.Linear(linear.in_features, 1)
    made.load_state_dict(linear.state_dict())
    return made
