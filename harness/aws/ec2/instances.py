"""Find, end and await harness's instances and disks in all regions; read what a region offers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.aws import clients
from harness.aws.clients import Connections
from harness.aws.errors import aws_errors
from harness.errors import RemoteError, UsageError, counted
from harness.remote.failures import concealed, ignoring

log = logging.getLogger(__name__)

# An instance may take this long to end.
WAIT_S, POLL_S = 900.0, 5.0
_LIVE = frozenset({"pending", "running", "shutting-down", "stopping", "stopped"})
_ENDED_AT_ONCE, _REGIONS_AT_ONCE = 100, 12
# Credentials of a role are for the host and its containers on the host's network: one hop.
METADATA = {"HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1}
T = TypeVar("T")
_AL2023 = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{}"
_DEBIAN = "/aws/service/debian/release/12/latest/{}"
# Made for x86_64 alone.
_GPU = "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id"


@dataclass(frozen=True)
class OwnedInstance:
    """An instance; ``launched``: seconds since 1970, by AWS' clock."""

    instance_id: str
    instance_type: str
    state: str
    region: str
    launched: float
    zone: str | None
    ami_id: str | None
    spot: bool
    tags: dict[str, str]
    profile: str = ""
    reason: str | None = None

    @property
    def alive(self) -> bool:
        """Return whether it still costs money; a stopped one costs its disk."""
        return self.state in _LIVE


@dataclass(frozen=True)
class OwnedVolume:
    """A disk that no instance holds."""

    volume_id: str
    region: str
    gib: int
    tags: dict[str, str]


@dataclass(frozen=True)
class UnreadRegion:
    """A region that could not be looked at, and why."""

    region: str
    why: str

    @property
    def denied(self) -> bool:
        """Return whether a policy keeps the account out of this region."""
        return "explicit deny" in self.why

    def __str__(self) -> str:
        return f"{self.region}: {self.why}"


@dataclass(frozen=True)
class OwnedResources:
    """Living instances, left-over disks, failed regions; ``others``: living instances of other owners."""

    instances: tuple[OwnedInstance, ...]
    volumes: tuple[OwnedVolume, ...]
    failed: tuple[UnreadRegion, ...]
    others: int = 0

    @property
    def empty(self) -> bool:
        """Return whether nothing that costs money was found."""
        return not self.instances and not self.volumes


