"""The calibration itself, over a launcher that writes scripted times: nothing here needs an engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.experiments.calibration import cases, fixtures, run
from harness.experiments.calibration.cases import Case, Group
from harness.experiments.calibration.run import Wanted
from harness.experiments.calibration.table import Line
from harness.experiments.calibration.truths import Ends, Mean
from harness.jobs.inputs import RunOptions
from harness.launch.base import Ended, LaunchRequest
from harness.launch.fake import FakeLauncher
from harness.progress import Progress
from harness.records import Isolation, Outcome
from harness.results.reader import read_jobs

ONCE = Wanted()


class Planted(FakeLauncher):
    """Scripted, and taken for a container; tells of phases as a real one does."""

    isolation = Isolation.CONTAINER

    def launch(self, job: LaunchRequest, progress: Progress) -> Ended:
        for phase in ("load", "trial-0", "trial-0", "trial-1"):
            progress(0, 0, phase)
        return super().launch(job, progress)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def plant(*planted: Case) -> None:
        group = Group("made-up", planted, 20, {"trials": 1, "warmup_queries": 10, "repeats": 0})
        monkeypatch.setattr(cases, "GROUPS", (group,))

    return plant


def calibrate(folder: Path, launcher: FakeLauncher, wanted: Wanted = ONCE) -> list[Line]:
    options = RunOptions(folder / "results", folder / "cache", folder)
    return run.calibrate(options, wanted, launcher)


def near(seconds: float) -> Case:
    return Case("near", Mean(seconds))


def fake_mean(folder: Path, groups: Callable[..., None]) -> float:
    """What the report says of the fake's times."""
    groups(near(1.0))
    (line,) = calibrate(folder / "first", Planted(), Wanted(retries=0))
    return float(line.verdicts[0].measured.removesuffix(" ms")) / 1e3


def test_a_right_report_is_ok_and_a_wrong_plant_is_off(tmp_path: Path, groups: Callable[..., None]) -> None:
    mean_s = fake_mean(tmp_path, groups)
    groups(near(mean_s), Case("far", Mean(mean_s * 2)))
    lines = {line.case: line for line in calibrate(tmp_path, Planted())}
    assert lines["near"].ok and lines["near"].tries == (1,)
    assert not lines["far"].ok and lines["far"].tries == (2,), (
        "a timed case that is off is tried once more, and says so"
    )


def test_only_what_a_busy_machine_can_spoil_is_tried_again(tmp_path: Path, groups: Callable[..., None]) -> None:
    groups(Case("near", Ends(Outcome.OOM)))
    launcher = Planted()
    (line,) = calibrate(tmp_path, launcher, Wanted(retries=5))
    assert not line.ok and line.tries == (1,)
    assert [job.spec.kind for job in launcher.launched].count("search") == 1


def test_every_repeat_is_measured_and_stored(tmp_path: Path, groups: Callable[..., None]) -> None:
    groups(Case("fallen", Ends(Outcome.CRASH)))
    launcher = Planted(lambda job: Outcome.OK if job.spec.kind == "build" else Outcome.CRASH)
    (line,) = calibrate(tmp_path, launcher, Wanted(repeats=3))
    assert line.ok and len(line.verdicts) == 3
    assert len(read_jobs(tmp_path / "results" / "calibration")) == 3


def test_a_second_calibration_measures_afresh(tmp_path: Path, groups: Callable[..., None]) -> None:
    groups(Case("fine", Ends(Outcome.OK)))
    assert calibrate(tmp_path, Planted())[0].ok
    broken = Planted(lambda job: Outcome.OK if job.spec.kind == "build" else Outcome.OOM)
    assert not calibrate(tmp_path, broken)[0].ok, "an ok result of before says nothing of now"


def test_a_quota_is_set_once_when_the_first_trial_runs(tmp_path: Path) -> None:
    throttled: list[tuple[str, tuple[int, int]]] = []
    begun: list[str] = []
    launcher = fixtures.PlantingLauncher(
        Planted(),
        run.catalog.system("calibration"),
        lambda job, quota: throttled.append((job.spec.system, quota)),
        {"throttled": (50_000, 100_000)},
        begun.append,
    )
    group = Group("made-up", (Case("throttled", Ends(Outcome.OK)), Case("free", Ends(Outcome.OK))), 20, {"trials": 1})
    inputs = fixtures.inputs(
        group, run.catalog.system("calibration"), fixtures.dataset(tmp_path / "data", tmp_path / "cache")
    )
    options = RunOptions(tmp_path / "results", tmp_path / "cache", tmp_path)
    run.orchestrator.run_suite(inputs, options, launcher)
    assert throttled == [("throttled", (50_000, 100_000))]
    assert sorted(begun) == ["free", "throttled"]


def test_a_rival_runs_beside_its_job_alone(tmp_path: Path, groups: Callable[..., None]) -> None:
    seen: dict[tuple[str, int], list[int]] = {}

    class Watching(Planted):
        def launch(self, job: LaunchRequest, progress: Progress) -> Ended:
            if job.spec.kind == "search":
                seen[job.spec.system, job.spec.first_trial] = _children()
            return super().launch(job, progress)

    groups(Case("free", Ends(Outcome.OK)), Case("disturbed", Ends(Outcome.OK), rival=0))
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


def test_all_cases_share_one_image(tmp_path: Path) -> None:
    base = run.catalog.system("calibration")
    launcher = fixtures.PlantingLauncher(Planted(), base, lambda job, quota: None, {}, lambda case: None)
    renamed = base.model_copy(update={"name": "other", "search_params": {"service_ms": 1}})
    one, other = launcher.prepare(base), launcher.find(renamed)
    assert other is not None and one.digest == other.digest
    assert other.system == renamed


def test_a_launcher_that_enforces_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="calibration needs enforced limits, fake holds none"):
        calibrate(tmp_path, FakeLauncher())
