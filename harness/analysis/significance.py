"""Randomisation test of paired differences between two systems, and Holm's correction for many of them.

Randomisation (Fisher): if the systems are equal, each query's difference could as well have the other sign.  Smucker,
Allan and Carterette (2007) and Urbano, Lima and Hanjalic (2019) recommend it or the t test for measures of retrieval,
and advise against the sign test, the Wilcoxon test and the bootstrap.  The interval holds the means that this test does
not reject.  Many comparisons are corrected by Holm (1979), p and interval alike, and the best of several candidates by
Bonferroni: each interval has the level at which its test decides.
"""

from __future__ import annotations

import functools
import hashlib
import math
import operator
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.estimate import INTERVAL_MIN_QUERIES, Estimate, interval_of_too_few
from harness.stats import Floats

# The largest corrected p of a claimed difference; intervals have 95 %.
LEVEL = 0.05
# Random sign flips for one test, and for each of many: the least p, 1 / (draws + 1), must survive the correction.
DRAWS, DRAWS_EACH, MOST_DRAWS = 9999, 40, 199_999
# Up to this many differences other than 0, all 2^16 sets of signs are tried.
EXACT_QUERIES = 16
_SEED = 2023
# Values of one block of draws: 16 MiB.
_BLOCK = 2_000_000


@dataclass(frozen=True)
class TestResult:
    """A two-sided test of paired differences over queries.

    ``interval`` is the mean difference with the means that the test does not reject at its level (``LEVEL``, or less
    when many are corrected): it excludes 0 if ``p`` is at most that level.  ``least`` is the least ``p`` possible with
    this number of differences.  ``effect_size`` is Cohen's d_z, the mean difference in standard deviations of the
    differences; ``None``: the differences do not vary.  ``higher``, ``lower`` and ``tied`` count queries by the sign of
    their difference.
    """

    p: float
    interval: Estimate
    least: float
    effect_size: float | None
    higher: int
    lower: int
    tied: int

    def turned(self) -> TestResult:
        """Return the test of the same differences with the other sign."""
        return replace(
            self,
            interval=self.interval.map_decreasing(operator.neg),
            effect_size=None if self.effect_size is None else -self.effect_size,
            higher=self.lower,
            lower=self.higher,
        )


def corrected(
    columns: Sequence[Floats], candidates: int = 1
) -> tuple[tuple[TestResult, ...], tuple[float, ...], tuple[float, ...]]:
    """Test columns of differences together; return the tests, their corrected p, and the level of each.

    Each test's interval has its level, so that it excludes 0 exactly where the corrected p is at most ``LEVEL``.

    Args:
        columns: as for :func:`paired`.
        candidates: the number of candidates from which each column was chosen as the best (Bonferroni).
    """
    tests = paired(columns)
    p_values = [min(1.0, test.p * candidates) for test in tests]
    levels = tuple(level / candidates for level in holm_levels(p_values))
    if levels and min(levels) < LEVEL:
        tests = paired(columns, levels=levels)
    return tests, holm(p_values), levels


