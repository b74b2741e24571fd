"""Whatever goes wrong, no instance stays, no result is lost or doubled, and one line says what happened."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import boto3
import pytest

from harness.aws.connections import Connections
from harness.aws.objects import Objects
from harness.aws.uri import S3Uri
from harness.ec2 import launching, preflight, running
from harness.ec2.conductor import Pace
from harness.ec2.standing import Run, Standing
from harness.errors import AwsError, UsageError
from harness.records import Outcome
from tests.aws import server
from tests.aws.server import REGION
from tests.ec2.boxes import Fate
from tests.ec2.conftest import QUICK, WORK, Field, launched_and_terminated, lines
from tests.ec2.faults import Injected

JOBS = 9


def whole(plain: Field, *, interrupted: int = 0) -> None:
    """Every job is stored once, and as many were interrupted."""
    outcomes = Counter(result.outcome for result in plain.stored)
    assert outcomes == Counter({Outcome.OK: JOBS, Outcome.INTERRUPTED: interrupted})
    done = [(result.spec.cell, result.spec.job) for result in plain.stored if result.outcome is Outcome.OK]
    assert len(set(done)) == JOBS


def test_a_box_whose_heartbeat_stops_is_replaced(plain: Field) -> None:
    """AWS' clock goes on by more than is waited for a sign, once all others are done."""
    waited: list[float] = []

    def nap(seconds: float) -> None:
        time.sleep(seconds)
        if not waited and boxes.silent and "002-1" in boxes.worked and len(boxes.alive) == 1:
            waited.append(QUICK.beat_s + 1)
            server.forward(plain.endpoint, *waited)

    with plain.boxes(fates={"003-1": Fate(after=1, silent=True)}) as boxes:
        done = plain.run(plain.side(pace=Pace(0.03, 5, nap)))
    whole(plain, interrupted=1)
    (line,) = lines(plain.said, "ended, because")
    assert "no sign of life" in line and "003-1" in line
    assert done.complaints == ()


def test_a_spot_notice_interrupts_one_job_alone(plain: Field) -> None:
    notice = "terminate at 2026-11-22T10:00:00Z"
    with plain.boxes(fates={"003-1": Fate(after=1, notice=notice)}):
        done = plain.run(spot=True)
    whole(plain, interrupted=1)
    (line,) = lines(plain.said, "ended, because")
    assert f"EC2 takes it away: {notice}" in line
    (interrupted,) = [result for result in plain.stored if result.outcome is Outcome.INTERRUPTED]
    assert interrupted.instance is not None and interrupted.instance.lifecycle == "spot"
    assert notice in (interrupted.detail or "") or "went away" in (interrupted.detail or "")
    assert done.complaints == ()


def test_a_box_that_is_cut_off_and_can_still_say_so(plain: Field) -> None:
    """The job that ran says nothing about its system; of a box that fails by itself, none is interrupted."""
    fates = {
        "002-1": Fate(after=1, error="the disk is full"),
        "003-1": Fate(after=1, error="the agent was told to end", cut_off=True),
    }
    with plain.boxes(fates=fates):
        done = plain.run()
    whole(plain, interrupted=1)
    (interrupted,) = [result for result in plain.stored if result.outcome is Outcome.INTERRUPTED]
    assert "the agent was told to end" in (interrupted.detail or "") and done.complaints == ()


def test_one_that_dies_without_a_word_leaves_its_reason_and_its_console(plain: Field) -> None:
    connections = Connections(REGION)

    def shows(parsed: dict[str, Any], **_: object) -> None:
        parsed["Output"] = "\x1b[0mboot: failed\r\nno space left on device of 123456789012\r\n"

    connections.client("ec2").meta.events.register("after-call.ec2.GetConsoleOutput", shows)
    with plain.boxes(fates={"003-1": Fate(dies=True, after=0)}):
        done = plain.run(plain.side(connections))
    whole(plain, interrupted=1)  # the first job was about to begin
    assert done.complaints == ()
    (line,) = lines(plain.said, "goes to another instance")
    assert "its instance went away (Client.UserInitiatedShutdown: User initiated shutdown)" in line
    (line,) = lines(plain.said, "its console's last line")
    assert line.endswith("no space left on device of <account>") and "logs/003-1.console.txt" in line
    work = Objects(connections, WORK)
    (name,) = [each.name for each in work.list("runs/") if each.name.endswith("003-1.console.txt")]
    assert b"boot: failed" in (work.get(name, 1 << 20) or b"")


