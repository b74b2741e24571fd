"""A job is followed by its files, and stopped over a limit of time or size."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from harness.driver.records import Cpuset, Outcome, Query, ScenarioParams, spec_from_json
from harness.launch import watch
from harness.launch.base import LaunchRequest, Limits, StopReason, TrialTimes
from harness.launch.watch import FollowedFile, JobWatch, Step
from tests.support.job_fixtures import FULL_SPEC, PREPARED

LIMITS = Limits(load_s=10, query_s=2, build_s=100, job_s=1000)


class Running:
    """A job with a scripted clock and files."""

    def __init__(self, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.out, self.now = out / "out", 5000.0
        self.out.mkdir()
        monkeypatch.setattr(watch.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(watch, "_free_bytes", lambda _: self.free)
        self.free = 1 << 40
        self.watch = JobWatch(LaunchRequest(FULL_SPEC, PREPARED, out, out, out, LIMITS))

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
    assert job.watch.progress == Step("start", 0, 0)
    job.event(phase="build", total=5000)
    job.event(done=700)
    job.watch.poll()
    assert job.watch.progress == Step("build", 700, 5000)
    job.event(phase="trial-0", total=300)
    job.write("samples.jsonl", b"{}\n{}\n{half")
    job.watch.poll()
    assert job.watch.progress == Step("trial-0", 2, 300)
    job.write("samples.jsonl", b" a line}\n")
    job.watch.poll()
    assert job.watch.progress == Step("trial-0", 3, 300)


@pytest.mark.parametrize(
    ("phase", "allowed_s", "message"),
    [
        ("load", 10, "load took more than 10 s"),
        ("warmup", 2, "a query took more than 2 s"),
        ("trial-3", 2, "a query took more than 2 s"),
        ("build", 100, "build took more than 100 s"),
        ("check", 100, "check took more than 100 s"),
        ("close", 2, "close took more than 2 s"),
        (None, 9, "start took more than 10 s"),
    ],
)
def test_each_phase_has_its_limit(job: Running, phase: str | None, allowed_s: float, message: str) -> None:
    if phase:
        job.event(phase=phase)
    assert job.after(1) is None
    assert job.after(allowed_s) is None
    assert job.after(0.1) == message


@pytest.mark.parametrize(
    ("batch_size", "allowed_s", "message"),
    [(4, 8, "a batch took more than 8 s"), (1, 2, "a query took more"), (1000, 20, "a batch took more than 20 s")],
)
def test_time_limit_of_a_batch_is_that_of_its_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_size: int, allowed_s: float, message: str
) -> None:
    """A batch is never larger than the sample."""
    job = Running(tmp_path, monkeypatch)
    sample = tuple(Query(f"q{n}", "text") for n in range(10))
    params = ScenarioParams(batch_size=batch_size)
    spec = replace(FULL_SPEC, scenario="offline", sample=sample, scenario_params=params)
    job.watch = JobWatch(LaunchRequest(spec, PREPARED, tmp_path, tmp_path, tmp_path, LIMITS))
    job.event(phase="trial-3")
    assert job.after(0) is None
    assert job.after(allowed_s) is None
    stopped = job.after(0.1)
    assert stopped is not None and stopped.startswith(message)
    job.event(phase="close")
    assert job.after(0) is None
    assert job.after(2.1) == "close took more than 2 s"


def test_each_finished_query_restarts_the_timer(job: Running) -> None:
    job.event(phase="trial-0")
    for _ in range(10):
        assert job.after(1.9) is None
        job.write("samples.jsonl", b"{}\n")
    assert job.after(0) is None
    assert job.after(2.1) == "a query took more than 2 s"


def test_events_without_a_finished_query_do_not_restart_the_timer(job: Running) -> None:
    job.event(phase="trial-0")
    assert job.after(0) is None
    for _ in range(4):
        job.event(done=1)
        job.write("samples.jsonl", b"half a line ")
        assert job.after(0.5) is None
    assert job.after(0.1) == "a query took more than 2 s"


def test_endless_job_is_stopped(job: Running) -> None:
    for _ in range(1000):
        job.event(phase="trial-0")
        assert job.after(1) is None
    job.event(phase="trial-0")
    assert job.after(1) == "the job took more than 1000 s"


@pytest.mark.slow
def test_job_that_writes_too_much_is_stopped(job: Running) -> None:
    """A sparse file counts with its full length, and an empty one counts too."""
    (job.out / "deep").mkdir()
    assert job.after(0) is None
    file = job.out / "deep" / "file"
    for size in (18 << 20, 1 << 43):
        file.touch()
        os.truncate(file, size)
        detail = f"wrote {size >> 20} MiB; the limit is 16 MiB"
        assert job.watch.poll() == StopReason(Outcome.BAD_OUTPUT, detail)
    file.unlink()
    assert job.after(0) is None
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
def test_malformed_event_is_ignored(job: Running, line: bytes) -> None:
    job.event(phase="load", total=3)
    job.write("events.jsonl", line + b"\n")
    assert job.after(1) is None
    assert job.watch.progress == Step("load", 0, 3)
    job.event(done=2)
    job.watch.poll()
    assert job.watch.progress == Step("load", 2, 3)


@pytest.mark.parametrize("total", [None, "3", -3, 1.5, True, 10**400])
def test_malformed_total_is_unknown(job: Running, total: object) -> None:
    job.event(phase="x" * 100, total=total)
    job.watch.poll()
    assert job.watch.progress == Step("x" * 40, 0, 0)


@pytest.mark.parametrize("kind", ["a link", "a pipe", "a folder"])
def test_other_file_types_are_not_followed_and_leave_nothing_open(job: Running, kind: str) -> None:
    make = {"a link": lambda path: path.symlink_to("/etc/passwd"), "a pipe": os.mkfifo, "a folder": Path.mkdir}[kind]
    for name in ("events.jsonl", "samples.jsonl"):
        make(job.out / name)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10):
        assert job.after(0.1) is None
    assert job.watch.progress == Step("start", 0, 0)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_endless_line_is_not_held_in_memory(tmp_path: Path) -> None:
    tail = FollowedFile(tmp_path / "x")
    with (tmp_path / "x").open("wb") as file:
        file.write(b"x" * (5 << 20))
    for _ in range(6):
        assert tail.lines() == []
    assert len(tail._rest) == 1 << 20


def test_job_ends_if_the_disk_fills_up(job: Running) -> None:
    """Unlinked files of a job are in no folder."""
    assert job.watch.poll() is None
    job.free = 100 << 20
    stopped = job.watch.poll()
    assert stopped is not None and stopped.outcome is Outcome.CRASH and "256 MiB left" in stopped.detail


def test_build_of_an_oversized_index_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "corpus.jsonl").write_bytes(b"x" * 1000)
    (tmp_path / "index").mkdir()
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(watch, "_FREE_INDEX_BYTES", 1 << 20)
    following = JobWatch(
        LaunchRequest(replace(FULL_SPEC, kind="build"), PREPARED, tmp_path, tmp_path, tmp_path / "index", LIMITS)
    )
    assert following.poll() is None
    (tmp_path / "index" / "big").write_bytes(b"x" * (2 << 20))
    stopped = following.poll()
    assert stopped.outcome is Outcome.BAD_OUTPUT and stopped.detail.startswith("the index has 2 MiB")


class Pausing(Running):
    """A job of five trials that may pause between them."""

    def __init__(self, out: Path, monkeypatch: pytest.MonkeyPatch, pause: bool = True) -> None:
        super().__init__(out, monkeypatch)
        self.folder = out
        self.watch = JobWatch(LaunchRequest(replace(FULL_SPEC, pause=pause), PREPARED, out, out, out, LIMITS))

    def paused(self, number: object) -> int | None:
        self.event(pause=number, t_ns=1)
        assert self.after(0) is None
        return self.watch.paused


@pytest.fixture
def pausing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pausing:
    return Pausing(tmp_path, monkeypatch)


def test_queries_are_handed_over_on_request(pausing: Pausing) -> None:
    assert pausing.watch.paused is None
    assert pausing.paused(0) == 0 and not pausing.watch.between
    assert not (pausing.folder / "go-0").exists()
    pausing.watch.answer()
    assert json.loads((pausing.folder / "go-0").read_text()) == [{"query_id": "w", "text": "wärm"}]
    assert (pausing.folder / "go-0").stat().st_mode & 0o777 == 0o644, "whoever the job runs as"
    assert pausing.watch.paused is None
    assert pausing.paused(1) == 1 and not pausing.watch.between, "between warm-up and a trial nobody looks"
    pausing.watch.answer()
    assert json.loads((pausing.folder / "go-1").read_text()) == [{"query_id": "q", "text": "森林"}]
    assert pausing.paused(2) == 2 and pausing.watch.between
    assert not list(pausing.folder.glob("tmp*")), "renamed into place"


def warm(pausing: Pausing, queries: int, seconds: float) -> str | None:
    """Warm up with so many queries in so many seconds; return why the trials are refused."""
    pausing.paused(0)
    pausing.watch.answer()
    pausing.event(phase="warmup", total=queries)
    for _ in range(queries):
        pausing.write("samples.jsonl", b"{}\n")
        assert pausing.after(seconds / queries) is None
    pausing.event(pause=1, t_ns=1)
    return pausing.after(0)


def test_trials_that_cannot_end_in_time_are_refused_after_warm_up(
    pausing: Pausing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 5 trials of a query and 2 repeats twice are 9 queries.
    assert warm(pausing, 300, 510) is None, "9 x 1.7 s end in time"
    (tmp_path / "long").mkdir()
    long = Pausing(tmp_path / "long", monkeypatch)
    sample = tuple(Query(f"q{number}", "text") for number in range(200))
    spec = replace(FULL_SPEC, sample=sample, params={"depth": 20})
    long.watch = JobWatch(LaunchRequest(spec, PREPARED, *[tmp_path / "long"] * 3, LIMITS))
    assert warm(long, 10, 15) == (
        "refused after warm-up: 1.5 s a query x 1004 queries = 25 min, the job has 16 min left; lower"
        " protocol.sample_size or trials, or lower depth from 20 to 13, or raise protocol.job_timeout_s"
    )


def test_repeats_come_last(pausing: Pausing) -> None:
    for number in range(7):
        assert pausing.paused(number) == number
        assert pausing.watch.between == (number in (2, 3, 4, 5))
        pausing.watch.answer()


def test_job_spec_omits_queries_with_pauses(tmp_path: Path) -> None:
    for pause in (True, False):
        job = LaunchRequest(replace(FULL_SPEC, pause=pause), PREPARED, tmp_path, tmp_path, tmp_path)
        job.write_spec(Cpuset((1,)))
        told = spec_from_json((tmp_path / "spec.json").read_text())
        assert told == replace(job.spec, cpuset=Cpuset((1,)), **({"warmup": (), "sample": ()} if pause else {}))


def test_pause_does_not_count_as_query_time(pausing: Pausing) -> None:
    pausing.event(phase="trial-0")
    assert pausing.after(1.9) is None
    assert pausing.paused(0) == 0
    pausing.now += 1.9  # looking at the machine
    pausing.watch.answer()
    assert pausing.after(1.9) is None
    assert pausing.after(0.2) == "a query took more than 2 s"


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        ([1], "asked for queries 1 out of turn; 0 of 6 are next"),
        ([0, 0], "asked for queries 0 out of turn; 1 of 6 are next"),
        ([0, 1, 2, 3, 4, 5, 6, 7], "asked for queries 7 out of turn; 7 of 6 are next"),
        ([0, 10**9], "asked for queries 1000000000 out of turn; 1 of 6 are next"),
    ],
)
def test_job_that_requests_queries_out_of_turn_is_stopped(pausing: Pausing, asked: list[int], refused: str) -> None:
    """An adapter that requests queries in ``load`` gets them early; the driver then requests them too."""
    for number in asked:
        pausing.event(pause=number)
        stopped = pausing.watch.poll()
        if pausing.watch.paused is not None:
            pausing.watch.answer()
    assert stopped is not None and (stopped.outcome, stopped.detail) == (Outcome.BAD_OUTPUT, f"the image {refused}")


def test_pause_is_ignored_if_the_spec_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Pausing(tmp_path, monkeypatch, pause=False).paused(1) is None


@pytest.mark.parametrize("number", [-1, True, 1.0, "1", "../../etc/cron.d/x", None, [1], 10**400])
def test_pause_with_a_malformed_number_is_ignored(pausing: Pausing, number: object) -> None:
    assert pausing.paused(number) is None


def test_existing_link_or_folder_is_not_followed(pausing: Pausing) -> None:
    """A plain process may write where a container may not."""
    (pausing.folder / "victim").write_text("untouched")
    (pausing.folder / "go-0").symlink_to("victim")
    (pausing.folder / "go-1").mkdir()
    for number in (0, 1):
        assert pausing.paused(number) == number
        pausing.watch.answer()
        assert pausing.watch.paused is None
    assert (pausing.folder / "victim").read_text() == "untouched"


class Marked(Pausing):
    """A job in its first trial, on a host with a scripted precise clock."""

    def __init__(self, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(out, monkeypatch)
        self.now_ns = 1_000
        monkeypatch.setattr(watch.time, "perf_counter_ns", lambda: self.now_ns)
        for number in (0, 1):
            self.paused(number)
            self.watch.answer()

    def ends(self, phase: str = "trial-3", **change: object) -> StopReason | None:
        figures = {"start_ns": 5_000, "t_ns": 9_000, "claimed_ns": 3_000, "written_ns": 40, "wrote_ns": 50}
        self.event(end=phase, **{**figures, **change})
        return self.watch.poll()


DID_NOT_RUN = StopReason(Outcome.BAD_OUTPUT, "the image reported the end of a trial that did not run")


@pytest.fixture
def marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Marked:
    return Marked(tmp_path, monkeypatch)


def test_start_and_end_of_a_trial_are_recorded(marked: Marked) -> None:
    marked.now_ns = 8_000
    marked.watch.stirred()
    marked.watch.poll()
    assert not marked.watch.stirred(), "at 8,000 it had not ended"
    marked.now_ns = 12_000
    assert marked.ends() is None
    assert marked.watch.handed == [TrialTimes("trial-3", 1_000, 12_000, 7_000, 4_000, 3_000, 40)]
    marked.event(phase="close", wrote_ns=2_050)
    marked.watch.poll()
    assert marked.watch.handed[0].least_ns == 5_000, "2,000 of them the disk held back the line itself"
    marked.event(done=1, wrote_ns=9_050)
    marked.watch.poll()
    assert marked.watch.handed[0].least_ns == 5_000, "once"
    assert marked.ends("warmup") is None
    assert marked.ends() == DID_NOT_RUN, "a second time"


@pytest.mark.parametrize(
    ("phase", "change"),
    [
        ("trial-0", {}),
        ("trial-4", {}),
        ("trial-3", {"claimed_ns": -1}),
        ("trial-3", {"written_ns": 0.5}),
        ("trial-3", {"t_ns": None}),
    ],
)
def test_end_of_a_trial_that_did_not_run_stops_the_job(marked: Marked, phase: str, change: dict[str, object]) -> None:
    assert marked.ends(phase, **change) == DID_NOT_RUN
    assert marked.watch.handed == []


def test_each_event_is_noticed_once(job: Running) -> None:
    assert not job.watch.stirred()
    job.event(phase="load")
    assert job.watch.stirred()
    assert not job.watch.stirred()
    job.event(done=1)
    assert job.watch.stirred()
