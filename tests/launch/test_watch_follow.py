"""Order of events during a job: the canary runs before a pause is answered."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.driver.records import Outcome
from harness.launch.base import LaunchRequest, Limits, StopReason
from harness.launch.cpu_placement import place
from harness.launch.monitor.canary import Canary
from harness.launch.observation import ObservedJob
from harness.progress import Progress, silent
from harness.results.schema import CanaryReading, GpuReading, Placement
from tests.support.job_fixtures import FULL_SPEC, PREPARED

PLACEMENT = Placement((1,), (), None, (0,), apart=True)


class Stage:
    """A job of five trials, a thread that plays it, and a list of events."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.happened, self.prepared = folder, [], 0
        (folder / "out").mkdir(parents=True)
        self.job = LaunchRequest(
            replace(FULL_SPEC, pause=True, trials=5), PREPARED, folder, folder, folder, Limits(60, 60, 60, 60)
        )
        self.seen = ObservedJob(self.job, PLACEMENT, self)
        self.seen._sampler = self

    def prepare(self, placement: Placement) -> None:
        self.prepared += 1

    def read(self, when: str, placement: Placement, folder: Path | None) -> CanaryReading:
        assert placement is PLACEMENT and folder == self.folder
        self.happened.append(f"{when}, gone on: {(self.folder / 'go-1').exists()}")
        return CanaryReading(when, 0, 0, 0, 0, None)

    def mark(self) -> None:
        self.happened.append("mark")

    def say(self, **event: object) -> None:
        with (self.folder / "out" / "events.jsonl").open("a") as file:
            file.write(json.dumps(event) + "\n")

    def play(
        self,
        script: Callable[[], None],
        seen: Progress = silent,
        check: Callable[[], StopReason | None] = lambda: None,
    ) -> StopReason | None:
        ended = threading.Event()

        def run() -> None:
            try:
                script()
            finally:
                ended.set()

        threading.Thread(target=run).start()
        self.seen.begin()
        return self.seen.follow(ended, seen, check)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def appears(path: Path) -> bool:
    deadline = time.monotonic() + 20
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    return path.exists()


def test_canary_runs_before_a_paused_job_continues(stage: Stage) -> None:
    went_on = []

    def script() -> None:
        for number in range(3):
            stage.say(pause=number, t_ns=5 + number)
            went_on.append(appears(stage.folder / f"go-{number}"))

    assert stage.play(script) is None
    assert went_on == [True, True, True]
    assert stage.happened == ["mark", "mark", "mark", "between, gone on: True", "mark"], "before the second trial"
    assert [reading.when for reading in stage.seen.readings] == ["between"]


def test_last_events_of_a_job_are_read_after_its_end(stage: Stage) -> None:
    assert stage.play(lambda: stage.say(pause=3)) == StopReason(
        Outcome.BAD_OUTPUT, "the image asked for queries 3 out of turn; 0 of 6 are next"
    )


def test_phase_change_and_end_of_a_trial_are_marked(stage: Stage) -> None:
    seen: list[str] = []

    def script() -> None:
        deadline = time.monotonic() + 20
        for phase in ("load", "trial-0"):
            stage.say(phase=phase, total=1)
            while phase not in seen and time.monotonic() < deadline:
                time.sleep(0.001)
        for number in (0, 1):
            stage.say(pause=number)
            appears(stage.folder / f"go-{number}")
        stage.say(end="trial-3", start_ns=1, t_ns=2, claimed_ns=1, written_ns=0, wrote_ns=0)
        while len(stage.happened) < 5 and time.monotonic() < deadline:
            time.sleep(0.001)

    assert stage.play(script, lambda _done, _total=0, phase="": seen.append(phase)) is None
    assert stage.happened == ["mark"] * 5


@pytest.mark.slow
def test_job_is_stopped_for_a_reason_of_the_launcher(stage: Stage) -> None:
    asked, done, why = [], threading.Event(), StopReason(Outcome.ENVELOPE_MISMATCH, "moved")

    def check() -> StopReason | None:
        asked.append(len(asked))
        return why if len(asked) > 2 else None

    def script() -> None:
        done.wait(20)

    assert stage.play(script, check=check) == why
    done.set()
    assert asked == [0, 1, 2], "at each poll"


def test_canary_buffers_are_touched_before_the_first_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    canary, untouched = Canary(), []
    work = canary._copy
    monkeypatch.setattr(canary, "_copy", lambda: (untouched.append("_buffers" not in vars(canary)), work())[1])
    ObservedJob(stage.job, place(1), canary).read_canary("before")
    assert untouched == [False]


def test_canary_record_includes_the_jobs_gpus(stage: Stage) -> None:
    class Gpus:
        def read(self) -> GpuReading:
            stage.happened.append("gpus")
            return GpuReading(345, ("gpu_idle",), 36)

    seen = ObservedJob(stage.job, PLACEMENT, stage, Gpus())
    seen.read_canary("before")
    stage.seen.read_canary("after")
    assert [reading.gpu for reading in (*seen.readings, *stage.seen.readings)] == [
        GpuReading(345, ("gpu_idle",), 36),
        None,
    ]
    assert stage.happened == ["before, gone on: False", "gpus", "after, gone on: False"]
