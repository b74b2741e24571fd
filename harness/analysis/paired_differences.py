"""Paired differences of two systems over queries: verdicts, and the queries that differ most."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from harness import stats
from harness.analysis import significance
from harness.analysis.significance import TestResult
from harness.analysis.verdict import ComparisonVerdict
from harness.estimate import (
    INTERVAL_MIN_QUERIES,
    LATENCY_MIN_QUERIES,
    MIN_PROCESSES,
    Estimate,
    Z,
    too_few_processes,
)
from harness.evaluation.per_query import PerQuery
from harness.stats import Floats

LATENCY = "latency"
# A sample "shows" a difference that it would detect in four of five repetitions, at 95 % confidence.
POWER = 0.8
# So many standard errors more than the level asks for.
POWER_Z = 0.8416212335729143
_Z = Z + POWER_Z
# With fewer differences, even all equal signs give a p above the level.
_LEAST_DIFFERENT = 1 + math.ceil(-math.log2(significance.LEVEL))


@dataclass(frozen=True)
class Latencies:
    """Latencies of A and B, each of shape (queries,), in seconds.

    ``again`` returns the difference over processes for A times a factor, at a confidence; ``None``: unknown.
    """

    a: Floats
    b: Floats
    again: Callable[[float, float], Estimate | None]

    def apart(self, level: float, factor: float = 1.0) -> tuple[Estimate, Estimate | None]:
        """Return B less A times a factor, over queries and over processes, with intervals at a level."""
        over_queries = stats.mean(self.b - factor * self.a, confidence=1 - level, least=_least(LATENCY))
        return over_queries, self.again(factor, 1 - level)

    def ratio(self, value: float | None, level: float) -> Estimate:
        """Return B / A with the factors for which B less A times the factor may be 0 (Fieller 1954).

        It excludes 1 exactly where the interval of the difference excludes 0.  ``value`` is B / A of the rows' means.
        If a trial was cut short, the ratio of the queries' means differs a little, and the ends move with it.
        """
        centre = float(self.b.mean()) / float(self.a.mean()) if self.a.any() else 0.0
        return quotient(value, centre, lambda factor: self.gap(factor, level))

    def gap(self, factor: float, level: float) -> Estimate:
        """Return B less A times a factor, in seconds, for other queries in fresh processes."""
        return combined(*self.apart(level, factor))


def quotient(value: float | None, centre: float, gap: Callable[[float], Estimate]) -> Estimate:
    """Return B / A with the factors for which B less A times the factor may be 0 (Fieller 1954).

    Args:
        value: B / A, to return.
        centre: B / A of the numbers behind ``gap``; 0: unknown.
        gap: returns B less A times a factor, with its interval.
    """
    found = gap(centre)
    if value is None or not centre or found.low is None or found.high is None:
        return Estimate(value, reason=found.reason)
    beyond = next((centre * 2**n for n in range(1, 11) if (gap(centre * 2**n).high or 0) < 0), None)
    if beyond is None:
        return Estimate(value, reason="A may be close to 0, so the ratio has no upper end")
    from scipy.optimize import brentq

    def end(held: Callable[[Estimate], float], outer: float) -> float:
        """Return the factor between the centre and ``outer`` at which the interval stops holding 0."""
        if held(found) <= 0:  # all values are equal
            return centre
        if held(gap(outer)) >= 0:
            return outer
        return float(brentq(lambda factor: held(gap(factor)), centre, outer, rtol=1e-9))

    moved = value / centre
    return Estimate(
        value, moved * end(lambda ends: -(ends.low or 0.0), 0.0), moved * end(lambda ends: ends.high or 0.0, beyond)
    )


def welch(a: Floats, b: Floats, factor: float, confidence: float) -> Estimate:
    """Return the mean of B less A's times a factor, with Welch's (1947) interval over processes.

    Args:
        a: shape (processes,), at least one.
        b: likewise.
        factor: of A.
        confidence: of the interval.
    """
    ours, theirs, fewest = factor * a, b, min(len(a), len(b))
    difference = float(theirs.mean() - ours.mean())
    if fewest < MIN_PROCESSES:
        return Estimate(difference, reason=too_few_processes(fewest))
    if max(np.ptp(ours), np.ptp(theirs)) <= 1e-12 * theirs.mean():  # equal but for rounding
        return Estimate(difference, difference, difference)
    from scipy.special import stdtrit

    errors = [float(np.var(values, ddof=1)) / len(values) for values in (ours, theirs)]
    freedom = sum(errors) ** 2 / sum(
        error**2 / (len(values) - 1) for error, values in zip(errors, (ours, theirs), strict=True)
    )
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * sum(errors) ** 0.5
    return Estimate(difference, difference - reach, difference + reach)


def combined(over_queries: Estimate, again: Estimate | None) -> Estimate:
    """Combine both intervals into one for other queries and other processes (:func:`stats.measured_again`)."""
    if again is None or over_queries.value is None or again.value is None:
        return over_queries
    if again.low is None or again.high is None:
        return Estimate(over_queries.value, reason=again.reason)
    moved = over_queries.value - again.value
    centred = Estimate(over_queries.value, again.low + moved, again.high + moved)
    return stats.measured_again(over_queries, centred, floor=-math.inf)


@dataclass(frozen=True)
class Difference:
    """B less A in one metric over their common queries.

    Latency is in seconds, a measure in its own unit.  ``over_queries`` has the paired interval for queries like these:
    Hall's for latency, the test's for a measure (after :func:`with_test`).  ``again`` has the same difference with a
    Welch interval over repeated measurements of these queries; only latency has it.  ``interval`` is the one that
    reports show and that decides: 95 %, and after :func:`with_test` the level that the correction for many comparisons
    leaves.  ``ratio`` is B / A, of latency with an interval of the same test.  ``needed`` is the number of queries that
    would show a difference of this size (95 % confidence, power 80 %).  ``tested`` is the test, ``p_holm`` its p,
    corrected for all comparisons (both ``None`` before :func:`with_test`).  ``column`` holds the queries' differences,
    ``fingerprint`` identifies them; ``latencies`` are the input of a latency's intervals, which have
    ``1 - level``.
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
    level: float = field(default=significance.LEVEL, repr=False)
    column: Floats | None = field(default=None, repr=False, compare=False)
    latencies: Latencies | None = field(default=None, repr=False, compare=False)

    @property
    def interval(self) -> Estimate:
        """Difference for other such queries, and for latency also in fresh processes.  This interval decides."""
        return combined(self.over_queries, self.again)

    @property
    def verdict_text(self) -> str:
        """The verdict in words; if the sample is too small, with the number of queries that would suffice."""
        if self.verdict is ComparisonVerdict.NONE:
            needed = f", where {self.needed:,} would" if self.needed else ""
            return f"no difference that these {self.queries:,} queries can show{needed}"
        if self.verdict is not ComparisonVerdict.TOO_FEW:
            return str(self.verdict.value)
        if self.queries < _least(self.metric):
            return f"{self.verdict.value}, {self.queries:,} where an interval needs {_least(self.metric)}"
        assert self.tested is not None
        differ = self.tested.higher + self.tested.lower
        return f"{self.verdict.value}, {differ} of {self.queries:,} differ where a test needs {_LEAST_DIFFERENT}"

    @property
    def won_lost_tied(self) -> tuple[int, int, int] | None:
        """Numbers of queries on which B is better, worse and equal; ``None``: values by query are missing."""
        if self.tested is None:
            return None
        up, down = self.tested.higher, self.tested.lower
        return (down, up, self.tested.tied) if self.metric == LATENCY else (up, down, self.tested.tied)


