"""Paired differences of two systems over queries: verdicts, and the queries that differ most."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from harness import stats
from harness.analysis import significance
from harness.analysis.significance import TestResult
from harness.evaluation.per_query import PerQuery
from harness.stats import Estimate, Floats

LATENCY = "latency"
# A sample "shows" a difference if it finds it in four of five repetitions, at 95 % confidence.
POWER = 0.8
_Z = stats.Z + 0.8416212335729143


class ComparisonVerdict(str, Enum):
    """Verdict on B against A."""

    FASTER = "faster"
    SLOWER = "slower"
    BETTER = "better"
    WORSE = "worse"
    EQUAL = "equal on every query"
    NONE = "no difference that this sample can show"
    UNREPEATED = "no difference that so few processes can show"
    UNCORRECTED = "no difference that holds among all comparisons made"
    UNKNOWN = "cannot be compared"


@dataclass(frozen=True)
class Difference:
    """B less A in one metric over their common queries.

    Latency is in seconds, a measure in its own unit.  ``over_queries`` has the paired 95 % interval, for queries like
    these: of a measure that of the test (from :func:`with_test` on), of latency Hall's.  ``again`` has the same
    difference with a 95 % Welch interval over repeated measurements of these queries; only latency has one.
    ``interval`` is the one that reports show.  ``ratio`` is B / A, of latency with such an interval too.
    ``needed`` is the number of such queries that would show a difference of this size (95 % confidence, power 80 %).
    ``tested`` is the test, ``p_holm`` its p, corrected for all comparisons (both ``None`` before :func:`with_test`).
    ``column`` holds the queries' differences, ``fingerprint`` identifies them.
    """

    metric: str
    a: float | None
    b: float | None
    over_queries: Estimate
    again: Estimate | None
    ratio: Estimate
    queries: int
    needed: int | None
    verdict: ComparisonVerdict
    tested: TestResult | None = None
    p_holm: float | None = None
    fingerprint: str = field(default="", repr=False)
    column: Floats | None = field(default=None, repr=False, compare=False)

    @property
    def interval(self) -> Estimate:
        """Difference for other such queries; of latency, also for fresh processes."""
        return _combined(self.over_queries, self.again)

    @property
    def larger_is_better(self) -> bool:
        """Return whether larger is better, as for every metric but latency."""
        return self.metric != LATENCY

    @property
    def won_lost_tied(self) -> tuple[int, int, int] | None:
        """Numbers of queries that B does better, worse and the same; ``None``: no values by query."""
        if self.tested is None:
            return None
        up, down = self.tested.higher, self.tested.lower
        return (up, down, self.tested.tied) if self.larger_is_better else (down, up, self.tested.tied)


def difference(
    metric: str,
    figures: Sequence[float | None],
    columns: tuple[Floats, Floats] | None,
    again: Estimate | None = None,
) -> Difference:
    """Compute the difference in one metric.

    Args:
        metric: ``LATENCY`` or a measure.
        figures: A's and B's.
        columns: A's and B's values of their common queries, each of shape (queries,); ``None``: there are none.
        again: see :class:`Difference`.
    """
    a, b = figures
    if a is None or b is None or columns is None:
        missing = Estimate(None, reason="published, or not measured by query")
        ratio = b / a if a and b is not None else None
        return Difference(metric, a, b, missing, None, Estimate(ratio), 0, None, ComparisonVerdict.UNKNOWN)
    differences = columns[1] - columns[0]
    latency = metric == LATENCY
    interval = stats.mean(differences, least=_least(metric)) if latency else Estimate(float(differences.mean()))
    return Difference(
        metric=metric,
        a=a,
        b=b,
        over_queries=interval,
        again=again,
        ratio=Estimate(b / a if a else None),
        queries=len(differences),
        needed=_needed(differences, _least(metric)),
        verdict=_verdict(interval, _combined(interval, again), differences) if latency else ComparisonVerdict.NONE,
        fingerprint=significance.fingerprint(differences),
        column=differences,
    )


def with_ratio(
    latency: Difference, columns: tuple[Floats, Floats], again: Callable[[float], Estimate | None]
) -> Difference:
    """Add the interval of B / A: that of B - ratio x A, over A (Cochran 1977, section 2.11).

    Args:
        latency: the difference.
        columns: A's and B's values of their common queries.
        again: gives ``again`` of B and A times a factor (see :func:`difference`).
    """
    ratio = latency.ratio.value
    if not ratio or not latency.a:
        return latency
    over_queries = stats.mean(columns[1] - ratio * columns[0], least=_least(LATENCY))
    apart = _combined(over_queries, again(ratio))
    if apart.value is None or apart.low is None or apart.high is None:
        return replace(latency, ratio=Estimate(ratio, reason=apart.reason))
    low, high = (ratio + (end - apart.value) / latency.a for end in (apart.low, apart.high))
    return replace(latency, ratio=Estimate(ratio, max(0.0, low), high))


def with_test(item: Difference, tested: TestResult, p_holm: float) -> Difference:
    """Add the test; withdraw a verdict that the corrected p does not bear.

    Among many comparisons some seem to differ by chance, because each is tested as if it were the only one.
    """
    interval, verdict = item.over_queries, item.verdict
    if item.metric != LATENCY:
        interval, verdict = tested.interval, _verdict_of_test(tested)
    claims = (ComparisonVerdict.FASTER, ComparisonVerdict.SLOWER, ComparisonVerdict.BETTER, ComparisonVerdict.WORSE)
    if verdict in claims and p_holm > significance.LEVEL:
        verdict = ComparisonVerdict.UNCORRECTED
    return replace(item, over_queries=interval, tested=tested, p_holm=p_holm, verdict=verdict)


def _verdict_of_test(tested: TestResult) -> ComparisonVerdict:
    """Return the verdict of one test of a measure."""
    if not tested.higher and not tested.lower:
        return ComparisonVerdict.EQUAL
    queries, mean = tested.higher + tested.lower + tested.tied, tested.interval.value
    if mean is None or tested.p > significance.LEVEL or queries < stats.INTERVAL_MIN_QUERIES:
        return ComparisonVerdict.NONE
    return ComparisonVerdict.BETTER if mean > 0 else ComparisonVerdict.WORSE


def _least(metric: str) -> int:
    """Return the fewest queries for an interval of a difference."""
    return stats.LATENCY_MIN_QUERIES if metric == LATENCY else stats.INTERVAL_MIN_QUERIES


def _needed(differences: Floats, least: int) -> int | None:
    mean, count = abs(float(differences.mean())), len(differences)
    if count < least or not mean:
        return None
    return max(least, math.ceil((_Z * float(np.std(differences, ddof=1)) / mean) ** 2))


def _combined(over_queries: Estimate, again: Estimate | None) -> Estimate:
    """Combine both intervals into one for other queries and other processes (:func:`stats.measured_again`)."""
    if again is None or over_queries.value is None or again.value is None:
        return over_queries
    if again.low is None or again.high is None:
        return Estimate(over_queries.value, reason=again.reason)
    moved = over_queries.value - again.value
    centred = Estimate(over_queries.value, again.low + moved, again.high + moved)
    return stats.measured_again(over_queries, centred, floor=-math.inf)


def _verdict(over_queries: Estimate, interval: Estimate, differences: Floats) -> ComparisonVerdict:
    """Return the verdict that the interval bears for a latency."""
    if not differences.any():
        return ComparisonVerdict.EQUAL
    side = _side(interval)
    if side:
        return ComparisonVerdict.SLOWER if side > 0 else ComparisonVerdict.FASTER
    return ComparisonVerdict.UNREPEATED if _side(over_queries) else ComparisonVerdict.NONE


def _side(figure: Estimate) -> int:
    """Return the side of 0 that the whole interval lies on; 0: on neither."""
    if figure.low is None or figure.high is None:
        return 0
    return 1 if figure.low > 0 else -1 if figure.high < 0 else 0


@dataclass(frozen=True)
class QueryChange:
    """A query: its text (``""``: unknown), its value in A and in B, and B less A."""

    query_id: str
    text: str
    a: float
    b: float
    difference: float


@dataclass(frozen=True)
class QueryChoice:
    """Options of the list of queries: measure, number in each direction, texts by id."""

    by: str
    count: int
    texts: Mapping[str, str]


def largest_changes(a: PerQuery | None, b: PerQuery | None, choice: QueryChoice) -> tuple[QueryChange, ...]:
    """Return the queries that differ most, largest change first.

    These are at most ``count`` that B does better, and as many that it does worse.
    Ties are in the order of ids; equal values are not a change.  Without values of the measure in both there are none.
    """
    if a is None or b is None or choice.by not in a.measures or choice.by not in b.measures:
        return ()
    theirs = b.on(a.query_ids).measures[choice.by]
    changes = [
        QueryChange(query, choice.texts.get(query, ""), float(ours), float(its), float(its - ours))
        for query, ours, its in zip(a.query_ids, a.measures[choice.by], theirs, strict=True)
    ]
    # A query that one of the two lacks is nan, which is neither above 0 nor below.
    better = sorted((change for change in changes if change.difference > 0), key=lambda change: -change.difference)
    worse = sorted((change for change in changes if change.difference < 0), key=lambda change: change.difference)
    return (*better[: choice.count], *worse[: choice.count])
