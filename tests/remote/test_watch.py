"""The watch loop over a scripted backend: when it launches, ends, gives up, and which jobs it fetches."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from harness.aws.objects import Objects
from harness.driver.records import Outcome
from harness.errors import RemoteError
from harness.jobs.inputs import IndexBuild
from harness.pricing import instances
from harness.progress import show_progress
from harness.remote import journal, records, shipment
from harness.remote.backend import ENDED, RUNNING, UNKNOWN, WAITING, Backend, LaunchRefused, PartState
from harness.remote.journal import Journal
from harness.remote.local_results import LocalResults, pack
from harness.remote.partition import Market
from harness.remote.records import (
    Heartbeat,
    Launch,
    PartJob,
    PlannedPart,
    RemoteRun,
    ShippedInput,
    WorkerEnd,
    dump,
)
from harness.remote.storage import StoredObject
from harness.remote.watch import RunWatch, Timeouts
from harness.results.reader import read_jobs
from harness.results.schema import RentedMachine, Result, ResultSpec, job_key
from harness.results.store import Store
from tests.support import sample_records
from tests.support.job_fixtures import planned

ROLE = "AROAEXAMPLE"
JOBS = [planned("a", job=number) for number in range(3)]
# S3 stamps heartbeats with the true time.
NOW = time.time()


def part_job(number: int) -> PartJob:
    job = JOBS[number]
    return PartJob(job.cell, job.spec.job, 0, job_key(job.spec))


def part(name: str = "p", *numbers: int, **changes: Any) -> PlannedPart:
    jobs = tuple(map(part_job, numbers or range(3)))
    return replace(
        PlannedPart(name, "m6i.large", 0.36, 30, jobs, expected_s=600, worst_s=7200, measured=True), **changes
    )


def packed(spec: ResultSpec) -> bytes:
    result = replace(sample_records.result(Outcome.OK, minute=1), key=job_key(spec), spec=spec)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), spec.cell.suite)
        with store.held():
            return pack(store.put(result, None, None, b"log").folder)


@dataclass
class FakeBackend(Backend):
    """Shows the states that a test sets; a part that is launched runs on the worker ``ROLE:<part>``."""

    states: dict[str, PartState] = field(default_factory=dict)
    launched: list[Launch] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)
    refuse: Exception | None = None
    left: list[str] = field(default_factory=list)
    name: str = "fake"
    ending: str = "`end it`"
    attempts: int = 3

    @property
    def market(self) -> Market:
        return Market(known=instances.read_instances("aws"))

    def check(self, parts: Sequence[PlannedPart]) -> list[str]:
        return []

    def begin(self, run: RemoteRun, bundle: ShippedInput) -> None:
        pass

    def launch(self, launch: Launch, part: PlannedPart, note: Callable[[Launch], None]) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.launched.append(launch)
        self.run(part.name)

    def run(self, name: str, worker: str = "", **changes: Any) -> None:
        workers = (*self.states.get(name, PartState(WAITING, "")).workers, f"{ROLE}:{worker or name}")
        instance = RentedMachine(f"i-{name}", "m6i.large")
        state = PartState(RUNNING, "running", workers, len(workers), launched=NOW, machine=instance)
        self.states[name] = replace(state, **changes)

    def over(self, name: str, reason: str = "", seconds: float | None = 600.0) -> None:
        self.states[name] = replace(self.states[name], phase=ENDED, reason=reason, seconds=seconds)

    def look(self, launches: Sequence[Launch]) -> dict[str, PartState]:
        return {launch.name: self.states.get(launch.name, PartState(UNKNOWN, "launching")) for launch in launches}

    def end(self, part: str, state: PartState, why: str) -> None:
        self.ended.append((part, why))

    def going_on(self, launches: Sequence[Launch]) -> str:
        return ""

    def alive(self) -> list[str]:
        return self.left


class Indexes(shipment.Shipper):
    """Finds and adopts indexes, and ships nothing."""

    def __init__(self, work: Objects, store: Store) -> None:
        self._work, self._cache = work, store.folder.with_name("cache")


@dataclass
class Scene:
    """One watch, ticked by hand."""

    work: Objects
    store: Store
    backend: FakeBackend = field(default_factory=FakeBackend)
    clock: Any = field(default_factory=lambda: SimpleNamespace(now=NOW, note=lambda _time_s: None))
    screen: StringIO = field(default_factory=StringIO)
    written: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.work.connections.clock = self.clock

    def watch(self, *parts: PlannedPart, **terms: Any) -> RunWatch:
        run = RemoteRun("s-1", "fake", "s", "r", "o", parts)
        self.journal = Journal(self.work, run)
        folder = self.store.folder
        stored = [job.result for job in read_jobs(folder)] if folder.is_dir() else []
        self.local_results = LocalResults(JOBS, stored, self.store)
        made = RunWatch(
            self.work,
            self.journal,
            self.local_results,
            self.backend,
            Indexes(self.work, self.store),
            lambda part, jobs: self.written.append((part.name, tuple(job.key for job in jobs))),
            terms.pop("most", 8),
            terms.pop("cap_usd", None),
            Timeouts(poll_s=0.0, sleep=lambda _s: None, **terms),
        )
        self.journal.recall()
        return made

    def ticked(self, *parts: PlannedPart, **terms: Any) -> RunWatch:
        watch = self.watch(*parts, **terms)
        watch._tick()
        return watch

    def folder(self, name: str) -> Objects:
        return self.work.below(records.worker(f"{ROLE}:{name}"))

    def heartbeat(self, name: str, **changes: Any) -> None:
        self.folder(name).put(records.HEARTBEAT, dump(replace(Heartbeat("measuring"), **changes)))

    def hand_over(self, name: str, *numbers: int) -> None:
        for number in numbers:
            self.folder(name).put_new(records.job(part_job(number).key), packed(JOBS[number].spec))

    def end(self, name: str, **changes: Any) -> None:
        self.folder(name).put_new(records.END, dump(replace(WorkerEnd(True), **changes)))

    @property
    def stored(self) -> list[Result]:
        return [job.result for job in read_jobs(self.store.folder)]

    @property
    def output(self) -> str:
        return self.screen.getvalue()


@pytest.fixture
def scene(work: Objects, tmp_path: Path) -> Iterator[Scene]:
    store = Store(tmp_path / "results", "s")
    with store.held():
        scene = Scene(work, store)
        with show_progress(Console(file=scene.screen, width=300)):
            yield scene


def test_jobs_are_fetched_meanwhile_and_the_worker_is_ended_after(scene: Scene) -> None:
    watch = scene.watch(part())
    assert not watch._tick() and len(scene.backend.launched) == 1
    scene.hand_over("p", 0)
    assert not watch._tick() and len(scene.stored) == 1
    scene.hand_over("p", 1, 2)
    scene.end("p")
    assert not watch._tick() and scene.backend.ended == [("p", "it has done its part")]
    scene.backend.over("p")
    assert watch._tick() and watch.given_up == []
    assert scene.journal.launches["p"].usd == pytest.approx(0.06)


def test_launch_is_noted_before_the_request(scene: Scene) -> None:
    scene.backend.refuse = RemoteError("AWS is busy", "Busy")
    watch = scene.watch(part())
    with pytest.raises(RemoteError, match="busy"):
        watch._tick()
    assert scene.backend.launched == [] and scene.journal.launches.keys() == {"p"}
    scene.backend.refuse = None
    again = scene.watch(part())
    assert again.launched and not again._tick()
    assert len(scene.backend.launched) == 1, "whoever goes on asks for what was written down"


def test_refused_launch_gives_up_the_part_and_costs_nothing(scene: Scene) -> None:
    scene.backend.refuse = LaunchRefused("no zone has one")
    watch = scene.watch(part())
    assert watch._tick()
    assert watch.given_up == ["p: 3 jobs left undone: no zone has one; the same command plans them again"]
    assert watch.committed_usd == 0.0 and scene.journal.launches == {}


def test_workers_never_exceed_the_maximum(scene: Scene) -> None:
    watch = scene.ticked(part("p", 0), part("q", 1), part("r", 2), most=2)
    assert [launch.name for launch in scene.backend.launched] == ["p", "q"]
    scene.hand_over("p", 0)
    scene.backend.over("p")
    watch._tick()
    assert [launch.name for launch in scene.backend.launched] == ["p", "q", "r"]


def test_a_part_waits_for_the_index_that_another_builds(scene: Scene) -> None:
    key = "ab-d"
    builder = part("builds", jobs=(), builds=(IndexBuild(key, "a", "d"),))
    watch = scene.ticked(builder, part("p", needs=(key,)))
    assert [launch.name for launch in scene.backend.launched] == ["builds"]
    content, folder = b"index", f"workers/{ROLE}:builds/indexes"
    sha256 = hashlib.sha256(content).hexdigest()
    scene.work.put(f"{folder}/{key}.{sha256}.tar.gz", content)
    scene.folder("builds").put_new(
        f"{records.index(key)}.json", dump(ShippedInput(f"{folder}/{key}.{sha256}.tar.gz", sha256, len(content)))
    )
    watch._tick()
    assert [launch.name for launch in scene.backend.launched] == ["builds", "p"]
    assert Indexes(scene.work, scene.store).find_index(key) is not None, "it lies among the inputs now"


def test_part_is_launched_at_once_where_the_service_keeps_the_order(scene: Scene) -> None:
    scene.backend.keeps_order = True
    scene.ticked(part("builds", jobs=(), builds=(IndexBuild("ab-d", "a", "d"),)), part("p", needs=("ab-d",)))
    assert [launch.name for launch in scene.backend.launched] == ["builds", "p"]


def test_cancelled_index_build_blocks_no_part(scene: Scene) -> None:
    watch = scene.ticked(part("builds", jobs=(), builds=(IndexBuild("ab-d", "a", "d"),)), part("p", needs=("ab-d",)))
    scene.backend.over("builds", "it was cancelled")
    watch._tick()
    assert [launch.name for launch in scene.backend.launched] == ["builds", "p"]
    assert "1 indexes are not built (it was cancelled)" in scene.output


@pytest.mark.parametrize(
    ("heartbeat", "silent_s", "says"),
    [
        (None, 1201, "no sign of life for 20 min"),
        ({"phase": "installing"}, 1201, "no sign of life for"),
        ({}, 301, "no sign of life for 5 min"),
        ({"notice": "terminate at noon"}, 0, "EC2 takes it away: terminate at noon"),
    ],
)
def test_silent_or_interrupted_worker_is_ended(
    scene: Scene, heartbeat: dict[str, Any] | None, silent_s: float, says: str
) -> None:
    watch = scene.ticked(part())
    at = NOW
    if heartbeat is not None:
        scene.heartbeat("p", **heartbeat)
        (stored,) = scene.folder("p").list()
        at = stored.modified.timestamp()
        scene.backend.states["p"] = replace(scene.backend.states["p"], launched=at)
    scene.clock.now = at + silent_s - 2 if silent_s else at
    watch._tick()
    assert (scene.backend.ended == []) == bool(silent_s)
    scene.clock.now = at + silent_s
    watch._tick()
    assert [why for _, why in scene.backend.ended] and says in scene.backend.ended[0][1]
    watch._tick()
    assert len(scene.backend.ended) == 1, "the next request follows after a while"
    scene.clock.now += 61
    watch._tick()
    assert len(scene.backend.ended) == 2


def test_a_lost_worker_interrupts_the_job_that_ran(scene: Scene) -> None:
    watch = scene.ticked(part())
    scene.hand_over("p", 0)
    scene.heartbeat("p", current=part_job(1).key)
    scene.backend.over("p", "its instance went away")
    assert watch._tick()
    outcomes = {result.spec.job: result.outcome for result in scene.stored}
    assert outcomes == {0: Outcome.OK, 1: Outcome.INTERRUPTED}
    (line,) = watch.given_up
    assert "2 jobs left undone: its instance went away; the same command plans them again" in line


@pytest.mark.parametrize(("cut_off", "interrupted"), [(False, 0), (True, 1)])
def test_end_record_decides_whether_a_job_was_interrupted(scene: Scene, cut_off: bool, interrupted: int) -> None:
    watch = scene.ticked(part())
    scene.heartbeat("p", current=part_job(0).key)
    scene.end("p", ok=False, detail="the disk is full", cut_off=cut_off)
    scene.backend.over("p")
    assert watch._tick()
    assert len(scene.stored) == interrupted
    assert "the disk is full" in watch.given_up[0]


def test_further_attempt_gets_only_the_missing_jobs(scene: Scene) -> None:
    """A service that replaces a lost machine begins the part again: its file names what is left."""
    watch = scene.ticked(part())
    scene.hand_over("p", 0)
    watch._tick()
    scene.backend.run("p", "second")
    watch._tick()
    assert scene.written[-1] == ("p", (part_job(1).key, part_job(2).key))
    count = len(scene.written)
    scene.hand_over("second", 1, 2)
    scene.backend.over("p", seconds=1200.0)
    assert watch._tick() and len(scene.stored) == 3
    assert len(scene.written) == count, "it is written once for each attempt"


def test_job_of_two_attempts_is_stored_once(scene: Scene) -> None:
    watch = scene.ticked(part())
    scene.backend.run("p", "second")
    scene.hand_over("p", 0, 1)
    scene.hand_over("second", 0, 1, 2)
    scene.backend.over("p")
    assert watch._tick() and len(scene.stored) == 3 and watch.given_up == []


def test_only_folders_of_the_runs_own_workers_are_read(scene: Scene) -> None:
    watch = scene.ticked(part())
    for number in range(3):
        scene.folder("stranger").put_new(records.job(part_job(number).key), b"forged")
    watch._tick()
    assert scene.stored == [] and watch._damaged == {}


def test_damaged_job_is_reported_and_the_others_are_fetched(scene: Scene) -> None:
    watch = scene.ticked(part())
    scene.folder("p").put_new(records.job(part_job(0).key), b"no tar")
    scene.hand_over("p", 1, 2)
    scene.end("p")
    scene.backend.over("p")
    assert watch._tick()
    outcomes = {result.spec.job: result.outcome for result in scene.stored}
    assert outcomes == {0: Outcome.INTERRUPTED, 1: Outcome.OK, 2: Outcome.OK}


@pytest.mark.parametrize("seconds", [60.0, None])
def test_launch_waits_for_promised_money_that_is_left_or_spent(scene: Scene, seconds: float | None) -> None:
    long = {"expected_s": 3600.0, "worst_s": 36_000.0}
    cap_usd = 1.5 * 0.36 * (1.25 * 3600 + 420) / 3600
    watch = scene.ticked(part("p", 0, **long), part("q", 1, **long), cap_usd=cap_usd)
    assert [launch.name for launch in scene.backend.launched] == ["p"] and watch.given_up == []
    scene.hand_over("p", 0)
    scene.backend.over("p", seconds=seconds)
    if seconds is None:
        assert watch._tick()
        (line,) = watch.given_up
        assert line.startswith("q: 1 job left undone: what is left of --max-usd, US$ ")
        return
    watch._tick()
    assert [launch.name for launch in scene.backend.launched] == ["p", "q"]
    assert all(launch.attempts == 1 for launch in scene.backend.launched)
    assert watch.committed_usd <= cap_usd


def test_resumed_run_counts_earlier_promises(scene: Scene) -> None:
    watch = scene.ticked(part("p", 0), part("q", 1), cap_usd=5.0)
    again = scene.watch(part("p", 0), part("q", 1), cap_usd=5.0)
    assert again.committed_usd == pytest.approx(watch.committed_usd)
    assert watch.committed_usd > 0


def tick_over(scene: Scene, watch: RunWatch) -> bool:
    scene.backend.over("p", "its instance went away")
    return watch._tick()


def test_text_of_a_worker_is_cut_and_loses_its_control_characters(scene: Scene) -> None:
    """A result of more than 2 MiB is refused by every later command that reads the folder."""
    watch = scene.ticked(part("p"))
    scene.heartbeat("p", current=part_job(0).key)
    scene.end("p", ok=False, detail="\x1b]0;owned\x07\x1b[2Jall is well" + "x" * (3 << 20), cut_off=True)
    tick_over(scene, watch)
    assert [result.outcome for result in scene.stored] == [Outcome.INTERRUPTED]
    assert "\x1b" not in scene.output and not any("\x1b" in line for line in watch.given_up)


@pytest.mark.parametrize("code", ["AccessDenied", "IncompleteReadError", "FlexibleChecksumError", "NoStorage"])
def test_unreadable_job_is_not_taken_for_damaged(scene: Scene, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    watch = scene.ticked(part("p"))
    scene.hand_over("p", 0, 1, 2)
    scene.end("p")
    get = Objects.get

    def refused(objects: Objects, name: str, most_bytes: int) -> bytes | None:
        if name.startswith(records.JOBS):
            raise RemoteError("reading: not now", code)
        return get(objects, name, most_bytes)

    with monkeypatch.context() as patch:
        patch.setattr(Objects, "get", refused)
        with contextlib.suppress(RemoteError):
            tick_over(scene, watch)
    again = scene.watch(part("p"))
    again.run()
    assert [result.outcome for result in scene.stored] == [Outcome.OK] * 3


def test_workers_survive_an_outage_of_s3(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could write or read a heartbeat; the first look after it must not end workers that work."""
    watch = scene.ticked(part("p"))
    scene.heartbeat("p")
    watch._tick()

    def away(*_: object) -> None:
        raise RemoteError("AWS is busy", "Busy")

    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "look", away)
        with pytest.raises(RemoteError):
            watch._tick()
    scene.clock.now += 1200
    watch._tick()
    assert scene.backend.ended == []


