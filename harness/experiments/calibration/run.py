"""Run calibration cases like any suite, compare their reports with the injected values, print a table."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from harness import filesystem
from harness.analysis.evaluate_job import JobEvaluator
from harness.analysis.rows import build_rows
from harness.datasets import Dataset
from harness.driver.records import Outcome
from harness.errors import UsageError
from harness.experiments.calibration import fixtures
from harness.experiments.calibration.cases import Case, Group, select
from harness.experiments.calibration.fixtures import InjectingLauncher
from harness.experiments.calibration.known_values import CaseReport, FigureVerdict, PeakMemory
from harness.jobs import orchestrator
from harness.jobs.inputs import RunOptions
from harness.jobs.suite import SuiteProtocol
from harness.launch.base import Launcher
from harness.launch.images import catalog
from harness.launch.images.systems import System
from harness.progress import NOWHERE, Progress, show_progress, task
from harness.report.document import Escape, ReportDocument, Section, grid_of, lines_of
from harness.results.reader import read_jobs

SYSTEM = "calibration"


@dataclass(frozen=True)
class CaseSelection:
    """A glob over cases, the number of repeats, and the number of further tries for a timed case that is off."""

    only: str | None = None
    repeats: int = 1
    retries: int = 1


@dataclass(frozen=True)
class CalibrationLine:
    """One figure of one case, with its verdict in each repeat."""

    case: str
    verdicts: tuple[FigureVerdict, ...]

    @property
    def ok(self) -> bool:
        """Return whether every repeat is right."""
        return all(verdict.ok for verdict in self.verdicts)

    @property
    def disturbance(self) -> str | None:
        """Return a disturbance that explains the line; None if a repeat is off on a quiet machine."""
        off = [verdict.disturbance for verdict in self.verdicts if not verdict.ok]
        return off[0] if off and all(off) else None

    @property
    def worst(self) -> FigureVerdict:
        """Return the repeat to show: one that is off, else the repeat with the largest error."""
        return max(self.verdicts, key=lambda verdict: (not verdict.ok, verdict.severity))

    @property
    def verdict(self) -> str:
        """Return ``ok`` or ``OFF``, with the counts of repeats and tries."""
        count, right = len(self.verdicts), sum(verdict.ok for verdict in self.verdicts)
        text = "ok" if self.ok else "OFF"
        if count > 1:
            text += f", {right} of {count}"
        again = sum(verdict.tries > 1 for verdict in self.verdicts)
        if count == 1:
            return f"{text}, {_ordinal(self.verdicts[0].tries)} try" if again else text
        return f"{text}, {again} at a later try" if again else text


def calibrate(options: RunOptions, selection: CaseSelection, launcher: Launcher) -> list[CalibrationLine]:
    """Run the cases and judge them.

    Every repeat measures afresh; results go to ``<results>/calibration/``.

    Raises:
        UsageError: none of the cases matches, or the launcher does not enforce limits.
        EngineError, ImageError: jobs cannot run.
    """
    if not launcher.isolation.holds_envelope:
        raise UsageError(
            f"calibration needs all limits; isolation {launcher.isolation.name} lacks some; use --launcher docker"
        )
    groups = select(selection.only)
    with filesystem.temporary_folder(SYSTEM) as folder:
        dataset = fixtures.dataset(folder, options.cache)
        options = replace(options, results=options.results / SYSTEM, only=None, fresh=True)
        return _Calibration(options, launcher, dataset, groups, selection, catalog.system(SYSTEM)).run()


@dataclass(frozen=True)
class _Calibration:
    """One calibration."""

    options: RunOptions
    inner: Launcher
    dataset: Dataset
    groups: tuple[Group, ...]
    selection: CaseSelection
    base: System

    @property
    def cases(self) -> dict[str, Case]:
        return {case.name: case for group in self.groups for case in group.cases}

    def run(self) -> list[CalibrationLine]:
        """Run all repeats, and return one line for each figure."""
        self.inner.check()
        with task(f"{SYSTEM}: image"):
            self.inner.prepare(self.base)
        figures: dict[tuple[str, str], list[FigureVerdict]] = defaultdict(list)
        with task(SYSTEM) as watcher:
            launcher = self._injecting_launcher(watcher)
            for _ in range(self.selection.repeats):
                for case, verdicts in self._repeat(launcher).items():
                    for verdict in verdicts:
                        figures[case, verdict.figure].append(verdict)
        return [CalibrationLine(case, tuple(repeats)) for (case, _), repeats in figures.items()]

    def _injecting_launcher(self, watcher: Progress) -> InjectingLauncher:
        """Return the launcher of this calibration; its progress counts containers."""
        jobs = sum(_containers(group) for group in self.groups) * self.selection.repeats
        numbers = itertools.count()

        def started(case: str) -> None:
            begun = next(numbers)
            watcher(begun, max(jobs, begun), case)

        return InjectingLauncher(self.inner, self.base, self.cases, started)

    def _repeat(self, launcher: Launcher) -> dict[str, list[FigureVerdict]]:
        """Measure and judge each case once, and a timed case again if it is off."""
        reports = self._measure(launcher, self.groups)
        judged = {name: _judge(case, reports, 1) for name, case in self.cases.items()}
        for attempt in range(2, self.selection.retries + 2):
            off = {name for name, verdicts in judged.items() if not all(verdict.ok for verdict in verdicts)}
            again = {name for name in off if self.cases[name].known_value.timed}
            if not again:
                break
            parts = [part for group in self.groups if (part := group.limited(again)).cases]
            reports |= self._measure(launcher, parts)
            judged |= {name: _judge(self.cases[name], reports, attempt) for name in again}
        return judged

    def _measure(self, launcher: Launcher, groups: Sequence[Group]) -> dict[str, CaseReport]:
        """Run these groups and report only their jobs."""
        reports: dict[str, CaseReport] = {}
        for group in groups:
            inputs = fixtures.inputs(group, self.base, self.dataset)
            with show_progress(NOWHERE):
                summary = orchestrator.run_suite(inputs, self.options, launcher)
            keys = {result.key for result, _ in summary.jobs}
            jobs = [job for job in read_jobs(self.options.results / group.name) if job.result.key in keys]
            for row in build_rows(jobs, JobEvaluator(("RR@10",))).table.rows:
                own = tuple(job for job in jobs if job.result.spec.cell.system == row.system)
                reports[row.system] = CaseReport(row, own)
        return reports


def _judge(case: Case, reports: Mapping[str, CaseReport], tries: int) -> list[FigureVerdict]:
    report = reports[case.name]
    if report.row.outcome is Outcome.NOT_APPLICABLE:  # a host that is too small for a case is no failure of harness
        return [FigureVerdict("outcome", "", f"not here: {report.row.detail}", "", "", True, tries=tries)]
    if isinstance(case.known_value, PeakMemory):
        report = replace(report, bare_bytes=reports[case.known_value.bare].row.resources.peak_anon_bytes)
    verdicts = case.known_value.verdicts(report)
    return [replace(verdict, tries=tries, disturbance=report.disturbance) for verdict in verdicts]


def _containers(group: Group) -> int:
    return len(group.cases) * SuiteProtocol.model_validate(group.protocol).jobs


def calibration_document(lines: Sequence[CalibrationLine], wall_s: float) -> ReportDocument:
    """Return the report on all figures; its answer shows the wrong figures and the number of right ones."""

    def section(shown: Sequence[CalibrationLine], escape: Escape, pointer: str = "") -> Section:
        tones = tuple("good" if line.ok else "doubtful" if line.disturbance else "bad" for line in shown)
        grid = grid_of(shown, [(name, False, functools.partial(_cell, get, escape)) for name, get in _COLUMNS])
        first, *others = map(escape, summary(lines, wall_s))
        return Section(grids=(replace(grid, tones=tones),) if shown else (), notes=(first + pointer, *others))

    return ReportDocument(
        sections=lambda escape: (section(lines, escape),),
        lines=lambda: lines_of(lines, _COLUMNS),
        content=lambda: {"wall_s": wall_s, "lines": [{**asdict(line), "ok": line.ok} for line in lines]},
        answer=lambda escape: (section([line for line in lines if not line.ok], escape, "   all: --wide"),),
        plain=True,
    )


def _cell(get: Callable[[CalibrationLine], str], escape: Escape, line: CalibrationLine) -> str:
    return escape(get(line))


_COLUMNS: tuple[tuple[str, Callable[[CalibrationLine], str]], ...] = (
    ("case", lambda line: line.case),
    ("figure", lambda line: line.worst.figure),
    ("injected", lambda line: line.worst.injected),
    ("reported", lambda line: line.worst.measured),
    ("error", lambda line: line.worst.error),
    ("allowed", lambda line: line.worst.allowed),
    ("verdict", lambda line: line.verdict),
)


def summary(lines: Sequence[CalibrationLine], wall_s: float) -> Iterator[str]:
    """Yield the number of right figures, the time, and what to do about a disturbed machine."""
    off = [line for line in lines if not line.ok]
    yield f"{len(lines) - len(off)} of {len(lines)} figures as injected, in {wall_s:.0f} s"
    disturbed = [line for line in off if line.disturbance]
    if disturbed:
        names = ", ".join(dict.fromkeys(line.case for line in disturbed))
        fact = (disturbed[0].disturbance or "").partition("; ")[0]  # the finding's own remedy is about a suite
        remedy = "quieten it (harness doctor shows its load) and calibrate again"
        yield f"the machine was disturbed during {names}: {fact}; {remedy}"


def _ordinal(number: int) -> str:
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(number, f"{number}th")
