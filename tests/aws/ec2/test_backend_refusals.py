"""EC2 refuses to launch: the next zone is tried, the part is given up with a reason, and nothing is launched twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from harness.aws.clients import Connections
from harness.aws.ec2 import instances
from tests.aws.ec2.conftest import PROFILES, Field, launched_and_terminated
from tests.aws.ec2.faults import Injected, Tokens
from tests.aws.ec2.test_run_faults import whole
from tests.aws.server import REGION

PARTS = 3


def test_only_the_part_without_capacity_in_any_zone_is_given_up(plain: Field) -> None:
    plain.text += f'[ec2]\ninstances = {{ {PROFILES[1]} = "m6i.large" }}\n'
    connections = Connections(REGION)

    def refuse(_number: int, params: dict[str, Any]) -> str | None:
        return "InsufficientInstanceCapacity" if params["body"]["InstanceType"] == "m6i.large" else None

    Injected(connections, "ec2.RunInstances", refuse)
    with plain.workers() as workers:
        # Builds have the same machine here; who needs their indexes builds them.
        complaints = plain.run(connections=connections).complaints
        assert complaints and all("no zone has a m6i.large now" in line for line in complaints)
        assert all("--launcher batch waits" in line for line in complaints)
        assert plain.closed() and workers.worked == [PROFILES[0]]
        assert plain.run().complaints == ()
    whole(plain)


def test_instance_that_ended_unseen_is_given_up(plain: Field) -> None:
    connections = Connections(REGION)
    Injected(
        connections, "ec2.RunInstances", lambda number, _what: "IdempotentInstanceTerminated" if number == 1 else None
    )
    with plain.workers() as workers:
        done = plain.run(connections=connections)
        assert len(done.complaints) == 1 and "does not show its instance" in done.complaints[0]
        assert len(workers.worked) == 2
        plain.run()
    whole(plain)


def test_next_zone_is_tried_without_capacity_with_a_token_of_its_own(plain: Field) -> None:
    codes = ("InsufficientInstanceCapacity", "Unsupported", "InsufficientAddressCapacity")
    connections, tokens = Connections(REGION), Tokens(lambda number: codes[number] if number < 3 else None)
    hook = Injected(connections, "ec2.RunInstances", tokens)
    with plain.workers():
        done = plain.run(connections=connections)
    whole(plain)
    assert tokens.mismatched == 0 and hook.raised == 3
    assert done.complaints == () and launched_and_terminated() == (PARTS, PARTS)


def test_run_waits_for_an_instance_that_ec2_shows_late(plain: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    really, looks = instances.find, Counter[str]()

    def lags(*arguments: object, **keys: object) -> list[instances.OwnedInstance]:
        found = really(*arguments, **keys)
        if len(arguments) < 3:
            return found  # the workers' own look
        looks.update(each.instance_id for each in found)
        return [each for each in found if looks[each.instance_id] > 3]

    monkeypatch.setattr(instances, "find", lags)
    with plain.workers(pause_s=0.1) as workers:
        done = plain.run()
    whole(plain)
    assert sorted(workers.worked) == ["builds", *sorted(PROFILES)] and done.complaints == ()