def test_two_commands_launch_one_machine(scene: Scene) -> None:
    """Two machines of one user with the same path of results; EC2's token is made of the launch's time."""
    first = scene.watch(part("p"))
    second = scene.watch(part("p"))  # has recalled before the first launches
    first._tick()
    scene.backend.states.clear()  # EC2 does not show it yet
    scene.clock.now += 5
    second._tick()
    assert len({launch.at for launch in scene.backend.launched}) == 1


def test_oldest_of_two_open_runs_is_resumed_first(work: Objects) -> None:
    made = [journal.Journal(work, RemoteRun(name, "ec2", "s", "results", "o", ())) for name in ("s-2", "s-1")]
    for each in made:
        each.begin()
    for expected, each in (("s-1", made[1]), ("s-2", made[0])):
        found = journal.find(work, "ec2", "s", "results", "o")
        assert found is not None and found.run_id == expected
        assert journal.find(work, "ec2", "s", "others", "o") is None
        each.close()
    assert journal.find(work, "ec2", "s", "results", "o") is None


def test_last_command_reports_jobs_that_earlier_ones_gave_up(scene: Scene) -> None:
    """Else the last command ends with exit code 0 over a table that lacks jobs."""
    watch = scene.ticked(part("p", 0), part("q", 1))
    scene.end("p", ok=False, detail="the disk is full")
    scene.backend.over("p")
    watch._tick()
    assert len(watch.given_up) == 1  # and then the command is killed
    again = scene.watch(part("p", 0), part("q", 1))
    scene.hand_over("q", 1)
    scene.backend.over("q")
    again.run()
    assert any("p: 1 job left undone" in line or line.startswith("p") for line in again.given_up)