def difference(
    metric: str,
    figures: Sequence[float | None],
    columns: tuple[Floats, Floats] | None,
    again: Callable[[float, float], Estimate | None] = lambda _factor, _confidence: None,
) -> Difference:
    """Compute the difference in one metric.

    Args:
        metric: ``LATENCY`` or a measure.
        figures: A's and B's.
        columns: A's and B's values of their common queries, each of shape (queries,); ``None``: there are none.
        again: of latency, see :class:`Latencies`.
    """
    a, b = figures
    ratio = b / a if a and b is not None else None
    if a is None or b is None or columns is None:
        missing = Estimate(None, reason="published, or not measured by query")
        return Difference(metric, a, b, missing, None, Estimate(ratio), 0, None, ComparisonVerdict.UNKNOWN)
    differences = columns[1] - columns[0]
    found = Difference(
        metric=metric,
        a=a,
        b=b,
        over_queries=Estimate(float(differences.mean())),
        again=None,
        ratio=Estimate(ratio),
        queries=len(differences),
        needed=_needed(differences, _least(metric)),
        verdict=ComparisonVerdict.NONE,
        fingerprint=significance.fingerprint(differences),
        column=differences,
        latencies=Latencies(*columns, again) if metric == LATENCY else None,
    )
    return _at_level(found, significance.LEVEL)


