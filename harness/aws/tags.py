"""How what is ours is known by its tags.  No tag names a person or an account."""

from __future__ import annotations

import hashlib
from typing import Any

from harness.aws.connections import Connections
from harness.aws.failures import aws_errors

SUITE = "harness:suite"
RUN = "harness:run"
PART = "harness:part"
OWNER = "harness:owner"
EXPIRY = "harness:expiry"
TOKEN = "harness:token"  # noqa: S105 - names a tag


def owner(connections: Connections) -> str:
    """Who we are to AWS, as a hash: tells callers of one account apart, and nothing else.

    Raises:
        AwsError: the credentials are not known.
    """
    with aws_errors("asking AWS who we are"):
        arn = connections.client("sts").get_caller_identity()["Arn"]
    return hashlib.sha256(f"harness owner {lasting(arn)}".encode()).hexdigest()[:12]


def lasting(arn: str) -> str:
    """What of an identity is the same tomorrow.

    The sessions of a role are named anew by each process that takes it, so they count as one.  Those of IAM Identity
    Center are named after the person, and many persons share its roles.
    """
    before, kind, after = arn.partition(":assumed-role/")
    role = after.partition("/")[0]
    return arn if not kind or role.startswith("AWSReservedSSO_") else f"{before}{kind}{role}"


def as_list(tags: dict[str, str]) -> list[dict[str, str]]:
    """As the API takes them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def as_dict(tags: list[dict[str, Any]] | None) -> dict[str, str]:
    """As the API gives them."""
    return {each["Key"]: each["Value"] for each in tags or ()}
