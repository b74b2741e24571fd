"""What `harness ec2 up` made, removed again; each step may be done twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from harness.aws.connections import Connections
from harness.aws.failures import aws_errors
from harness.aws.objects import Objects
from harness.aws.uri import S3Uri
from harness.ec2 import fleet, network, tags
from harness.ec2.preflight import role
from harness.ec2.setup import POLICY, Say, is_ours
from harness.errors import AwsError, UsageError
from harness.remote import layout

# Between tries to remove a security group.
_WAITS_S = (5.0, 10.0, 20.0, 40.0, 60.0)


def down(
    connections: Connections,
    work: S3Uri,
    region: str,
    say: Say,
    *,
    results_too: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Remove what `harness ec2 up` made; what holds something that nobody asked to be deleted stays, and is told.

    Args:
        connections: to AWS.
        work: the work place.
        region: of the security group.
        say: told of each thing.
        results_too: delete the objects below the work place, and the bucket if harness made it and it is empty then.
        sleep: waits for what instances that have just ended still hold.

    Raises:
        UsageError: instances are alive.
        AwsError: AWS refuses.
    """
    owner = tags.owner(connections)
    _refuse_alive(connections, work, owner, region)
    _remove_role(connections, role(work), say)
    for group in network.groups(connections, region, owner):
        _remove_group(connections, region, group, sleep)
        say(f"removed: security group {group} ({region})")
    _remove_objects(connections, work, say, results_too)


def _refuse_alive(connections: Connections, work: S3Uri, owner: str, region: str) -> None:
    """See that nobody uses what is to be removed: the role is for all regions, and for all who use the work place."""

    def alive(name: str) -> list[fleet.Seen]:
        return [box for box in fleet.instances(connections, name) if box.alive]

    found, failed = fleet.everywhere(connections, alive)
    for unseen in failed:
        if not unseen.denied or unseen.region == region:
            raise AwsError(f"whether instances are alive in {unseen}; nothing was removed", "Unseen")
    users = [box for box in found if box.tags.get(tags.OWNER) == owner or box.profile == role(work)]
    if users:
        where = ", ".join(sorted({box.region for box in users}))
        whose = "" if all(box.tags.get(tags.OWNER) == owner for box in users) else " --all-owners"
        raise UsageError(
            f"{len(users)} instances are alive in {where}; `harness ec2 reap{whose}` ends them, then try again"
        )


def _remove_group(connections: Connections, region: str, group: str, sleep: Callable[[float], None]) -> None:
    for wait_s in (*_WAITS_S, None):
        try:
            with aws_errors(f"removing the security group {group}"):
                connections.client("ec2", region).delete_security_group(GroupId=group)
        except AwsError as error:
            # Instances that are terminated hold it for a while.
            if error.code != "DependencyViolation" or wait_s is None:
                raise
            sleep(wait_s)
        else:
            return


def _remove_role(connections: Connections, name: str, say: Say) -> None:
    client = connections.client("iam")
    steps: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("", lambda: client.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=name)),
        (f"instance profile {name}", lambda: client.delete_instance_profile(InstanceProfileName=name)),
        ("", lambda: client.delete_role_policy(RoleName=name, PolicyName=POLICY)),
        (f"role {name}", lambda: client.delete_role(RoleName=name)),
    )
    for what, remove in steps:
        try:
            with aws_errors(f"removing {what or name}"):
                remove()
        except AwsError as error:
            if error.code != "NoSuchEntity":
                raise
            continue
        if what:
            say(f"removed: {what}")


def _remove_objects(connections: Connections, work: S3Uri, say: Say, results_too: bool) -> None:
    client, objects = connections.client("s3"), Objects(connections, work)
    try:
        names = [each.name for folder in ("inputs", layout.RUNS) for each in objects.list(f"{folder}/")]
    except AwsError as error:
        if error.code == "NoSuchBucket":
            return
        raise
    if names and not results_too:
        say(f"kept: {len(names)} objects below {work}, which cost their storage; --results-too deletes them")
        return
    if names:
        say(f"removed: {objects.delete(names)} objects below {work}")
    if not is_ours(client, work.bucket):
        return
    with suppress(_NotEmpty):
        _delete_bucket(client, work.bucket)
        say(f"removed: bucket {work.bucket}")
        return
    say(f"kept: bucket {work.bucket}, which holds other objects")


class _NotEmpty(Exception):
    """There are objects that are none of ours."""


def _delete_bucket(client: Any, bucket: str) -> None:
    try:
        with aws_errors(f"removing the bucket {bucket}"):
            client.delete_bucket(Bucket=bucket)
    except AwsError as error:
        if error.code == "BucketNotEmpty":
            raise _NotEmpty from error
        raise
