"""What differs between two columns of values of the same queries, and what may be claimed of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from harness import stats
from harness.analysis import significance
from harness.analysis.significance import TestResult
from harness.evaluation.per_query import PerQuery
from harness.stats import Estimate

# MERGED harness.analysis.paired_differences: The queries on which two systems differ most.


@dataclass(frozen=True)
class QueryChange:
    """A query: its text (``""`` where nothing says it), its value in A and in B, and B less A."""

    query_id: str
    text: str
    a: float
    b: float
    difference: float


@dataclass(frozen=True)
class QueryChoice:
    """Which to name: by which measure, how many each way, and the texts of queries, by id."""

    by: str
    count: int
    texts: Mapping[str, str]


def largest_changes(a: PerQuery, b: PerQuery, asked: QueryChoice) -> tuple[QueryChange, ...]:
    """At most ``asked.count`` queries that B does better and as many that it does worse, each the furthest apart first.

    Those equally far apart stand in the order of their ids; those that are equal are none.  Where either has no values
    of the measure, there are none.
    """
    measure, count = asked.by, asked.count
    if measure not in a.measures or measure not in b.measures:
        return ()
    theirs = b.on(a.query_ids).measures[measure]
    every = [
        QueryChange(query, asked.texts.get(query, ""), float(ours), float(its), float(its - ours))
        for query, ours, its in zip(a.query_ids, a.measures[measure], theirs, strict=True)
    ]
    # A query that either has not is nan, which is neither above 0 nor below.
    better = sorted((each for each in every if each.difference > 0), key=lambda each: -each.difference)
    worse = sorted((each for each in every if each.difference < 0), key=lambda each: each.difference)
    return (*better[:count], *worse[:count])


Floats = NDArray[np.float64]

LATENCY = "latency"
# A sample "would show" a difference if it finds it in four of five repetitions, at 95 % confidence.
POWER = 0.8
_Z = 1.959963984540054 + 0.8416212335729143


class ComparisonVerdict(str, Enum):
    """What can be said of B against A."""

    FASTER = "faster"
    SLOWER = "slower"
    BETTER = "better"
    WORSE = "worse"
    EQUAL = "equal on every query"
    NONE = "no difference that this sample can show"
    UNREPEATED = "no difference that so few repetitions can show"
    UNCORRECTED = "no difference that holds among all comparisons made"
    UNKNOWN = "cannot be compared"


@dataclass(frozen=True)
class Difference:
    """B less A in one metric (latency in seconds, a measure in its own unit), over the queries that both have.

    ``over_queries`` has the paired 95 % interval, for queries like these: of a measure it is that of the test, once it
    was :func:`held_against` the others; of latency, Hall's.  ``again`` has the same difference
    with a 95 % Welch interval over repeated measurements of these queries; only latency has one.  ``interval`` is the
    one that a person sees.  ``ratio`` is B / A.
    ``needed``: how many such queries would show a difference of this size (95 % confidence, power 80 %).  ``tested``
    says whether it is more than chance; ``p_holm`` is the p of that test, corrected for all that were compared together
    (both ``None`` until then).  ``column`` holds the queries' differences, ``fingerprint`` names them.
    """

    metric: str
    a: float | None
    b: float | None
    over_queries: Estimate
    again: Estimate | None
    ratio: float | None
    queries: int
    needed: int | None
    verdict: ComparisonVerdict
    tested: TestResult | None = None
    p_holm: float | None = None
    fingerprint: str = field(default="", repr=False)
    column: Floats | None = field(default=None, repr=False, compare=False)

    @property
    def interval(self) -> Estimate:
        """Return the difference for other such queries; a latency's also for fresh processes."""
        return _combined(self.over_queries, self.again)

    @property
    def larger_is_better(self) -> bool:
        """Latency is the only metric of which less is better."""
        return self.metric != LATENCY

    @property
    def won_lost_tied(self) -> tuple[int, int, int] | None:
        """On how many queries B does better, worse and the same; ``None``: not known by query."""
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
    """What differs in one metric.

    Args:
        metric: ``LATENCY`` or a measure.
        figures: A's and B's.
        columns: A's and B's values of the queries that both have, each of shape (queries,); ``None``: there are none.
        again: see :class:`Difference`.
    """
    a, b = figures
    if a is None or b is None or columns is None:
        missing = Estimate(None, reason="published, or not measured by query")
        ratio = b / a if a and b is not None else None
        return Difference(metric, a, b, missing, None, ratio, 0, None, ComparisonVerdict.UNKNOWN)
    differences = columns[1] - columns[0]
    latency = metric == LATENCY
    interval = stats.mean(differences, least=_least(metric)) if latency else Estimate(float(differences.mean()))
    return Difference(
        metric=metric,
        a=a,
        b=b,
        over_queries=interval,
        again=again,
        ratio=b / a if a else None,
        queries=len(differences),
        needed=_needed(differences, _least(metric)),
        verdict=_verdict(interval, _combined(interval, again), differences) if latency else ComparisonVerdict.NONE,
        fingerprint=significance.fingerprint(differences),
        column=differences,
    )


