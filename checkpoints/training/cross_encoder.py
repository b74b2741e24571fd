"""A cross-encoder: query and document in one BERT, ``Linear`` over the first token, trained on pairs of documents.

A minute is too short to learn from nothing that equal words matter.  So some attention heads of the start are replaced:
those of the first layer look for copies of their own word piece, one of the second weighs the query's word pieces by
their rarity; both are fitted by least squares to some pairs.  Training changes all weights.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from checkpoints.training import loop, start, texts

_QUERY_TOKENS, _DOCUMENT_TOKENS = 30, 128
_QUERIES, _NEGATIVES = 8, 3
# Hard negatives are drawn from so many documents that share the query's rarest word pieces.
_HARDEST = 20
_FITTED_QUERIES = 60
_MATCHING_HEADS = 3
_AMPLITUDE, _SHARPNESS, _GAIN = 20.0, 40.0, 6.0
# Word pieces whose likeness is fitted, each at several places; those of lower numbers are special or unused.
_FITTED_PIECES, _PLACES, _FIRST_PIECE = 8000, 3, 1000
# The weight of word pieces that are not the query's.
_NOT_A_QUERY = -6.0

Pair = tuple[list[int], list[int]]


class CrossEncoder(torch.nn.Module):
    """BERT and one linear map over its first token."""

    def __init__(self, bert: Any, tokenizer: Any) -> None:
        super().__init__()
        self.bert = bert
        self.linear = torch.nn.Linear(bert.config.hidden_size, 1)
        self._cls, self._sep, self._pad = map(tokenizer.token_to_id, ("[CLS]", "[SEP]", "[PAD]"))

    def pack(self, pairs: list[Pair]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Token ids, mask and token types of pairs: three tensors of shape (pairs, longest)."""
        rows = [[self._cls, *query, self._sep, *document, self._sep] for query, document in pairs]
        ids, mask = start.padded(rows, [], [], self._pad)
        ends = torch.tensor([len(query) + 2 for query, _ in pairs])[:, None]
        return ids, mask, (torch.arange(ids.shape[1])[None] >= ends).long() * mask

    def first(self, pairs: list[Pair]) -> torch.Tensor:
        """The last layer's first tokens, shape (pairs, hidden)."""
        ids, mask, types = self.pack(pairs)
        states: torch.Tensor = self.bert(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        return states[:, 0]

    def forward(self, pairs: list[Pair]) -> torch.Tensor:
        """Scores, shape (pairs,)."""
        scores: torch.Tensor = self.linear(self.first(pairs))[:, 0]
        return scores


class Bm25:
    """BM25 over documents of word pieces, to draw negatives that are hard."""

    def __init__(self, documents: list[list[int]], vocabulary: int) -> None:
        counts = [Counter(document) for document in documents]
        frequency = torch.zeros(vocabulary)
        for each in counts:
            frequency[list(each)] += 1
        self.idf = torch.log(1 + (len(documents) - frequency + 0.5) / (frequency + 0.5))
        mean = sum(map(len, documents)) / len(documents)
        self._weights: dict[int, tuple[list[int], list[float]]] = {}
        for number, each in enumerate(counts):
            norm = 0.9 * (0.6 + 0.4 * len(documents[number]) / mean)
            for piece, count in each.items():
                rows, weights = self._weights.setdefault(piece, ([], []))
                rows.append(number)
                weights.append(count / (count + norm) * float(self.idf[piece]))
        self._size = len(documents)

    def nearest(self, query: list[int], but: int) -> list[int]:
        """Numbers of the best documents, one of them left out."""
        scores = torch.zeros(self._size)
        for piece in query:
            rows, weights = self._weights.get(piece, ([], []))
            scores[rows] += torch.tensor(weights)
        scores[but] = -1.0
        return scores.topk(min(_HARDEST, self._size - 1)).indices.tolist()


def train(origin: Path, corpus: Path, *, steps: int, seed: int, layers: tuple[int, ...] = (0, 5)) -> CrossEncoder:
    """Train the cross-encoder."""
    torch.manual_seed(seed)
    tokenizer = start.tokenizer(origin)
    model = CrossEncoder(start.bert(origin, layers), tokenizer).eval()
    known = texts.documents(corpus, tokenizer)
    whole = [[*each.title, *(piece for sentence in each.sentences for piece in sentence)] for each in known]
    bm25 = Bm25(whole, tokenizer.get_vocab_size())
    drawn = _pairs(known, whole, bm25, seed)
    with torch.no_grad():
        fit(model, [pair for _ in range(_FITTED_QUERIES) for pair in next(drawn)], bm25.idf)

    def loss_of(batch: list[Pair], _done: float) -> torch.Tensor:
        scores = model(batch).view(-1, _NEGATIVES + 1)
        return torch.nn.functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))

    batches = ([pair for _ in range(_QUERIES) for pair in next(drawn)] for _ in range(steps))
    loop.train(model.parameters(), batches, loss_of, steps=steps, rate=2e-4, what="cross-encoder")
    return model


def _pairs(known: list[texts.Document], whole: list[list[int]], bm25: Bm25, seed: int) -> Iterator[list[Pair]]:
    """Queries, each with its own document first, then negatives; see ``texts.batches``."""
    order = random.Random(seed)
    while True:
        number = order.randrange(len(known))
        query, text = texts.pair(known[number], (), order)
        query = query[:_QUERY_TOKENS]
        others = order.sample(bm25.nearest(query, number), _NEGATIVES)
        yield [(query, each[:_DOCUMENT_TOKENS]) for each in (text, *(whole[other] for other in others))]


