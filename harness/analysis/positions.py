"""Positions of relevant passages in documents, and each system's measure by these positions.

Positions are tokens of bert-base-uncased.  Of each pair of a query and a document the first relevant passage counts,
of a query with several documents the earliest.  Histograms, of the documents' lengths too, and shares follow Boytsov et
al. (2025), Figure 1; their Figure 7 shows the same for more collections.  The measure by position is harness's own.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from harness import stats
from harness.analysis.resampling import RESAMPLES
from harness.analysis.table import Row
from harness.datasets.passage_positions import RelevantPosition
from harness.driver.records import Scalar
from harness.evaluation.per_query import PerQuery
from harness.stats import CONFIDENCE, INTERVAL_MIN_QUERIES, Estimate, Floats

BIN = 256
# Shares are of passages that start before so many bins.
BOUNDS = (1, 2, 4)
# Bins of the first screen end there.
COARSE = (1, 2)
SEED = 2023
# Tokens of a word of English: bert-base-uncased on the paragraphs of XQuAD-en.
WORD_TOKENS = 1.3


class ReferenceHistogram(NamedTuple):
    """Published numbers of passages in bins of 256 tokens; passages beyond the last bin count in ``total`` alone."""

    name: str
    counts: tuple[int, ...]
    total: int

    def share_before(self, bins: int) -> float:
        """Return the share of passages that start before this bin."""
        return sum(self.counts[:bins]) / self.total


SOURCE = "Boytsov et al. (2025), histograms published with the study (Figure 1)"
REFERENCES = (
    ReferenceHistogram("MS MARCO", (5338, 1197, 525, 236, 104, 87, 55, 34, 55), 7631),
    ReferenceHistogram("Robust04", (2436, 383, 169, 104, 76, 43, 19, 19, 6), 3306),
)


@dataclass(frozen=True)
class FirstPassages:
    """First relevant passages of a dataset; ``origin`` says where they are from.

    ``pairs`` of a query and a document were searched for one (``None``: all have one).
    """

    dataset: str
    origin: str
    firsts: tuple[RelevantPosition, ...]
    pairs: int | None = None

    @property
    def starts(self) -> list[int]:
        """The token at which each starts."""
        return [each.start_token for each in self.firsts]

    @property
    def lengths(self) -> list[int]:
        """The tokens of each relevant document, once for each query."""
        return [each.length for each in self.firsts]

    @property
    def of_query(self) -> dict[str, RelevantPosition]:
        """The earliest passage of each query."""
        earliest: dict[str, RelevantPosition] = {}
        for each in self.firsts:
            known = earliest.get(each.query)
            if known is None or each.start_token < known.start_token:
                earliest[each.query] = each
        return earliest


def first_passages(
    dataset: str, origin: str, records: Iterable[RelevantPosition], pairs: int | None = None
) -> FirstPassages:
    """Return the first passage of each pair of a query and a document, in the order of the records."""
    firsts: dict[tuple[str, str], RelevantPosition] = {}
    for each in records:
        known = firsts.get((each.query, each.doc))
        if known is None or each.start_token < known.start_token:
            firsts[each.query, each.doc] = each
    return FirstPassages(dataset, origin, tuple(firsts.values()), pairs)


def histogram(tokens: Iterable[int], width: int = BIN) -> tuple[int, ...]:
    """Return how many starts, or lengths, lie in each bin of ``width`` tokens, up to the last that has one."""
    counts = Counter(each // width for each in tokens)
    return tuple(counts[number] for number in range(max(counts, default=-1) + 1))


def share_before(passages: FirstPassages, tokens: int) -> Estimate:
    """Return the share of first passages that start before a token, with its 95 % interval."""
    if not passages.firsts:
        return Estimate(None, reason="no relevant passage")
    return stats.proportion(sum(start < tokens for start in passages.starts), len(passages.firsts))


@dataclass(frozen=True)
class ReadLimit:
    """Tokens of a document that a system reads at most; ``None``: all.

    ``known`` is false where its parameters do not say; ``exact`` is false for a limit in words.
    """

    tokens: int | None
    known: bool = True
    exact: bool = True


@dataclass(frozen=True)
class UnseenPassages:
    """Shares of relevant passages that start, and that end, beyond what a system reads."""

    starts: float
    ends: float


@dataclass(frozen=True)
class DocumentReader:
    """A system, or a number of tokens, with what it reads and does not see; known before anything runs."""

    name: str
    limit: ReadLimit
    unseen: UnseenPassages | None


def reader_of(name: str, limit: ReadLimit, passages: FirstPassages) -> DocumentReader:
    """Return what a system of this limit does not see."""
    return DocumentReader(name, limit, unseen_passages(passages, limit))


def unseen_passages(passages: FirstPassages, limit: ReadLimit) -> UnseenPassages | None:
    """Return the unseen share; ``None``: no passage, or nothing is known of the system."""
    if not limit.known or not passages.firsts:
        return None
    if limit.tokens is None:
        return UnseenPassages(0.0, 0.0)
    count = len(passages.firsts)
    starts = sum(each.start_token >= limit.tokens for each in passages.firsts)
    ends = sum(each.end_token > limit.tokens for each in passages.firsts)
    return UnseenPassages(starts / count, ends / count)


def read_limit(params: Mapping[str, Scalar]) -> ReadLimit:
    """Return how much of a document a system reads, from its parameters alone.

    Of a fusion it is the most that a component reads, of two stages what the one reads that cuts documents: a first
    stage of whole documents does not show them to the second.
    """
    parts: dict[str, dict[str, Scalar]] = {}
    for name, value in params.items():
        part, dot, key = name.partition(".")
        if dot:
            parts.setdefault(part, {})[key] = value
    if not parts:
        return _own_limit(params)
    rerankers = [part for part in parts.values() if "aggregation" in part or "passage_words" in part]
    if rerankers:
        return _own_limit(rerankers[0])
    limits = [_own_limit(part) for part in parts.values()]
    cut = [each for each in limits if each.tokens is not None]
    if not cut or ("method" in params and len(cut) < len(limits)):
        return ReadLimit(None)
    pick = max if "method" in params else min
    return pick(cut, key=lambda each: each.tokens or 0)


def _own_limit(params: Mapping[str, Scalar]) -> ReadLimit:
    words = params.get("passage_words")
    if isinstance(words, int) and words > 0:
        return ReadLimit(round(words * WORD_TOKENS), exact=False)
    tokens = params.get("document_tokens")
    if not isinstance(tokens, int):
        return ReadLimit(None)
    window = params.get("window")
    if params.get("aggregation") in ("first", "long") and isinstance(window, int) and window:
        tokens = min(tokens, window)
    return ReadLimit(tokens)


@dataclass(frozen=True)
class PositionBin:
    """Queries whose first passage starts in a range of tokens, and a system's mean measure over them."""

    start: int
    end: int | None
    queries: int
    value: Estimate


