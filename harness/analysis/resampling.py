"""Bootstrap over queries: detectable differences, and how results vary between samples.

All compared rows answered the same queries, so each resample draws the same queries for all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.estimate import CONFIDENCE, INTERVAL_MIN_QUERIES, Z
from harness.evaluation.per_query import PerQuery
from harness.stats import Floats, median, weight_blocks

Signs = NDArray[np.int8]
# Comparison of one row with another on an axis.
BETTER, EQUAL, WORSE, UNDECIDED = 1, 0, -1, 2

RESAMPLES = 1000
# Beyond this number of distinct rankings, intervals decide: the number of pairs grows quadratically.
MOST_PAIRED = 200


@dataclass(frozen=True)
class Resampled:
    """Means over resampled queries, each of shape (resamples, rows): accuracy in points, latency in seconds.

    ``latency_s`` has ``nan`` columns for rows without latencies of single queries.
    """

    accuracy: Floats
    latency_s: Floats


@dataclass(frozen=True)
class PairedSigns:
    """Paired comparisons of rankings.

    ``group`` maps a row's key to its ranking: rows with equal values of every query share one.  ``signs[a, b]``
    compares ranking ``a`` with ``b`` (better, equal, worse or undecided).
    """

    group: Mapping[str, int]
    signs: Signs


def aligned(rows: Sequence[PerQuery | None], measure: str) -> tuple[Floats, Floats] | None:
    """Align accuracy (points) and latency (s) by query, each of shape (queries, rows); missing values are ``nan``.

    ``None``: a row has no values by query, or too few queries have accuracy.
    """
    values = [row for row in rows if row is not None and measure in row.measures]
    if len(values) < len(rows) or not values:
        return None
    ids = tuple(sorted(set().union(*(row.query_ids for row in values))))
    same = [row.on(ids) for row in values]
    none = np.full(len(ids), np.nan)
    accuracy = np.stack([100 * row.measures[measure] for row in same], axis=1)
    if np.isfinite(accuracy).any(axis=1).sum() < INTERVAL_MIN_QUERIES:
        return None
    latency = np.stack([row.latency_s if len(row.latency_s) else none for row in same], axis=1)
    return accuracy, latency


def resample(accuracy: Floats, latency_s: Floats, seed: int, resamples: int = RESAMPLES) -> Resampled:
    """Draw queries with replacement, the same draws for every row; draw judged and unjudged queries apart."""
    _, groups = np.unique(~np.isfinite(accuracy).any(axis=1), return_inverse=True)
    blocks = weight_blocks(groups, resamples, seed)  # as many judged queries as the sample has
    means = [(_means(weights, accuracy), _means(weights, latency_s)) for weights in blocks]
    of_accuracy, of_latency = zip(*means, strict=True)
    return Resampled(np.concatenate(of_accuracy), np.concatenate(of_latency))


def _means(weights: Floats, values: Floats) -> Floats:
    """Return weighted means of each column; a query without a value has no weight there."""
    finite = np.isfinite(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((weights @ np.where(finite, values, 0.0)) / (weights @ finite), dtype=np.float64)


def cutoff(accuracy: Floats) -> float:
    """Return the smallest difference in accuracy (points) that this sample can show.

    It is the median over pairs of different rankings of half the 95 % interval of their paired difference; 0 for fewer
    than two rankings.

    Args:
        accuracy: shape (queries, rows), points.
    """
    distinct, _ = _distinct(accuracy)
    halves = []
    for one in range(distinct.shape[1]):
        differences = distinct[:, one + 1 :] - distinct[:, [one]]
        for column in differences.T:
            finite = column[np.isfinite(column)]
            if len(finite) > 1:
                halves.append(Z * float(np.std(finite, ddof=1)) / len(finite) ** 0.5)
    return median(halves) if halves else 0.0


def paired_signs(keys: Sequence[str], accuracy: Floats, resampled: Resampled) -> PairedSigns | None:
    """Compare rankings by the 95 % interval of their paired difference over resampled queries.

    Args:
        keys: keys of the rows.
        accuracy: shape (queries, rows), points.
        resampled: means of the same rows.

    Returns:
        ``None`` for more than ``MOST_PAIRED`` different rankings.
    """
    distinct, group = _distinct(accuracy)
    count = distinct.shape[1]
    if count > MOST_PAIRED:
        return None
    firsts = [int(np.flatnonzero(group == number)[0]) for number in range(count)]
    means = resampled.accuracy[:, firsts]
    signs = np.full((count, count), EQUAL, dtype=np.int8)
    tail = (1 - CONFIDENCE) / 2
    quantile = np.nanquantile if np.isnan(means).any() else np.quantile  # many times as fast
    for one in range(count):
        low, high = quantile(means - means[:, [one]], (tail, 1 - tail), axis=0)
        signs[:, one] = np.where(low > 0, BETTER, np.where(high < 0, WORSE, UNDECIDED))
        signs[one, one] = EQUAL
    return PairedSigns(dict(zip(keys, group.tolist(), strict=True)), signs)


def _distinct(accuracy: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Return the distinct columns, and for each column its index among these."""
    columns: dict[bytes, int] = {}
    group = [columns.setdefault(np.ascontiguousarray(column).tobytes(), len(columns)) for column in accuracy.T]
    firsts = [group.index(number) for number in range(len(columns))]
    return accuracy[:, firsts], np.asarray(group, dtype=np.int64)
