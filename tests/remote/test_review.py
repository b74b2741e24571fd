"""Faults found in review: what a hostile box, an outage or a second command does to the watching one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from harness.aws.objects import Objects, Stored
from harness.errors import AwsError
from harness.records import Outcome
from harness.remote import journal, layout
from harness.remote.backend import WAITING, State
from harness.remote.records import IndexBuild, Input, Run, dump
from harness.stored_jobs import read_jobs
from tests.remote.test_watch import ROLE, Scene, part, part_job, scene

__all__ = ["scene"]


def tick_over(scene: Scene, watch: Any) -> bool:
    scene.backend.over("p", "its instance went away")
    return bool(watch._tick())


# --- what a box writes must not stop the user's command for good ------------------------------------------------------


@pytest.mark.parametrize("name", [layout.BEAT, layout.END])
def test_a_record_that_is_too_large_stops_nobody(scene: Scene, name: str) -> None:
    watch = scene.watch(part("p", 0), part("q", 1))
    watch._tick()
    scene.box("p").put(name, b" " * (17 << 20))
    scene.hand_over("q", 1)
    watch._tick()
    assert len(scene.stored) == 1


@pytest.mark.parametrize(
    "record",
    [b"junk", b" " * (17 << 20), dump(Input("inputs/images/stranger.tar.gz", "0" * 64, 1))],
    ids=["junk", "large", "stranger's"],
)
def test_a_forged_record_of_an_index_stops_nobody(scene: Scene, record: bytes) -> None:
    watch = scene.watch(part("p", 0, builds=(IndexBuild("ab-d", "a", "d"),)), part("q", 1))
    watch._tick()
    scene.box("p").put(f"{layout.index('ab-d')}.json", record)
    scene.hand_over("q", 1)
    watch._tick()
    assert len(scene.stored) == 1


def test_what_a_box_says_is_short_enough_for_the_store(scene: Scene) -> None:
    """A result of more than 2 MiB is refused by every later command that reads the folder."""
    watch = scene.watch(part("p"))
    watch._tick()
    scene.beat("p", current=part_job(0).key)
    scene.end("p", ok=False, detail="x" * (3 << 20), cut_off=True)
    tick_over(scene, watch)
    assert [job.result.outcome for job in read_jobs(scene.store.folder)] == [Outcome.INTERRUPTED]


def test_what_a_box_says_moves_no_cursor(scene: Scene) -> None:
    watch = scene.watch(part("p"))
    watch._tick()
    scene.end("p", ok=False, detail="\x1b]0;owned\x07\x1b[2Jall is well")
    tick_over(scene, watch)
    assert "\x1b" not in scene.said and not any("\x1b" in line for line in watch.given_up)


# --- results that are whole in S3 are not lost ------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["AccessDenied", "IncompleteReadError", "FlexibleChecksumError", "NoSuchBucket"])
def test_a_job_that_could_not_be_read_is_not_taken_for_damaged(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    watch = scene.watch(part("p"))
    watch._tick()
    scene.hand_over("p", 0, 1, 2)
    scene.end("p")
    get = Objects.get

    def refused(objects: Objects, name: str, most_bytes: int) -> bytes | None:
        if name.startswith(layout.JOBS):
            raise AwsError("reading: not now", code)
        return get(objects, name, most_bytes)

    with monkeypatch.context() as patch:
        patch.setattr(Objects, "get", refused)
        with contextlib.suppress(AwsError):
            tick_over(scene, watch)
    again = scene.watch(part("p"))
    again.run()
    assert [result.outcome for result in scene.stored] == [Outcome.OK] * 3


def test_boxes_survive_an_outage_of_s3(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could write or read a sign of life; the first look after it must not end boxes that work."""
    watch = scene.watch(part("p"))
    watch._tick()
    scene.beat("p")
    watch._tick()

    def away(*_: object) -> None:
        raise AwsError("AWS is busy", "Busy")

    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "look", away)
        with pytest.raises(AwsError):
            watch._tick()
    scene.clock.now += 1200
    watch._tick()
    assert scene.backend.ended == []


# --- two commands over one run ----------------------------------------------------------------------------------------