def listed(found: OwnedResources, owner: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the header and the rows of a table of instances, by region and launch, and of left-over disks."""

    def whose(tags: Mapping[str, str]) -> str:
        return "ours" if tags.get(clients.OWNER) == owner else "another's"

    head = ("region", "id", "type", "state", "run", "part", "ends by", "whose")
    rows: list[tuple[str, ...]] = []
    for instance in sorted(found.instances, key=lambda each: (each.region, each.launched)):
        marks = (instance.tags.get(name, "") for name in (clients.RUN, clients.PART, clients.EXPIRY))
        named = (instance.region, instance.instance_id, instance.instance_type, instance.state)
        rows.append((*named, *marks, whose(instance.tags)))
    for disk in found.volumes:
        named = (disk.region, disk.volume_id, f"{disk.gib} GiB disk", "left over")
        rows.append((*named, "", "", "", whose(disk.tags)))
    return head, rows


def root_disk(device: str, gib: int) -> list[dict[str, Any]]:
    """Return a machine's encrypted root disk, which goes with it."""
    ebs = {"VolumeSize": gib, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    return [{"DeviceName": device, "Ebs": ebs}]


def find(
    connections: Connections, region: str | None = None, marks: Mapping[str, str] | None = None
) -> list[OwnedInstance]:
    """Return a region's instances with these tags, lately terminated ones too."""
    client = connections.client("ec2", region)
    shown = _listed(client, "describe_instances", "Reservations", marks or {})
    region_name = client.meta.region_name
    return [_owned_instance(instance, region_name) for reservation in shown for instance in reservation["Instances"]]


def alive(
    connections: Connections, region: str | None = None, marks: Mapping[str, str] | None = None
) -> list[OwnedInstance]:
    """Return a region's living instances with these tags."""
    return [instance for instance in find(connections, region, marks) if instance.alive]


def _owned_instance(shown: dict[str, Any], region: str) -> OwnedInstance:
    return OwnedInstance(
        instance_id=shown["InstanceId"],
        instance_type=shown["InstanceType"],
        state=shown["State"]["Name"],
        region=region,
        launched=shown["LaunchTime"].timestamp(),
        zone=shown.get("Placement", {}).get("AvailabilityZone"),
        ami_id=shown.get("ImageId"),
        spot=shown.get("InstanceLifecycle") == "spot",
        tags=clients.as_dict(shown.get("Tags")),
        profile=shown.get("IamInstanceProfile", {}).get("Arn", "").rpartition("/")[2],
        # "Client.UserInitiatedShutdown: User initiated shutdown"
        reason=concealed(str(shown.get("StateReason", {}).get("Message") or "")) or None,
    )


def _volumes(connections: Connections, region: str) -> list[OwnedVolume]:
    shown = _listed(connections.client("ec2", region), "describe_volumes", "Volumes", {}, status="available")
    return [OwnedVolume(disk["VolumeId"], region, disk["Size"], clients.as_dict(disk.get("Tags"))) for disk in shown]


def _listed(client: Any, operation: str, key: str, marks: Mapping[str, str], **more: str) -> Iterator[Any]:
    wanted = {"tag-key": clients.OWNER, **{f"tag:{name}": value for name, value in marks.items()}, **more}
    filters = [{"Name": name, "Values": [value]} for name, value in wanted.items()]
    with aws_errors(f"listing {key.lower()} in {client.meta.region_name}"):
        for page in client.get_paginator(operation).paginate(Filters=filters):
            yield from page[key]


def regions(connections: Connections) -> list[str]:
    """Return all regions that the account can use."""
    with aws_errors("listing the account's regions"):
        return sorted(region["RegionName"] for region in connections.client("ec2").describe_regions()["Regions"])


def search_regions(
    connections: Connections, look: Callable[[str], list[Any]], limited: str | None = None
) -> tuple[list[Any], list[UnreadRegion]]:
    """Look in all regions at once; return finds and failed regions."""

    def one(region: str) -> list[Any] | UnreadRegion:
        try:
            return look(region)
        except RemoteError as error:
            return UnreadRegion(region, str(error))

    with ThreadPoolExecutor(_REGIONS_AT_ONCE) as pool:
        answers = list(pool.map(one, [limited] if limited else regions(connections)))
    failed = [answer for answer in answers if isinstance(answer, UnreadRegion)]
    return [resource for answer in answers if not isinstance(answer, UnreadRegion) for resource in answer], failed


def find_owned(connections: Connections, region: str | None, owner: str | None) -> OwnedResources:
    """Find what costs money; ``None``: in all regions, of all owners."""
    resources, failed = search_regions(
        connections, lambda name: [*alive(connections, name), *_volumes(connections, name)], region
    )
    mine = [resource for resource in resources if owner in (None, resource.tags.get(clients.OWNER))]
    living = tuple(resource for resource in mine if isinstance(resource, OwnedInstance))
    disks = tuple(resource for resource in mine if isinstance(resource, OwnedVolume))
    return OwnedResources(
        living, disks, tuple(failed), sum(isinstance(resource, OwnedInstance) for resource in resources) - len(living)
    )


def end(connections: Connections, region: str | None, ids: Sequence[str]) -> None:
    """End instances; an instance that is already gone is not an error."""
    client = connections.client("ec2", region)
    for start in range(0, len(ids), _ENDED_AT_ONCE):
        some = list(ids[start : start + _ENDED_AT_ONCE])
        with ignoring("InvalidInstanceID.NotFound"), aws_errors(f"ending {counted(len(some), 'instance')}"):
            client.terminate_instances(InstanceIds=some)
            continue
        # One that EC2 has forgotten makes the whole request fail.
        for instance_id in some if len(some) > 1 else ():
            end(connections, region, [instance_id])


def wait(left: Callable[[], list[T]]) -> list[T]:
    """Wait until nothing is left; return what stays."""
    until = time.monotonic() + WAIT_S
    while (stay := left()) and time.monotonic() < until:
        time.sleep(POLL_S)
    return stay


def end_all(connections: Connections, owned: OwnedResources) -> list[str]:
    """End instances, delete disks and wait; return a line for each that stays."""
    left: list[str] = []
    ids = {instance.instance_id for instance in owned.instances}
    places = sorted({instance.region for instance in owned.instances} | {volume.region for volume in owned.volumes})
    for region in places:
        if here := sorted(instance.instance_id for instance in owned.instances if instance.region == region):
            log.info(f"ending {counted(len(here), 'instance')} in {region}")
            try:
                end(connections, region, here)
            except RemoteError as error:
                left.append(str(error))

    def staying() -> list[OwnedInstance]:
        return [instance for region in places for instance in alive(connections, region) if instance.instance_id in ids]

    left += [f"{instance.instance_id} in {instance.region} is still {instance.state}" for instance in wait(staying)]
    for volume in owned.volumes:
        left += _delete(connections, volume)
    return left


def _delete(connections: Connections, volume: OwnedVolume) -> list[str]:
    try:
        with aws_errors(f"deleting {volume.volume_id}"):
            connections.client("ec2", volume.region).delete_volume(VolumeId=volume.volume_id)
    except RemoteError as error:
        return [] if error.code == "InvalidVolume.NotFound" else [str(error)]
    log.info(f"deleted the disk {volume.volume_id} in {volume.region}")
    return []


def last_line(connections: Connections, instance_id: str) -> str:
    """Return the last line of a console; empty: EC2 shows none."""
    try:
        with aws_errors(f"reading the console of {instance_id}"):
            shown = connections.client("ec2").get_console_output(InstanceId=instance_id).get("Output")
    except RemoteError:
        return ""  # it is gone
    text = str(shown or "").encode("latin-1", "replace").decode("utf-8", "replace")  # boto3 takes it for Latin-1
    lines = ("".join(filter(str.isprintable, line)).strip() for line in reversed(text.split("\n")))
    return concealed(next(filter(None, lines), ""))


@dataclass(frozen=True)
class Ami:
    """A machine image; its root disk has at least ``least_gib``."""

    image_id: str
    root_device: str
    least_gib: int


@dataclass(frozen=True)
class Subnet:
    """A subnet, in one availability zone; addresses are private ones."""

    subnet_id: str
    zone: str
    vpc: str
    free_addresses: int


def ami(connections: Connections, system: str, architecture: str, gpus: bool) -> Ami:
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
            image_id = connections.client("ssm").get_parameter(Name=name)["Parameter"]["Value"]
    except RemoteError as error:
        if error.code == "ParameterNotFound":
            where = connections.region
            raise UsageError(f"{where} has no machine image {name}; choose another region or [ec2] ami") from error
        raise
    with aws_errors(f"looking at {image_id}"):
        images = connections.client("ec2").describe_images(ImageIds=[image_id])["Images"]
    image = next((image for image in images if image["Architecture"] == architecture), None)
    if image is None:
        where = f"{connections.region} has no {architecture} image"
        raise UsageError(f"{where} {image_id}, which {name} names; choose another type")
    root = image["RootDeviceName"]
    mappings = image.get("BlockDeviceMappings", ())
    disks = [mapping.get("Ebs", {}) for mapping in mappings if mapping.get("DeviceName") == root]
    least = max((disk.get("VolumeSize", 0) for disk in disks), default=0)
    return Ami(image_id, root, least)


def subnets(connections: Connections, named: Sequence[str | None] = ()) -> list[Subnet]:
    """Return the default VPC's subnets, or the named ones, by zone."""
    names = list(filter(None, named))
    wanted = {"Name": "subnet-id", "Values": names} if names else {"Name": "default-for-az", "Values": ["true"]}
    with aws_errors("looking for subnets"):
        shown = connections.client("ec2").describe_subnets(Filters=[wanted])["Subnets"]
    chosen = [
        Subnet(subnet["SubnetId"], subnet["AvailabilityZone"], subnet["VpcId"], subnet["AvailableIpAddressCount"])
        for subnet in shown
    ]
    if missing := set(names) - {subnet.subnet_id for subnet in chosen}:
        raise UsageError(f"{connections.region} has no subnet {', '.join(sorted(missing))}; name another --subnet")
    if not chosen:
        remedy = "make one (`aws ec2 create-default-vpc`) or give --subnet"
        raise UsageError(f"{connections.region} has no default VPC; {remedy}")
    return sorted(chosen, key=lambda subnet: subnet.zone)


def zones(connections: Connections, types: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the availability zones that offer each instance type."""
    zones_by_type: dict[str, set[str]] = {name: set() for name in types}
    filters = [{"Name": "instance-type", "Values": sorted(zones_by_type)}]
    pages = connections.client("ec2").get_paginator("describe_instance_type_offerings")
    with aws_errors("asking which zones offer what"):
        for page in pages.paginate(LocationType="availability-zone", Filters=filters):
            for offering in page["InstanceTypeOfferings"]:
                zones_by_type[offering["InstanceType"]].add(offering["Location"])
    return {name: tuple(sorted(zones)) for name, zones in zones_by_type.items()}
