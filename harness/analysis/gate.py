"""A gate: is B worse than A by more than a limit?  Three answers, and what would decide where these trials cannot.

B is worse where the whole interval of its change is beyond the limit, and not worse where none of it is.  An interval
has 95 %; to call B worse it has more, so that at most one run in 20 fails without a change, however many conditions it
has (Bonferroni).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from operator import attrgetter

import numpy as np

from harness.analysis import axes, comparison, significance
from harness.analysis.paired_differences import LATENCY, POWER_Z, Latencies, combined, quotient, welch
from harness.analysis.significance import DRAWS, DRAWS_EACH, LEVEL, MOST_DRAWS
from harness.analysis.table import Row, Validity, ended
from harness.driver.records import Outcome
from harness.errors import UsageError
from harness.estimate import Estimate, Varies
from harness.evaluation.per_query import PerQuery
from harness.stats import Floats

# Exit code where nothing is worse and something cannot be decided.
CANNOT_TELL = 3
# More trials or queries than this many times those measured are not worth a number.
_MOST_TIMES = 100
_ONE_BUILD = "an index is built once, so nothing shows by how much its builds differ"
_ONE_VALUE = "all processes have the same value, so nothing shows by how much it varies"
# Ends that are a system's own; others are the machine's, or the user's.
_FAILED = frozenset({Outcome.OOM, Outcome.TIMEOUT, Outcome.CRASH, Outcome.BAD_OUTPUT})

# B less A times a factor, at a confidence: over queries (else over processes), and then over processes.
Apart = Callable[[float, float], tuple[Estimate, Estimate | None]]


class Answer(Enum):
    """Answer to a condition."""

    WORSE = "worse"
    CANNOT_TELL = "cannot tell"
    NOT_WORSE = "not worse"


@dataclass(frozen=True)
class ChangeLimit:
    """A change of a figure that is too much.

    Args:
        figure: its name.
        unit: of its values; empty for a fraction.
        change: the limit, of A's value where ``relative``, else in ``unit`` (of latency in seconds).
        relative: whether it is a share of A's value.
        more: a larger change than the limit fails; else a smaller one.
        read: returns the figure of a row.
        varies: what gives it another value.
        by_query: name of its values by query: ``LATENCY`` or a measure; ``None``: it has none.
        with_constant: returns the figure before a constant is taken from it that is not the system's own.  It is what
            is tested, because the constant is the same on both sides, and was measured once.
    """

    figure: str
    unit: str
    change: float
    relative: bool
    more: bool
    read: Callable[[Row], float | None]
    varies: Varies
    by_query: str | None = None
    with_constant: Callable[[Row], float | None] | None = None

    @property
    def by_process(self) -> bool:
        """Return whether its figure is compared by the values of single processes."""
        return self.by_query is None and self.varies.of_process


@dataclass(frozen=True)
class Pair:
    """Two rows of one cell; ``processes`` has the rows of each process alone, ``values`` their values by query.

    ``b`` is missing where its results lack the cell.
    """

    a: Row
    b: Row | None
    processes: tuple[Sequence[Row], Sequence[Row]] = ((), ())
    values: tuple[PerQuery | None, PerQuery | None] = (None, None)


@dataclass(frozen=True)
class Checked:
    """Answer of a condition for one pair.

    ``a`` and ``b`` are the rows' figures, or the mean over processes where those are compared.  ``change`` has a 95 %
    interval; it is relative where the condition is.  ``reason`` says why nothing can be decided, or why B failed.
    ``processes`` and ``queries`` would decide a change of this size, in four of five measurements.
    """

    a_name: str
    b_name: str
    condition: ChangeLimit
    answer: Answer
    a: float | None = None
    b: float | None = None
    change: Estimate = Estimate(None)
    reason: str | None = None
    processes: int | None = None
    queries: int | None = None


@dataclass(frozen=True)
class ChangeEvidence:
    """Values behind a change, and its intervals.

    ``apart`` returns B less A times a factor, and ``ratio`` is B / A (0: unknown); ``queries`` and ``processes`` count
    those behind them (0: none).
    """

    apart: Apart
    ratio: float
    queries: int = 0
    processes: int = 0

    def beyond(self, condition: ChangeLimit, level: float) -> tuple[Estimate, Estimate | None]:
        """Return by how much B is beyond the limit, as ``apart`` does; more is worse."""
        factor, limit = (1 + condition.change, 0.0) if condition.relative else (1.0, condition.change)
        first, second = self.apart(factor, 1 - level)
        return _past(first, limit, condition.more), second and _past(second, limit, condition.more)


def _past(item: Estimate, limit: float, more: bool) -> Estimate:
    return item.map(lambda change: change - limit) if more else item.map_decreasing(lambda change: limit - change)


def same_cells(a_rows: Iterable[Row], b_rows: Sequence[Row]) -> list[tuple[Row, Row | None]]:
    """Pair each row of A with B's row of the same system, dataset, scenario, profile and isolation.

    Of several, the one with the same queries, suite and origin.

    Raises:
        UsageError: no row has such a partner, or one has several.
    """
    pairs = [(row, _partner(row, b_rows)) for row in a_rows]
    if not any(other for _, other in pairs):
        raise UsageError(
            "the baseline and the results have no system, dataset, scenario and profile in common; measure the same"
            " suite for both"
        )
    return pairs


def _partner(row: Row, others: Iterable[Row]) -> Row | None:
    def cell(each: Row) -> tuple[str, ...]:
        return each.system, each.dataset, each.scenario, each.profile, each.isolation.name

    found = [other for other in others if cell(other) == cell(row)]
    for alike in (axes.comparison_group, attrgetter("suite"), attrgetter("origin")):
        found = [other for other in found if alike(other) == alike(row)] or found
    if len(found) > 1:
        raise UsageError(f"{comparison.called(row)} has {len(found)} rows in the results; name the folder of one suite")
    return found[0] if found else None


def check(pairs: Sequence[Pair], conditions: Sequence[ChangeLimit]) -> tuple[Checked, ...]:
    """Answer each condition for each pair, pair by pair."""
    family = len(pairs) * len(conditions)
    return tuple(_check(pair, condition, family) for pair in pairs for condition in conditions)


def exit_code(checked: Iterable[Checked]) -> int:
    """Return 1 if something is worse, else ``CANNOT_TELL`` if something cannot be decided, else 0."""
    answers = {item.answer for item in checked}
    return 1 if Answer.WORSE in answers else CANNOT_TELL if Answer.CANNOT_TELL in answers else 0


def _check(pair: Pair, condition: ChangeLimit, family: int) -> Checked:
    a, b = pair.a, pair.b
    found = Checked(comparison.called(a), comparison.called(b or a), condition, Answer.CANNOT_TELL)
    if b is None:
        return replace(found, reason="B has no such row")
    if (ended_so := _ended(a, b)) is not None:
        answer, reason = ended_so
        return replace(found, answer=answer, reason=reason)
    of_a, of_b = _figures(pair, b, condition)
    found = replace(found, a=of_a, b=of_b)
    evidence = _evidence(pair, b, condition, found)
    if isinstance(evidence, str):
        return replace(found, reason=evidence)
    found = decide(found, evidence, family)
    doubt = _doubt(a, b, condition) if found.answer is not Answer.CANNOT_TELL else None
    if doubt is None:
        return found
    return replace(found, answer=Answer.CANNOT_TELL, reason=doubt)


def _ended(a: Row, b: Row) -> tuple[Answer, str] | None:
    """Return the answer for rows of which one failed; ``None``: both are ok."""
    if a.outcome is b.outcome is Outcome.OK:
        return None
    if a.outcome is b.outcome and a.outcome in _FAILED:
        return Answer.NOT_WORSE, f"both ended {ended(b.outcome, b.detail)}"
    if a.outcome is Outcome.OK and b.outcome in _FAILED:
        return Answer.WORSE, f"B ended {ended(b.outcome, b.detail)}"
    name, row = ("A", a) if a.outcome is not Outcome.OK else ("B", b)
    return Answer.CANNOT_TELL, f"{name} ended {ended(row.outcome, row.detail)}"


def _figures(pair: Pair, b: Row, condition: ChangeLimit) -> tuple[float | None, float | None]:
    """Return A's and B's value of the figure; what is not the system's own is taken from both as from A."""
    if not condition.by_process:
        return condition.read(pair.a), condition.read(b)
    of_a, of_b = (_by_process(rows, condition.with_constant or condition.read) for rows in pair.processes)
    if not len(of_a) or not len(of_b):
        return None if not len(of_a) else float(of_a.mean()), None
    own = condition.read(pair.a) if condition.with_constant else float(of_a.mean())
    return own, None if own is None else own + float(of_b.mean() - of_a.mean())


