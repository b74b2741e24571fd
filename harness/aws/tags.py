"""Tags of our resources.  No tag names a person or an account."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.aws.connections import Connections
from harness.aws.failures import aws_errors

# Who we are among the users of one role.
VARIABLE = "HARNESS_OWNER"
SUITE = "harness:suite"
RUN = "harness:run"
PART = "harness:part"
OWNER = "harness:owner"
EXPIRY = "harness:expiry"
TOKEN = "harness:token"  # noqa: S105 - names a tag


def owner(connections: Connections, cache: Path) -> str:
    """Return who we are to AWS, as a hash: it tells users of one account apart, and nothing else.

    Users who share a role are told apart by an id that ``HARNESS_OWNER`` names, or that is drawn once for a cache.

    Raises:
        AwsError: the credentials are not known.
    """
    with aws_errors("asking AWS who we are"):
        arn = connections.client("sts").get_caller_identity()["Arn"]
    before, kind, after = arn.partition(":assumed-role/")
    role = after.partition("/")[0]
    # Sessions of a role are named anew by each process; those of IAM Identity Center are named after their user.
    if kind and not role.startswith("AWSReservedSSO_"):
        arn = f"{before}{kind}{role} {os.environ.get(VARIABLE) or _drawn(cache / 'owner')}"
    return hashlib.sha256(f"harness owner {arn}".encode()).hexdigest()[:12]


def _drawn(path: Path) -> str:
    """Return the id in a file; of several processes that draw one at once, all return that of the first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        draft.write_text(f"{secrets.token_hex(16)}\n", encoding="ascii")
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    return path.read_text(encoding="ascii").strip()


def as_list(tags: dict[str, str]) -> list[dict[str, str]]:
    """As the API takes them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def as_dict(tags: list[dict[str, Any]] | None) -> dict[str, str]:
    """As the API gives them."""
    return {each["Key"]: each["Value"] for each in tags or ()}