def with_test(each: Difference, tested: TestResult, p_holm: float) -> Difference:
    """The same with its test; what the corrected p does not bear is not claimed.

    Among many comparisons some seem to differ by chance, as each is tested as if it were the only one.
    """
    interval, verdict = each.over_queries, each.verdict
    if each.metric != LATENCY:
        interval, verdict = tested.interval, _worth(tested)
    claims = (ComparisonVerdict.FASTER, ComparisonVerdict.SLOWER, ComparisonVerdict.BETTER, ComparisonVerdict.WORSE)
    if verdict in claims and p_holm > significance.LEVEL:
        verdict = ComparisonVerdict.UNCORRECTED
    return replace(each, over_queries=interval, tested=tested, p_holm=p_holm, verdict=verdict)


def _worth(tested: TestResult) -> ComparisonVerdict:
    """What one test says of a measure."""
    if not tested.higher and not tested.lower:
        return ComparisonVerdict.EQUAL
    queries, mean = tested.higher + tested.lower + tested.tied, tested.interval.value
    if mean is None or tested.p > significance.LEVEL or queries < stats.INTERVAL_MIN_QUERIES:
        return ComparisonVerdict.NONE
    return ComparisonVerdict.BETTER if mean > 0 else ComparisonVerdict.WORSE


def _least(metric: str) -> int:
    """The fewest queries for an interval of a difference."""
    return stats.LATENCY_MIN_QUERIES if metric == LATENCY else stats.INTERVAL_MIN_QUERIES


def _needed(differences: Floats, least: int) -> int | None:
    mean, count = abs(float(differences.mean())), len(differences)
    if count < least or not mean:
        return None
    return max(least, math.ceil((_Z * float(np.std(differences, ddof=1)) / mean) ** 2))


def _combined(over_queries: Estimate, again: Estimate | None) -> Estimate:
    """Return a difference with one interval for other queries and other processes (:func:`stats.measured_again`)."""
    if again is None or over_queries.value is None or again.value is None or again.low is None or again.high is None:
        return over_queries
    moved = over_queries.value - again.value
    centred = Estimate(over_queries.value, again.low + moved, again.high + moved)
    return stats.measured_again(over_queries, centred, several=True, floor=-math.inf)


def _verdict(over_queries: Estimate, interval: Estimate, differences: Floats) -> ComparisonVerdict:
    """Return what the interval says of a latency."""
    if not differences.any():
        return ComparisonVerdict.EQUAL
    side = _side(interval)
    if side:
        return ComparisonVerdict.SLOWER if side > 0 else ComparisonVerdict.FASTER
    return ComparisonVerdict.UNREPEATED if _side(over_queries) else ComparisonVerdict.NONE


def _side(figure: Estimate) -> int:
    """On which side of 0 the whole interval lies; 0: on neither."""
    if figure.low is None or figure.high is None:
        return 0
    return 1 if figure.low > 0 else -1 if figure.high < 0 else 0
