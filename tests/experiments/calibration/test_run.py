"""The calibration itself, over a launcher that writes scripted times: nothing here needs an engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from harness.driver.records import Outcome
from harness.errors import UsageError
from harness.experiments.calibration import cases, fixtures, run
from harness.experiments.calibration.cases import Case, Group
from harness.experiments.calibration.known_values import FigureVerdict, JobEnd, MeanLatency
from harness.jobs import orchestrator
from harness.jobs.inputs import RunOptions
from harness.launch.base import LaunchEnd, LaunchRequest
from harness.launch.fake import FakeLauncher
from harness.progress import Progress
from harness.report import writers
from harness.results.isolation import CONTAINER


class ScriptedLauncher(FakeLauncher):
    """A fake launcher that reports containers and phases as a real one does."""

    isolation = CONTAINER

    throttled: tuple[tuple[str, tuple[int, int]], ...] = ()

    def throttle(self, job: LaunchRequest, quota: tuple[int, int]) -> None:
        self.throttled = (*self.throttled, (job.spec.system, quota))

    def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        for phase in ("load", "trial-0", "trial-0", "trial-1"):
            progress(0, 0, phase)
        return super().launch(job, progress)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def replace_groups(*chosen: Case) -> None:
        group = Group("made-up", chosen, 20, {"trials": 1, "warmup_queries": 10, "repeats": 0})
        monkeypatch.setattr(cases, "GROUPS", (group,))

    return replace_groups


def calibrate(folder: Path, launcher: FakeLauncher, retries: int = 1) -> list[FigureVerdict]:
    options = RunOptions(folder / "results", folder / "cache", folder)
    return run.calibrate(options, launcher, retries=retries)


def near(seconds: float) -> Case:
    return Case("near", MeanLatency(seconds))


def fake_mean(folder: Path, groups: Callable[..., None]) -> float:
    """Return the mean in ms that the report gives for the fake."""
    groups(near(1.0))
    (line,) = calibrate(folder / "first", ScriptedLauncher(), retries=0)
    return float(line.measured.removesuffix(" ms")) / 1e3


@pytest.mark.slow
def test_right_report_is_ok_and_wrong_injected_value_is_off(tmp_path: Path, groups: Callable[..., None]) -> None:
    mean_s = fake_mean(tmp_path, groups)
    groups(near(mean_s), Case("far", MeanLatency(mean_s * 2)))
    lines = {line.case: line for line in calibrate(tmp_path, ScriptedLauncher())}
    assert lines["near"].ok and lines["near"].tries == 1
    assert not lines["far"].ok and lines["far"].tries == 2, "a timed case that is off is tried once more, and says so"


@pytest.mark.slow
def test_only_cases_sensitive_to_a_busy_machine_are_retried(tmp_path: Path, groups: Callable[..., None]) -> None:
    groups(Case("near", JobEnd(Outcome.OOM)))
    launcher = ScriptedLauncher()
    (line,) = calibrate(tmp_path, launcher, retries=5)
    assert not line.ok and line.tries == 1
    assert [job.spec.kind for job in launcher.launched].count("search") == 1


@pytest.mark.slow
def test_second_calibration_measures_again(tmp_path: Path, groups: Callable[..., None]) -> None:
    groups(Case("fine", JobEnd(Outcome.OK)))
    assert calibrate(tmp_path, ScriptedLauncher())[0].ok
    broken = ScriptedLauncher(lambda job: Outcome.OK if job.spec.kind == "build" else Outcome.OOM)
    assert not calibrate(tmp_path, broken)[0].ok, "an ok result of before says nothing of now"


def test_a_quota_is_set_once_when_the_first_trial_runs(tmp_path: Path) -> None:
    inner = ScriptedLauncher()
    begun: list[str] = []
    cases = (Case("throttled", JobEnd(Outcome.OK), quota=(50_000, 100_000)), Case("free", JobEnd(Outcome.OK)))
    launcher = fixtures.InjectingLauncher(
        inner,
        run.catalog.system("calibration"),
        {case.name: case for case in cases},
        begun.append,
    )
    group = Group("made-up", cases, 20, {"trials": 1})
    inputs = fixtures.inputs(
        group, run.catalog.system("calibration"), fixtures.dataset(tmp_path / "data", tmp_path / "cache")
    )
    options = RunOptions(tmp_path / "results", tmp_path / "cache", tmp_path)
    orchestrator.run_suite(inputs, options, launcher)
    assert list(inner.throttled) == [("throttled", (50_000, 100_000))]
    assert sorted(begun) == ["free", "throttled"]


@pytest.mark.slow
def test_rival_runs_only_beside_its_job(tmp_path: Path, groups: Callable[..., None]) -> None:
    seen: dict[tuple[str, int], list[int]] = {}

    class Watching(ScriptedLauncher):
        def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
            if job.spec.kind == "search":
                seen[job.spec.system, job.spec.first_trial] = _children()
            return super().launch(job, progress)

    groups(Case("free", JobEnd(Outcome.OK)), Case("disturbed", JobEnd(Outcome.OK), rival=0))
    calibrate(tmp_path, Watching())
    assert seen["free", 0] == []
    assert len(seen["disturbed", 0]) == len(os.sched_getaffinity(0))
    assert not _children(), "they ended with their job"


def _children() -> list[int]:
    """Return the busy processes that this one has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"sched_setaffinity" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def test_launcher_without_limits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="calibration needs all limits; isolation fake lacks some"):
        calibrate(tmp_path, FakeLauncher())


RIGHT = FigureVerdict("mean", "5 ms", "5.01 ms", "+10.0 us (+0.20%)", "50 us", True, "spin-5ms")
WRONG = FigureVerdict("mean", "5 ms", "6 ms", "+1,000.0 us (+20.00%)", "50 us", False, "spin-5ms")
EXCUSED = replace(
    WRONG, disturbance="other processes had 52.0% of the job's CPUs (steady: up to 5%); quieten the machine"
)


def test_summary_counts_names_and_suggests_the_next_step() -> None:
    assert list(run.summary([RIGHT], 61.4)) == ["1 of 1 figures as injected, in 61 s"]
    assert list(run.summary([RIGHT, WRONG], 3)) == ["1 of 2 figures as injected, in 3 s"]
    _, told = run.summary([EXCUSED], 3)
    assert "disturbed during spin-5ms: other processes had 52.0% of the job's CPUs (steady: up to 5%); quieten" in told


def test_answer_shows_only_figures_that_are_off_then_the_count() -> None:
    answer = run.calibration_document([RIGHT, WRONG, EXCUSED], 3).answer
    assert answer is not None
    (section,) = answer(writers.plain_escape)
    (grid,) = section.grids
    assert [row[-1] for row in grid.cells] == ["OFF", "OFF"] and grid.tones == ("bad", "doubtful")
    assert section.notes[0] == "1 of 3 figures as injected, in 3 s   all: --wide"
    right = run.calibration_document([RIGHT], 3).answer
    assert right is not None and right(writers.plain_escape)[0].grids == ()
