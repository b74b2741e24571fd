"""An index is complete or absent, and its cost is stored beside it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import datasets
from harness.driver.output import MEASUREMENT
from harness.driver.records import Envelope, Outcome
from harness.errors import JobError, StoreError
from harness.filesystem import this_process
from harness.jobs import indexes
from harness.launch.base import LaunchEnd, Launcher, LaunchRequest, Limits
from harness.launch.fake import FakeLauncher
from harness.launch.images import catalog
from harness.launch.monitor.traces import CounterReading, CounterTrace
from harness.launch.process import ProcessLauncher
from harness.progress import Progress
from harness.results.isolation import FAKE
from harness.results.schema import CanaryReading, Placement
from tests.conftest import Bench
from tests.support import sample_records

ENVELOPE = Envelope("cpu1-mem1", 1, 1 << 30)


class Builder(FakeLauncher):
    """Builds as a fake does, then does ``mischief`` in the index."""

    def __init__(self, mischief: Callable[[Path], object] = lambda _: None) -> None:
        super().__init__()
        self.mischief = mischief

    def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        ended = super().launch(job, progress)
        self.mischief(job.index_dir)
        return ended


def build(bench: Bench, launcher: Launcher, key: str = "key", system: str = "planted", **options: Any) -> indexes.Index:
    prepared = launcher.prepare(catalog.system(system))
    corpus = datasets.load(bench.folder / "tiny", bench.cache).corpus
    options = {"envelope": ENVELOPE, "limits": Limits(), **options}
    return indexes.build(launcher, prepared, corpus, key, "index of tiny", bench.cache, **options)


def left(bench: Bench) -> list[str]:
    return sorted(path.name for path in (bench.cache / "indexes").glob("*"))


def test_built_index_is_found(bench: Bench) -> None:
    assert indexes.find(bench.cache, "key") is None
    built = build(bench, FakeLauncher())
    assert indexes.find(bench.cache, "key") == built
    assert indexes.find(bench.cache, "other") is None
    assert built.facts.build_s == 2.0 and built.facts.index_bytes == len("fake\n")
    assert built.facts.observed.memory.peak_anon_bytes == 100 << 20 and built.facts.envelope == ENVELOPE
    assert (built.folder / "index").read_text() == "fake\n"
    assert left(bench) == ["key"]
    assert sorted(path.name for path in (bench.cache / "indexes" / "key").iterdir()) == ["data", "facts.json"]


class Watched(FakeLauncher):
    """Reads the machine beside a build of three seconds, whose CPUs others used for one."""

    def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        ended = super().launch(job, progress)
        measured = json.loads((job.out / MEASUREMENT).read_text())
        measured |= {"phases": [{"name": "build", "start_ns": S, "end_ns": 4 * S}], "throttled_periods": 9}
        (job.out / MEASUREMENT).write_text(json.dumps(measured))
        readings = tuple(CounterReading(t * S, t * S, 4 * t * S // 3, 0, 0, 0, 0, 0) for t in range(7))
        return replace(ended, throttled_periods=3, canary=CANARY, placement=PLACEMENT, counters=CounterTrace(readings))


S = 1_000_000_000
CANARY = tuple(CanaryReading(when, 0, 0.2, 0.003, 0.02, None) for when in ("before", "after"))
PLACEMENT = Placement((0,), (0,), True, (1,), True)


def test_facts_hold_the_machines_readings_beside_the_build(bench: Bench) -> None:
    host = sample_records.result().environment
    facts = build(bench, Watched(), environment=host).facts
    assert (facts.environment, facts.isolation, facts.observed.canary) == (host, FAKE.name, CANARY)
    assert (facts.observed.placement, facts.observed.throttled_periods, facts.observed.shared_host) == (
        PLACEMENT,
        3,
        False,
    )
    assert facts.observed.counters.wall_s == 3.0 and facts.observed.counters.foreign_cpu_s == pytest.approx(1.0)
    assert facts.started_at is not None and datetime.fromisoformat(facts.started_at).tzinfo is not None
    assert indexes.find(bench.cache, "key") == indexes.Index(bench.cache / "indexes" / "key" / "data", facts)


@pytest.mark.parametrize("outcome", [Outcome.CRASH, Outcome.OOM, Outcome.TIMEOUT])
def test_failed_build_leaves_nothing(bench: Bench, outcome: Outcome) -> None:
    with pytest.raises(JobError, match=r"^index build: ") as caught:
        build(bench, FakeLauncher(lambda _: outcome))
    assert caught.value.outcome is outcome
    assert left(bench) == []


class Full(FakeLauncher):
    """Ends builds with ``outcome`` and a full-disk error in their log."""

    def __init__(self, outcome: Outcome, words: bytes) -> None:
        super().__init__(lambda _: outcome)
        self.words = words

    def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        return replace(super().launch(job, progress), log=self.words)


def test_build_failure_on_a_full_disk_is_not_the_systems_fault(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    words = b"java.io.IOException: No space left on device\n"
    free = {"bytes": 9 << 20}  # what Lucene gave back when it failed
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free["bytes"]))
    with pytest.raises(StoreError, match=r"the disk is full \(9216 KiB left\)"):
        build(bench, Full(Outcome.CRASH, words))
    with pytest.raises(JobError, match="scripted crash"):
        build(bench, Full(Outcome.CRASH, b"something else\n"))
    free["bytes"] = 1 << 40
    with pytest.raises(JobError, match="scripted crash"):  # its /tmp was full, the host's disk is not
        build(bench, Full(Outcome.CRASH, words))
    assert left(bench) == []


def test_index_built_on_a_full_disk_is_discarded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"bytes": 1 << 40}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free["bytes"]))
    with pytest.raises(StoreError, match="the disk is full"):
        build(bench, Builder(lambda _: free.update(bytes=1000)))
    launcher = FakeLauncher()
    with pytest.raises(StoreError, match="the disk is full"):
        build(bench, launcher)
    assert launcher.launched == [] and left(bench) == []


def sparse(folder: Path) -> None:
    """Write a sparse file as long as eight million files of 1 MiB."""
    with (folder / "hole").open("wb") as file:
        file.truncate(1 << 43)


def empty(folder: Path) -> None:
    (folder / "index").write_bytes(b"")


@pytest.mark.parametrize(
    ("mischief", "message"),
    [
        (empty, "the index is empty"),
        (sparse, "the index has 8388608 MiB, at most 1024 MiB make sense"),
        (lambda folder: (folder / "passwd").symlink_to("/etc/passwd"), "'passwd' is not a regular file"),
        (lambda folder: (folder / "out").symlink_to("/etc"), "'out' is not a regular file"),
        (lambda folder: os.mkfifo(folder / "pipe"), "'pipe' is not a regular file"),
    ],
)
def test_index_is_refused_if_empty_or_linked_outside(
    bench: Bench, mischief: Callable[[Path], object], message: str
) -> None:
    with pytest.raises(JobError, match=message) as caught:
        build(bench, Builder(mischief))
    assert caught.value.outcome is Outcome.BAD_OUTPUT
    assert left(bench) == []


def test_cached_index_has_no_setuid_or_setgid_files(bench: Bench) -> None:
    def borrow(folder: Path) -> None:
        (folder / "shell").write_text("#!/bin/sh\n")
        (folder / "shell").chmod(0o6755)
        (folder / "part").mkdir(mode=0o755)
        (folder / "part").chmod(0o2755)

    made = build(bench, Builder(borrow)).folder
    assert [(made / name).stat().st_mode & 0o7777 for name in ("shell", "part")] == [0o755, 0o755]


def test_slow_index_hash_is_a_timeout(tmp_path: Path) -> None:
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(JobError, match="hashing the index took longer than") as caught:
        indexes.content(tmp_path, until=0.0)
    assert caught.value.outcome is Outcome.TIMEOUT


def test_hash_covers_content_and_paths(bench: Bench) -> None:
    plain = build(bench, FakeLauncher(), "1").facts.content_sha256
    assert build(bench, FakeLauncher(), "2").facts.content_sha256 == plain
    renamed = build(bench, Builder(lambda folder: (folder / "index").rename(folder / "x")), "3").facts.content_sha256
    changed = build(bench, Builder(lambda folder: (folder / "index").write_text("f4ke\n")), "4").facts.content_sha256
    odd = build(bench, Builder(lambda folder: (folder / os.fsdecode(b"\xff")).touch()), "5").facts.content_sha256
    assert len({plain, renamed, changed, odd}) == 4


def test_leftovers_of_dead_builds_are_removed_and_running_builds_stay(bench: Bench) -> None:
    folder = bench.cache / "indexes"
    mine = f"{this_process()}.partial"
    dead, elsewhere = (
        f"{this_process().rpartition('_')[0]}_1.partial",
        f"elsewhere_{this_process().partition('_')[2]}.partial",
    )
    for name in (f"key.{dead}", f"key.{mine}", f"key.{elsewhere}", f"other.{dead}", f"other.{mine}"):
        (folder / name / "data").mkdir(parents=True)
    build(bench, FakeLauncher(), system="null")
    assert left(bench) == ["key", f"key.{elsewhere}", f"other.{mine}"]


def test_index_finished_first_by_another_run_is_used(bench: Bench) -> None:
    def faster(_: Path) -> None:
        build(bench, FakeLauncher(), "other")
        (bench.cache / "indexes" / "other").rename(bench.cache / "indexes" / "key")

    assert build(bench, Builder(faster)) == indexes.find(bench.cache, "key")
    assert left(bench) == ["key"]


def changed(folder: Path) -> None:
    (folder / "index").write_text("another\n")


def test_a_second_build_of_equal_content_replaces_the_facts_alone(bench: Bench) -> None:
    first = build(bench, FakeLauncher())
    place = (first.folder / "index").stat().st_ino
    with first.in_use():  # a job reads the index meanwhile, and loses nothing
        second = build(bench, Watched(), again=True)
    assert second.facts.observed.canary == CANARY and indexes.find(bench.cache, "key") == second
    assert (second.folder / "index").stat().st_ino == place and second.unchanged(time.monotonic() + 9)
    assert left(bench) == ["key"]


def test_a_second_build_of_other_content_replaces_the_index(bench: Bench) -> None:
    first = build(bench, FakeLauncher())
    second = build(bench, Builder(changed), again=True)
    assert second.facts.content_sha256 != first.facts.content_sha256
    assert indexes.find(bench.cache, "key") == second and (second.folder / "index").read_text() == "another\n"
    assert left(bench) == ["key"]


@pytest.mark.slow
def test_an_index_is_replaced_only_when_no_job_reads_it(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first = build(bench, FakeLauncher())
    ready, ended = threading.Event(), threading.Event()

    def replacing() -> None:
        build(bench, Builder(lambda folder: (changed(folder), ready.set())), again=True)
        ended.set()

    with first.in_use():
        thread = threading.Thread(target=replacing)
        thread.start()
        assert ready.wait(20)
        assert not ended.wait(0.3) and (first.folder / "index").read_text() == "fake\n"
    thread.join(20)
    assert ended.is_set() and (first.folder / "index").read_text() == "another\n"
    assert "a job of another run reads the old index; waiting for its end" in caplog.text


@pytest.mark.parametrize("outcome", [Outcome.CRASH, Outcome.OOM, Outcome.TIMEOUT])
def test_a_failed_second_build_leaves_the_first_index(bench: Bench, outcome: Outcome) -> None:
    first = build(bench, FakeLauncher())
    with pytest.raises(JobError):
        build(bench, FakeLauncher(lambda _: outcome), again=True)
    assert indexes.find(bench.cache, "key") == first and left(bench) == ["key"]


@pytest.mark.parametrize("renames", [0, 1])
def test_a_kill_while_an_index_is_replaced_leaves_a_usable_cache(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    build(bench, FakeLauncher())
    rename, done = Path.rename, []

    def killed(path: Path, target: Path) -> Path:
        if path.name.startswith("key"):
            if len(done) == renames:
                raise KeyboardInterrupt
            done.append(target)
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        patch.setattr(indexes.filesystem, "remove_tree", lambda _: None)  # the dead clean nothing up
        with pytest.raises(KeyboardInterrupt):
            build(bench, Builder(changed), again=True)
    found = indexes.find(bench.cache, "key")
    assert (found is None) == bool(renames)
    again = build(bench, FakeLauncher())
    assert indexes.content(again.folder) == (again.facts.index_bytes, again.facts.content_sha256)


def test_index_with_damaged_facts_is_not_found(bench: Bench) -> None:
    build(bench, FakeLauncher())
    path = bench.cache / "indexes" / "key" / "facts.json"
    path.unlink()
    os.mkfifo(path)
    assert indexes.find(bench.cache, "key") is None
    path.unlink()
    path.write_text("{")
    assert indexes.find(bench.cache, "key") is None
    assert build(bench, FakeLauncher()) == indexes.find(bench.cache, "key"), "it is made again in its place"


def test_unreadable_file_or_endless_folders_fail_the_build(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = "/".join("a" * 70)
    with pytest.raises(JobError, match="folders more than 64 levels deep") as caught:
        build(bench, Builder(lambda folder: (folder / deep).mkdir(parents=True)))
    assert caught.value.outcome is Outcome.BAD_OUTPUT

    def closed(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(indexes, "open_regular", closed)
    with pytest.raises(JobError, match="the index cannot be read: Permission denied"):
        build(bench, FakeLauncher())
    assert left(bench) == []


def test_build_gets_all_cpus_and_half_of_the_memory(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.launch.host.cpus", lambda: 16)
    monkeypatch.setattr("harness.launch.host.memory_bytes", lambda: (3 << 30) + 12345)
    envelope = build(bench, FakeLauncher(), envelope=None).facts.envelope
    assert (envelope.cpus, envelope.memory_bytes) == (16, 3 << 29)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "die"])
def test_unfinished_build_resumes(bench: Bench, how: str) -> None:
    bench.plant("halfway", build_misdeed=how)
    launcher = ProcessLauncher(bench.cache)
    with pytest.raises(JobError, match="half-way" if how == "stop" else "exit code -9"):
        build(bench, launcher, system="halfway")
    assert left(bench) == ["key.begun"]
    made = build(bench, launcher, system="halfway")
    assert left(bench) == ["key"] and sorted(path.name for path in made.folder.parent.iterdir()) == [
        "data",
        "facts.json",
    ]
    assert made.facts.resumed_s == 0.01 and made.facts.build_s > 0.01
    whole = build(bench, launcher, "other")
    assert whole.facts.resumed_s is None and whole.facts.content_sha256 == made.facts.content_sha256


@pytest.mark.slow
def test_build_starts_over_if_resuming_fails(bench: Bench) -> None:
    bench.plant("stumbling", build_misdeed="stumble")
    launcher = ProcessLauncher(bench.cache)
    for message, remains in (("half-way", ["key.begun"]), ("stumbles", []), ("half-way", ["key.begun"])):
        with pytest.raises(JobError, match=message):
            build(bench, launcher, system="stumbling")
        assert left(bench) == remains


@pytest.mark.slow
def test_resumed_build_keeps_its_progress_after_a_later_crash(bench: Bench) -> None:
    bench.plant("unlucky", build_misdeed="advance")
    launcher = ProcessLauncher(bench.cache)
    for _ in range(3):
        with pytest.raises(JobError, match="crashes a little further on"):
            build(bench, launcher, system="unlucky")
    assert left(bench) == ["key.begun"]
    kept = bench.cache / "indexes" / "key.begun" / "data" / ".building"
    assert len(list(kept.iterdir())) == 3


@pytest.mark.slow
def test_impossible_resumed_time_is_ignored(bench: Bench) -> None:
    bench.plant("lying", build_misdeed="stop", lies=1e6)
    launcher = ProcessLauncher(bench.cache)
    with pytest.raises(JobError, match="half-way"):
        build(bench, launcher, system="lying")
    with pytest.raises(JobError, match=r"10000\.0 s of earlier work, which began [0-9.]+ s ago") as caught:
        build(bench, launcher, system="lying")
    assert caught.value.outcome is Outcome.BAD_OUTPUT and left(bench) == []
