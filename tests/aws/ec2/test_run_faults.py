"""Whatever goes wrong, no instance stays, no result is lost or doubled, and one line says what happened."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from harness.aws import clients, rental
from harness.aws.clients import Connections, S3Uri
from harness.aws.ec2 import account, backend, instances
from harness.aws.objects import Objects
from harness.driver.records import Outcome
from harness.errors import RemoteError, UsageError
from harness.pricing.prices import snapshot
from harness.remote import partition
from harness.remote.journal import Journal
from tests.aws import reaper, server
from tests.aws.ec2.conftest import (
    PROFILES,
    QUICK,
    SPEED,
    TYPES,
    WORK,
    Field,
    launched_and_terminated,
    lines,
    run_rented,
)
from tests.aws.ec2.fake_workers import MUTE, FakeWorkers
from tests.aws.ec2.faults import Injected
from tests.aws.server import REGION

SMALL, LARGE = PROFILES
JOBS = 18


def whole(plain: Field, *, interrupted: int = 0) -> None:
    """Every job is stored once, and as many were interrupted."""
    outcomes = Counter(result.outcome for result in plain.stored)
    assert outcomes == Counter({Outcome.OK: JOBS, Outcome.INTERRUPTED: interrupted})
    done = [(result.spec.cell, result.spec.job) for result in plain.stored if result.outcome is Outcome.OK]
    assert len(set(done)) == JOBS


def test_reason_and_console_of_a_silent_worker_are_reported(plain: Field) -> None:
    connections = Connections(REGION)

    def shows(parsed: dict[str, Any], **_: object) -> None:
        parsed["Output"] = "\x1b[0mboot: failed\r\nno space left on device of 123456789012\r\n"

    connections.client("ec2", REGION).meta.events.register("after-call.ec2.GetConsoleOutput", shows)
    with plain.workers(dies={LARGE: MUTE}):
        done = plain.run(connections=connections)
        (complaint,) = done.complaints
        assert "its instance went away (Client.UserInitiatedShutdown: User initiated shutdown)" in complaint
        assert "no space left on device of <account>" in complaint
        plain.run()
    whole(plain)


def test_command_killed_before_settling_stores_each_interruption_once(
    plain: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Journal.put_launch

    def dies(book: Journal, launch: Any) -> None:
        if launch.name == LARGE and launch.usd is not None:
            raise KeyboardInterrupt
        put(book, launch)

    with plain.workers(dies={LARGE: 2}):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Journal, "put_launch", dies)
            plain.run()
        assert [result.outcome for result in plain.stored].count(Outcome.INTERRUPTED) == 1
        plain.run()  # brings the open run to its end
        plain.run()
    whole(plain, interrupted=1)


def test_run_finishes_although_s3_throttles(plain: Field) -> None:
    connections, chance = Connections(REGION), random.Random(7)
    codes = ("SlowDown", "InternalError", "503", "ServiceUnavailable")
    # While the run is under way: before that one line and giving the command again is all that is wanted.
    hook = Injected(
        connections,
        "s3",
        lambda number, _what: chance.choice(codes) if number > 40 and chance.random() < 0.1 else None,
    )
    with plain.workers():
        done = plain.run(connections=connections)
    whole(plain)
    assert hook.raised > 0 and done.complaints == ()
    assert "trying on" in plain.output and "AWS is busy" in plain.output


def test_launch_with_a_lost_answer_makes_one_instance(plain: Field) -> None:
    connections = Connections(REGION)
    lost = []

    def lose(http_response: Any, parsed: dict[str, Any], **_: object) -> None:
        if not lost:
            lost.append(True)
            http_response.status_code = 500
            parsed["Error"] = {"Code": "InternalError", "Message": "lost"}

    client = connections.client("ec2", REGION, attempts=backend.ATTEMPTS)
    client.meta.events.register("after-call.ec2.RunInstances", lose)
    with plain.workers() as workers:
        done = plain.run(connections=connections)
    whole(plain)
    assert lost and len(workers.worked) == len(set(workers.worked)) == 3
    assert launched_and_terminated() == (3, 3) and done.complaints == ()


def test_second_command_resumes_after_credentials_expired(plain: Field) -> None:
    connections = Connections(REGION)
    with plain.workers(pause_s=0.1) as workers:
        # Once a job is measured others are still to come, however seldom a slow machine looks.
        Injected(connections, "ec2", lambda *_: "ExpiredToken" if workers.measured else None)
        with pytest.raises(RemoteError, match="credentials have expired; log in again") as raised:
            plain.run(connections=connections)
        assert raised.value.exit_code == 1
        assert lines(plain.output, "launches go on, and end by themselves by")
        done = plain.run()
    whole(plain)
    assert len(workers.worked) == len(set(workers.worked))
    assert done.complaints == () and "goes on with the open run" in plain.output


@contextmanager
def interrupted(plain: Field, begun: int = 2) -> Iterator[FakeWorkers]:
    """The user stops the command while some workers work; they are held, and go on."""

    def nap(seconds: float) -> None:
        time.sleep(seconds)
        if len(workers.worked) >= begun:
            raise KeyboardInterrupt

    with plain.workers(held=threading.Event()) as workers:
        with pytest.raises(KeyboardInterrupt):
            plain.run(plain.client(timeouts=replace(QUICK, poll_s=0.05, sleep=nap)))
        yield workers


def released(workers: FakeWorkers) -> None:
    assert workers.held is not None
    workers.held.set()


def test_second_command_in_another_region_names_the_runs_region(plain: Field) -> None:
    """Elsewhere EC2 shows none of its workers, and all would be given up while they work."""
    with interrupted(plain) as workers:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rental.prices, "snapshot", lambda **_: snapshot(region=f"aws/{REGION}", term="on-demand"))
            patch.setattr(rental.prices, "storage_price", lambda *_: SimpleNamespace(usd_per_gib_month=0.08))
            for dry_run in (True, False):
                request = plain.request(Connections("us-west-2"), dry_run=dry_run)
                with pytest.raises(UsageError, match=f"is open in {REGION}; give --region {REGION}"):
                    run_rented(request, plain.client())
        released(workers)
        plain.run()
    whole(plain)


def test_open_run_is_fetched_although_the_cap_is_lower(plain: Field) -> None:
    with interrupted(plain) as workers:
        released(workers)
        done = plain.run(cap_usd=0.01)
    assert plain.stored and not any("nothing was launched" in line for line in done.complaints)
    assert plain.closed()


def test_other_options_do_not_resume_an_open_run(plain: Field) -> None:
    with interrupted(plain) as workers:
        released(workers)
        request = plain.request()
        some = replace(request, options=replace(request.options, only="planted/*"))
        with pytest.raises(UsageError, match="--only"):
            run_rented(some, plain.client())
        plain.run()
    whole(plain)


def test_instance_alive_at_the_end_is_a_complaint(plain: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    really = instances.find

    def undying(*arguments: object, **keys: object) -> list[instances.OwnedInstance]:
        found = really(*arguments, **keys)
        return [
            replace(each, state="shutting-down") if each.tags[clients.PART] == "builds" and not each.alive else each
            for each in found
        ]

    monkeypatch.setattr("harness.aws.ec2.instances.find", undying)
    monkeypatch.setattr(instances, "WAIT_S", 0.0)
    with plain.workers():
        done = plain.run(plain.client(timeouts=replace(QUICK, linger_s=5 * SPEED)))
    (complaint,) = done.complaints
    assert "STILL ALIVE AND COSTING MONEY: i-" in complaint and "harness ec2 reap" in complaint
    assert not plain.closed()


def test_cap_holds_without_the_command_and_user_data(plain: Field) -> None:
    """The rule on AWS's side ends every instance at its deadline; all your instances and disks are gone then."""
    cap = 0.25

    def nap(_seconds: float) -> None:
        if launched_and_terminated()[0]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plain.run(plain.client(timeouts=replace(QUICK, poll_s=0.05, sleep=nap)), cap_usd=cap)
    ec2 = boto3.client("ec2", region_name=REGION)
    (instance,) = [each for one in ec2.describe_instances()["Reservations"] for each in one["Instances"]]
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    left_s = datetime.fromisoformat(tags["harness:expiry"]).timestamp() - aws_now()
    server.forward(plain.endpoint, left_s - 2 * SPEED)
    assert reaper.tick(plain.endpoint, WORK)
    assert launched_and_terminated() == (1, 0), "it is not due yet"
    # The rule calls every five minutes: at worst just before the deadline, and so late after it.
    server.forward(plain.endpoint, partition.REAPER_EVERY_S)
    assert reaper.tick(plain.endpoint, WORK)
    lived_s = aws_now() - instance["LaunchTime"].timestamp()
    assert launched_and_terminated() == (1, 1)
    (launch,) = journal_of(plain).launches.values()
    assert lived_s <= launch.limit_s + partition.BEYOND_LIMIT_S
    assert launch.usd_per_hour * lived_s / 3600 <= partition.most_usd(launch.usd_per_hour, launch.limit_s) <= cap


