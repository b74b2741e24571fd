"""Compare two rows query by query: the differences, and whether this sample can show them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.analysis import answer_changes, axes, notes, paired_differences, significance
from harness.analysis.answer_changes import AnswerChange
from harness.analysis.paired_differences import LATENCY, Difference, QueryChange, QueryChoice, difference, with_test
from harness.analysis.table import Row, Validity, ended
from harness.driver.records import Outcome
from harness.errors import FileError, HarnessError, UsageError
from harness.estimate import Estimate
from harness.evaluation.per_query import PerQuery
from harness.progress import bar
from harness.results import reader
from harness.results.origins import JobOrigins
from harness.results.reader import StoredJob
from harness.results.schema import base_system, matches
from harness.stats import Floats

if TYPE_CHECKING:
    from harness.evaluation.judged_runs import JudgedRuns

# Key of a test: the queries, the systems, the metric, the fingerprint of the differences.
Test = tuple[Hashable, frozenset[str], str, str]


@dataclass(frozen=True)
class ComparisonSide:
    """One side of a comparison: its name, and its row unless it is a run file.

    ``flagged``: the flagged queries of a run file.
    """

    name: str
    row: Row | None = None
    flagged: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True)
class Comparison:
    """Two rows or runs, their differences, and notes on comparing them.

    ``changed``: the queries that differ most by the measure ``by`` (``None``: without a measure).  ``answers``: what
    changed in the answers of stored rows.
    """

    a: ComparisonSide
    b: ComparisonSide
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    by: str | None = None
    changed: tuple[QueryChange, ...] = ()
    answers: AnswerChange | None = None

    @property
    def of_one_system(self) -> bool:
        """Return whether both sides are versions or measurements of one system."""
        a, b = self.a.row, self.b.row
        return a is not None and b is not None and base_system(a.system) == base_system(b.system)

    def of(self, metric: str | None) -> Difference | None:
        """Return the difference in a metric; ``None``: the metric was not compared."""
        return next((item for item in self.differences if item.metric == metric), None)


def pairs(a_rows: Sequence[Row], b_rows: Sequence[Row], a: str, b: str) -> list[tuple[Row, Row]]:
    """Pair the rows that two globs match.

    Rows pair if they share group and profile; without such a pair, the only row of each glob if they share the group.

    Args:
        a_rows: the rows that ``a`` may match.
        b_rows: the rows that ``b`` may match, perhaps the same.
        a: a glob over ``system/dataset/scenario/profile``, or without a slash over any one of them.
        b: likewise.

    Raises:
        UsageError: a glob matches no row, or the matched rows cannot be compared.
    """
    ours, theirs = (
        [row for row in rows if matches(axes.cell_of(row), glob)] for rows, glob in ((a_rows, a), (b_rows, b))
    )
    for glob, matching, rows in ((a, ours, a_rows), (b, theirs, b_rows)):
        if not matching:
            systems = ", ".join(sorted({row.system for row in rows}))
            raise UsageError(
                f"{glob!r} matches no stored row; systems there: {systems}; name system/dataset/scenario/profile"
            )
    comparable = [
        (one, other)
        for one in ours
        for other in theirs
        if one != other and axes.comparison_group(one) == axes.comparison_group(other)
    ]
    # If both globs match both rows, both orders occur: keep the first.
    alike: dict[frozenset[int], tuple[Row, Row]] = {}
    for one, other in comparable:
        if one.profile == other.profile:
            alike.setdefault(frozenset((id(one), id(other))), (one, other))
    matched = list(alike.values())
    # Of merged results, prefer pairs of one origin.
    matched = [(one, other) for one, other in matched if one.origin == other.origin] or matched
    if not matched and len(ours) == len(theirs) == 1:
        matched = comparable
    if not matched and ours == theirs:
        what = "one row" if len(ours) == 1 else f"{len(ours)} rows, but no two of them can be compared"
        which = f"{a!r} matches" if a == b else f"{a!r} and {b!r} both match"
        raise UsageError(f"{which} {what}; name a second system")
    if not matched:
        raise UsageError(
            f"{a!r} ({len(ours)} rows) and {b!r} ({len(theirs)} rows) have no dataset, query sample and "
            "profile in common; name one row each as system/dataset/scenario/profile"
        )
    return matched


def compare(
    a: Row,
    b: Row,
    values_a: PerQuery | None,
    values_b: PerQuery | None,
    measures: Sequence[str],
    choice: QueryChoice | None = None,
) -> Comparison:
    """Compare two rows of one group.

    Args:
        a: the reference.
        b: the row to compare with it.
        values_a: values of ``a`` by query.
        values_b: values of ``b`` by query.
        measures: names of the measures, as in the rows.
        choice: the queries to list.
    """
    means = [row.latency.mean_s.value for row in (a, b)]
    latencies = aligned(values_a, values_b, lambda values: values.latency_s)
    differences = [difference(LATENCY, means, latencies, functools.partial(again, a, b))]
    differences += [_measure(name, (a.measured(name), b.measured(name)), values_a, values_b) for name in measures]
    texts = [*_notes(a, b)]
    if a.outcome is b.outcome is Outcome.OK:  # a failed row has no value at all, and a note says so
        reasons = [{name: of.reason for name, of in row.measures.items() if of.value is None} for row in (a, b)]
        texts += _missing(measures, *reasons)
    sides = ComparisonSide(called(a), a), ComparisonSide(called(b), b)
    return _comparison(sides, differences, texts, (values_a, values_b), choice)


def compare_pairs(
    pairs: Sequence[tuple[Row, Row]],
    values: tuple[Mapping[str, PerQuery], Mapping[str, PerQuery]],
    measures: Sequence[str],
    results: tuple[Path, Path],
    count: int,
) -> list[Comparison]:
    """Compare pairs of rows, with a bar.

    Args:
        pairs: from :func:`pairs`.
        values: by query, of the rows of A and of B.
        measures: names of the measures, as in the rows; queries are listed by the first.
        results: the folders of A and of B, with their runs; A's has the texts of the queries.
        count: queries to list with the largest gain, and as many with the largest loss.
    """
    measure = next(iter(measures), None)
    texts: dict[str | None, Mapping[str, str]] = {}
    comparisons = []
    folders = {folder: _job_folders(folder) for folder in {*results}}
    with bar("compare", "pairs") as step:
        for number, (row, other) in enumerate(pairs):
            step(number, len(pairs))
            job, other_job = (_job(folders[of], each) for of, each in zip(results, (row, other), strict=True))
            if count and row.sample_sha256 not in texts:
                texts[row.sample_sha256] = _texts(job)
            choice = QueryChoice(measure, count, texts.get(row.sample_sha256, {})) if measure else None
            ours, theirs = values[0].get(row.per_query_key), values[1].get(other.per_query_key)
            compared = compare(row, other, ours, theirs, measures, choice)
            comparisons.append(replace(compared, answers=_answers(job, other_job, min(row.k, other.k))))
    return comparisons


def _job_folders(results: Path) -> dict[tuple[str | None, str], Path]:
    """Return the folders of stored jobs, by origin and key."""
    job_origins = JobOrigins([])
    paths = [path.parent for path in reader.result_paths(results, [])]
    return {(job_origins.of_job(path), path.name): path for path in paths}


def _job(folders: Mapping[tuple[str | None, str], Path], row: Row) -> StoredJob | None:
    """Return the job whose run is a row's; ``None``: it is missing or cannot be read."""
    path = folders.get((row.origin, row.key))
    try:
        return None if path is None else StoredJob(path, reader.read_result(path / reader.RESULT))
    except HarnessError:
        return None


