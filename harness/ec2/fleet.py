"""Instances of ours: found by tag, ended, and waited for until they are gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from harness.aws import tags
from harness.aws.client import Connections
from harness.aws.errors import aws_errors, concealed
from harness.errors import AwsError

# The most that one request ends.
_AT_ONCE = 100
LIVE = frozenset({"pending", "running", "shutting-down", "stopping", "stopped"})
_REGIONS_AT_ONCE = 12
_MOST_CONSOLE_BYTES = 64 << 10


@dataclass(frozen=True)
class Seen:
    """An instance as EC2 shows it.

    ``launched`` is in seconds since 1970, by AWS' clock; ``profile`` names its instance profile; ``reason`` says why it
    is in its state, in EC2's words.
    """

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
        """Whether it is not terminated: a stopped one costs its disk, and can be started."""
        return self.state in LIVE

    @property
    def part(self) -> str:
        """The part that it does."""
        return self.tags.get(tags.PART, "")


@dataclass(frozen=True)
class Unseen:
    """A region that could not be looked at, and why."""

    region: str
    why: str

    @property
    def denied(self) -> bool:
        """Whether a policy forbids it in so many words, as those do that keep an account in some regions."""
        return "explicit deny" in self.why

    def __str__(self) -> str:
        return f"{self.region}: {self.why}"


def instances(
    connections: Connections,
    region: str | None = None,
    *,
    run: str | None = None,
    part: str | None = None,
    owner: str | None = None,
) -> list[Seen]:
    """Instances of harness in a region, those that are terminated but still shown too.

    Raises:
        AwsError: they cannot be listed.
    """
    client = connections.client("ec2", region)
    filters = [{"Name": "tag-key", "Values": [tags.OWNER]}]
    for name, value in ((tags.RUN, run), (tags.PART, part), (tags.OWNER, owner)):
        if value is not None:
            filters.append({"Name": f"tag:{name}", "Values": [value]})
    found = []
    with aws_errors(f"listing instances in {client.meta.region_name}"):
        for page in client.get_paginator("describe_instances").paginate(Filters=filters):
            for reservation in page["Reservations"]:
                found += [_seen(each, client.meta.region_name) for each in reservation["Instances"]]
    return found


def _seen(each: dict[str, Any], region: str) -> Seen:
    return Seen(
        instance_id=each["InstanceId"],
        instance_type=each["InstanceType"],
        state=each["State"]["Name"],
        region=region,
        launched=each["LaunchTime"].timestamp(),
        zone=each.get("Placement", {}).get("AvailabilityZone"),
        ami_id=each.get("ImageId"),
        spot=each.get("InstanceLifecycle") == "spot",
        tags=tags.as_dict(each.get("Tags")),
        profile=each.get("IamInstanceProfile", {}).get("Arn", "").rpartition("/")[2],
        # "Client.UserInitiatedShutdown: User initiated shutdown"
        reason=concealed(str(each.get("StateReason", {}).get("Message") or "")) or None,
    )


def regions(connections: Connections) -> list[str]:
    """All regions that the account can use.

    Raises:
        AwsError: they cannot be listed.
    """
    with aws_errors("listing the account's regions"):
        client = connections.client("ec2")
        return sorted(each["RegionName"] for each in client.describe_regions()["Regions"])


def everywhere(
    connections: Connections, look: Callable[[str], list[Any]], limited: str | None = None
) -> tuple[list[Any], list[Unseen]]:
    """Look in all regions at once; what was found, and the regions that could not be looked at."""

    def one(region: str) -> list[Any] | Unseen:
        try:
            return look(region)
        except AwsError as error:
            return Unseen(region, str(error))

    names = [limited] if limited else regions(connections)
    found: list[Any] = []
    failed: list[Unseen] = []
    with ThreadPoolExecutor(_REGIONS_AT_ONCE) as pool:
        for answer in pool.map(one, names):
            if isinstance(answer, Unseen):
                failed.append(answer)
            else:
                found += answer
    return found, failed


def terminate(connections: Connections, region: str | None, ids: Iterable[str]) -> None:
    """End instances; those that are gone already are no error.

    Raises:
        AwsError: EC2 refuses.
    """
    client, waiting = connections.client("ec2", region), list(ids)
    while waiting:
        now, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
        try:
            with aws_errors(f"ending {len(now)} instances"):
                client.terminate_instances(InstanceIds=now)
        except AwsError as error:
            if error.code != "InvalidInstanceID.NotFound":
                raise
            # One that is forgotten makes the whole request fail.
            if len(now) > 1:
                for each in now:
                    terminate(connections, region, [each])


def console(connections: Connections, region: str | None, instance_id: str) -> str:
    """The end of what an instance's console showed; empty where EC2 has none, or we may not see it."""
    try:
        with aws_errors(f"reading the console of {instance_id}"):
            answer = connections.client("ec2", region).get_console_output(InstanceId=instance_id)
    except AwsError:
        return ""  # it is gone, whatever it said
    output = str(answer.get("Output") or "").encode("latin-1", "replace")  # as boto3 decodes it
    shown = output[-_MOST_CONSOLE_BYTES:].decode("utf-8", "replace")
    return concealed("".join(each for each in shown if each.isprintable() or each == "\n"))


def wait_gone(
    look: Callable[[], list[Seen]],
    *,
    most_s: float,
    interval_s: float,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Seen]:
    """Wait until none that ``look`` finds is alive; return those that still are after ``most_s``."""
    waited = 0.0
    while True:
        alive = [each for each in look() if each.alive]
        if not alive or waited >= most_s:
            return alive
        sleep(interval_s)
        waited += interval_s