def test_worker_that_does_not_end_is_given_up_and_costs_its_whole_limit(scene: Scene) -> None:
    """It goes on to cost money: what is left of its promise must not be given to another launch."""
    scene.backend.left = ["i-p (shutting-down)"]
    watch = scene.ticked(part("p", 0))
    promised = watch.committed_usd
    scene.backend.states["p"] = replace(scene.backend.states["p"], seconds=900.0)
    scene.end("p")
    scene.hand_over("p", 0)
    watch._tick()
    scene.clock.now += 901
    assert watch._tick(), "nobody waits for ever"
    assert watch.committed_usd == pytest.approx(promised)


def test_clock_advances_without_a_worker(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an instance that EC2 never shows is waited for without end: nothing asks S3, whose answers are the clock."""
    watch, asked = scene.ticked(part("p", 0)), []
    scene.backend.states["p"] = PartState(WAITING, "launching", (f"{ROLE}:p",), 1)
    monkeypatch.setattr(Objects, "ask_time", lambda _: asked.append(1))
    watch._tick()
    assert len(asked) == 1


def test_listing_of_a_worker_is_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand names are a request and hundreds of milliseconds, at each look."""
    watch = scene.ticked(part("p", 0))
    count = [0]

    def endless(objects: Objects, prefix: str = "", after: str | None = None) -> Iterator[StoredObject]:
        for number in range(1_000_000):
            count[0] = number
            yield StoredObject(f"jobs/{number:020}.tar", 1, "x", datetime.now(UTC))

    with monkeypatch.context() as patch:
        patch.setattr(Objects, "list", endless)
        watch._tick()
    assert count[0] < 200_000 and len(scene.journal.workers[f"{ROLE}:p"].jobs) < 200_000


INDEX = records.index("ab-d") + ".json"
LARGE = b" " * (17 << 20)
STRANGERS = dump(ShippedInput("inputs/images/stranger.tar.gz", "0" * 64, 1))


@pytest.mark.parametrize(
    ("name", "record", "kind"),
    [
        *((name, LARGE, "STANDARD") for name in (records.HEARTBEAT, records.END, INDEX)),
        (INDEX, b"junk", "STANDARD"),
        (INDEX, STRANGERS, "STANDARD"),
        # Whoever may put an object chooses its storage class: then nobody reads it.
        *((name, b"{}", "GLACIER") for name in (records.HEARTBEAT, records.END, INDEX)),
    ],
)
def test_large_forged_or_archived_record_is_ignored(scene: Scene, name: str, record: bytes, kind: str) -> None:
    watch = scene.ticked(part("p", 0, builds=(IndexBuild("ab-d", "a", "d"),)), part("q", 1))
    place = scene.folder("p").place
    scene.work.client.put_object(Bucket=place.bucket, Key=place.key(name), Body=record, StorageClass=kind)
    scene.hand_over("q", 1)
    watch._tick()
    assert len(scene.stored) == 1
