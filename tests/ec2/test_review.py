"""Faults found in review: the same command with other options, and crash points of a launch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import boto3
import click
import pytest
from click.testing import CliRunner

from harness import storage
from harness.aws.client import Connections
from harness.batch.backend import BatchBackend
from harness.cli.cloud import cloud_options
from harness.ec2 import account
from harness.ec2 import instances as boxes_
from harness.ec2.backend import SERVICE
from harness.errors import HarnessError, UsageError
from harness.prices import snapshot
from harness.remote import costs, run
from harness.remote.backend import Refused, Submission
from harness.remote.records import Launch, PlannedPart
from harness.remote.watch import Pace
from tests.aws import server
from tests.aws.server import REGION
from tests.ec2.boxes import Boxes
from tests.ec2.conftest import TYPES, WORK, Field, launched_and_terminated
from tests.ec2.faults import Injected
from tests.ec2.test_backend import Launched, launched

__all__ = ["launched"]
OTHER = "us-west-2"


@contextmanager
def interrupted(plain: Field, **changes: Any) -> Iterator[Boxes]:
    """A run that was stopped while its boxes work; they go on."""
    released = threading.Event()

    def nap(seconds: float) -> None:
        time.sleep(seconds)
        if len(boxes.worked) > 1:
            raise KeyboardInterrupt

    with plain.boxes(held=released) as boxes:
        with pytest.raises(KeyboardInterrupt):
            plain.run(plain.client(pace=Pace(0.05, nap)), **changes)
        try:
            yield boxes
        finally:
            released.set()
            for box in boxes_.find(Connections(REGION), REGION):
                if box.alive:
                    boxes_.end(Connections(REGION), REGION, [box.instance_id])


def test_the_same_command_with_another_region_loses_nothing(plain: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = storage.price(storage.read(), "aws", REGION, snapshot(region=f"aws/{REGION}", term="on-demand").as_of)
    monkeypatch.setattr(run.prices, "snapshot", lambda **_: snapshot(region=f"aws/{REGION}", term="on-demand"))
    monkeypatch.setattr(run.storage, "price", lambda *_: disk)
    account.up(Connections(OTHER), WORK, OTHER, "0123456789ab", TYPES, lambda _line: None)
    with interrupted(plain):
        total, ended = launched_and_terminated()
        assert total > ended
        server.forward(plain.endpoint, 400)  # some minutes later
        said = len(plain.said)
        with pytest.raises(UsageError, match=REGION):
            client = plain.client(Connections(OTHER), pace=Pace(0.05, _stops_after(600)))
            run.run(replace(plain.request(), region=OTHER), client, SERVICE)
        assert "left undone" not in plain.said[said:] and not plain.closed()


def _stops_after(ticks: int) -> Any:
    left = [ticks]

    def nap(seconds: float) -> None:
        time.sleep(seconds)
        left[0] -= 1
        if not left[0]:
            raise RuntimeError("it watches, and never ends")

    return nap


def test_a_lower_cap_does_not_say_that_nothing_was_launched(plain: Field) -> None:
    with interrupted(plain):
        with pytest.raises(UsageError) as raised:
            plain.run(cap_usd=0.01)
        assert "nothing was launched" not in str(raised.value)


def _handed_over(plain: Field) -> None:
    """All boxes are done and gone, and the command was stopped before it brought a job home."""
    with plain.boxes() as boxes:

        def nap(seconds: float) -> None:
            time.sleep(seconds)
            if len(boxes.worked) == 3 and not boxes.alive:
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("harness.remote.watch.Watch._arrivals", _indexes_alone)
            patch.setattr("harness.remote.watch.Watch._finish", lambda self, part, state: _finish_builds(self, part))
            with pytest.raises(KeyboardInterrupt):
                plain.run(plain.client(pace=Pace(0.05, nap)))
    assert plain.stored == []


def test_jobs_that_were_handed_over_come_home(plain: Field) -> None:
    """The two tests below fail for their own reasons."""
    _handed_over(plain)
    plain.run()
    assert len(plain.stored) == 18


def test_a_disabled_rule_keeps_no_finished_job_from_coming_home(plain: Field) -> None:
    """Nothing is to be launched any more."""
    _handed_over(plain)
    found = account.find(Connections(REGION), WORK, REGION)
    assert found is not None
    boto3.client("events", region_name=REGION).disable_rule(Name=found.reaper_rule)
    plain.run()
    assert len(plain.stored) == 18


def test_an_account_stack_that_is_made_anew_loses_no_finished_job(plain: Field) -> None:
    """It is what the message on a missing rule advises; the new role has another id, and boxes' folders the old one."""
    _handed_over(plain)
    account.down(Connections(REGION), WORK, REGION, "0123456789ab", lambda _line: None, results_too=False)
    account.up(Connections(REGION), WORK, REGION, "0123456789ab", TYPES, lambda _line: None)
    plain.run()
    assert len(plain.stored) == 18


