"""One instance: asked for safely, once, and only when all agrees."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse

from harness import instances
from harness.aws.connections import Connections
from harness.ec2 import amis, fleet, launching, network, quotas, reaping, tags
from harness.ec2.amis import Ami
from harness.ec2.launching import NoCapacity, Order
from harness.errors import AwsError, UsageError
from tests.aws.server import REGION
from tests.ec2.conftest import WORK, launched_and_terminated
from tests.ec2.faults import Injected

LARGE = instances.read("aws")["m6i.large"]


@pytest.fixture
def connections(aws: str, ground: None) -> Iterator[Connections]:
    """After every test all that was launched is ended as `harness ec2 reap` ends it, and nothing is left."""
    made = Connections(REGION)
    yield made
    assert reaping.end(made, reaping.look(made, REGION, None), lambda _line: None, interval_s=0.1) == []
    launched, terminated = launched_and_terminated()
    assert launched == terminated


@pytest.fixture
def order(connections: Connections) -> Order:
    from harness.ec2 import preflight

    vpc = network.subnets(connections, REGION)[0].vpc
    group = network.security_group(connections, REGION, vpc)
    assert group is not None
    return Order(
        run_id="s-20261122T000000-abcdef",
        part="001-1",
        suite="s",
        owner="0123456789ab",
        instance=LARGE,
        ami=amis.find(connections, REGION, "al2023", "x86_64", 0),
        disk_gib=42,
        user_data="#!/bin/bash\n",
        security_group=group,
        profile=preflight.role(WORK),
        expiry=datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC),
    )


def launch(connections: Connections, order: Order, tried: list[str] | None = None) -> str:
    subnets = network.subnets(connections, REGION)
    return launching.launch(
        connections, REGION, order, subnets, (tried if tried is not None else []).append
    ).instance_id


def described(instance_id: str) -> dict[str, object]:
    answer = boto3.client("ec2", region_name=REGION).describe_instances(InstanceIds=[instance_id])
    found: dict[str, object] = answer["Reservations"][0]["Instances"][0]
    return found


def test_what_is_launched_is_shut_and_goes_away_by_itself(connections: Connections, order: Order) -> None:
    made = launch(connections, order)
    shown, client = described(made), boto3.client("ec2", region_name=REGION)
    assert shown["MetadataOptions"]["HttpTokens"] == "required"  # type: ignore[index]
    assert shown["MetadataOptions"]["HttpPutResponseHopLimit"] == 1  # type: ignore[index]
    assert "KeyName" not in shown
    behaviour = client.describe_instance_attribute(InstanceId=made, Attribute="instanceInitiatedShutdownBehavior")
    assert behaviour["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
    (volume,) = client.describe_volumes()["Volumes"]
    assert (volume["Encrypted"], volume["VolumeType"], volume["Size"]) == (True, "gp3", 42)
    (interface,) = shown["NetworkInterfaces"]  # type: ignore[misc]
    (group,) = interface["Groups"]
    (rules,) = client.describe_security_groups(GroupIds=[group["GroupId"]])["SecurityGroups"]
    assert rules["IpPermissions"] == []
    for of in (shown, volume):
        marked = tags.as_dict(of["Tags"])  # type: ignore[arg-type]
        assert {tags.SUITE, tags.RUN, tags.PART, tags.OWNER, tags.EXPIRY, tags.TOKEN} <= marked.keys()
        assert not [value for value in marked.values() if "123456789012" in value]


def asked(connections: Connections, order: Order) -> dict[str, Any]:
    """Return the request that EC2 gets."""
    seen: list[dict[str, Any]] = []

    def look(_number: int, params: dict[str, Any]) -> None:
        seen.append(params["body"])

    Injected(connections, "ec2.RunInstances", look)
    launch(connections, order)
    return seen[-1]


def test_an_instance_is_not_booted_again(connections: Connections, order: Order) -> None:
    """Automatic recovery boots it without the time limit, which died with the first boot."""
    assert asked(connections, order)["MaintenanceOptions.AutoRecovery"] == "disabled"


def test_a_network_interface_goes_with_its_instance(connections: Connections, order: Order) -> None:
    client = boto3.client("ec2", region_name=REGION)
    made = launch(connections, order)
    assert len(client.describe_network_interfaces()["NetworkInterfaces"]) == 1
    fleet.terminate(connections, REGION, [made])
    fleet.terminate(connections, REGION, [made])
    assert client.describe_network_interfaces()["NetworkInterfaces"] == []


def test_an_instance_has_an_address_where_the_subnet_gives_none(connections: Connections, order: Order) -> None:
    client = boto3.client("ec2", region_name=REGION)
    for subnet in network.subnets(connections, REGION):
        client.modify_subnet_attribute(SubnetId=subnet.subnet_id, MapPublicIpOnLaunch={"Value": False})
    shown = described(launch(connections, order))
    assert shown["PublicIpAddress"]


@pytest.mark.parametrize(("name", "credits"), [("t3.large", "standard"), ("t2.large", "standard"), ("m6i.large", None)])
def test_bursts_are_not_bought(connections: Connections, order: Order, name: str, credits: str | None) -> None:
    request = asked(connections, replace(order, instance=instances.read("aws")[name]))
    assert request.get("CreditSpecification.CpuCredits") == credits


def test_the_same_part_twice_is_one_instance(connections: Connections, order: Order) -> None:
    assert launch(connections, order) == launch(connections, order)
    assert launched_and_terminated()[0] == 1
    assert launch(connections, replace(order, part="001-2")) != launch(connections, order)


def test_one_that_has_ended_is_not_launched_again(connections: Connections, order: Order) -> None:
    made = launch(connections, order)
    fleet.terminate(connections, REGION, [made])
    assert launch(connections, order) == made
    assert launched_and_terminated() == (1, 1)


def test_the_zone_is_told_before_it_is_asked(connections: Connections, order: Order) -> None:
    tried: list[str] = []
    seen: list[list[str]] = []

    def refuse(number: int, _what: dict[str, object]) -> str | None:
        seen.append(list(tried))
        return "InsufficientInstanceCapacity" if number < 2 else None

    Injected(connections, "ec2.RunInstances", refuse)
    launch(connections, order, tried)
    assert tried == ["us-east-1a", "us-east-1b", "us-east-1c"]
    assert seen == [tried[:1], tried[:2], tried[:3]]


def test_no_capacity_is_said_when_no_zone_has_the_type(connections: Connections, order: Order) -> None:
    Injected(connections, "ec2.RunInstances", lambda *_: "InsufficientInstanceCapacity")
    with pytest.raises(NoCapacity, match="InsufficientInstanceCapacity"):
        launch(connections, order)


def test_no_capacity_is_not_asked_for_again_and_again(connections: Connections, order: Order) -> None:
    """EC2 says it with HTTP status 500, which boto3 tries again."""
    sent: list[str] = []

    def answer(request: Any, **_: object) -> AWSResponse:
        sent.append(request.url)
        said = (
            b"<Response><Errors><Error><Code>InsufficientInstanceCapacity</Code><Message>none</Message></Error></Errors>"
            b"<RequestID>x</RequestID></Response>"
        )
        raw = BytesIO(said)
        raw.stream = lambda *_, **__: iter([said])  # type: ignore[attr-defined]
        return AWSResponse(request.url, 500, {}, raw)

    launching.client(connections, REGION).meta.events.register("before-send.ec2.RunInstances", answer)
    with pytest.raises(NoCapacity, match="InsufficientInstanceCapacity"):
        launch(connections, order)
    assert len(sent) <= 2 * len(network.subnets(connections, REGION))


def test_a_launch_that_is_asked_for_anew_has_another_token(connections: Connections, order: Order) -> None:
    assert order.token == replace(order).token
    assert replace(order, asked_at=5.0).token not in (order.token, replace(order, asked_at=6.0).token)


def test_a_launch_tells_when_ec2_answered(connections: Connections, order: Order) -> None:
    made = launching.launch(connections, REGION, order, network.subnets(connections, REGION), lambda _zone: None)
    launched = described(made.instance_id)["LaunchTime"]
    assert isinstance(launched, datetime.datetime) and made.at is not None
    assert abs(made.at - launched.timestamp()) < 60


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("IdempotentInstanceTerminated", "Ended"),
        ("IdempotentParameterMismatch", "Mismatch"),
        ("InvalidParameterValue Value (ir-harness) for parameter iamInstanceProfile.name is invalid", "NoProfile"),
        ("InvalidParameterValue something else", "InvalidParameterValue"),
        ("Unsupported", "Unsupported"),
        ("Unavailable", "Busy"),
    ],
)
def test_each_refusal_of_ec2_keeps_its_code(connections: Connections, order: Order, said: str, code: str) -> None:
    Injected(connections, "ec2.RunInstances", lambda *_: said)
    with pytest.raises(AwsError) as raised:
        launch(connections, order)
    assert raised.value.code == code


def test_unsupported_in_one_zone_is_no_refusal(connections: Connections, order: Order) -> None:
    codes = ["Unsupported", "InsufficientAddressCapacity"]
    Injected(connections, "ec2.RunInstances", lambda number, _what: codes[number] if number < 2 else None)
    assert launch(connections, order)


def test_a_quota_says_where_to_ask_for_more(connections: Connections, order: Order) -> None:
    Injected(connections, "ec2.RunInstances", lambda *_: "VcpuLimitExceeded")
    with pytest.raises(AwsError, match="Service Quotas") as raised:
        launch(connections, order)
    assert raised.value.code == "Quota"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"user_data": "x" * (16 * 1024 + 1)}, "user data of 16385 bytes"),
        ({"ami": Ami("ami-1", "arm64", "/dev/xvda", 8, "x")}, "m6i.large is x86_64, the image ami-1 is arm64"),
        ({"disk_gib": 2}, "needs a disk of"),
    ],
)
def test_what_moto_would_let_pass_is_refused_here(
    connections: Connections, order: Order, changes: dict[str, object], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        launch(connections, replace(order, **changes))  # type: ignore[arg-type]
    assert launched_and_terminated() == (0, 0)


def test_a_type_that_no_zone_offers_is_refused(connections: Connections, order: Order) -> None:
    with pytest.raises(UsageError, match="no subnet here is in a zone that offers m6i"):
        launching.launch(connections, REGION, order, [], lambda _zone: None)


def test_spot_is_asked_for_once(connections: Connections, order: Order) -> None:
    assert described(launch(connections, replace(order, spot=True)))["InstanceLifecycle"] == "spot"


@pytest.mark.parametrize(
    ("system", "architecture", "gpus", "name"),
    [
        ("al2023", "x86_64", 0, "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"),
        ("al2023", "arm64", 0, "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64"),
        ("debian-12", "x86_64", 0, "/aws/service/debian/release/12/latest/amd64"),
        ("debian-12", "arm64", 0, "/aws/service/debian/release/12/latest/arm64"),
        ("debian-12", "x86_64", 1, "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id"),
    ],
)
def test_images_by_public_parameters(system: str, architecture: str, gpus: int, name: str) -> None:
    assert amis.parameter(system, architecture, gpus) == name


def test_there_is_no_image_with_gpus_for_arm64() -> None:
    """amazon-ecs-ami builds al2023gpu for x86_64 alone."""
    with pytest.raises(UsageError, match="no Amazon Linux 2023 with NVIDIA's driver for arm64; choose an x86_64 type"):
        amis.parameter("al2023", "arm64", 1)


def test_machine_images_are_found_for_each_architecture(aws: str) -> None:
    connections = Connections(REGION)
    found = amis.find(connections, REGION, "al2023", "arm64", 0)
    assert found.architecture == "arm64" and found.root_device == "/dev/xvda" and found.least_gib > 0
    assert amis.find(connections, REGION, "al2023", "x86_64", 1).architecture == "x86_64"
    # moto has none of Debian's.
    with pytest.raises(UsageError, match="no machine image /aws/service/debian"):
        amis.find(connections, REGION, "debian-12", "x86_64", 0)


@pytest.mark.parametrize(
    ("instance_type", "spot", "code"),
    [
        ("m6i.large", False, "L-1216C47A"),
        ("m6i.large", True, "L-34B43A08"),
        ("im4gn.large", False, "L-1216C47A"),
        ("inf2.xlarge", False, "L-1945791B"),
        ("g5.xlarge", False, "L-DB2E81BA"),
        ("p3.2xlarge", False, "L-417A185B"),
        ("x2gd.large", True, "L-E3A00192"),
    ],
)
def test_which_quota_a_type_counts_against(instance_type: str, spot: bool, code: str) -> None:
    assert quotas.code(instance_type, spot) == code