def test_three_boxes_fail_and_the_rest_is_given_up(plain: Field) -> None:
    fates = {f"002-{attempt}": Fate(after=1, error="the disk is full") for attempt in (1, 2, 3)}
    with plain.boxes(fates=fates) as boxes:
        done = plain.run()
    assert "002-4" not in boxes.worked
    (complaint,) = done.complaints
    assert "given up" in complaint and "the disk is full" in complaint and "3 instances" in complaint
    assert Counter(result.outcome for result in plain.stored)[Outcome.OK] < JOBS
    assert plain.closed()
    # What was given up is there to be done again.
    with plain.boxes():
        plain.run()
    whole(plain)


def test_a_job_that_arrives_damaged_is_measured_again(plain: Field) -> None:
    with plain.boxes(fates={"003-1": Fate(damages=True)}):
        done = plain.run()
    whole(plain, interrupted=1)
    (interrupted,) = [result for result in plain.stored if result.outcome is Outcome.INTERRUPTED]
    assert "a job that arrived" in (interrupted.detail or "")
    assert done.complaints == ()


def test_an_index_that_cannot_be_built_keeps_nobody_waiting(plain: Field) -> None:
    with plain.boxes(fates={"001-1": Fate(no_index=True)}):
        done = plain.run()
    whole(plain)
    assert done.complaints == ()


def test_killed_between_storing_what_was_interrupted_and_the_next_launch(
    plain: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = Run.settle

    def dies(run: Run, standing: Standing) -> None:
        settle(run, standing)
        if standing.part == "003-1":
            raise KeyboardInterrupt

    with plain.boxes(fates={"003-1": Fate(after=2, dies=True)}):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Run, "settle", dies)
            plain.run()
        assert [result.outcome for result in plain.stored].count(Outcome.INTERRUPTED) == 1
        done = plain.run()
    whole(plain, interrupted=1)
    assert done.complaints == () and done.summary.complaints == []


def test_a_run_ends_whole_although_s3_throttles(plain: Field) -> None:
    connections, chance = Connections(REGION), random.Random(7)
    codes = ("SlowDown", "InternalError", "503", "ServiceUnavailable")
    # While the run is under way: before that one line and giving the command again is all that is wanted.
    hook = Injected(
        connections,
        "s3",
        lambda number, _what: chance.choice(codes) if number > 25 and chance.random() < 0.1 else None,
    )
    with plain.boxes():
        done = plain.run(plain.side(connections))
    whole(plain)
    assert hook.raised > 0 and done.complaints == ()
    assert "trying on" in plain.said and "AWS is busy" in plain.said


def test_ec2_is_not_reached_for_a_while(plain: Field) -> None:
    connections = Connections(REGION)
    Injected(
        connections, "ec2.DescribeInstances", lambda number, _what: "RequestLimitExceeded" if 3 < number < 9 else None
    )
    with plain.boxes():
        done = plain.run(plain.side(connections))
    whole(plain)
    assert done.complaints == ()


def test_a_launch_whose_answer_is_lost_is_asked_for_again_and_makes_one_instance(plain: Field) -> None:
    connections = Connections(REGION)
    lost = []

    def lose(http_response: Any, parsed: dict[str, Any], **_: object) -> None:
        if not lost:
            lost.append(True)
            http_response.status_code = 500
            parsed["Error"] = {"Code": "InternalError", "Message": "lost"}

    launching.client(connections, None).meta.events.register("after-call.ec2.RunInstances", lose)
    with plain.boxes() as boxes:
        done = plain.run(plain.side(connections))
    whole(plain)
    assert lost and len(boxes.worked) == len(set(boxes.worked)) == 3
    assert launched_and_terminated() == (3, 3) and done.complaints == ()