def decide(found: Checked, evidence: ChangeEvidence, family: int) -> Checked:
    """Return the answer of a condition, with the change.

    Args:
        found: the condition, and A's and B's value of the figure.
        evidence: of the change.
        family: the number of conditions that are answered together.
    """
    condition = found.condition
    found = replace(found, change=_change(evidence, condition))
    beyond, surely = (combined(*evidence.beyond(condition, level)) for level in (LEVEL, LEVEL / family))
    if beyond.low is None or beyond.high is None or surely.low is None:
        return replace(found, reason=beyond.reason or surely.reason)
    if surely.low > 0:
        return replace(found, answer=Answer.WORSE)
    if beyond.high <= 0:
        return replace(found, answer=Answer.NOT_WORSE)
    # What seems beyond the limit is called worse at the corrected level alone.
    processes, queries = _needed(evidence, condition, LEVEL / family if (beyond.value or 0) > 0 else LEVEL)
    reason = None
    if beyond.low > 0:
        reason = f"beyond the limit if tested alone, not among {family} conditions"
    elif processes is None and queries is None:
        reason = f"too close to the limit: it would take more than {_MOST_TIMES} times as many trials"
    return replace(found, reason=reason, processes=processes, queries=queries)


def _doubt(a: Row, b: Row, condition: ChangeLimit) -> str | None:
    """Return why a figure of these two rows cannot be compared, or not be trusted."""
    if condition.varies.of_machine:
        ours, theirs = (row.machine.processor if row.machine else "" for row in (a, b))
        if not ours or not theirs:
            return f"nothing is known of the machine of {'B' if ours else 'A'}"
        if ours != theirs:
            return f"A was measured on {ours}, B on {theirs}"
    if not condition.varies.of_process:
        return None
    doubted = {Validity.INVALID, *((Validity.NOISY,) if condition.varies is Varies.CLOCK else ())}
    for name, row in (("A", a), ("B", b)):
        for finding in row.findings:
            if finding.validity in doubted:
                return f"{name} is {finding.validity.value}: {finding.text}"
    return None