@dataclass(frozen=True)
class PlacedCell:
    """Mean measure over the queries of one depth (0 to 1, one decimal) and target length (tokens)."""

    depth: float
    length: int
    queries: int
    value: Estimate


@dataclass(frozen=True)
class SystemByPosition:
    """A system's measure over the ``queries`` with a position: overall, by bin, and its change for each bin of tokens.

    ``coarse`` holds the same for the bounds of ``COARSE``, ``placed`` by depth and length where both were given.
    """

    system: str
    profile: str
    limit: ReadLimit
    unseen: UnseenPassages | None
    queries: int
    value: Estimate
    slope: Estimate
    bins: tuple[PositionBin, ...] = ()
    coarse: tuple[PositionBin, ...] = ()
    placed: tuple[PlacedCell, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class DatasetPositions:
    """First passages of one dataset, in bins of ``width`` tokens.

    ``readers`` were asked about before anything ran; ``systems`` have ranked its documents.
    """

    passages: FirstPassages
    width: int
    readers: tuple[DocumentReader, ...] = ()
    measure: str | None = None
    systems: tuple[SystemByPosition, ...] = ()


def by_position(
    row: Row,
    values: PerQuery | None,
    params: Mapping[str, Scalar] | None,
    passages: FirstPassages,
    measure: str,
    width: int = BIN,
) -> SystemByPosition:
    """Return a system's measure by where each query's first passage starts.

    Args:
        row: the system's.
        values: its values by query.
        params: of the system; ``None``: not known.
        passages: of the dataset.
        measure: its name.
        width: tokens of a bin.
    """
    limit = ReadLimit(None, known=False) if params is None else read_limit(params)
    unseen = unseen_passages(passages, limit)
    of_query = passages.of_query
    known: dict[str, float] = {}
    if values is not None and measure in values.measures:
        pairs = zip(values.query_ids, values.measures[measure].tolist(), strict=True)
        known = {query: value for query, value in pairs if query in of_query and np.isfinite(value)}
    nothing = Estimate(None)
    if not known:
        reason = str(row.detail or "") or f"no {measure} of a query with a position"
        return SystemByPosition(row.system, row.profile, limit, unseen, 0, nothing, nothing, reason=reason)
    scores = np.asarray(list(known.values()), dtype=np.float64)
    earliest = [of_query[query] for query in known]
    starts = np.asarray([each.start_token for each in earliest], dtype=np.int64)
    last = int(starts.max()) // width + 1
    fine = [(number * width, (number + 1) * width) for number in range(last)]
    edges = [0, *(bound * width for bound in COARSE)]
    coarse = [*itertools.pairwise(edges), (edges[-1], None)]
    return SystemByPosition(
        row.system,
        row.profile,
        limit,
        unseen,
        len(known),
        _mean(scores),
        slope(starts / width, scores),
        _bins(starts, scores, fine),
        _bins(starts, scores, coarse),
        _placed(earliest, scores),
    )


def _mean(scores: Floats) -> Estimate:
    return stats.mean(scores, floor=0.0, ceiling=1.0)


def _bins(starts: np.ndarray, scores: Floats, edges: Sequence[tuple[int, int | None]]) -> tuple[PositionBin, ...]:
    bins = []
    for low, high in edges:
        inside = (starts >= low) & (starts < high) if high is not None else starts >= low
        if inside.any():
            bins.append(PositionBin(low, high, int(inside.sum()), _mean(scores[inside])))
    return tuple(bins)


def _placed(passages: Sequence[RelevantPosition], scores: Floats) -> tuple[PlacedCell, ...]:
    grouped: dict[tuple[float, int], list[float]] = {}
    for each, score in zip(passages, scores.tolist(), strict=True):
        if each.depth is not None and each.target_length is not None:
            grouped.setdefault((round(each.depth, 1), each.target_length), []).append(score)
    return tuple(
        PlacedCell(depth, length, len(values), _mean(np.asarray(values)))
        for (depth, length), values in sorted(grouped.items())
    )


def slope(starts: Floats, scores: Floats, seed: int = SEED, resamples: int = RESAMPLES) -> Estimate:
    """Return the least-squares slope of a measure over positions, with a bootstrap interval over queries.

    Args:
        starts: of each query's passage, shape (queries,), in the unit of the slope.
        scores: the measure, shape (queries,).
        seed: of the resamples.
        resamples: their number.
    """
    if len(starts) < 2 or starts.min() == starts.max():
        return Estimate(None, reason="all passages start at one position")
    value = float(_slopes(np.ones((1, len(starts))), starts, scores)[0])
    if len(starts) < INTERVAL_MIN_QUERIES:
        return Estimate(value, reason=f"an interval needs {INTERVAL_MIN_QUERIES} queries, there are {len(starts)}")
    drawn = _slopes(stats.draw_weights(len(starts), resamples, seed).astype(np.float64), starts, scores)
    drawn = drawn[np.isfinite(drawn)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, (tail, 1 - tail))
    return Estimate(value, float(low), float(high))


def _slopes(weights: Floats, starts: Floats, scores: Floats) -> Floats:
    """Return weighted least-squares slopes, one for each row of weights (draws, queries)."""
    total = weights.sum(axis=1)
    mean_x, mean_y = weights @ starts / total, weights @ scores / total
    covariance = weights @ (starts * scores) / total - mean_x * mean_y
    variance = weights @ starts**2 / total - mean_x**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(covariance / variance, dtype=np.float64)
