"""Run calibration cases like any suite, compare their reports with the injected values, print a table."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from operator import attrgetter

from harness import filesystem
from harness.datasets import Dataset
from harness.driver.records import Outcome
from harness.errors import UsageError
from harness.experiments.calibration import fixtures
from harness.experiments.calibration.cases import Case, Group, select
from harness.experiments.calibration.fixtures import InjectingLauncher
from harness.experiments.calibration.known_values import CaseReport, FigureVerdict, PeakMemory
from harness.jobs.inputs import RunOptions
from harness.jobs.suite_protocol import SuiteProtocol
from harness.launch.base import Launcher
from harness.launch.images import catalog
from harness.progress import Progress, task
from harness.report.document import Escape, ReportDocument, Section, grid_of, lines_of

SYSTEM = "calibration"


def calibrate(
    options: RunOptions, launcher: Launcher, only: str | None = None, retries: int = 1
) -> list[FigureVerdict]:
    """Run the cases afresh, and return a verdict on each figure; results go to ``<results>/calibration/``.

    Args:
        options: of the jobs.
        launcher: runs them; must enforce limits.
        only: a glob over cases.
        retries: number of further tries for a timed case that is off.

    Raises:
        UsageError: no case matches, or the launcher does not enforce limits.
        EngineError, ImageError: jobs cannot run.
    """
    if not launcher.isolation.holds_envelope:
        raise UsageError(
            f"calibration needs all limits; isolation {launcher.isolation.name} lacks some; use --launcher docker"
        )
    groups, base = select(only), catalog.system(SYSTEM)
    cases = {case.name: case for group in groups for case in group.cases}
    options = replace(options, results=options.results / SYSTEM, only=None, fresh=True)
    launcher.check()
    with task(f"{SYSTEM}: image"):
        launcher.prepare(base)
    reports: dict[str, CaseReport] = {}
    judged: dict[str, list[FigureVerdict]] = {}
    with filesystem.temporary_folder(SYSTEM) as folder, task(SYSTEM) as watcher:
        dataset = fixtures.dataset(folder, options.cache)
        injecting = InjectingLauncher(launcher, base, cases, _count_jobs(groups, watcher))
        for attempt in range(1, retries + 2):
            reports |= _measure(options, injecting, dataset, groups)
            measured = [case for group in groups for case in group.cases]
            judged |= {case.name: _judge(case, reports, attempt) for case in measured}
            off = {name for name, verdicts in judged.items() if not all(verdict.ok for verdict in verdicts)}
            again = {name for name in off if cases[name].known_value.timed}
            groups = tuple(part for group in groups if (part := group.limited(again)).cases)
    return [verdict for verdicts in judged.values() for verdict in verdicts]


def _count_jobs(groups: Sequence[Group], watcher: Progress) -> Callable[[str], None]:
    """Return a function that shows the number of the job that begins."""
    jobs = sum(len(group.cases) * SuiteProtocol.model_validate(group.protocol).jobs for group in groups)
    numbers = itertools.count()

    def started(case: str) -> None:
        begun = next(numbers)
        watcher(begun, max(jobs, begun), case)

    return started


def _measure(
    options: RunOptions, launcher: InjectingLauncher, dataset: Dataset, groups: Sequence[Group]
) -> dict[str, CaseReport]:
    """Run these groups and report only their jobs."""
    reports: dict[str, CaseReport] = {}
    for group in groups:
        jobs, rows = fixtures.run_group(group, launcher.base, dataset, options, launcher)
        for row in rows:
            own = tuple(job for job in jobs if job.result.spec.cell.system == row.system)
            reports[row.system] = CaseReport(row, own)
    return reports


def _judge(case: Case, reports: Mapping[str, CaseReport], tries: int) -> list[FigureVerdict]:
    report = reports[case.name]
    if report.row.outcome is Outcome.NOT_APPLICABLE:  # a host that is too small for a case is no failure of harness
        verdicts = iter((FigureVerdict("outcome", "", f"not here: {report.row.detail}", "", "", True),))
    else:
        if isinstance(case.known_value, PeakMemory):
            report = replace(report, bare_bytes=reports[case.known_value.bare].row.resources.peak_anon_bytes)
        verdicts = case.known_value.verdicts(report)
    return [
        replace(verdict, case=case.name, tries=tries, disturbance=None if verdict.ok else report.disturbance)
        for verdict in verdicts
    ]


def calibration_document(verdicts: Sequence[FigureVerdict], wall_s: float) -> ReportDocument:
    """Return the report on all figures; its answer shows the wrong figures and the number of right ones."""

    def section(shown: Sequence[FigureVerdict], escape: Escape, pointer: str = "") -> Section:
        tones = tuple("good" if each.ok else "doubtful" if each.disturbance else "bad" for each in shown)
        grid = grid_of(shown, [(name, False, functools.partial(_cell, get, escape)) for name, get in _COLUMNS])
        first, *others = map(escape, summary(verdicts, wall_s))
        return Section(grids=(replace(grid, tones=tones),) if shown else (), notes=(first + pointer, *others))

    return ReportDocument(
        sections=lambda escape: (section(verdicts, escape),),
        lines=lambda: lines_of(verdicts, _COLUMNS),
        content=lambda: {"wall_s": wall_s, "figures": [asdict(verdict) for verdict in verdicts]},
        answer=lambda escape: (section([each for each in verdicts if not each.ok], escape, "   all: --wide"),),
        plain=True,
    )


def _cell(get: Callable[[FigureVerdict], str], escape: Escape, verdict: FigureVerdict) -> str:
    return escape(get(verdict))


_COLUMNS: tuple[tuple[str, Callable[[FigureVerdict], str]], ...] = (
    *((name, attrgetter(name)) for name in ("case", "figure", "injected")),
    ("reported", attrgetter("measured")),
    *((name, attrgetter(name)) for name in ("error", "allowed")),
    ("verdict", attrgetter("text")),
)


def summary(verdicts: Sequence[FigureVerdict], wall_s: float) -> Iterator[str]:
    """Yield the number of right figures, the time, and what to do about a disturbed machine."""
    off = [verdict for verdict in verdicts if not verdict.ok]
    yield f"{len(verdicts) - len(off)} of {len(verdicts)} figures as injected, in {wall_s:.0f} s"
    disturbed = [verdict for verdict in off if verdict.disturbance]
    if disturbed:
        names = ", ".join(dict.fromkeys(verdict.case for verdict in disturbed))
        fact = (disturbed[0].disturbance or "").partition("; ")[0]  # the finding's own remedy is about a suite
        remedy = "quieten it (harness doctor shows its load) and calibrate again"
        yield f"the machine was disturbed during {names}: {fact}; {remedy}"
