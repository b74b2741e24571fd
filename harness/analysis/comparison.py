"""Two rows, query by query: what differs between them, and whether this sample can show it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harness import stats
from harness.analysis import axes, notes, paired_differences, significance
from harness.analysis.paired_differences import LATENCY, Difference, QueryChange, difference, with_test
from harness.analysis.significance import TestResult
from harness.analysis.table import Row, Validity, per_query_key
from harness.errors import UsageError
from harness.evaluation.evaluate import Evaluation
from harness.evaluation.per_query import PerQuery
from harness.evaluation.unjudged import SetApart
from harness.records import Outcome
from harness.results.schema import Cell, matches
from harness.stats import Estimate

Floats = NDArray[np.float64]
# Which queries, which systems, in which metric, and by what they differ.
Test = tuple[Hashable, frozenset[str], str, str]


@dataclass(frozen=True)
class ComparisonSide:
    """One of the two: what it is called, and its row; ``None`` where it is a run file, of which no cost is known.

    ``set_apart``: the queries of a run file that are not as all others.
    """

    name: str
    row: Row | None = None
    set_apart: SetApart | None = None


@dataclass(frozen=True)
class Comparison:
    """Two rows or runs, what differs, and what is to be said of comparing them.

    ``changed``: the queries that differ most by the measure ``by`` (``None``: there is no measure).
    """

    a: ComparisonSide
    b: ComparisonSide
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    by: str | None = None
    changed: tuple[QueryChange, ...] = ()

    def of(self, metric: str | None) -> Difference | None:
        """The difference in a metric, where it was compared."""
        return next((each for each in self.differences if each.metric == metric), None)


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
    matched = _once(
        (one, other)
        for one in ours
        for other in theirs
        if one != other and axes.of(one) == axes.of(other) and one.profile == other.profile
    )
    # Of merged results, those that were measured on one machine before all others.
    matched = [(one, other) for one, other in matched if one.origin == other.origin] or matched
    if not matched and len(ours) == len(theirs) == 1:
        matched = [(ours[0], theirs[0])] if ours != theirs and axes.of(ours[0]) == axes.of(theirs[0]) else []
    if not matched and ours == theirs:
        what = "one and the same row" if len(ours) == 1 else f"the same {len(ours)} rows"
        raise UsageError(
            f"{a!r} and {b!r} are {what}: there is nothing to compare; name another system for one of them"
        )
    if not matched:
        raise UsageError(
            f"{a!r} ({len(ours)} rows) and {b!r} ({len(theirs)} rows) share no dataset, query sample and "
            "profile; name one row each as system/dataset/scenario/profile"
        )
    return matched


def _once(found: Iterable[tuple[Row, Row]]) -> list[tuple[Row, Row]]:
    """Each two rows once: where both globs match both, both orders are there."""
    kept: dict[frozenset[int], tuple[Row, Row]] = {}
    for one, other in found:
        kept.setdefault(frozenset((id(one), id(other))), (one, other))
    return list(kept.values())


def compare(
    a: Row,
    b: Row,
    found_a: PerQuery | None,
    found_b: PerQuery | None,
    measures: Sequence[str],
    asked: paired_differences.QueryChoice | None = None,
) -> Comparison:
    """Compare two rows of one place.

    Args:
        a: what is compared with.
        b: what is compared.
        found_a: what ``a`` is made of by query.
        found_b: what ``b`` is made of.
        measures: which measures, as the rows name them.
        asked: which queries to name.
    """
    found = [_latency(a, b, found_a, found_b)]
    for measure in measures:
        figures = [row.measures.get(measure, Estimate(None)).value for row in (a, b)]
        found.append(_measure(measure, figures, found_a, found_b))
    said = tuple(_notes(a, b))
    if a.outcome is b.outcome is Outcome.OK:  # else nothing of the other has a value, and that is said
        reasons = [{name: of.reason for name, of in row.measures.items() if of.value is None} for row in (a, b)]
        said += tuple(_missing(measures, *reasons))
    return _named(ComparisonSide(called(a), a), ComparisonSide(called(b), b), found, said, found_a, found_b, asked)


def compare_runs(
    names: tuple[str, str],
    evaluations: tuple[Evaluation, Evaluation],
    found: tuple[PerQuery, PerQuery],
    measures: Sequence[str],
    asked: paired_differences.QueryChoice | None = None,
) -> Comparison:
    """Compare two runs that others made: their measures alone; arguments as of :func:`compare`, for A and B."""
    differences = [_measure(each, [one.values[each] for one in evaluations], *found) for each in measures]
    said = tuple(_missing(measures, *(one.reasons for one in evaluations)))
    return _named(ComparisonSide(names[0]), ComparisonSide(names[1]), differences, said, *found, asked)


def _missing(measures: Sequence[str], a: Mapping[str, str | None], b: Mapping[str, str | None]) -> Iterator[str]:
    """Why a measure has no value; once where both have the same reason."""
    for measure in measures:
        one, other = a.get(measure), b.get(measure)
        if one and one == other:
            yield f"{measure}: {one}"
            continue
        yield from (f"{measure} of {name}: {why}" for name, why in (("A", one), ("B", other)) if why)


def _named(
    a: ComparisonSide,
    b: ComparisonSide,
    differences: Sequence[Difference],
    notes: tuple[str, ...],
    found_a: PerQuery | None,
    found_b: PerQuery | None,
    asked: paired_differences.QueryChoice | None,
) -> Comparison:
    by = next((each.metric for each in differences if each.metric != LATENCY), None) if asked is None else asked.by
    if asked is None or found_a is None or found_b is None:
        return Comparison(a, b, tuple(differences), notes, by)
    named = paired_differences.largest_changes(found_a, found_b, asked)
    return Comparison(a, b, tuple(differences), notes, by, named)


def corrected(found: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Test all differences, corrected for how many there are: all metrics together are one family (Holm 1979)."""
    columns = family(found)
    tests = dict(zip(columns, significance.paired(tuple(columns.values())), strict=True))
    adjusted = dict(zip(tests, significance.holm([each.p for each in tests.values()]), strict=True))
    made = []
    for one in found:
        held = [
            each
            if each.column is None
            else with_test(each, _turned(tests[test], columns[test], each.column), adjusted[test])
            for each, test in ((each, _test(one, each)) for each in one.differences)
        ]
        made.append(replace(one, differences=tuple(held)))
    return tuple(made)