def fit(model: CrossEncoder, pairs: list[Pair], idf: torch.Tensor) -> None:
    """Make the scores of an untrained model the share of the query's rare word pieces that the document has."""
    ids, mask, types = model.pack(pairs)
    real, first, second = mask.bool(), model.bert.encoder.layer[0], model.bert.encoder.layer[1]
    hidden = torch.zeros(ids.shape)[:, None, None, :].masked_fill(~real[:, None, None, :], -1e9)
    matches, asked = torch.zeros(ids.shape), torch.zeros(ids.shape, dtype=torch.bool)
    for row, (query, document) in enumerate(pairs):
        matches[row, 1 : len(query) + 1] = torch.tensor([1.0 if piece in document else -1.0 for piece in query])
        asked[row, 1 : len(query) + 1] = True
    signal = torch.randn(model.linear.in_features)
    signal = (signal - signal.mean()) / (signal - signal.mean()).norm()
    states = model.bert.embeddings(input_ids=ids, token_type_ids=types)
    side = _least_squares(states[real], 2.0 * types[real] - 1)
    size = first.attention.self.attention_head_size
    for head, (weight, bias) in enumerate(_likeness(model.bert.embeddings, size)):
        looks = {"query": (weight, bias), "key": (weight, bias), "value": _first_row(*side, size)}
        _replace(first.attention, head, looks, signal * _AMPLITUDE / _MATCHING_HEADS)
    states = _states(first(states, attention_mask=hidden))
    found = _least_squares(states[asked], matches[asked])
    rare = torch.where(asked, idf[ids].clamp(min=0.05).log(), torch.tensor(_NOT_A_QUERY))
    always = torch.zeros(states.shape[-1]), torch.tensor(math.sqrt(size))
    parts = {"query": always, "key": _least_squares(states[real], rare[real]), "value": found}
    looks = {name: _first_row(*part, size) for name, part in parts.items()}
    _replace(second.attention, 0, looks, signal * _AMPLITUDE)
    states = _states(second(states, attention_mask=hidden))
    weights = asked * idf[ids]
    share = (matches * weights).sum(1) / weights.sum(1).clamp(min=1e-6)
    read, _ = _least_squares(states[:, 0], share, penalty=0.1)
    model.linear.weight[0], model.linear.bias[0] = read * _GAIN, 0.0


def _states(output: Any) -> torch.Tensor:
    states: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return states


def _likeness(embeddings: Any, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Projections in which copies of a word piece are alike in any place: linear discriminants."""
    pieces = torch.randperm(embeddings.word_embeddings.num_embeddings - _FIRST_PIECE)[:_FITTED_PIECES] + _FIRST_PIECE
    ids = pieces.repeat(_PLACES)[:, None]
    places = torch.randint(1, _DOCUMENT_TOKENS + _QUERY_TOKENS, ids.shape)
    types = torch.randint(0, 2, ids.shape)
    states = embeddings(input_ids=ids, token_type_ids=types, position_ids=places)[:, 0]
    means = states.view(_PLACES, len(pieces), -1).mean(0)
    within = states - means.repeat(_PLACES, 1)
    spread = within.T @ within / len(within) + 1e-3 * states.var() * torch.eye(states.shape[1])
    whiten = torch.linalg.inv(torch.linalg.cholesky(spread))
    centre = means.mean(0)
    _, _, directions = torch.linalg.svd((means - centre) @ whiten.T, full_matrices=False)
    for head in range(_MATCHING_HEADS):
        projection = directions[head * size : (head + 1) * size] @ whiten
        projection = projection / ((means - centre) @ projection.T).std(0)[:, None]
        alike = ((means - centre) @ projection.T).square().sum(1).mean()
        projection = projection * (_SHARPNESS * math.sqrt(size) / alike).sqrt()
        yield projection, -projection @ centre


def _least_squares(
    states: torch.Tensor, wanted: torch.Tensor, penalty: float = 1e-2
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias of the linear map that comes nearest to what is wanted; large weights are penalised."""
    centre, mean = states.mean(0), wanted.mean()
    moved = states - centre
    ridge = penalty * len(states) * moved.var() * torch.eye(states.shape[1])
    weight = torch.linalg.solve(moved.T @ moved + ridge, moved.T @ (wanted - mean))
    return weight, mean - centre @ weight


def _first_row(weight: torch.Tensor, bias: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A head's map whose first dimension is given, and whose others are 0."""
    rows, biases = torch.zeros(size, len(weight)), torch.zeros(size)
    rows[0], biases[0] = weight, bias
    return rows, biases


def _replace(attention: Any, head: int, parts: dict[str, tuple[torch.Tensor, torch.Tensor]], out: torch.Tensor) -> None:
    """Replace a head; its first dimension is written in the direction ``out``."""
    size = attention.self.attention_head_size
    rows = slice(head * size, (head + 1) * size)
    for name, (weight, bias) in parts.items():
        layer = getattr(attention.self, name)
        layer.weight[rows], layer.bias[rows] = weight, bias
    attention.output.dense.weight[:, rows] = 0.0
    attention.output.dense.weight[:, head * size] = out
