"""The machine image (AMI) to launch: the newest that AWS or Debian publish, by public parameters of SSM."""

from __future__ import annotations

from dataclasses import dataclass

from harness.aws.connections import Connections
from harness.aws.failures import aws_errors
from harness.errors import AwsError, UsageError

_AL2023 = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{}"
_DEBIAN = "/aws/service/debian/release/12/latest/{}"
# Made for x86_64 alone.
_GPU = "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id"
_DEBIAN_NAMES = {"x86_64": "amd64", "arm64": "arm64"}


@dataclass(frozen=True)
class Ami:
    """A machine image: its id, where its root disk is attached, and the least size of that (GiB)."""

    image_id: str
    architecture: str
    root_device: str
    least_gib: int
    name: str


def parameter(system: str, architecture: str, gpus: int) -> str:
    """The SSM parameter that names the image.

    Args:
        system: ``al2023`` or ``debian-12``; GPU profiles have Amazon's own with driver and container toolkit.
        architecture: ``x86_64`` or ``arm64``.
        gpus: how many the profile has.

    Raises:
        UsageError: there is none.
    """
    if gpus:
        if architecture != "x86_64":
            raise UsageError(
                f"AWS publishes no Amazon Linux 2023 with NVIDIA's driver for {architecture};"
                " choose an x86_64 type for profiles with GPUs"
            )
        return _GPU
    if system == "debian-12":
        return _DEBIAN.format(_DEBIAN_NAMES[architecture])
    return _AL2023.format(architecture)


def find(connections: Connections, region: str | None, system: str, architecture: str, gpus: int) -> Ami:
    """The newest image, checked to be what it should be.

    Raises:
        AwsError: it cannot be found.
        UsageError: the region has none for that architecture.
    """
    name = parameter(system, architecture, gpus)
    try:
        with aws_errors(f"looking up {name}"):
            image_id = connections.client("ssm", region).get_parameter(Name=name)["Parameter"]["Value"]
    except AwsError as error:
        if error.code == "ParameterNotFound":
            raise UsageError(
                f"{region or connections.region} has no machine image {name}; choose another region or [ec2] ami"
            ) from error
        raise
    with aws_errors(f"looking at {image_id}"):
        found = connections.client("ec2", region).describe_images(ImageIds=[image_id])["Images"]
    if not found:
        raise UsageError(f"{name} names {image_id}, which {region or connections.region} does not have")
    image = found[0]
    if image["Architecture"] != architecture:
        raise UsageError(f"{image_id} is {image['Architecture']}, asked for {architecture}; choose another type")
    root = image["RootDeviceName"]
    disks = [each.get("Ebs", {}) for each in image.get("BlockDeviceMappings", ()) if each.get("DeviceName") == root]
    least = max((disk.get("VolumeSize", 0) for disk in disks), default=0)
    return Ami(image_id, architecture, root, least, image.get("Name", image_id))