def test_two_commands_ask_for_one_machine(scene: Scene) -> None:
    """Two machines of one user with the same path of results; EC2's token is made of the launch's time."""
    first = scene.watch(part("p"))
    second = scene.watch(part("p"))  # has recalled before the first launches
    first._tick()
    scene.backend.states.clear()  # EC2 does not show it yet
    scene.clock.now += 5
    second._tick()
    assert len({launch.at for launch in scene.backend.launched}) == 1


def test_the_remedy_for_two_open_runs_works(work: Objects) -> None:
    for name in ("s-1", "s-2"):
        journal.Journal(work, Run(name, "ec2", "s", "results", "o", "us-east-1", ())).begin()
    with pytest.raises(Exception, match="both open") as raised:
        journal.find(work, "ec2", "s", "results", "o")
    if "bring one home with another --results" in str(raised.value):
        assert journal.find(work, "ec2", "s", "another", "o") is not None


def test_what_an_earlier_command_left_undone_is_told_by_the_last(scene: Scene) -> None:
    """Else the last command ends with exit code 0 over a table that lacks jobs."""
    watch = scene.watch(part("p", 0), part("q", 1))
    watch._tick()
    scene.end("p", ok=False, detail="the disk is full")
    scene.backend.over("p")
    watch._tick()
    assert len(watch.given_up) == 1  # and then the command is killed
    again = scene.watch(part("p", 0), part("q", 1))
    scene.hand_over("q", 1)
    scene.backend.over("q")
    again.run()
    assert any("p: 1 jobs left undone" in line or line.startswith("p") for line in again.given_up)


def test_a_box_that_does_not_go_is_still_owed_for(scene: Scene) -> None:
    """It goes on to cost money: what is left of its promise must not be given to another launch."""
    watch = scene.watch(part("p", 0))
    watch._tick()
    promised = watch.budget.committed_usd
    scene.backend.states["p"] = replace(scene.backend.states["p"], seconds=900.0)
    scene.end("p")
    scene.hand_over("p", 0)
    watch._tick()
    scene.clock.now += 901
    assert watch._tick()
    assert watch.budget.committed_usd == promised


def test_aws_time_goes_on_although_no_box_is_shown(scene: Scene) -> None:
    """Else an instance that EC2 never shows is waited for without end: nothing asks S3, whose answers are the clock."""
    scene.clock = journal.AwsTime(scene.work._connections)
    scene.work.size("runs")
    watch = scene.watch(part("p", 0))
    watch._tick()
    scene.backend.states["p"] = State(WAITING, "launching", (f"{ROLE}:p",), 1)
    before = scene.clock.now
    time.sleep(2.1)
    watch._tick()
    assert scene.clock.now > before


@pytest.mark.parametrize("name", [layout.BEAT, layout.END, layout.index("ab-d") + ".json"])
def test_an_object_in_an_archive_stops_nobody(scene: Scene, name: str) -> None:
    """Whoever may put an object chooses its storage class, and a key of its own: then nobody reads it."""
    watch = scene.watch(part("p", 0, builds=(IndexBuild("ab-d", "a", "d"),)), part("q", 1))
    watch._tick()
    place = scene.box("p").place
    scene.work.client.put_object(Bucket=place.bucket, Key=place.key(name), Body=b"{}", StorageClass="GLACIER")
    scene.hand_over("q", 1)
    watch._tick()
    assert len(scene.stored) == 1


def test_a_box_that_writes_without_end_is_not_listed_without_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand names are a request and hundreds of milliseconds, at each look."""
    watch = scene.watch(part("p", 0))
    watch._tick()
    count = [0]

    def endless(objects: Objects, prefix: str = "", after: str | None = None) -> Iterator[Stored]:
        for number in range(1_000_000):
            count[0] = number
            yield Stored(f"jobs/{number:020}.tar", 1, "x", datetime.now(UTC))

    with monkeypatch.context() as patch:
        patch.setattr(Objects, "list", endless)
        watch._tick()
    assert count[0] < 200_000 and len(scene.journal.signs[f"{ROLE}:p"].jobs) < 200_000
