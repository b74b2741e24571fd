"""What a region offers: images, subnets, zones, quotas."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from harness import instances
from harness.aws.client import Connections
from harness.ec2 import region
from harness.errors import UsageError
from tests.aws.server import REGION
from tests.ec2.conftest import Field, launched_and_terminated

KNOWN = instances.read("aws")
LARGE, WIDE = KNOWN["m6i.large"], KNOWN["m6i.8xlarge"]


@pytest.mark.parametrize(
    ("system", "architecture", "gpus", "name"),
    [
        ("al2023", "x86_64", False, "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"),
        ("al2023", "arm64", False, "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64"),
        ("debian-12", "x86_64", False, "/aws/service/debian/release/12/latest/amd64"),
        ("debian-12", "arm64", False, "/aws/service/debian/release/12/latest/arm64"),
        ("debian-12", "x86_64", True, "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id"),
    ],
)
def test_an_image_is_found_by_a_public_parameter(
    aws: str, system: str, architecture: str, gpus: bool, name: str
) -> None:
    connections, asked = Connections(REGION), list[Any]()
    events = connections.client("ssm", REGION).meta.events
    events.register("provide-client-params.ssm.GetParameter", lambda params, **_: asked.append(params["Name"]))
    with suppress(UsageError):  # moto has none of Debian's
        region.ami(connections, REGION, system, architecture, gpus)
    assert asked == [name]


def test_there_is_no_image_with_gpus_for_arm64() -> None:
    """amazon-ecs-ami builds al2023gpu for x86_64 alone."""
    with pytest.raises(UsageError, match="no Amazon Linux 2023 with NVIDIA's driver for arm64; choose an x86_64 type"):
        region.ami(Connections(REGION), REGION, "al2023", "arm64", True)


def test_machine_images_are_found_for_each_architecture(aws: str) -> None:
    connections = Connections(REGION)
    found = region.ami(connections, REGION, "al2023", "arm64", False)
    assert found.root_device == "/dev/xvda" and found.least_gib > 0
    assert region.ami(connections, REGION, "al2023", "x86_64", True).image_id != found.image_id
    # moto has none of Debian's.
    with pytest.raises(UsageError, match="no machine image /aws/service/debian"):
        region.ami(connections, REGION, "debian-12", "x86_64", False)


def answers(connections: Connections, event: str, vcpus: float | str) -> list[str]:
    """Let Service Quotas answer with a number or an error's code; return the quotas that are asked for."""
    asked: list[str] = []

    def answer(params: dict[str, Any], **_: object) -> tuple[Any, dict[str, Any]]:
        asked.append(str(params["body"]))
        if isinstance(vcpus, str):
            error = {"Error": {"Code": vcpus, "Message": "x"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
            return SimpleNamespace(status_code=400, headers={}), error
        return SimpleNamespace(status_code=200, headers={}), {"Quota": {"Value": vcpus}, "ResponseMetadata": {}}

    connections.client("service-quotas", REGION).meta.events.register(f"before-call.service-quotas.{event}", answer)
    return asked


@pytest.mark.parametrize(
    ("instance_type", "spot", "code"),
    [
        ("m6i.large", False, "L-1216C47A"),
        ("m6i.large", True, "L-34B43A08"),
        ("im4gn.large", False, "L-1216C47A"),
        ("inf2.xlarge", False, "L-1945791B"),
        ("g5.xlarge", False, "L-DB2E81BA"),
        ("p3.2xlarge", False, "L-417A185B"),
        ("p4d.24xlarge", True, "L-7212CCBC"),
        ("p5.48xlarge", True, "L-C4BD4855"),
        ("x2gd.metal", True, "L-E3A00192"),
        ("hpc6a.48xlarge", False, "L-F7808C92"),
        ("dl1.24xlarge", False, "L-6E869C2A"),
        ("d3.xlarge", False, "L-1216C47A"),
        ("u-6tb1.56xlarge", False, "L-43DA4232"),
    ],
)
def test_each_type_counts_against_its_quota(aws: str, instance_type: str, spot: bool, code: str) -> None:
    connections = Connections(REGION)
    asked = answers(connections, "GetServiceQuota", 1000.0)
    region.quota(connections, REGION, replace(LARGE, instance_type=instance_type), spot)
    assert [code in each for each in asked] == [True]


def test_a_quota_that_does_not_exist_is_not_asked_for(aws: str) -> None:
    assert (
        region.quota(Connections(REGION), REGION, replace(LARGE, instance_type="hpc6a.48xlarge"), True) == "not known"
    )


@pytest.mark.parametrize("code", ["AccessDeniedException", "NoSuchResourceException"])
def test_a_quota_that_is_not_told_is_not_known(aws: str, code: str) -> None:
    connections = Connections(REGION)
    answers(connections, "GetServiceQuota", code)
    assert region.quota(connections, REGION, LARGE, False) == "not known"


def test_no_room_for_one_is_said_before_anything_is_launched(plain: Field) -> None:
    connections = Connections(REGION)
    answers(connections, "GetServiceQuota", 1.0)
    with pytest.raises(UsageError, match="may run 1 vCPUs of the kind of"):
        plain.run(plain.client(connections))
    assert launched_and_terminated() == (0, 0)
