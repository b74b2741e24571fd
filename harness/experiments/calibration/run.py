"""Run the planted cases the whole real way, and hold what the report says against what was planted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness import filesystem
from harness.analysis.evaluate_job import JobEvaluator
from harness.analysis.rows import build_rows
from harness.datasets import Dataset
from harness.errors import UsageError
from harness.experiments.calibration import fixtures
from harness.experiments.calibration.case import Case, Group
from harness.experiments.calibration.cases import chosen
from harness.experiments.calibration.fixtures import PlantingLauncher
from harness.experiments.calibration.observation import Seen
from harness.experiments.calibration.table import Line
from harness.experiments.calibration.truths import Memory, Verdict
from harness.jobs import orchestrator
from harness.jobs.inputs import RunOptions
from harness.jobs.suite import SuiteProtocol
from harness.launch.base import Launcher
from harness.launch.images import catalog
from harness.progress import Progress, hidden, task
from harness.records import Isolation, Outcome
from harness.results.reader import read_jobs

SYSTEM = "calibration"


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for: a glob over cases, how often all, how often more where a timed case is off."""

    only: str | None = None
    repeats: int = 1
    retries: int = 1


@dataclass(frozen=True)
class Judged:
    """One case in one repeat: verdicts of the last of so many tries, and what disturbed the machine then."""

    verdicts: tuple[Verdict, ...]
    tries: int
    disturbance: str | None


def calibrate(options: RunOptions, wanted: Wanted, launcher: Launcher) -> list[Line]:
    """Run the cases and judge them.

    Every repeat measures afresh; results lie under ``<results>/calibration/``.

    Raises:
        UsageError: no case matches, or the launcher holds no envelope.
        EngineError, ImageError: nothing can be run at all.
    """
    if launcher.isolation is not Isolation.CONTAINER:
        raise UsageError(
            f"calibration needs enforced limits, {launcher.isolation.value} holds none; use --launcher docker"
        )
    groups = chosen(wanted.only)
    with filesystem.temporary_folder(SYSTEM) as folder:
        planted = fixtures.dataset(folder, options.cache)
        run = _Run(options, launcher, planted, groups, wanted)
        return run.run()


class _Run:
    """One calibration."""

    def __init__(
        self,
        options: RunOptions,
        launcher: Launcher,
        planted: Dataset,
        groups: tuple[Group, ...],
        wanted: Wanted,
    ) -> None:
        self._options = replace(options, results=options.results / SYSTEM, only=None, fresh=True)
        self._inner = launcher
        self._planted = planted
        self._groups = groups
        self._wanted = wanted
        self._base = catalog.system(SYSTEM)

    def run(self) -> list[Line]:
        """All repeats, then one line for each figure."""
        self._inner.check()
        with task(f"{SYSTEM}: image"):
            self._inner.prepare(self._base)
        found: dict[tuple[str, str], list[Judged]] = defaultdict(list)
        with task(SYSTEM) as watcher:
            self._launcher = self._planting(watcher)
            for _ in range(self._wanted.repeats):
                for case, judged in self._repeat().items():
                    for verdict in judged.verdicts:
                        found[case, verdict.what].append(replace(judged, verdicts=(verdict,)))
        return [
            Line(
                case,
                tuple(judged.verdicts[0] for judged in of),
                tuple(judged.tries for judged in of),
                tuple(judged.disturbance for judged in of),
            )
            for (case, _), of in found.items()
        ]

    def _planting(self, watcher: Progress) -> PlantingLauncher:
        """The launcher of this calibration; the bar counts containers."""
        jobs, begun = sum(_jobs(group) for group in self._groups) * self._wanted.repeats, 0

        def started(case: str) -> None:
            nonlocal begun
            watcher(begun, max(jobs, begun), case)
            begun += 1

        quotas = {case.name: case.quota for group in self._groups for case in group.cases if case.quota}
        rivals = {case.name: case.rival for group in self._groups for case in group.cases if case.rival is not None}
        return PlantingLauncher(self._inner, self._base, fixtures.throttle_container, quotas, started, rivals)

    def _repeat(self) -> dict[str, Judged]:
        """Each case's verdicts, in the order of the cases."""
        cases = {case.name: case for group in self._groups for case in group.cases}
        seen = self._measure(self._groups)
        judged = {name: _judge(case, seen, 1) for name, case in cases.items()}
        for number in range(2, self._wanted.retries + 2):
            off = {name for name, of in judged.items() if not all(verdict.ok for verdict in of.verdicts)}
            again = {name for name in off if cases[name].truth.timed}
            if not again:
                break
            seen |= self._measure(tuple(part for group in self._groups if (part := group.limited(again)).cases))
            judged |= {name: _judge(cases[name], seen, number) for name in again}
        return judged

    def _measure(self, groups: Sequence[Group]) -> dict[str, Seen]:
        """Run these groups and make the report of just these jobs."""
        found: dict[str, Seen] = {}
        for group in groups:
            inputs = fixtures.inputs(group, self._base, self._planted)
            with hidden():
                summary = orchestrator.run_inputs(inputs, self._options, self._launcher)
            keys = {result.key for result, _ in summary.jobs}
            jobs = [job for job in read_jobs(self._options.results / group.name) if job.result.key in keys]
            for row in build_rows(jobs, JobEvaluator(("RR@10",))).table.rows:
                mine = tuple(job for job in jobs if job.result.spec.cell.system == row.system)
                found[row.system] = Seen(row, mine)
        return found


def _judge(case: Case, seen: Mapping[str, Seen], tries: int) -> Judged:
    mine = seen[case.name]
    if mine.row.outcome is Outcome.NOT_APPLICABLE:  # a host too small for a case proves nothing against us
        verdict = Verdict("outcome", "", f"not here: {mine.row.detail}", "", "", True)
        return Judged((verdict,), tries, None)
    if isinstance(case.truth, Memory):
        mine = replace(mine, bare_bytes=seen[case.truth.bare].row.peak_anon_bytes)
    return Judged(tuple(case.truth.verdicts(mine)), tries, mine.disturbance)


def _jobs(group: Group) -> int:
    """Containers that a group takes."""
    return len(group.cases) * SuiteProtocol.model_validate(group.protocol).jobs
