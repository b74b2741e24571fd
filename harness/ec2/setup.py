"""What runs on EC2 stand on: bucket, role, security group.  Each step may be done twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from harness.aws.connections import Connections
from harness.aws.failures import aws_errors
from harness.aws.uri import S3Uri
from harness.ec2 import network, policy, tags
from harness.ec2.preflight import role
from harness.errors import AwsError
from harness.remote import layout, user_data

# Shipped inputs and the traces of runs are worth nothing after that: results are home.
EXPIRES_DAYS = 90
POLICY = "work-place"
Say = Callable[[str], None]


def up(connections: Connections, work: S3Uri, region: str, say: Say, subnet: str | None = None) -> None:
    """Make what is missing.

    Args:
        connections: to AWS.
        work: the work place.
        region: of the security group.
        say: told of each thing.
        subnet: the security group is for its VPC; ``None``: for the default VPC.

    Raises:
        AwsError: AWS refuses, or the bucket is somebody else's.
        UsageError: the work place names an account, or there is no such subnet.
    """
    user_data.refuse_accounts(work)
    owner = tags.owner(connections)
    _bucket(connections, work, region, owner, say)
    _role(connections, work, owner, say)
    vpc = network.subnets(connections, region, subnet)[0].vpc
    there = network.security_group(connections, region, vpc)
    group = there or network.make_security_group(connections, region, vpc, owner)
    _told(say, there is None, f"security group {group} ({network.GROUP}, {region}): nothing comes in")


def _told(say: Say, made: bool, what: str) -> None:
    say(f"{'made' if made else 'there'}: {what}")


def _bucket(connections: Connections, work: S3Uri, region: str, owner: str, say: Say) -> None:
    client = connections.client("s3", region)
    made = False
    try:
        with aws_errors(f"looking at {work.bucket}"):
            client.head_bucket(Bucket=work.bucket)
    except AwsError as error:
        if error.code not in ("404", "NoSuchBucket"):
            raise
        # us-east-1 is the one region that must not be named.
        where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        with aws_errors(f"making the bucket {work.bucket}"):
            client.create_bucket(Bucket=work.bucket, **where)
        _mark(client, work.bucket, owner)
        made = True
    if made or is_ours(client, work.bucket):
        _guard(client, work, say)
    else:
        say(f"left as it is: the bucket {work.bucket}, which harness did not make; see that it is private")
    _told(say, made, f"bucket {work.bucket}")


def _mark(client: Any, bucket: str, owner: str) -> None:
    """By its tags a bucket is known to be ours: one without would stay for ever."""
    marked = tags.as_list({tags.OWNER: owner, "harness:made": "yes"})
    try:
        with aws_errors(f"marking the bucket {bucket}"):
            client.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": marked})
    except AwsError:
        with suppress(AwsError), aws_errors(f"removing the bucket {bucket}"):
            client.delete_bucket(Bucket=bucket)
        raise


def _guard(client: Any, work: S3Uri, say: Say) -> None:
    """Make a bucket private and encrypted, refuse requests without TLS, and let it clean itself."""
    with aws_errors(f"guarding the bucket {work.bucket}"):
        client.put_public_access_block(
            Bucket=work.bucket,
            PublicAccessBlockConfiguration={
                "BlockPublicAcls": True,
                "IgnorePublicAcls": True,
                "BlockPublicPolicy": True,
                "RestrictPublicBuckets": True,
            },
        )
        client.put_bucket_encryption(
            Bucket=work.bucket,
            ServerSideEncryptionConfiguration={
                "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
            },
        )
        client.put_bucket_policy(Bucket=work.bucket, Policy=json.dumps(policy.bucket(work, client.meta.partition)))
        rules: list[dict[str, Any]] = [
            {
                # Another work place in this bucket has rules of its own.
                "ID": f"{role(work)}-{folder}",
                "Status": "Enabled",
                "Filter": {"Prefix": f"{work.key(folder)}/"},
                "Expiration": {"Days": EXPIRES_DAYS},
                "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
            }
            for folder in (layout.RUNS, "inputs")
        ]
        ours = {rule["ID"] for rule in rules}
        rules += [rule for rule in _rules(client, work.bucket) if rule.get("ID") not in ours]
        client.put_bucket_lifecycle_configuration(Bucket=work.bucket, LifecycleConfiguration={"Rules": rules})
    kept = f"keeps {work}/runs and /inputs for {EXPIRES_DAYS} days"
    say(f"set: {work.bucket} is private, encrypted, refuses requests without TLS, and {kept}")


def _rules(client: Any, bucket: str) -> list[dict[str, Any]]:
    """What is deleted of a bucket by itself until now."""
    try:
        with aws_errors(f"looking at what expires in {bucket}"):
            return list(client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"])
    except AwsError as error:
        if error.code == "NoSuchLifecycleConfiguration":
            return []
        raise


def is_ours(client: Any, bucket: str) -> bool:
    """Whether harness made a bucket."""
    try:
        with aws_errors(f"looking at the tags of {bucket}"):
            found = tags.as_dict(client.get_bucket_tagging(Bucket=bucket)["TagSet"])
    except AwsError as error:
        if error.code == "NoSuchTagSet":
            return False
        raise
    return "harness:made" in found


def _role(connections: Connections, work: S3Uri, owner: str, say: Say) -> None:
    name, client = role(work), connections.client("iam")
    marked = tags.as_list({tags.OWNER: owner})
    made = _unless_there(
        "making the role",
        lambda: client.create_role(
            RoleName=name,
            AssumeRolePolicyDocument=json.dumps(policy.trust()),
            Description="ir-harness: what boxes may do",
            Tags=marked,
        ),
    )
    with aws_errors("giving the role its rights"):
        client.put_role_policy(RoleName=name, PolicyName=POLICY, PolicyDocument=json.dumps(policy.box(work)))
    _told(say, made, f"role {name}: reads and writes below {work} alone")
    made = _unless_there(
        "making the instance profile", lambda: client.create_instance_profile(InstanceProfileName=name, Tags=marked)
    )
    with aws_errors("looking at the instance profile"):
        roles = client.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Roles"]
    if not roles:
        with aws_errors("giving the instance profile its role"):
            client.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    _told(say, made, f"instance profile {name}")


def _unless_there(what: str, make: Callable[[], Any]) -> bool:
    try:
        with aws_errors(what):
            make()
    except AwsError as error:
        if error.code != "EntityAlreadyExists":
            raise
        return False
    return True