def _at_level(item: Difference, level: float) -> Difference:
    """Return a latency difference with intervals at a level and their verdict; a measure's is unchanged."""
    if item.latencies is None:
        return item
    over_queries, again = item.latencies.apart(level)
    ratio = item.latencies.ratio(item.ratio.value, level)
    verdict = _verdict(over_queries, combined(over_queries, again), item.latencies)
    return replace(item, over_queries=over_queries, again=again, ratio=ratio, verdict=verdict, level=level)


_CLAIMS = frozenset(
    {ComparisonVerdict.FASTER, ComparisonVerdict.SLOWER, ComparisonVerdict.BETTER, ComparisonVerdict.WORSE}
)


def with_test(item: Difference, tested: TestResult, p_holm: float, level: float = significance.LEVEL) -> Difference:
    """Add the test and the intervals at its level; withdraw a verdict that they do not support.

    Among many comparisons some seem to differ by chance, because each is tested as if it were the only one.

    Args:
        item: the difference.
        tested: its test, with the interval of that level.
        p_holm: the test's p, corrected.
        level: at which the correction tests it.
    """
    found = replace(item, tested=tested, p_holm=p_holm)
    if item.metric != LATENCY:
        found = replace(found, over_queries=tested.interval, verdict=_verdict_of_test(tested))
        held = p_holm <= significance.LEVEL
    else:
        alone, found = found.verdict, found if level == significance.LEVEL else _at_level(found, level)
        held = found.verdict in _CLAIMS
        found = replace(found, verdict=alone if alone in _CLAIMS else found.verdict)
    return replace(found, verdict=ComparisonVerdict.UNCORRECTED) if found.verdict in _CLAIMS and not held else found


def _verdict_of_test(tested: TestResult) -> ComparisonVerdict:
    """Return the verdict of one test of a measure."""
    if not tested.higher and not tested.lower:
        return ComparisonVerdict.EQUAL
    queries, mean = tested.higher + tested.lower + tested.tied, tested.interval.value
    if queries < INTERVAL_MIN_QUERIES or tested.least > significance.LEVEL:
        return ComparisonVerdict.TOO_FEW
    if mean is None or tested.p > significance.LEVEL:
        return ComparisonVerdict.NONE
    return ComparisonVerdict.BETTER if mean > 0 else ComparisonVerdict.WORSE


def _least(metric: str) -> int:
    """Return the fewest queries for an interval of a difference."""
    return LATENCY_MIN_QUERIES if metric == LATENCY else INTERVAL_MIN_QUERIES


def _needed(differences: Floats, least: int) -> int | None:
    mean, count = abs(float(differences.mean())), len(differences)
    if count < least or not mean:
        return None
    return max(least, math.ceil((_Z * float(np.std(differences, ddof=1)) / mean) ** 2))


def _verdict(over_queries: Estimate, interval: Estimate, latencies: Latencies) -> ComparisonVerdict:
    """Return the verdict that a latency's interval supports."""
    if np.array_equal(latencies.a, latencies.b):
        return ComparisonVerdict.EQUAL
    if len(latencies.a) < _least(LATENCY):
        return ComparisonVerdict.TOO_FEW
    side = _side(interval)
    if side:
        return ComparisonVerdict.SLOWER if side > 0 else ComparisonVerdict.FASTER
    return ComparisonVerdict.UNREPEATED if _side(over_queries) else ComparisonVerdict.NONE


def _side(figure: Estimate) -> int:
    """Return the sign of the whole interval; 0: it contains 0."""
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
    """Return the queries that differ most, the largest change first.

    At most ``count`` queries on which B is better, and as many on which it is worse.  Ties are in the order of ids;
    equal values are not a change.  Without values of the measure in both rows, the result is empty.
    """
    if a is None or b is None or choice.by not in a.measures or choice.by not in b.measures:
        return ()
    theirs = b.on(a.query_ids).measures[choice.by]
    changes = [
        QueryChange(query, choice.texts.get(query, ""), float(ours), float(its), float(its - ours))
        for query, ours, its in zip(a.query_ids, a.measures[choice.by], theirs, strict=True)
    ]
    # A query that one row lacks is nan, which is neither above nor below 0.
    better = sorted((change for change in changes if change.difference > 0), key=lambda change: -change.difference)
    worse = sorted((change for change in changes if change.difference < 0), key=lambda change: change.difference)
    return (*better[: choice.count], *worse[: choice.count])
