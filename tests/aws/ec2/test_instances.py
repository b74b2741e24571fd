"""What a region offers: images, subnets, zones."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from harness.aws.clients import Connections
from harness.aws.ec2 import instances as ec2_instances
from harness.errors import UsageError
from harness.pricing import instances
from tests.aws.ec2.conftest import launched_and_terminated
from tests.aws.server import REGION

KNOWN = instances.read_instances("aws")
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
    connections, names = Connections(REGION), list[Any]()
    events = connections.client("ssm", REGION).meta.events
    events.register("provide-client-params.ssm.GetParameter", lambda params, **_: names.append(params["Name"]))
    with suppress(UsageError):  # moto has none of Debian's
        ec2_instances.ami(connections, system, architecture, gpus)
    assert names == [name]


def test_gpu_image_for_arm64_is_refused() -> None:
    """amazon-ecs-ami builds al2023gpu for x86_64 alone."""
    with pytest.raises(UsageError, match="no Amazon Linux 2023 with NVIDIA's driver for arm64; choose an x86_64 type"):
        ec2_instances.ami(Connections(REGION), "al2023", "arm64", True)


def test_machine_images_are_found_for_each_architecture(aws: str) -> None:
    connections = Connections(REGION)
    found = ec2_instances.ami(connections, "al2023", "arm64", False)
    assert found.root_device == "/dev/xvda" and found.least_gib > 0
    assert ec2_instances.ami(connections, "al2023", "x86_64", True).image_id != found.image_id
    # moto has none of Debian's.
    with pytest.raises(UsageError, match="no machine image /aws/service/debian"):
        ec2_instances.ami(connections, "debian-12", "x86_64", False)

    assert launched_and_terminated() == (0, 0)