def paired(
    columns: Sequence[Floats], seed: int = _SEED, draws: int | None = None, levels: Sequence[float] | None = None
) -> tuple[TestResult, ...]:
    """Test for each column of differences whether its mean differs from 0.

    Args:
        columns: each of shape (queries,), finite, at least one query; they are corrected together.
        seed: seed of the draws.
        draws: random sign flips, if not all are tried; by default as many as the correction for all columns needs.
        levels: the level of each column's interval; by default ``LEVEL``.
    """
    draws = draws or min(max(DRAWS, DRAWS_EACH * len(columns) - 1), MOST_DRAWS)
    levels = levels or [LEVEL] * len(columns)
    results: dict[int, TestResult] = {}
    drawn: dict[int, list[int]] = defaultdict(list)
    for number, column in enumerate(columns):
        if np.count_nonzero(column) <= EXACT_QUERIES:
            results[number] = _test_result(column, *_all_flips(column, seed), levels[number], exact=True)
        else:
            drawn[len(column)].append(number)
    at_once = max(1, _BLOCK // draws)
    for numbers in drawn.values():
        for start in range(0, len(numbers), at_once):
            part = numbers[start : start + at_once]
            sums, sizes = _random_flips(np.stack([columns[number] for number in part], axis=1), seed, draws)
            for index, number in enumerate(part):
                results[number] = _test_result(columns[number], sums[:, index], sizes, levels[number], exact=False)
    return tuple(results[number] for number in range(len(columns)))


def _all_flips(column: Floats, seed: int) -> tuple[Floats, Floats]:
    """Return sums and sizes of all sets of differences with turned signs (0s at random)."""
    moved = column[column != 0]
    sums, sizes = np.zeros(1), np.zeros(1)
    for difference in moved:
        sums, sizes = np.concatenate((sums, sums + difference)), np.concatenate((sizes, sizes + 1))
    still = len(column) - len(moved)
    if still:
        repeats = 2**EXACT_QUERIES // len(sums)
        sums, sizes = np.tile(sums, repeats), np.tile(sizes, repeats)
        sizes = sizes + _turned_zeros(still, len(sizes), seed)
    return sums, sizes


@functools.lru_cache(maxsize=16)  # the same for every pair of systems that tie on as many queries
def _turned_zeros(zeros: int, draws: int, seed: int) -> Floats:
    """Draw how many of the differences of 0 have their sign turned, shape (draws,)."""
    return np.random.default_rng(seed).binomial(zeros, 0.5, draws).astype(np.float64)


def _random_flips(columns: Floats, seed: int, draws: int) -> tuple[Floats, Floats]:
    """Return sums, of shape (draws, columns), and sizes of random sets of differences with turned signs."""
    queries = len(columns)
    rng, width = np.random.default_rng(seed), -(-queries // 8)
    sums, sizes = np.empty((draws, columns.shape[1])), np.empty(draws)
    for block in _blocks(draws, queries):
        drawn = rng.integers(0, 256, (block.stop - block.start, width), dtype=np.uint8)
        turned = np.unpackbits(drawn, axis=1, count=queries).astype(np.float64)
        sums[block], sizes[block] = turned @ columns, turned.sum(axis=1)
    return sums, sizes


def _test_result(column: Floats, sums: Floats, sizes: Floats, level: float, *, exact: bool) -> TestResult:
    """Compute p and the interval from sign flips.

    Flipping the signs of a set moves the mean at least as far from a supposed mean exactly if the supposed mean is
    between the mean of the set and the mean of all other differences.

    Args:
        column: the differences. sums: sums of the sets whose signs were flipped. sizes: number of differences in each
        set. level: level of the interval. exact: all sets are present; for random sets the observed signs count as one
        more draw, so that p is never 0 and never too small (Phipson and Smyth 2010).
    """
    queries, mean = len(column), float(column.mean())
    ends = []
    # Sums of the same numbers in another order differ in their last digits.
    zero = 1e-12 * float(np.abs(column).sum())
    for total, size in ((sums, sizes), (float(column.sum()) - sums, queries - sizes)):
        with np.errstate(invalid="ignore", divide="ignore"):
            ends.append(np.where(np.abs(total) <= zero, 0.0, total) / size)
    one_sided = (sizes == 0) | (sizes == queries)
    low = np.where(one_sided, -np.inf, np.minimum(*ends))
    high = np.where(one_sided, np.inf, np.maximum(*ends))
    more = 0 if exact else 1
    p = (int(np.sum((low <= 0) & (high >= 0))) + more) / (len(sums) + more)
    rejected = math.floor(level * (len(sums) + more) + 1e-9) - more
    moved = int(np.count_nonzero(column))
    spread = float(np.std(column, ddof=1)) if queries > 1 else 0.0
    constant = spread <= 1e-12 * abs(mean)
    if queries < INTERVAL_MIN_QUERIES:
        interval = Estimate(mean, reason=interval_of_too_few(INTERVAL_MIN_QUERIES, queries))
    elif constant and moved:
        interval = Estimate(mean, reason="every query differs by the same: no interval")
    else:
        interval = _between(mean, low, high, rejected)
    return TestResult(
        p=p,
        interval=interval,
        least=min(1.0, 2.0 ** (1 - moved)) if exact else 1 / (len(sums) + 1),
        effect_size=None if constant else mean / spread,
        higher=int(np.sum(column > 0)),
        lower=int(np.sum(column < 0)),
        tied=int(np.sum(column == 0)),
    )


def _between(mean: float, low: Floats, high: Floats, rejected: int) -> Estimate:
    """Return the interval with this number of sign sets beyond each end."""
    if rejected >= 0:
        ends = float(np.partition(low, rejected)[rejected]), -float(np.partition(-high, rejected)[rejected])
        if all(map(math.isfinite, ends)):
            return Estimate(mean, *ends)
    return Estimate(mean, reason="too few queries for an interval that is corrected for this many comparisons")


def fingerprint(differences: Floats) -> str:
    """Hash differences regardless of the order of the two systems: equal differences need one test."""
    moved = np.flatnonzero(differences)
    signed = differences if not len(moved) or differences[moved[0]] > 0 else -differences
    return hashlib.sha256((signed + 0.0).tobytes()).hexdigest()  # so that -0 is 0


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjust p values by Holm's step-down method; keep their order.

    If every adjusted p of at most 0.05 is claimed, the chance of one or more false claims is at most 0.05, however the
    comparisons depend on one another.  The smallest p is multiplied by the number of values, the next by one less ...
    (Holm 1979); results are at most 1 and never below the result of a smaller p.
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, np.arange(len(values), 0, -1) * values[order]))
    return tuple(adjusted.tolist())


def holm_levels(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return the level at which Holm's method tests each p value; keep their order.

    The smallest p is tested at ``LEVEL`` divided by the number of values, the next at ``LEVEL`` divided by one less
    ...; after the first p above its level, all are tested at that level.  So a p is at most its level exactly if
    :func:`holm` returns at most ``LEVEL``.  Levels never exceed ``LEVEL``, so each interval alone holds its mean with
    at least 95 %.
    """
    kept = sum(p > LEVEL for p in holm(p_values))
    levels = np.empty(len(p_values))
    levels[np.argsort(p_values, kind="stable")] = LEVEL / np.maximum(np.arange(len(p_values), 0, -1), max(1, kept))
    return tuple(levels.tolist())


def _blocks(draws: int, queries: int) -> Iterator[slice]:
    size = max(1, _BLOCK // queries)
    return (slice(start, min(start + size, draws)) for start in range(0, draws, size))
