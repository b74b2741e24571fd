"""Two rows, query by query: what differs between them, and whether this sample can show it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from harness import notes, per_query, place, plan, stats
from harness.errors import UsageError
from harness.per_query import PerQuery
from harness.records import Outcome
from harness.result import Cell
from harness.table import Figure, Row, Validity

Floats = NDArray[np.float64]

# A sample "would show" a difference if it finds it in four of five repetitions, at 95 % confidence.
POWER = 0.8
_Z = 1.959963984540054 + 0.8416212335729143
_SEED = 2023


class Verdict(str, Enum):
    """What can be said of B against A."""

    FASTER = "faster"
    SLOWER = "slower"
    BETTER = "better"
    WORSE = "worse"
    EQUAL = "equal on every query"
    NONE = "no difference that this sample can show"
    UNREPEATED = "no difference that so few repetitions can show"
    UNKNOWN = "cannot be compared"


@dataclass(frozen=True)
class Difference:
    """B less A in one metric (latency in seconds, a measure in its own unit), over the queries that both have.

    ``over_queries`` has the paired 95 % bootstrap interval: for queries like these.  ``again`` has the same difference
    with a 95 % Welch interval over repeated measurements of these queries; only latency has one.  ``ratio`` is B / A.
    ``needed``: how many such queries would show a difference of this size (95 % confidence, power 80 %).
    """

    metric: str
    a: float | None
    b: float | None
    over_queries: Figure
    again: Figure | None
    ratio: float | None
    queries: int
    needed: int | None
    verdict: Verdict


@dataclass(frozen=True)
class Comparison:
    """Two rows, what differs, and what is to be said of comparing them."""

    a: Row
    b: Row
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


def pairs(a_rows: Sequence[Row], b_rows: Sequence[Row], a: str, b: str) -> list[tuple[Row, Row]]:
    """Rows to compare: those of both that share place and profile; else the only one of each, if they share the place.

    Args:
        a_rows: where ``a`` is looked for.
        b_rows: where ``b`` is looked for, perhaps the same.
        a: a glob over ``system/dataset/scenario/profile``, or without a slash over any one of them.
        b: likewise.

    Raises:
        UsageError: a glob matches no row, or no two may be compared.
    """
    ours, theirs = ([row for row in rows if _matches(row, glob)] for rows, glob in ((a_rows, a), (b_rows, b)))
    for glob, found, rows in ((a, ours, a_rows), (b, theirs, b_rows)):
        if not found:
            known = ", ".join(sorted({row.system for row in rows}))
            raise UsageError(
                f"{glob!r} matches no stored row; systems there: {known}; name system/dataset/scenario/profile"
            )
    matched = [
        (one, other)
        for one in ours
        for other in theirs
        if one is not other and place.of(one) == place.of(other) and one.profile == other.profile
    ]
    # Of merged results, those that were measured on one machine before all others.
    matched = [(one, other) for one, other in matched if one.origin == other.origin] or matched
    if not matched and len(ours) == len(theirs) == 1 and place.of(ours[0]) == place.of(theirs[0]):
        matched = [(ours[0], theirs[0])]
    if not matched or ours == theirs:
        raise UsageError(
            f"{a!r} ({len(ours)} rows) and {b!r} ({len(theirs)} rows) share no dataset, query sample and "
            "profile; name one row each as system/dataset/scenario/profile"
        )
    return matched


def compare(a: Row, b: Row, found_a: PerQuery | None, found_b: PerQuery | None, measures: Sequence[str]) -> Comparison:
    """Compare two rows of one place.

    Args:
        a: what is compared with.
        b: what is compared.
        found_a: what ``a`` is made of by query.
        found_b: what ``b`` is made of.
        measures: which measures, as the rows name them.
    """
    found = [_latency(a, b, found_a, found_b)]
    for measure in measures:
        figures = [row.measures.get(measure, Figure(None)).value for row in (a, b)]
        columns = _aligned(found_a, found_b, functools.partial(_values, measure))
        found.append(_difference(measure, figures, columns, None, larger_is_better=True))
    return Comparison(a, b, tuple(found), tuple(_notes(a, b)))


def _values(measure: str, found: PerQuery) -> Floats | None:
    return found.measures.get(measure)


def _matches(row: Row, glob: str) -> bool:
    return plan.matches(Cell(row.suite, row.system, row.dataset, row.scenario, row.profile), glob)


def _latency(a: Row, b: Row, found_a: PerQuery | None, found_b: PerQuery | None) -> Difference:
    figures = [row.latency_mean_s.value for row in (a, b)]
    columns = _aligned(found_a, found_b, lambda each: each.latency_s)
    return _difference("latency", figures, columns, _again(a, b), larger_is_better=False)


def _aligned(
    a: PerQuery | None, b: PerQuery | None, read: Callable[[PerQuery], Floats | None]
) -> tuple[Floats, Floats] | None:
    """A column of both, on the queries that both have; ``None``: there are none."""
    if a is None or b is None:
        return None
    here, there = read(a), read(b.on(a.query_ids))
    if here is None or there is None or not len(here) or not len(there):
        return None
    known = np.isfinite(here) & np.isfinite(there)
    return (here[known], there[known]) if known.any() else None


def _difference(
    metric: str,
    figures: Sequence[float | None],
    columns: tuple[Floats, Floats] | None,
    again: Figure | None,
    *,
    larger_is_better: bool,
) -> Difference:
    a, b = figures
    if a is None or b is None or columns is None:
        missing = Figure(None, reason="published, or not measured by query")
        ratio = b / a if a and b is not None else None
        return Difference(metric, a, b, missing, None, ratio, 0, None, Verdict.UNKNOWN)
    differences = columns[1] - columns[0]
    interval = stats.bootstrap_mean(differences, _SEED)
    return Difference(
        metric=metric,
        a=a,
        b=b,
        over_queries=interval,
        again=again,
        ratio=b / a if a else None,
        queries=len(differences),
        needed=_needed(differences),
        verdict=_verdict(interval, again, differences, larger_is_better=larger_is_better),
    )


def _needed(differences: Floats) -> int | None:
    mean, count = abs(float(differences.mean())), len(differences)
    if count < stats.INTERVAL_MIN_QUERIES or not mean:
        return None
    return max(stats.INTERVAL_MIN_QUERIES, math.ceil((_Z * float(np.std(differences, ddof=1)) / mean) ** 2))


def _verdict(interval: Figure, again: Figure | None, differences: Floats, *, larger_is_better: bool) -> Verdict:
    if not differences.any():
        return Verdict.EQUAL
    sides = {_side(each) for each in (interval, again) if each is not None}
    if sides == {1}:
        return Verdict.BETTER if larger_is_better else Verdict.SLOWER
    if sides == {-1}:
        return Verdict.WORSE if larger_is_better else Verdict.FASTER
    return Verdict.UNREPEATED if _side(interval) else Verdict.NONE


def _side(figure: Figure) -> int:
    """On which side of 0 the whole interval lies; 0: on neither."""
    if figure.low is None or figure.high is None:
        return 0
    return 1 if figure.low > 0 else -1 if figure.high < 0 else 0


def _again(a: Row, b: Row) -> Figure | None:
    """The difference of the means, as far as it repeats; ``None`` where either was measured once."""
    ours, theirs = _repeated(a), _repeated(b)
    if len(ours) < 2 or len(theirs) < 2:
        return None
    difference = float(theirs.mean() - ours.mean())
    if not ours.std() and not theirs.std():
        return Figure(difference, difference, difference)
    from scipy.stats import ttest_ind

    interval = ttest_ind(theirs, ours, equal_var=False).confidence_interval(stats.CONFIDENCE)
    return Figure(difference, float(interval.low), float(interval.high))


def _repeated(row: Row) -> Floats:
    """What repeats independently: each job's mean where there are several, else each trial's.

    Trials are in the order of their jobs.  Where one was cut short it is not told whose it was: nothing then.
    """
    means = np.asarray(row.trial_means_s, dtype=np.float64)
    if row.jobs == 1:
        return means
    whole = len(means) > 0 and row.trials in (None, len(means)) and len(means) % row.jobs == 0
    return means.reshape(row.jobs, -1).mean(axis=1) if whole else means[:0]


def _notes(a: Row, b: Row) -> Sequence[str]:
    said = []
    for name, row in (("A", a), ("B", b)):
        if row.outcome is not Outcome.OK:
            said.append(f"{name} ended {row.outcome.value}: {row.detail or 'no detail was stored'}")
        said += [
            f"{name} is {finding.validity.value}: {finding.text}"
            for finding in row.findings
            if finding.validity is not Validity.CLEAN
        ]
    one, other = a.machine, b.machine
    if one is not None and other is not None and one != other:
        pairs_of = [(name, getattr(one, name), getattr(other, name)) for name in vars(one)]
        differ = ", ".join(f"{name} {mine} against {its}" for name, mine, its in pairs_of if mine != its)
        said.append(f"measured on different machines or versions ({differ}): a difference in latency is theirs as well")
    if a.profile != b.profile:
        said.append(f"on different hardware profiles: {a.profile} against {b.profile}")
    return [*said, *notes.of_judgements((a, b)), *notes.of_unjudged((a, b))]


def of(found: Mapping[str, PerQuery], row: Row) -> PerQuery | None:
    """What is known of a row by query."""
    return found.get(per_query.name(row))