def _answers(a: StoredJob | None, b: StoredJob | None, depth: int) -> AnswerChange | None:
    """Return what changed in the answers of two jobs; ``None``: one failed, or its run cannot be read."""
    if a is None or b is None or not a.result.outcome is b.result.outcome is Outcome.OK:
        return None
    try:
        hits_a, hits_b = (reader.read_job_run(job).rankings for job in (a, b))
        return answer_changes.between(hits_a, hits_b, a.sample_ids(), depth)
    except HarnessError:
        return None


def _texts(job: StoredJob | None) -> Mapping[str, str]:
    """Return the texts of a job's queries; none if they are missing, as no comparison depends on them."""
    try:
        return job.sample_texts() if job else {}
    except FileError:
        return {}


def paired(
    pairs: Sequence[tuple[Row, Row]], per_query: Mapping[str, PerQuery], measure: str, candidates: int = 1
) -> list[Difference]:
    """Test the second row of each pair against the first by one measure; all pairs form one family of tests.

    Args:
        pairs: rows of one group each.
        per_query: values by query, by :attr:`Row.per_query_key`.
        measure: its name.
        candidates: as for :func:`corrected`.
    """
    compared = []
    for a, b in pairs:
        values = per_query.get(a.per_query_key), per_query.get(b.per_query_key)
        found = _measure(measure, (a.measured(measure), b.measured(measure)), *values)
        compared.append(Comparison(ComparisonSide(called(a), a), ComparisonSide(called(b), b), (found,), ()))
    return [comparison.differences[0] for comparison in corrected(compared, candidates)]