def _turned(tested: TestResult, column: Floats, ours: Floats) -> TestResult:
    """The test of differences that may have been taken the other way round."""
    if np.array_equal(column, ours):
        return tested
    of = tested.interval
    assert of.value is not None
    low, high = (None if end is None else -end for end in (of.high, of.low))
    size = tested.effect_size
    return replace(
        tested,
        interval=Estimate(-of.value, low, high, of.reason),
        effect_size=None if size is None else -size,
        higher=tested.lower,
        lower=tested.higher,
    )


def family(found: Sequence[Comparison]) -> dict[Test, Floats]:
    """The tests that comparisons are corrected for, and the differences that are tested.

    Two systems that rank alike on several hardware profiles differ there by the very same values: that is one test,
    however often it is shown.
    """
    return {_test(one, each): each.column for one in found for each in one.differences if each.column is not None}


def _test(one: Comparison, each: Difference) -> Test:
    sides = (one.a, one.b)
    systems = frozenset(side.name if side.row is None else side.row.system for side in sides)
    places = {axes.of(side.row) for side in sides if side.row is not None}
    return frozenset((each.dataset, each.sample_sha256) for each in places), systems, each.metric, each.fingerprint


def called(row: Row) -> str:
    """What people call a row."""
    named = f"{row.system}/{row.dataset}/{row.scenario}/{row.profile}"
    return named if row.origin is None else f"{named}/of {row.origin}"


def _measure(measure: str, figures: Sequence[float | None], a: PerQuery | None, b: PerQuery | None) -> Difference:
    columns = _aligned(a, b, functools.partial(_values, measure))
    return difference(measure, figures, columns)


def _values(measure: str, found: PerQuery) -> Floats | None:
    return found.measures.get(measure)


def _matches(row: Row, glob: str) -> bool:
    return matches(Cell(row.suite, row.system, row.dataset, row.scenario, row.profile), glob)


def _latency(a: Row, b: Row, found_a: PerQuery | None, found_b: PerQuery | None) -> Difference:
    figures = [row.latency_mean_s.value for row in (a, b)]
    columns = _aligned(found_a, found_b, lambda each: each.latency_s)
    return difference(LATENCY, figures, columns, _again(a, b))


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


def _again(a: Row, b: Row) -> Estimate | None:
    """The difference of the means, as far as it repeats; ``None`` where either was measured once."""
    ours, theirs = _repeated(a), _repeated(b)
    if len(ours) < 2 or len(theirs) < 2:
        return None
    difference = float(theirs.mean() - ours.mean())
    if not ours.std() and not theirs.std():
        return Estimate(difference, difference, difference)
    from scipy.stats import ttest_ind

    interval = ttest_ind(theirs, ours, equal_var=False).confidence_interval(stats.CONFIDENCE)
    return Estimate(difference, float(interval.low), float(interval.high))


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
    ours, theirs = _own(a), _own(b)
    said += [f"A and B: {note}" for note in ours if note in theirs]
    said += [f"A: {note}" for note in ours if note not in theirs]
    said += [f"B: {note}" for note in theirs if note not in ours]
    return [*said, *notes.of_judgements((a, b)), *notes.of_unjudged((a, b))]


def _own(row: Row) -> list[str]:
    """What is to be said of a row beside what its findings say."""
    texts = {finding.text for finding in row.findings}
    return [note for note in row.notes if note not in texts]


def of(found: Mapping[str, PerQuery], row: Row) -> PerQuery | None:
    """What is known of a row by query."""
    return found.get(per_query_key(row))
