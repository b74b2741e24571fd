"""Faults found in review: the same command with other options, and crash points of a launch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import boto3
import pytest

from harness import storage
from harness.aws.client import Connections
from harness.ec2 import account
from harness.ec2 import instances as boxes_
from harness.ec2.backend import SERVICE
from harness.errors import UsageError
from harness.prices import snapshot
from harness.remote import run
from harness.remote.watch import Pace
from tests.aws import server
from tests.aws.server import REGION
from tests.ec2.boxes import Boxes
from tests.ec2.conftest import TYPES, WORK, Field, launched_and_terminated
from tests.ec2.faults import Injected
from tests.ec2.test_backend import Launched, launched
from tests.ec2.test_faults import handed_over

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


def test_a_disabled_rule_keeps_no_finished_job_from_coming_home(plain: Field) -> None:
    """Nothing is to be launched any more."""
    handed_over(plain)
    found = account.find(Connections(REGION), WORK, REGION)
    assert found is not None
    boto3.client("events", region_name=REGION).disable_rule(Name=found.reaper_rule)
    plain.run()
    assert len(plain.stored) == 18


def test_a_command_with_only_says_that_only_is_to_blame(plain: Field) -> None:
    with interrupted(plain) as boxes:
        boxes.held.set()  # type: ignore[union-attr]
        request = plain.request()
        some = replace(request.options, only="planted/*")
        with pytest.raises(UsageError) as raised:
            run.run(replace(request, options=some), plain.client(), SERVICE)
        assert "--only" in str(raised.value)


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