def _indexes_alone(watch: Any, parts: Any) -> None:
    for part in parts:
        for box in watch._states[part.name].boxes:
            for key in {build.key for build in part.builds}:
                if key in getattr(watch.journal.signs.get(box), "indexes", ()):
                    watch.shipper.adopt_index(box, key)
                    watch._indexes.add(key)


def _finish_builds(watch: Any, part: PlannedPart) -> None:
    if not part.jobs:
        watch._finished.add(part.name)


def test_a_command_with_only_says_that_only_is_to_blame(plain: Field) -> None:
    with interrupted(plain) as boxes:
        boxes.held.set()  # type: ignore[union-attr]
        request = plain.request()
        some = replace(request.options, only="planted/*")
        with pytest.raises(UsageError) as raised:
            run.run(replace(request, options=some), plain.client(), SERVICE)
        assert "--only" in str(raised.value)


def test_a_launch_that_was_never_asked_for_has_all_its_time(launched: Launched) -> None:
    """Killed between the note and the request; the same command an hour later must not launch what is due to end."""
    launched.begin()
    stale = replace(launched.launch, at=launched.at - 3500)
    noted: list[Launch] = []
    try:
        launched.backend.launch(stale, Submission("x", (launched.part,)), noted.append)
    except HarnessError:
        return
    for box in boxes_.find(launched.connections, REGION):
        left_s = _seconds(box.tags["harness:expiry"]) - box.launched
        assert left_s > 1800, f"the rule ends it {left_s:.0f} s after its launch"


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_a_launch_that_was_never_asked_for_costs_nothing(launched: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, once its deadline has passed: nothing was launched, so nothing was spent of the cap."""
    launched.begin()
    monkeypatch.setattr(launched.backend, "_clock", SimpleNamespace(now=launched.at + 3600 + 421))
    state = launched.state(launched.launch)  # zone is None: EC2 was never asked
    assert costs.cost_usd(launched.launch, [launched.part], [state.seconds]) < 0.01


def test_a_lost_answer_and_a_full_subnet_make_one_instance(launched: Launched) -> None:
    noted = launched.begin()()
    first = noted[0]  # the zone was noted; the answer was lost
    assert first.machine is None and first.zone is not None
    launched.backend._subnets = [
        replace(each, free_addresses=0) if each.zone == first.zone else each for each in launched.backend._subnets
    ]
    with suppress(Refused, HarnessError):
        launched(first)
    assert launched_and_terminated()[0] == 1


def test_what_a_box_handed_over_comes_home_though_its_id_was_not_noted(launched: Launched) -> None:
    """Killed between EC2's answer and the note; EC2 forgets the box an hour after its end."""
    launched.begin()()
    Injected(launched.connections, "ec2.RunInstances", lambda *_: "IdempotentInstanceTerminated")
    ids = [box.instance_id for box in boxes_.find(launched.connections, REGION)]
    boxes_.end(launched.connections, REGION, ids)
    launched.backend._boxes = list  # type: ignore[method-assign,assignment]
    noted = launched(replace(launched.launch, zone="us-east-1a"))
    last = noted[-1] if noted else replace(launched.launch, zone="us-east-1a")
    assert launched.state(last).boxes, "nobody looks into its folder any more"


def test_the_cap_counts_the_minutes_in_which_batch_starts_and_ends_an_instance() -> None:
    """They are promised, and given back to other launches as soon as the job has ended."""
    part = PlannedPart("p", "m6i.large", 0.36, 30, expected_s=600, worst_s=7200, measured=True)
    launch = Launch("p", ("p",), 3600, 1, 0.0, 0.36)
    backend = BatchBackend.__new__(BatchBackend)
    backend._role = "AROAEXAMPLE"
    shown = {
        "status": "SUCCEEDED",
        "attempts": [{"container": {"taskArn": "a/b"}, "startedAt": 1_000, "stoppedAt": 601_000}],
    }
    spent = costs.cost_usd(launch, [part], [backend._state(shown).seconds])
    assert spent > costs.cost_usd(launch, [part], [600.0])


def test_an_attempt_of_batch_without_an_end_counts_in_full() -> None:
    part = PlannedPart("p", "m6i.large", 0.36, 30)
    launch = Launch("p", ("p",), 3600, 1, 0.0, 0.36)
    backend = BatchBackend.__new__(BatchBackend)
    backend._role = "AROAEXAMPLE"
    shown = {"status": "FAILED", "attempts": [{"container": {"taskArn": "a/b"}, "startedAt": 1_000}]}
    spent = costs.cost_usd(launch, [part], [backend._state(shown).seconds])
    assert spent >= 0.36


def test_a_cap_that_is_no_number_is_refused() -> None:
    @click.command()
    @cloud_options
    def command(cloud: Any) -> None:
        parts = PlannedPart("p", "m6i.large", 100.0, 30, expected_s=36_000, worst_s=360_000)
        found = costs.Budget(cloud.max_usd).limits(Submission("p", (parts,)), ())
        click.echo(f"launches for {found}")

    assert CliRunner().invoke(command, ["--max-usd", "nan"]).exit_code == 2
