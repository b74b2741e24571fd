"""Positions of relevant passages in documents, and each system's measure by position.

Positions are tokens of bert-base-uncased.  The first relevant passage of each query and document counts; for a query
with several documents, the earliest.  Histograms (of positions and of document lengths) and shares follow Boytsov et
al. (2025), Figure 1; their Figure 7 shows more collections.  The measure by position is our own.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness import stats
from harness.analysis import axes, published_measures
from harness.analysis.axes import Key
from harness.analysis.published_measures import PositionHistogram
from harness.analysis.resampling import RESAMPLES
from harness.analysis.table import Row
from harness.datasets.passage_positions import RelevantPosition
from harness.driver.records import Scalar
from harness.estimate import CONFIDENCE, INTERVAL_MIN_QUERIES, Estimate, interval_of_too_few
from harness.evaluation.per_query import PerQuery
from harness.stats import Floats

BIN = 256
# Shares count the passages that start before these bins.
BOUNDS = (1, 2, 4)
# The bins of the first screen end at these tokens.
COARSE = (1, 2)
SEED = 2023
# Tokens per English word: bert-base-uncased on the paragraphs of XQuAD-en.
WORD_TOKENS = 1.3


def published_histograms() -> tuple[str, tuple[PositionHistogram, ...]]:
    """Return the source of published histograms of positions, and the histograms."""
    about = published_measures.long_documents().about
    return f"{about.cited}, {about.histograms_source}", about.histograms


@dataclass(frozen=True)
class FirstPassages:
    """The first relevant passages of a dataset; ``origin`` names their source.

    ``pairs``: the number of query-document pairs that were searched (``None``: every pair has a passage).
    """

    dataset: str
    origin: str
    firsts: tuple[RelevantPosition, ...]
    pairs: int | None = None

    @property
    def starts(self) -> list[int]:
        """The first token of each passage."""
        return [each.start_token for each in self.firsts]

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of each relevant document, once per query."""
        return [each.length for each in self.firsts]

    @property
    def of_query(self) -> dict[str, RelevantPosition]:
        """The earliest passage of each query."""
        return _earliest(self.firsts, lambda each: each.query)


def first_passages(
    dataset: str, origin: str, records: Iterable[RelevantPosition], pairs: int | None = None
) -> FirstPassages:
    """Return the first passage of each pair of a query and a document, in the order of the records."""
    firsts = _earliest(records, lambda each: (each.query, each.doc))
    return FirstPassages(dataset, origin, tuple(firsts.values()), pairs)


def _earliest(
    records: Iterable[RelevantPosition], key: Callable[[RelevantPosition], Key]
) -> dict[Key, RelevantPosition]:
    found = axes.grouped(records, key)
    return {name: min(of_key, key=lambda each: each.start_token) for name, of_key in found.items()}


def histogram(tokens: Iterable[int], width: int = BIN) -> tuple[int, ...]:
    """Count starts or lengths in each bin of ``width`` tokens, up to the last non-empty bin."""
    counts = Counter(each // width for each in tokens)
    return tuple(counts[number] for number in range(max(counts, default=-1) + 1))


def share_before(passages: FirstPassages, tokens: int) -> Estimate:
    """Return the share of first passages that start before a token, with its 95 % interval."""
    if not passages.firsts:
        return Estimate(None, reason="no relevant passage")
    return stats.proportion(sum(start < tokens for start in passages.starts), len(passages.firsts))


@dataclass(frozen=True)
class ReadLimit:
    """The most tokens of a document that a system reads; ``None``: all.

    ``known`` is false if the parameters do not tell; ``exact`` is false for a limit in words.
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
    """A system or a number of tokens, with its limit and the share of passages beyond it; known before a run."""

    name: str
    limit: ReadLimit
    unseen: UnseenPassages | None


def unseen_passages(passages: FirstPassages, limit: ReadLimit) -> UnseenPassages | None:
    """Return the unseen share; ``None``: the passages or the limit are unknown."""
    if not limit.known or not passages.firsts:
        return None
    if limit.tokens is None:
        return UnseenPassages(0.0, 0.0)
    count = len(passages.firsts)
    starts = sum(each.start_token >= limit.tokens for each in passages.firsts)
    ends = sum(each.end_token > limit.tokens for each in passages.firsts)
    return UnseenPassages(starts / count, ends / count)


def read_limit(params: Mapping[str, Scalar]) -> ReadLimit:
    """Return how much of a document a system reads, according to its parameters.

    A fusion reads as much as the component that reads most.  A two-stage system reads as much as the stage that cuts
    documents: a first stage over whole documents does not pass them on to the second.
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
    """A system's measure over the ``queries`` with a position: overall, by bin, and its slope per bin.

    ``coarse`` holds the same for the bounds of ``COARSE``; ``placed`` by depth and length, if both are known.
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

    ``readers`` are known without a run; ``systems`` have ranked the documents.
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
    """Return a system's measure by the position of each query's first passage.

    Args:
        row: the system's.
        values: its values by query.
        params: of the system; ``None``: not known.
        passages: the dataset's first passages.
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


def slope(starts: Floats, scores: Floats) -> Estimate:
    """Return the least-squares slope of a measure over positions, with a bootstrap interval over queries.

    Args:
        starts: position of each query's passage, shape (queries,), in the unit of the slope.
        scores: the measure, shape (queries,).
    """
    if len(starts) < 2 or starts.min() == starts.max():
        return Estimate(None, reason="all passages start at one position")
    value = float(_slopes(np.ones((1, len(starts))), starts, scores)[0])
    if len(starts) < INTERVAL_MIN_QUERIES:
        return Estimate(value, reason=interval_of_too_few(INTERVAL_MIN_QUERIES, len(starts)))
    blocks = stats.weight_blocks(np.zeros(len(starts), dtype=np.int64), RESAMPLES, SEED)
    drawn = np.concatenate([_slopes(weights, starts, scores) for weights in blocks])
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
