"""Read a region's offer: machine images, subnets, zones of types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.aws.clients import Connections
from harness.aws.errors import aws_errors
from harness.errors import AwsError, UsageError

_AL2023 = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{}"
_DEBIAN = "/aws/service/debian/release/12/latest/{}"
# Made for x86_64 alone.
_GPU = "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id"


@dataclass(frozen=True)
class Ami:
    """A machine image; its root disk has at least ``least_gib``."""

    image_id: str
    root_device: str
    least_gib: int
    name: str


@dataclass(frozen=True)
class Subnet:
    """A subnet, in one availability zone; addresses are private ones."""

    subnet_id: str
    zone: str
    vpc: str
    free_addresses: int


def ami(connections: Connections, region: str, system: str, architecture: str, gpus: bool) -> Ami:
    """Return the newest image, which public parameters of SSM name.

    ``system`` is ``al2023`` or ``debian-12``; profiles with GPUs have Amazon's own with driver and container toolkit.
    """
    if gpus and architecture != "x86_64":
        raise UsageError(
            f"AWS publishes no Amazon Linux 2023 with NVIDIA's driver for {architecture};"
            " choose an x86_64 type for profiles with GPUs"
        )
    debian = _DEBIAN.format("amd64" if architecture == "x86_64" else architecture)
    name = _GPU if gpus else debian if system == "debian-12" else _AL2023.format(architecture)
    try:
        with aws_errors(f"looking up {name}"):
            image_id = connections.client("ssm", region).get_parameter(Name=name)["Parameter"]["Value"]
    except AwsError as error:
        if error.code == "ParameterNotFound":
            raise UsageError(f"{region} has no machine image {name}; choose another region or [ec2] ami") from error
        raise
    with aws_errors(f"looking at {image_id}"):
        images = connections.client("ec2", region).describe_images(ImageIds=[image_id])["Images"]
    image = next((each for each in images if each["Architecture"] == architecture), None)
    if image is None:
        raise UsageError(f"{region} has no {architecture} image {image_id}, which {name} names; choose another type")
    root = image["RootDeviceName"]
    disks = [each.get("Ebs", {}) for each in image.get("BlockDeviceMappings", ()) if each.get("DeviceName") == root]
    least = max((disk.get("VolumeSize", 0) for disk in disks), default=0)
    return Ami(image_id, root, least, image.get("Name", image_id))


def subnets(connections: Connections, region: str, named: Sequence[str | None] = ()) -> list[Subnet]:
    """Return the default VPC's subnets, or the named ones, by zone."""
    names = list(filter(None, named))
    wanted = {"Name": "subnet-id", "Values": names} if names else {"Name": "default-for-az", "Values": ["true"]}
    with aws_errors("looking for subnets"):
        shown = connections.client("ec2", region).describe_subnets(Filters=[wanted])["Subnets"]
    found = [
        Subnet(each["SubnetId"], each["AvailabilityZone"], each["VpcId"], each["AvailableIpAddressCount"])
        for each in shown
    ]
    if missing := set(names) - {subnet.subnet_id for subnet in found}:
        raise UsageError(f"{region} has no subnet {', '.join(sorted(missing))}; name another --subnet")
    if not found:
        raise UsageError(f"{region} has no default VPC; make one (`aws ec2 create-default-vpc`) or give --subnet")
    return sorted(found, key=lambda subnet: subnet.zone)


def zones(connections: Connections, region: str, types: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the availability zones that offer each instance type."""
    found: dict[str, set[str]] = {name: set() for name in types}
    filters = [{"Name": "instance-type", "Values": sorted(found)}]
    pages = connections.client("ec2", region).get_paginator("describe_instance_type_offerings")
    with aws_errors("asking which zones offer what"):
        for page in pages.paginate(LocationType="availability-zone", Filters=filters):
            for each in page["InstanceTypeOfferings"]:
                found[each["InstanceType"]].add(each["Location"])
    return {name: tuple(sorted(zones)) for name, zones in found.items()}
