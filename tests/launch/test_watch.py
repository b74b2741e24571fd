"""A job is followed by what it writes, and stopped when it takes too long or writes too much."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from harness.launch import watch
from harness.launch.base import Job, Limits, Progress
from harness.launch.watch import Tail, Watch
from harness.records import Outcome, Query, ScenarioParams
from tests.jobs import FULL_SPEC, PREPARED

LIMITS = Limits(load_s=10, query_s=2, build_s=100, job_s=1000)


class Running:
    """A job whose clock and files are ours."""

    def __init__(self, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.out, self.now = out / "out", 5000.0
        self.out.mkdir()
        monkeypatch.setattr(watch.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(watch, "_free_bytes", lambda _: self.free)
        self.free = 1 << 40
        self.watch = Watch(Job(FULL_SPEC, PREPARED, out, out, out, LIMITS))

    def event(self, **fields: object) -> None:
        self.write("events.jsonl", json.dumps(fields).encode() + b"\n")

    def write(self, name: str, content: bytes) -> None:
        with (self.out / name).open("ab") as file:
            file.write(content)

    def after(self, seconds: float) -> str | None:
        self.now += seconds
        stopped = self.watch.poll()
        assert stopped is None or stopped.outcome is Outcome.TIMEOUT
        return stopped.detail if stopped else None


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    return Running(tmp_path, monkeypatch)


def test_progress_follows_phases_events_and_samples(job: Running) -> None:
    job.watch.poll()
    assert job.watch.progress == Progress("start", 0, 0)
    job.event(phase="build", total=5000)
    job.event(done=700)
    job.watch.poll()
    assert job.watch.progress == Progress("build", 700, 5000)
    job.event(phase="trial-0", total=300)
    job.write("samples.jsonl", b"{}\n{}\n{half")
    job.watch.poll()
    assert job.watch.progress == Progress("trial-0", 2, 300)
    job.write("samples.jsonl", b" a line}\n")
    job.watch.poll()
    assert job.watch.progress == Progress("trial-0", 3, 300)


@pytest.mark.parametrize(
    ("phase", "allowed_s", "said"),
    [
        ("load", 10, "load took more than 10 s"),
        ("warmup", 2, "a query took more than 2 s"),
        ("trial-3", 2, "a query took more than 2 s"),
        ("build", 100, "build took more than 100 s"),
        ("close", 2, "close took more than 2 s"),
    ],
)
def test_each_phase_has_its_limit(job: Running, phase: str, allowed_s: float, said: str) -> None:
    job.event(phase=phase)
    assert job.after(1) is None
    assert job.after(allowed_s) is None
    assert job.after(0.1) == said


@pytest.mark.parametrize(
    ("batch_size", "allowed_s", "said"),
    [(4, 8, "a batch took more than 8 s"), (1, 2, "a query took more"), (1000, 20, "a batch took more than 20 s")],
)
def test_a_batch_has_the_time_of_its_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_size: int, allowed_s: float, said: str
) -> None:
    """A batch is never larger than the sample."""
    job = Running(tmp_path, monkeypatch)
    sample = tuple(Query(f"q{n}", "text") for n in range(10))
    params = ScenarioParams(batch_size=batch_size)
    spec = replace(FULL_SPEC, scenario="offline", sample=sample, scenario_params=params)
    job.watch = Watch(Job(spec, PREPARED, tmp_path, tmp_path, tmp_path, LIMITS))
    job.event(phase="trial-3")
    assert job.after(0) is None
    assert job.after(allowed_s) is None
    stopped = job.after(0.1)
    assert stopped is not None and stopped.startswith(said)
    job.event(phase="close")
    assert job.after(0) is None
    assert job.after(2.1) == "close took more than 2 s"


def test_a_job_that_never_says_anything_has_the_time_of_a_load(job: Running) -> None:
    assert job.after(10) is None
    assert job.after(0.1) == "start took more than 10 s"


def test_each_finished_query_starts_the_time_anew(job: Running) -> None:
    job.event(phase="trial-0")
    for _ in range(10):
        assert job.after(1.9) is None
        job.write("samples.jsonl", b"{}\n")
    assert job.after(0) is None
    assert job.after(2.1) == "a query took more than 2 s"


def test_events_without_a_finished_query_do_not_buy_time(job: Running) -> None:
    job.event(phase="trial-0")
    assert job.after(0) is None
    for _ in range(4):
        job.event(done=1)
        job.write("samples.jsonl", b"half a line ")
        assert job.after(0.5) is None
    assert job.after(0.1) == "a query took more than 2 s"


def test_a_job_that_goes_on_for_ever_is_stopped(job: Running) -> None:
    for _ in range(1000):
        job.event(phase="trial-0")
        assert job.after(1) is None
    job.event(phase="trial-0")
    assert job.after(1) == "the job took more than 1000 s"


def test_writing_more_than_makes_sense_ends_a_job(job: Running) -> None:
    (job.out / "deep").mkdir()
    with (job.out / "deep" / "big").open("wb") as file:
        file.truncate(1 << 40)  # a hole takes no room
    assert job.after(0) is None
    (job.out / "deep" / "big").write_bytes(b"x" * (18 << 20))
    stopped = job.watch.poll()
    assert stopped is not None and stopped.outcome is Outcome.BAD_OUTPUT
    assert stopped.detail == "wrote 18 MiB, at most 16 MiB make sense"


def test_countless_empty_files_are_too_much_as_well(job: Running) -> None:
    for number in range(5000):
        os.mknod(job.out / str(number))
    stopped = job.watch.poll()
    assert stopped is not None and stopped.outcome is Outcome.BAD_OUTPUT


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b"[1]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"phase": 7}',
        b'{"phase": "\\u001b[2J"}',
        b'{"phase": "two\\nlines"}',
        b'{"done": "many"}',
        b'{"done": -1}',
        b'{"done": true}',
        b'{"done": 1' + b"0" * 400 + b"}",
    ],
)
def test_an_event_that_makes_no_sense_is_passed_over(job: Running, line: bytes) -> None:
    job.event(phase="load", total=3)
    job.write("events.jsonl", line + b"\n")
    assert job.after(1) is None
    assert job.watch.progress == Progress("load", 0, 3)
    job.event(done=2)
    job.watch.poll()
    assert job.watch.progress == Progress("load", 2, 3)


@pytest.mark.parametrize("total", [None, "3", -3, 1.5, True, 10**400])
def test_a_total_that_makes_no_sense_is_not_known(job: Running, total: object) -> None:
    job.event(phase="x" * 100, total=total)
    job.watch.poll()
    assert job.watch.progress == Progress("x" * 40, 0, 0)


@pytest.mark.parametrize("kind", ["a link", "a pipe", "a folder"])
def test_files_that_are_none_are_not_followed_and_leave_nothing_open(job: Running, kind: str) -> None:
    make = {"a link": lambda path: path.symlink_to("/etc/passwd"), "a pipe": os.mkfifo, "a folder": Path.mkdir}[kind]
    for name in ("events.jsonl", "samples.jsonl"):
        make(job.out / name)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10):
        assert job.after(0.1) is None
    assert job.watch.progress == Progress("start", 0, 0)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_line_without_end_is_not_held_whole(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "x")
    with (tmp_path / "x").open("wb") as file:
        file.write(b"x" * (5 << 20))
    for _ in range(6):
        assert tail.lines() == []
    assert len(tail._rest) == 1 << 20


def test_a_disk_that_runs_full_behind_our_back_ends_the_job(job: Running) -> None:
    """Files that a job has unlinked are in no folder."""
    assert job.watch.poll() is None
    job.free = 100 << 20
    stopped = job.watch.poll()
    assert stopped is not None and stopped.outcome is Outcome.CRASH and "256 MiB left" in stopped.detail


def test_an_index_out_of_all_proportion_ends_its_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "corpus.jsonl").write_bytes(b"x" * 1000)
    (tmp_path / "index").mkdir()
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(watch, "_FREE_INDEX_BYTES", 1 << 20)
    following = Watch(Job(replace(FULL_SPEC, kind="build"), PREPARED, tmp_path, tmp_path, tmp_path / "index", LIMITS))
    assert following.poll() is None
    (tmp_path / "index" / "big").write_bytes(b"x" * (2 << 20))
    stopped = following.poll()
    assert (
        stopped is not None
        and stopped.outcome is Outcome.BAD_OUTPUT
        and stopped.detail.startswith("the index has 2 MiB")
    )


class Pausing(Running):
    """A job of five trials that may pause between them."""

    def __init__(self, out: Path, monkeypatch: pytest.MonkeyPatch, pause: bool = True) -> None:
        super().__init__(out, monkeypatch)
        self.folder = out
        self.watch = Watch(Job(replace(FULL_SPEC, pause=pause), PREPARED, out, out, out, LIMITS))

    def paused(self, number: object) -> int | None:
        self.event(pause=number, t_ns=1)
        assert self.after(0) is None
        return self.watch.paused


@pytest.fixture
def pausing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pausing:
    return Pausing(tmp_path, monkeypatch)


def test_a_pause_is_answered_once_with_a_file(pausing: Pausing) -> None:
    assert pausing.watch.paused is None
    assert pausing.paused(1) == 1
    assert not (pausing.folder / "go-1").exists()
    pausing.watch.answer()
    assert (pausing.folder / "go-1").read_bytes() == b""
    assert pausing.watch.paused is None
    assert pausing.paused(1) is None, "each once"
    assert pausing.paused(2) == 2


def test_a_pause_does_not_count_as_a_querys_time(pausing: Pausing) -> None:
    pausing.event(phase="trial-0")
    assert pausing.after(1.9) is None
    assert pausing.paused(1) == 1
    pausing.now += 1.9  # looking at the machine
    pausing.watch.answer()
    assert pausing.after(1.9) is None
    assert pausing.after(0.2) == "a query took more than 2 s"


def test_no_more_pauses_than_trials_and_none_that_was_not_asked_for(
    pausing: Pausing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1000):
        pausing.event(pause=number)
    answered = 0
    for _ in range(30):
        pausing.after(0)
        while pausing.watch.paused is not None:
            pausing.watch.answer()
            answered += 1
    assert answered == FULL_SPEC.trials
    (tmp_path / "other").mkdir()
    assert Pausing(tmp_path / "other", monkeypatch, pause=False).paused(1) is None


@pytest.mark.parametrize("number", [-1, True, 1.0, "1", "../../etc/cron.d/x", None, 10**9, [1], 10**400])
def test_a_pause_whose_number_makes_no_sense_is_passed_over(pausing: Pausing, number: object) -> None:
    assert pausing.paused(number) is None


def test_pauses_alone_do_not_buy_time_for_ever(pausing: Pausing) -> None:
    """Each starts a query's time anew, and there are as many as trials."""
    pausing.event(phase="trial-0")
    said = None
    for number in range(FULL_SPEC.trials + 2):
        pausing.event(pause=number)
        said = said or pausing.after(1.9)
        if pausing.watch.paused is not None:
            pausing.watch.answer()
    assert said == "a query took more than 2 s"


def test_a_name_that_is_taken_is_not_followed(pausing: Pausing) -> None:
    """A plain process may write where a container may not."""
    (pausing.folder / "victim").write_text("untouched")
    (pausing.folder / "go-1").symlink_to("victim")
    assert pausing.paused(1) == 1
    pausing.watch.answer()
    assert (pausing.folder / "victim").read_text() == "untouched"
    assert pausing.watch.paused is None


def test_each_event_is_noticed_once(job: Running) -> None:
    assert not job.watch.stirred()
    job.event(phase="load")
    assert job.watch.stirred()
    assert not job.watch.stirred()
    job.event(done=1)
    assert job.watch.stirred()