def compare_run_pairs(
    pairs: Sequence[tuple[str, str]], runs: JudgedRuns, measures: Sequence[Any], count: int
) -> tuple[list[Comparison], Sequence[str]]:
    """Compare pairs of runs by their names, with a bar; return notes on all of them too.

    Args:
        pairs: names in ``runs``.
        runs: of one sample of queries.
        measures: as ir_measures parses them; queries are listed by the first.
        count: queries to list with the largest gain, and as many with the largest loss.
    """
    from harness.evaluation.evaluate_runs import evaluate_runs  # late: stored rows are judged already

    with bar("compare", "judging") as step:
        evaluated = evaluate_runs(runs, measures, step)
    choice = QueryChoice(evaluated.measures[0], count, runs.queries)
    comparisons = []
    for pair in pairs:
        judged = [evaluated.evaluations[name] for name in pair]
        values = evaluated.by_query[pair[0]], evaluated.by_query[pair[1]]
        differences = [_measure(name, [run.values[name] for run in judged], *values) for name in evaluated.measures]
        texts = _missing(evaluated.measures, *(run.reasons for run in judged))
        a, b = (ComparisonSide(f"{name}/{runs.dataset}", flagged=evaluated.flagged[name]) for name in pair)
        comparisons.append(_comparison((a, b), differences, texts, values, choice))
    return comparisons, evaluated.notes


def _missing(measures: Sequence[str], a: Mapping[str, str | None], b: Mapping[str, str | None]) -> Iterator[str]:
    """Explain why a measure has no value; once if both rows have the same reason."""
    for measure in measures:
        one, other = a.get(measure), b.get(measure)
        if one and one == other:
            yield f"{measure}: {one}"
            continue
        yield from (f"{measure} of {name}: {reason}" for name, reason in (("A", one), ("B", other)) if reason)


def _comparison(
    sides: tuple[ComparisonSide, ComparisonSide],
    differences: Sequence[Difference],
    notes: Iterable[str],
    values: tuple[PerQuery | None, PerQuery | None],
    choice: QueryChoice | None,
) -> Comparison:
    by = choice.by if choice else next((item.metric for item in differences if item.metric != LATENCY), None)
    changed = paired_differences.largest_changes(*values, choice) if choice else ()
    return Comparison(*sides, tuple(differences), tuple(notes), by, changed)


def corrected(comparisons: Sequence[Comparison], candidates: int = 1) -> tuple[Comparison, ...]:
    """Test all differences and correct for their number: all metrics are one family (Holm 1979).

    Args:
        comparisons: all that are made together.
        candidates: the number of systems from which one side was chosen as the best (Bonferroni).
    """
    columns = family(comparisons)
    results = dict(
        zip(columns, zip(*significance.corrected(tuple(columns.values()), candidates), strict=True), strict=True)
    )

    def tested(comparison: Comparison, item: Difference) -> Difference:
        if item.column is None:
            return item
        key = _test(comparison, item)
        test, p_holm, level = results[key]
        return with_test(item, test if np.array_equal(columns[key], item.column) else test.turned(), p_holm, level)

    return tuple(
        replace(comparison, differences=tuple(tested(comparison, item) for item in comparison.differences))
        for comparison in comparisons
    )


