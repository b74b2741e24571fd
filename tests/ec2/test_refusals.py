"""EC2 refuses to launch: what passes is waited for, what does not ends the run, and nothing is launched twice."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from harness.aws.connections import Connections
from harness.ec2 import fleet, launching
from harness.records import Outcome
from tests.aws import server
from tests.aws.server import REGION
from tests.ec2.conftest import QUICK, SPEED, Field, launched_and_terminated, lines
from tests.ec2.faults import Injected, OneAtATime, Tokens
from tests.ec2.test_faults import JOBS, whole


def test_no_capacity_in_a_zone_means_the_next_and_in_all_waiting(plain: Field) -> None:
    connections = Connections(REGION)
    # Six zones, one of which does not offer it: the first part is refused everywhere once.
    hook = Injected(
        connections,
        "ec2.RunInstances",
        lambda number, _what: "InsufficientInstanceCapacity" if number < 12 else None,
    )
    with plain.boxes():
        done = plain.run(plain.side(connections))
    whole(plain)
    assert hook.raised == 12
    assert lines(plain.said, "no zone has a") and "trying again" in plain.said
    assert done.complaints == ()


def test_a_refusal_holds_its_token_and_what_is_asked_anew_has_another(plain: Field) -> None:
    connections = Connections(REGION)
    tokens = Tokens(lambda number: number < 12)
    hook = Injected(connections, "ec2.RunInstances", tokens)
    with plain.boxes():
        done = plain.run(plain.side(connections))
    whole(plain)
    assert tokens.mismatched == 0 and hook.raised == 12
    assert done.complaints == () and launched_and_terminated() == (3, 3)


def test_a_token_that_is_anothers_is_left_once_no_instance_shows(plain: Field) -> None:
    """Asked for with an older image, refused, and gone on with by another process."""
    connections = Connections(REGION)
    hook = Injected(
        connections, "ec2.RunInstances", lambda number, _what: "IdempotentParameterMismatch" if number < 4 else None
    )
    with plain.boxes():
        done = plain.run(plain.side(connections))
    whole(plain)
    assert hook.raised == 4 and done.complaints == () and launched_and_terminated() == (3, 3)


def test_one_that_has_ended_before_it_was_shown_is_replaced(plain: Field) -> None:
    connections = Connections(REGION)
    Injected(
        connections, "ec2.RunInstances", lambda number, _what: "IdempotentInstanceTerminated" if number == 1 else None
    )
    with plain.boxes() as boxes:
        done = plain.run(plain.side(connections))
    whole(plain)
    assert done.complaints == () and {part[-2:] for part in boxes.worked} == {"-1", "-2"}


def test_ec2_shows_an_instance_long_after_the_launch_was_written_down(
    plain: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking takes longer than is waited for it to be shown, and then it is not shown for some looks."""
    really, looks, shown_s = fleet.instances, Counter[str](), 40.0 * SPEED

    def lags(*arguments: object, **keys: object) -> list[fleet.Seen]:
        found = really(*arguments, **keys)  # type: ignore[arg-type]
        if "run" not in keys:
            return found  # the boxes' own look
        looks.update(box.instance_id for box in found)
        return [box for box in found if looks[box.instance_id] > 3]

    launch, asking, asked = launching.launch, threading.Lock(), list[bool]()

    def slow(*arguments: object) -> launching.Launched:
        with asking:  # what is asked for at once takes as long together
            if not asked:
                asked.append(True)
                server.forward(plain.endpoint, shown_s + 1)
        return launch(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(fleet, "instances", lags)
    monkeypatch.setattr(launching, "launch", slow)
    with plain.boxes(pause_s=0.2) as boxes:
        done = plain.run(plain.side(patience=replace(QUICK, shown_s=shown_s)))
    whole(plain)
    assert asked and sorted(boxes.worked) == ["001-1", "002-1", "003-1"] and done.complaints == ()


def test_a_role_that_ec2_does_not_know_yet_is_waited_for(plain: Field) -> None:
    connections = Connections(REGION)
    said = "InvalidParameterValue Value (ir-harness) for parameter iamInstanceProfile.name is invalid."
    hook = Injected(connections, "ec2.RunInstances", lambda number, _what: said if number < 2 else None)
    with plain.boxes():
        done = plain.run(plain.side(connections, patience=replace(QUICK, shown_s=60 * SPEED)))
    whole(plain)
    assert hook.raised == 2 and done.complaints == ()
    # Not for ever.
    Injected(connections, "ec2.RunInstances", lambda *_: said)
    plain.systems = (*plain.systems, "fourth")
    plain.bench.plant("fourth")
    (complaint,) = plain.run(plain.side(connections)).complaints
    assert "iamInstanceProfile" in complaint and "harness ec2 up" in complaint


def test_a_quota_that_our_own_instances_fill_is_waited_for(plain: Field) -> None:
    connections, full = Connections(REGION), OneAtATime("VcpuLimitExceeded")
    Injected(connections, "ec2.RunInstances", full)
    with plain.boxes(held=full.refused):  # the first works on until another was refused
        done = plain.run(plain.side(connections))
    whole(plain)
    assert full.refused.is_set() and done.complaints == () and "Service Quotas" in plain.said


def test_how_long_there_was_none_counts_from_when_the_last_one_ended(plain: Field) -> None:
    """A box that works longer than is waited for capacity leaves its own to the next."""
    connections, short_s, refusals, worked = Connections(REGION), 10 * SPEED, [0], threading.Event()
    full, at_once = OneAtATime("InsufficientInstanceCapacity"), 2 * 6  # two parts, each in all zones

    def long(number: int, params: dict[str, Any]) -> str | None:
        code = full(number, params)
        refusals[0] += code is not None
        # At a later look than the launch it is long ago, and the box is seen to live at a later one than that.
        if code and refusals[0] == at_once + 1:
            server.forward(plain.endpoint, short_s + 1)
        if code and refusals[0] == 3 * at_once:
            worked.set()
        return code

    Injected(connections, "ec2.RunInstances", long)
    with plain.boxes(held=worked):
        done = plain.run(plain.side(connections, patience=replace(QUICK, short_s=short_s, hold_s=0.2)))
    whole(plain)
    assert worked.is_set() and done.complaints == ()


def test_unsupported_everywhere_is_a_refusal(plain: Field) -> None:
    connections = Connections(REGION)
    Injected(connections, "ec2.RunInstances", lambda *_: "Unsupported")
    (complaint,) = plain.run(plain.side(connections)).complaints
    assert "choose another type or region" in complaint and launched_and_terminated() == (0, 0)


def test_no_capacity_for_long_is_given_up(plain: Field) -> None:
    connections = Connections(REGION)
    Injected(connections, "ec2.RunInstances", lambda *_: "InsufficientInstanceCapacity")
    done = plain.run(plain.side(connections, patience=replace(QUICK, short_s=2)))
    assert len(done.complaints) == 3 and all("no zone has had a" in line for line in done.complaints)
    assert launched_and_terminated() == (0, 0) and plain.closed()


def test_a_quota_that_leaves_no_room_at_all_ends_the_run(plain: Field) -> None:
    connections = Connections(REGION)
    Injected(connections, "ec2.RunInstances", lambda *_: "VcpuLimitExceeded")
    (complaint,) = plain.run(plain.side(connections)).complaints
    assert "Service Quotas" in complaint and "the same command goes on from here" in complaint
    assert launched_and_terminated() == (0, 0) and not plain.closed()
    with plain.boxes():
        assert plain.run().complaints == ()
    whole(plain)


def test_a_refusal_ends_all_that_was_launched(plain: Field) -> None:
    code, remedy = "UnauthorizedOperation", "docs/ec2.md"
    connections = Connections(REGION)
    hook = Injected(connections, "ec2.RunInstances", lambda number, _what: code if number == 2 else None)
    with plain.boxes(pause_s=0.3):
        done = plain.run(plain.side(connections))
        assert hook.raised == 1
        launched, terminated = launched_and_terminated()
        assert launched == terminated == 2
        (complaint,) = done.complaints
        assert remedy in complaint and "the same command goes on from here" in complaint
        assert "123456789012" not in complaint
        assert not plain.closed()
        # And it does.
        again = plain.run()
    assert again.complaints == ()
    done_ok = Counter(result.outcome for result in plain.stored)[Outcome.OK]
    assert done_ok == JOBS and plain.closed()
