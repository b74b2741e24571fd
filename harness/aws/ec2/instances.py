"""Instances and disks of harness: find, end, and wait, in all regions."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.aws import clients
from harness.aws.clients import Connections
from harness.aws.errors import aws_errors, concealed
from harness.errors import AwsError

log = logging.getLogger(__name__)

# An instance that was told to end may take this long.
WAIT_S, POLL_S = 900.0, 5.0
_LIVE = frozenset({"pending", "running", "shutting-down", "stopping", "stopped"})
_ENDED_AT_ONCE, _REGIONS_AT_ONCE = 100, 12
# Credentials of a role are for the host and its containers on the host's network: one hop.
METADATA = {"HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1}
T = TypeVar("T")


@dataclass(frozen=True)
class Box:
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
class Volume:
    """A disk that no instance holds."""

    volume_id: str
    region: str
    gib: int
    tags: dict[str, str]


@dataclass(frozen=True)
class Unseen:
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
class Found:
    """Living instances, left-over disks, failed regions; ``others``: living instances of other owners."""

    instances: tuple[Box, ...]
    volumes: tuple[Volume, ...]
    failed: tuple[Unseen, ...]
    others: int = 0

    @property
    def empty(self) -> bool:
        """Return whether nothing that costs money was found."""
        return not self.instances and not self.volumes


def root_disk(device: str, gib: int) -> list[dict[str, Any]]:
    """Return a machine's encrypted root disk, which goes with it."""
    ebs = {"VolumeSize": gib, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    return [{"DeviceName": device, "Ebs": ebs}]


def find(connections: Connections, region: str | None = None, marks: Mapping[str, str] | None = None) -> list[Box]:
    """Return a region's instances with these tags, lately terminated ones too."""
    client = connections.client("ec2", region)
    shown = _listed(client, "describe_instances", "Reservations", marks or {})
    return [_box(each, client.meta.region_name) for reservation in shown for each in reservation["Instances"]]


def alive(connections: Connections, region: str | None = None, marks: Mapping[str, str] | None = None) -> list[Box]:
    """Return a region's living instances with these tags."""
    return [box for box in find(connections, region, marks) if box.alive]


def _box(shown: dict[str, Any], region: str) -> Box:
    return Box(
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


def _volumes(connections: Connections, region: str) -> list[Volume]:
    shown = _listed(connections.client("ec2", region), "describe_volumes", "Volumes", {}, status="available")
    return [Volume(each["VolumeId"], region, each["Size"], clients.as_dict(each.get("Tags"))) for each in shown]


def _listed(client: Any, operation: str, key: str, marks: Mapping[str, str], **more: str) -> Iterator[Any]:
    wanted = {"tag-key": clients.OWNER, **{f"tag:{name}": value for name, value in marks.items()}, **more}
    filters = [{"Name": name, "Values": [value]} for name, value in wanted.items()]
    with aws_errors(f"listing {key.lower()} in {client.meta.region_name}"):
        for page in client.get_paginator(operation).paginate(Filters=filters):
            yield from page[key]


def regions(connections: Connections) -> list[str]:
    """Return all regions that the account can use."""
    with aws_errors("listing the account's regions"):
        return sorted(each["RegionName"] for each in connections.client("ec2").describe_regions()["Regions"])


def everywhere(
    connections: Connections, look: Callable[[str], list[Any]], limited: str | None = None
) -> tuple[list[Any], list[Unseen]]:
    """Look in all regions at once; return finds and failed regions."""

    def one(region: str) -> list[Any] | Unseen:
        try:
            return look(region)
        except AwsError as error:
            return Unseen(region, str(error))

    with ThreadPoolExecutor(_REGIONS_AT_ONCE) as pool:
        answers = list(pool.map(one, [limited] if limited else regions(connections)))
    failed = [answer for answer in answers if isinstance(answer, Unseen)]
    return [each for answer in answers if not isinstance(answer, Unseen) for each in answer], failed


def look(connections: Connections, region: str | None, owner: str | None) -> Found:
    """Find what costs money; ``None``: in all regions, of all owners."""
    found, failed = everywhere(
        connections, lambda name: [*alive(connections, name), *_volumes(connections, name)], region
    )
    mine = [each for each in found if owner in (None, each.tags.get(clients.OWNER))]
    boxes = tuple(each for each in mine if isinstance(each, Box))
    disks = tuple(each for each in mine if isinstance(each, Volume))
    return Found(boxes, disks, tuple(failed), sum(isinstance(each, Box) for each in found) - len(boxes))


def end(connections: Connections, region: str | None, ids: Sequence[str]) -> None:
    """End instances; those that are gone already are no error."""
    client = connections.client("ec2", region)
    for start in range(0, len(ids), _ENDED_AT_ONCE):
        some = list(ids[start : start + _ENDED_AT_ONCE])
        try:
            with aws_errors(f"ending {len(some)} instances"):
                client.terminate_instances(InstanceIds=some)
        except AwsError as error:
            if error.code != "InvalidInstanceID.NotFound":
                raise
            # One that EC2 has forgotten makes the whole request fail.
            for each in some if len(some) > 1 else ():
                end(connections, region, [each])


def wait(
    left: Callable[[], list[T]],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> list[T]:
    """Wait until nothing is left; return what stays."""
    until = clock() + WAIT_S
    while (stay := left()) and clock() < until:
        sleep(POLL_S)
    return stay


def end_all(connections: Connections, found: Found) -> list[str]:
    """End all of it and wait; return a line for each rest."""
    left: list[str] = []
    ids = {box.instance_id for box in found.instances}
    places = sorted({box.region for box in found.instances} | {volume.region for volume in found.volumes})
    for region in places:
        if here := sorted(box.instance_id for box in found.instances if box.region == region):
            log.info(f"ending {len(here)} instances in {region}")
            try:
                end(connections, region, here)
            except AwsError as error:
                left.append(str(error))

    def staying() -> list[Box]:
        return [box for region in places for box in alive(connections, region) if box.instance_id in ids]

    left += [f"{box.instance_id} in {box.region} is still {box.state}" for box in wait(staying)]
    for volume in found.volumes:
        left += _delete(connections, volume)
    return left


def _delete(connections: Connections, volume: Volume) -> list[str]:
    try:
        with aws_errors(f"deleting {volume.volume_id}"):
            connections.client("ec2", volume.region).delete_volume(VolumeId=volume.volume_id)
    except AwsError as error:
        return [] if error.code == "InvalidVolume.NotFound" else [str(error)]
    log.info(f"deleted the disk {volume.volume_id} in {volume.region}")
    return []


def last_line(connections: Connections, region: str | None, instance_id: str) -> str:
    """Return the last line of a console; empty: EC2 shows none."""
    try:
        with aws_errors(f"reading the console of {instance_id}"):
            shown = connections.client("ec2", region).get_console_output(InstanceId=instance_id).get("Output")
    except AwsError:
        return ""  # it is gone, whatever it said
    text = str(shown or "").encode("latin-1", "replace").decode("utf-8", "replace")  # boto3 takes it for Latin-1
    lines = ("".join(filter(str.isprintable, line)).strip() for line in reversed(text.split("\n")))
    return concealed(next(filter(None, lines), ""))