def family(comparisons: Sequence[Comparison]) -> dict[Test, Floats]:
    """Return the tests to correct for, with the differences that share each test.

    Two systems with equal rankings on several hardware profiles have equal differences there: one test.
    """
    return {
        _test(comparison, item): item.column
        for comparison in comparisons
        for item in comparison.differences
        if item.column is not None
    }


def _test(comparison: Comparison, item: Difference) -> Test:
    sides = (comparison.a, comparison.b)
    systems = frozenset(side.name if side.row is None else side.row.system for side in sides)
    groups = {axes.comparison_group(side.row) for side in sides if side.row is not None}
    queries = frozenset((group.dataset, group.sample_sha256) for group in groups)
    return queries, systems, item.metric, item.fingerprint


def called(row: Row) -> str:
    """Name a row for people."""
    name = row.isolation.marked(f"{row.system}/{row.dataset}/{row.scenario}/{row.profile}")
    return name if row.origin is None else f"{name}/of {row.origin}"


def _measure(measure: str, figures: Sequence[float | None], a: PerQuery | None, b: PerQuery | None) -> Difference:
    return difference(measure, figures, aligned(a, b, lambda values: values.measures.get(measure)))


def aligned(
    a: PerQuery | None, b: PerQuery | None, read: Callable[[PerQuery], Floats | None]
) -> tuple[Floats, Floats] | None:
    """Align a column of both rows on their common queries; ``None``: they have none in common."""
    if a is None or b is None:
        return None
    ours, theirs = read(a), read(b.on(a.query_ids))
    if ours is None or theirs is None or not len(ours) or not len(theirs):
        return None
    finite = np.isfinite(ours) & np.isfinite(theirs)
    return (ours[finite], theirs[finite]) if finite.any() else None


def again(a: Row, b: Row, scale: float, confidence: float) -> Estimate | None:
    """Return the difference over processes, with A's times ``scale``; ``None``: one has no whole process."""
    ours, theirs = _by_job(a), _by_job(b)
    return paired_differences.welch(ours, theirs, scale, confidence) if len(ours) and len(theirs) else None


def _by_job(row: Row) -> Floats:
    """Return the mean of each job.

    Trials are in the order of their jobs.  If one was cut short, its job is unknown and the result is empty.
    """
    means = np.asarray(row.latency.trial_means_s, dtype=np.float64)
    whole = len(means) > 0 and row.trials in (None, len(means)) and len(means) % row.jobs == 0
    return means.reshape(row.jobs, -1).mean(axis=1) if whole else means[:0]


def _notes(a: Row, b: Row) -> Sequence[str]:
    texts = []
    for name, row in (("A", a), ("B", b)):
        if row.outcome is not Outcome.OK:
            texts.append(f"{name} ended {ended(row.outcome, row.detail)}")
        texts += [
            f"{name} is {finding.validity.value}: {finding.text}"
            for finding in row.findings
            if finding.validity is not Validity.CLEAN
        ]
    one, other = a.machine, b.machine
    if one is not None and other is not None and one != other:
        pairs_of = [(name, getattr(one, name), getattr(other, name)) for name in vars(one)]
        differ = ", ".join(f"{name} {mine} against {its}" for name, mine, its in pairs_of if mine != its)
        texts.append(
            f"measured on different machines or versions ({differ}): a difference in latency is theirs as well"
        )
    if a.profile != b.profile:
        texts.append(f"on different hardware profiles: {a.profile} against {b.profile}")
    ours, theirs = a.own_notes, b.own_notes
    texts += [f"A and B: {note}" for note in ours if note in theirs]
    texts += [f"A: {note}" for note in ours if note not in theirs]
    texts += [f"B: {note}" for note in theirs if note not in ours]
    return [*texts, *notes.of_judgements((a, b)), *notes.of_unjudged((a, b))]