def aws_now() -> float:
    answer = boto3.client("s3").list_buckets()["ResponseMetadata"]["HTTPHeaders"]["date"]
    return parsedate_to_datetime(answer).timestamp()


def journal_of(plain: Field) -> Journal:
    """Return the open run as it is written down."""
    made = plain.suite_run()
    found = made.open_run()
    assert found is not None
    book = Journal(made.work, found)
    book.recall()
    return book


def test_run_is_refused_without_the_account_stack(plain: Field) -> None:
    request = replace(plain.request(), work=Objects(Connections(REGION), S3Uri("harness-work", "other")))
    with pytest.raises(UsageError, match=r"not there yet: .*`harness ec2 up s3://harness-work/other"):
        run_rented(request, plain.client())
    assert launched_and_terminated() == (0, 0)


def test_finished_jobs_are_fetched_after_the_stack_was_made_again_and_while_the_rule_is_disabled(plain: Field) -> None:
    """The new role has another id, and workers' folders the old one; nothing is to be launched any more."""
    with interrupted(plain, begun=3) as workers:
        released(workers)
        while launched_and_terminated() != (3, 3):
            time.sleep(0.05)
    assert plain.stored == []
    connections = Connections(REGION)
    account.down(connections, WORK, "0123456789ab", results_too=False)
    account.up(connections, WORK, "0123456789ab", TYPES)
    found = account.find(connections, WORK)
    assert found is not None
    boto3.client("events", region_name=REGION).disable_rule(Name=found.reaper_rule)
    plain.run()
    assert len(plain.stored) == JOBS