def _evidence(pair: Pair, b: Row, condition: ChangeLimit, found: Checked) -> ChangeEvidence | str:
    """Return what a condition's figure is tested by; a text: why it cannot be."""
    if condition.varies is Varies.BUILD:
        return _ONE_BUILD
    if (why := _incomparable(pair.a, b, condition, found)) is not None:
        return why
    if condition.by_query is not None:
        return _by_query(pair.a, b, pair.values, condition.by_query)
    assert found.a is not None and found.b is not None
    if condition.varies is Varies.NOTHING:
        return exactly(found.a, found.b)
    ours, theirs = (_by_process(rows, condition.with_constant or condition.read) for rows in pair.processes)
    if not len(ours) or not len(theirs):
        return f"{'B' if len(ours) else 'A'} has no {condition.figure} by process"
    if condition.varies is not Varies.PROCESS and any(len(of) > 1 and not np.ptp(of) for of in (ours, theirs)):
        return _ONE_VALUE
    return over_processes(ours, theirs, own=found.a if condition.with_constant else None)


def _incomparable(a: Row, b: Row, condition: ChangeLimit, found: Checked) -> str | None:
    """Return why two rows or their figures cannot be compared at all."""
    if found.a is None or found.b is None:
        return f"{'A' if found.a is None else 'B'} has no {condition.figure}"
    if axes.comparison_group(a) != axes.comparison_group(b):
        return "A and B differ in queries, documents, k or latency target"
    if condition.varies is Varies.QUERY and a.qrels_sha256 != b.qrels_sha256:
        return "A and B have other judgements; --qrels judges both by one file"
    if condition.relative and found.a == 0 != found.b:
        return f"A is 0, so a share of it means nothing; give the limit in {condition.unit or 'its unit'}"
    return None


def exactly(a: float, b: float) -> ChangeEvidence:
    """Return the evidence of a figure that is the same each time."""

    def apart(factor: float, _: float) -> tuple[Estimate, None]:
        return Estimate(b - factor * a, b - factor * a, b - factor * a), None

    return ChangeEvidence(apart, _quotient(a, b))


def over_processes(a: Floats, b: Floats, own: float | None = None) -> ChangeEvidence:
    """Return the evidence of the figures of single processes.

    Args:
        a: shape (processes,), at least one.
        b: likewise.
        own: A's figure without a constant that both sides have; a factor applies to it alone.
    """
    mean, count = float(a.mean()), min(len(a), len(b))
    if own is None:
        return ChangeEvidence(
            lambda factor, confidence: (welch(a, b, factor, confidence), None),
            _quotient(mean, float(b.mean())),
            processes=count,
        )

    def apart(factor: float, confidence: float) -> tuple[Estimate, None]:
        return welch(a, b, 1.0, confidence).map(lambda value: value - (factor - 1) * own), None

    return ChangeEvidence(apart, 1 + _quotient(own, float(b.mean()) - mean), processes=count)


