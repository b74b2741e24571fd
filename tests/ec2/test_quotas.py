"""What the account may run at once, compared with what is planned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness import instances
from harness.aws.connections import Connections
from harness.ec2 import quotas
from harness.ec2.quotas import Quota
from harness.errors import UsageError
from tests.aws.server import REGION
from tests.ec2.conftest import Field, launched_and_terminated

KNOWN = instances.read("aws")
LARGE, WIDE = KNOWN["m6i.large"], KNOWN["m6i.8xlarge"]


def says(connections: Connections, event: str, vcpus: float | str) -> None:
    """Service Quotas answers with a number, or an error's code."""

    def answer(**_: object) -> tuple[Any, dict[str, Any]]:
        if isinstance(vcpus, str):
            error = {"Error": {"Code": vcpus, "Message": "x"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
            return SimpleNamespace(status_code=400, headers={}), error
        return SimpleNamespace(status_code=200, headers={}), {"Quota": {"Value": vcpus}, "ResponseMetadata": {}}

    connections.client("service-quotas", REGION).meta.events.register(f"before-call.service-quotas.{event}", answer)


@pytest.mark.parametrize(
    ("instance_type", "spot", "code"),
    [
        ("hpc6a.48xlarge", False, "L-F7808C92"),
        ("hpc6a.48xlarge", True, ""),
        ("dl1.24xlarge", False, "L-6E869C2A"),
        ("dl1.24xlarge", True, "L-85EED4F7"),
        ("d3.xlarge", False, "L-1216C47A"),
        ("u-6tb1.56xlarge", False, "L-43DA4232"),
        ("u7i-12tb.224xlarge", False, "L-43DA4232"),
        ("p5.48xlarge", True, "L-C4BD4855"),
        ("p5.48xlarge", False, "L-417A185B"),
        ("p4d.24xlarge", True, "L-7212CCBC"),
    ],
)
def test_families_that_look_like_others(instance_type: str, spot: bool, code: str) -> None:
    assert quotas.code(instance_type, spot) == code


def test_what_was_never_changed_has_the_usual_value(aws: str) -> None:
    connections = Connections(REGION)
    says(connections, "GetServiceQuota", "NoSuchResourceException")
    says(connections, "GetAWSDefaultServiceQuota", 5.0)
    found = quotas.known(connections, REGION, LARGE, False)
    assert found == Quota("L-1216C47A", 5.0, usual=True)
    assert found.words(LARGE) == "5 vCPUs (as every account), 2 of 2 vCPUs at once"


def test_what_may_not_be_asked_is_not_known(aws: str) -> None:
    connections = Connections(REGION)
    says(connections, "GetServiceQuota", "AccessDeniedException")
    says(connections, "GetAWSDefaultServiceQuota", 5.0)
    assert quotas.known(connections, REGION, LARGE, False) is None


def test_how_many_there_is_room_for() -> None:
    standard, other = Quota("L-1", 40.0), Quota("L-2", 8.0)
    assert quotas.room({"m6i.large": standard}, [LARGE], 64) == 20
    assert quotas.room({"m6i.large": standard}, [LARGE], 8) == 8
    assert quotas.room({"m6i.large": standard, "m6i.8xlarge": standard}, [WIDE, LARGE], 64) == 20
    assert quotas.room({"m6i.large": other, "m6i.8xlarge": standard}, [WIDE, LARGE], 64) == 5
    assert quotas.room({"m6i.large": None, "m6i.8xlarge": standard}, [LARGE, WIDE], 64) == 64
    with pytest.raises(UsageError, match=r"may run 8 vCPUs of the kind of m6i.8xlarge at once, which has 32; .*L-2"):
        quotas.room({"m6i.8xlarge": other}, [WIDE], 8)
    # What every account has at first may not be what this one has.
    assert quotas.room({"m6i.8xlarge": Quota("L-2", 8.0, usual=True)}, [WIDE], 8) == 1


def test_a_run_keeps_to_the_quota(plain: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.ec2 import launching

    connections, alive = Connections(REGION), []
    says(connections, "GetServiceQuota", 3.0)
    launch = launching.launch

    def watched(*arguments: object) -> launching.Launched:
        launched, terminated = launched_and_terminated()
        alive.append(launched - terminated)
        return launch(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(launching, "launch", watched)
    with plain.boxes():
        done = plain.run(plain.side(connections))
    assert done.complaints == () and len(plain.stored) == 9
    assert alive == [0, 0, 0]
    assert "not 8 at once, which the quota has no room for" in plain.said and "quota: 3 vCPUs, 1 of 2" in plain.said


def test_no_room_for_one_is_said_before_anything_is_launched(plain: Field) -> None:
    connections = Connections(REGION)
    says(connections, "GetServiceQuota", 1.0)
    with pytest.raises(UsageError, match="may run 1 vCPUs of the kind of"):
        plain.run(plain.side(connections))
    assert launched_and_terminated() == (0, 0)
