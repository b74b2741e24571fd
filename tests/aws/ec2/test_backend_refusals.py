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


def test_next_zone_is_tried_without_capacity(plain: Field) -> None:
    connections = Connections(REGION)
    codes = ("InsufficientInstanceCapacity", "Unsupported", "InsufficientAddressCapacity")
    hook = Injected(connections, "ec2.RunInstances", lambda number, _what: codes[number] if number < 3 else None)
    with plain.workers():
        done = plain.run(connections=connections)
    whole(plain)
    assert hook.raised == 3 and done.complaints == ()
    assert launched_and_terminated() == (PARTS, PARTS)


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


def test_exceeded_quota_names_service_quotas(plain: Field) -> None:
    connections = Connections(REGION)
    Injected(connections, "ec2.RunInstances", lambda *_: "VcpuLimitExceeded")
    done = plain.run(connections=connections)
    assert len(done.complaints) == PARTS and all("Service Quotas" in line for line in done.complaints)
    assert launched_and_terminated() == (0, 0) and plain.closed()
    with plain.workers():
        assert plain.run().complaints == ()
    whole(plain)


def test_missing_right_names_the_command_that_grants_it(plain: Field) -> None:
    connections = Connections(REGION)
    Injected(connections, "ec2.RunInstances", lambda *_: "UnauthorizedOperation")
    done = plain.run(connections=connections)
    assert all("harness ec2 up" in line and "123456789012" not in line for line in done.complaints)
    assert len(done.complaints) == PARTS and launched_and_terminated() == (0, 0)


def test_type_unsupported_in_all_zones_is_given_up_with_advice(plain: Field) -> None:
    connections = Connections(REGION)
    Injected(connections, "ec2.RunInstances", lambda *_: "Unsupported")
    done = plain.run(connections=connections)
    assert all("choose another type or region" in line for line in done.complaints)
    assert launched_and_terminated() == (0, 0)


def test_run_waits_for_the_instance_of_a_used_token(plain: Field) -> None:
    """Requested with an older image, and resumed by another process: EC2 will show the instance."""
    connections = Connections(REGION)
    hook = Injected(
        connections, "ec2.RunInstances", lambda number, _what: "IdempotentParameterMismatch" if number < 4 else None
    )
    with plain.workers():
        done = plain.run(connections=connections)
    whole(plain)
    assert hook.raised == 4 and done.complaints == () and launched_and_terminated() == (PARTS, PARTS)


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


def test_launch_is_retried_until_ec2_knows_the_role(plain: Field) -> None:
    connections = Connections(REGION)
    output = "InvalidParameterValue Value (ir-harness) for parameter iamInstanceProfile.name is invalid."
    hook = Injected(connections, "ec2.RunInstances", lambda number, _what: output if number < 2 else None)
    with plain.workers():
        done = plain.run(connections=connections)
    whole(plain)
    assert hook.raised == 2 and done.complaints == ()


def test_every_request_for_one_part_has_one_token_a_zone(plain: Field) -> None:
    connections, tokens = Connections(REGION), Tokens(lambda number: number < 3)
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