def _quotient(a: float, b: float) -> float:
    return b / a if a else 0.0


def _by_process(rows: Sequence[Row], read: Callable[[Row], float | None]) -> Floats:
    """Return the figure of each process; none if one lacks it."""
    values = [read(row) for row in rows]
    known = [value for value in values if value is not None]
    return np.asarray(known if len(known) == len(values) else [], dtype=np.float64)


def _by_query(a: Row, b: Row, values: tuple[PerQuery | None, PerQuery | None], metric: str) -> ChangeEvidence | str:
    """Return the paired differences over queries, and for latency also over processes."""
    is_latency = metric == LATENCY
    columns = comparison.aligned(*values, lambda own: own.latency_s if is_latency else own.measures.get(metric))
    if columns is None:
        return f"{metric} has no values by query"
    if is_latency:
        return of_latencies(Latencies(*columns, functools.partial(comparison.again, a, b)), min(a.jobs, b.jobs))
    return of_measure(*columns)


def of_measure(a: Floats, b: Floats) -> ChangeEvidence:
    """Return the evidence of a measure, by the test of :mod:`harness.analysis.significance`.

    Args:
        a: values of the queries, shape (queries,).
        b: of the same queries.
    """

    def apart(factor: float, confidence: float) -> tuple[Estimate, None]:
        level = 1 - confidence
        draws = min(max(DRAWS, math.ceil(DRAWS_EACH * LEVEL / level)), MOST_DRAWS)
        (tested,) = significance.paired([b - factor * a], draws=draws, levels=[level])
        return tested.interval, None

    return ChangeEvidence(apart, _quotient(float(a.mean()), float(b.mean())), len(a))


def of_latencies(latencies: Latencies, processes: int) -> ChangeEvidence:
    """Return the evidence of latencies of the same queries, in some processes each."""
    ratio = _quotient(float(latencies.a.mean()), float(latencies.b.mean()))
    return ChangeEvidence(
        lambda factor, confidence: latencies.apart(1 - confidence, factor), ratio, len(latencies.a), processes
    )


def _change(evidence: ChangeEvidence, condition: ChangeLimit) -> Estimate:
    """Return the change of B against A, relative where the condition is."""

    def gap(factor: float) -> Estimate:
        return combined(*evidence.apart(factor, 1 - LEVEL))

    if not condition.relative:
        return gap(1.0)
    if not evidence.ratio:  # both are 0
        return Estimate(0.0, 0.0, 0.0)
    return quotient(evidence.ratio, evidence.ratio, gap).map(lambda ratio: ratio - 1)


def _needed(evidence: ChangeEvidence, condition: ChangeLimit, level: float) -> tuple[int | None, int | None]:
    """Return the processes, and the queries, that would decide a change of this size; ``None``: no more of them.

    Reaches shrink with the root of the number.  A process is easier to add than a query, so processes are tried first.
    """
    parts = evidence.beyond(condition, level)
    value = parts[0].value
    assert value is not None
    reaches = [_reach(part, value) for part in parts]
    if not evidence.queries:
        reaches = [0.0, reaches[0]]
    errors = [
        reach / _student(count, level)
        for reach, count in zip(reaches, (evidence.queries, evidence.processes), strict=True)
    ]
    over_queries, over_processes = ((_student(math.inf, level) + POWER_Z) * error for error in errors)

    def enough(reach: float, other: float, count: int) -> int | None:
        """Return the number at which both reaches together are within the distance to the limit."""
        left = value**2 - other**2
        times = reach**2 / left if left > 0 else math.inf
        return max(math.ceil(count * times), count + 1) if count and times <= _MOST_TIMES else None

    if (processes := enough(over_processes, over_queries, evidence.processes)) is not None:
        return processes, None
    if (queries := enough(over_queries, over_processes, evidence.queries)) is not None:
        return None, queries
    both = math.hypot(over_queries, over_processes)
    return enough(both, 0.0, evidence.processes), enough(both, 0.0, evidence.queries)


def _reach(part: Estimate | None, value: float) -> float:
    """Return how far the interval of a part reaches towards 0."""
    if part is None or part.value is None or part.low is None or part.high is None:
        return 0.0
    return part.value - part.low if value > 0 else part.high - part.value


def _student(count: float, level: float) -> float:
    """Return how many standard errors an interval reaches that two sides of this many values have."""
    from scipy.special import ndtri, stdtrit

    if not 1 < count < math.inf:
        return float(ndtri(1 - level / 2))
    return float(stdtrit(2 * (count - 1), 1 - level / 2))
