"""Everything of ours, in all regions: shown, and ended until it is gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from harness.aws import tags
from harness.aws.client import Connections
from harness.aws.errors import aws_errors
from harness.ec2 import fleet
from harness.ec2.fleet import Seen, Unseen
from harness.errors import AwsError

MOST_WAIT_S = 900.0


@dataclass(frozen=True)
class Volume:
    """A disk that no instance holds; those that one holds go with it."""

    volume_id: str
    region: str
    gib: int
    tags: dict[str, str]


@dataclass(frozen=True)
class Found:
    """What is there, and the regions that could not be looked at; ``others``: living instances of other owners."""

    instances: tuple[Seen, ...]
    volumes: tuple[Volume, ...]
    failed: tuple[Unseen, ...]
    others: int = 0

    @property
    def empty(self) -> bool:
        """Nothing is there that costs money, as far as could be seen."""
        return not self.instances and not self.volumes


def look(connections: Connections, region: str | None, owner: str | None) -> Found:
    """Find what is alive.

    Args:
        connections: to AWS.
        region: this one alone; ``None``: all of the account.
        owner: whose; ``None``: anybody's who uses harness on the account.

    Raises:
        AwsError: the regions cannot be listed.
    """

    def one(name: str) -> list[Seen | Volume]:
        boxes = [box for box in fleet.instances(connections, name) if box.alive]
        return [*boxes, *volumes(connections, name, owner)]

    found, failed = fleet.everywhere(connections, one, region)
    boxes = [each for each in found if isinstance(each, Seen)]
    asked = tuple(box for box in boxes if owner in (None, box.tags.get(tags.OWNER)))
    return Found(
        asked,
        tuple(each for each in found if isinstance(each, Volume)),
        tuple(failed),
        len(boxes) - len(asked),
    )


def volumes(connections: Connections, region: str, owner: str | None) -> list[Volume]:
    """Our disks that nothing holds.

    Raises:
        AwsError: they cannot be listed.
    """
    filters = [{"Name": "tag-key", "Values": [tags.OWNER]}, {"Name": "status", "Values": ["available"]}]
    if owner is not None:
        filters.append({"Name": f"tag:{tags.OWNER}", "Values": [owner]})
    found = []
    with aws_errors(f"listing volumes in {region}"):
        for page in connections.client("ec2", region).get_paginator("describe_volumes").paginate(Filters=filters):
            found += [
                Volume(each["VolumeId"], region, each["Size"], tags.as_dict(each.get("Tags")))
                for each in page["Volumes"]
            ]
    return found


def end(
    connections: Connections,
    found: Found,
    say: Callable[[str], None],
    *,
    most_s: float = MOST_WAIT_S,
    interval_s: float = 5.0,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """End all of it and wait until it is gone; return a line for each thing that is not.

    Raises:
        AwsError: AWS is not reached.
    """
    left: list[str] = []
    regions = sorted({box.region for box in found.instances} | {volume.region for volume in found.volumes})
    for region in regions:
        ids = {box.instance_id for box in found.instances if box.region == region}
        if ids:
            say(f"ending {len(ids)} instances in {region}")
            try:
                fleet.terminate(connections, region, sorted(ids))
            except AwsError as error:
                left.append(str(error))
                continue

    def alive(region: str) -> list[Seen]:
        ids = {box.instance_id for box in found.instances}
        return [box for box in fleet.instances(connections, region) if box.instance_id in ids]

    for region in regions:
        stay = fleet.wait_gone(lambda at=region: alive(at), most_s=most_s, interval_s=interval_s, sleep=sleep)  # type: ignore[misc]
        left += [f"{box.instance_id} in {region} is still {box.state}" for box in stay]
        for volume in found.volumes:
            if volume.region == region:
                left += _delete(connections, volume, say)
    return left


def _delete(connections: Connections, volume: Volume, say: Callable[[str], None]) -> list[str]:
    try:
        with aws_errors(f"deleting {volume.volume_id}"):
            connections.client("ec2", volume.region).delete_volume(VolumeId=volume.volume_id)
    except AwsError as error:
        return [] if error.code == "InvalidVolume.NotFound" else [str(error)]
    say(f"deleted the disk {volume.volume_id} in {volume.region}")
    return []