def test_credentials_expire_and_the_same_command_goes_on(plain: Field) -> None:
    connections = Connections(REGION)
    with plain.boxes(pause_s=0.3) as boxes:
        # Once a job is measured others are still to come, however seldom a slow machine looks.
        Injected(connections, "ec2", lambda *_: "ExpiredToken" if boxes.measured else None)
        with pytest.raises(AwsError, match="credentials have expired; log in again") as raised:
            plain.run(plain.side(connections))
        assert raised.value.exit_code == 1
        assert lines(plain.said, "instances go on, and end by themselves by")
        done = plain.run()
    whole(plain)
    assert len(boxes.worked) == len(set(boxes.worked))
    assert done.complaints == () and "goes on with the open run" in plain.said


def test_ctrl_c_says_what_goes_on_and_the_same_command_does(plain: Field) -> None:
    released = threading.Event()

    def nap(seconds: float) -> None:
        time.sleep(seconds)
        if boxes.worked:
            raise KeyboardInterrupt

    with plain.boxes(held=released) as boxes:
        with pytest.raises(KeyboardInterrupt):
            plain.run(plain.side(pace=Pace(0.05, 5, nap)))
        (line,) = lines(plain.said, "instances go on, and end by themselves by")
        assert "the same command goes on" in line and "harness ec2 reap" in line
        released.set()
        plain.run()
    whole(plain)
    assert len(boxes.worked) == len(set(boxes.worked))


def test_something_alive_at_the_end_is_said_loudly(plain: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.ec2 import fleet

    really = fleet.instances

    def undying(*arguments: object, **keys: object) -> list[fleet.Seen]:
        found = really(*arguments, **keys)  # type: ignore[arg-type]
        return [
            replace(box, state="shutting-down") if box.part.startswith("001") and not box.alive else box
            for box in found
        ]

    ticks = []

    def nap(_seconds: float) -> None:
        time.sleep(0.05)
        ticks.append(1)

    monkeypatch.setattr("harness.ec2.fleet.instances", undying)
    with plain.boxes():
        done = plain.run(plain.side(pace=Pace(0.05, 0.2, nap), patience=replace(QUICK, linger_s=1)))
    (complaint,) = done.complaints
    assert "STILL ALIVE AND COSTING MONEY: i-" in complaint and "harness ec2 reap" in complaint
    assert not plain.closed()


def test_the_cap_holds_and_says_so(plain: Field) -> None:
    with pytest.raises(UsageError, match=r"more than --max-usd 0\.01"):
        plain.run(cap_usd=0.01)
    assert launched_and_terminated() == (0, 0)


def test_the_limits_on_the_boxes_never_add_up_to_more_than_the_cap(plain: Field) -> None:
    """Boxes die again and again: what is promised to the living and was spent by the dead is in the cap."""
    cap = 0.2
    fates = {f"{group}-{attempt}": Fate(after=1, dies=True) for group in ("002", "003") for attempt in (1, 2)}
    most = []

    from harness.ec2.book import Book

    put = Book.put_launch

    def watched(book: Book, launch: object) -> None:
        put(book, launch)  # type: ignore[arg-type]
        most.append(book.committed_usd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Book, "put_launch", watched)
        with plain.boxes(fates=fates):
            plain.run(cap_usd=cap)
    whole(plain, interrupted=4)
    assert most and max(most) <= cap


def test_a_run_is_refused_before_up(plain: Field) -> None:
    request = plain.request()
    with pytest.raises(
        UsageError,
        match=r"not there yet: the instance profile .*; make them with `harness ec2 up s3://harness-work/other",
    ):
        running.run(replace(request, work=S3Uri("harness-work", "other")), plain.side())
    assert launched_and_terminated() == (0, 0)


def test_a_profile_without_its_role_is_not_there_yet(plain: Field) -> None:
    name = preflight.role(WORK)
    boto3.client("iam").remove_role_from_instance_profile(InstanceProfileName=name, RoleName=name)
    with pytest.raises(UsageError, match=r"not there yet: the instance profile .*harness ec2 up"):
        plain.run()
    assert launched_and_terminated() == (0, 0)


def test_a_dry_run_launches_and_uploads_nothing(plain: Field) -> None:
    from harness.aws.objects import Objects
    from tests.ec2.conftest import WORK

    assert running.run(plain.request(dry_run=True), plain.side()) is None
    assert launched_and_terminated() == (0, 0)
    assert list(Objects(Connections(REGION), WORK).list()) == []
    for word in ("003", "assumed", "us-east-1", "al2023-ami", "quota: not known", "offered in us-east-1a", "US$"):
        assert word in plain.said, word
