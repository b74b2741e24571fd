"""Tags of our resources.  No tag names a person or an account."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.aws.client import Connections
from harness.aws.errors import aws_errors

# Tells apart the users of one role.
VARIABLE = "HARNESS_OWNER"
SUITE = "harness:suite"
RUN = "harness:run"
PART = "harness:part"
OWNER = "harness:owner"
EXPIRY = "harness:expiry"


def owner(connections: Connections, cache: Path) -> str:
    """Return a hash that tells the users of one account apart, and nothing else.

    Users who share a role are told apart by an id that ``HARNESS_OWNER`` names, or that is drawn once for a cache.
    """
    with aws_errors("asking AWS who we are"):
        arn = connections.client("sts").get_caller_identity()["Arn"]
    before, kind, after = arn.partition(":assumed-role/")
    role = after.partition("/")[0]
    # Sessions of a role are named anew by each process; those of IAM Identity Center are named after their user.
    if kind and not role.startswith("AWSReservedSSO_"):
        arn = f"{before}{kind}{role} {os.environ.get(VARIABLE) or random_id(cache / 'owner')}"
    return hashlib.sha256(f"harness owner {arn}".encode()).hexdigest()[:12]


def random_id(path: Path) -> str:
    """Return the random id in a file; processes that draw one at once all return the first's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if _is_empty(path):
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        draft.write_text(f"{secrets.token_hex(16)}\n", encoding="ascii")
        with suppress(OSError):  # another process was first, or the disk has no links
            os.link(draft, path)
        if _is_empty(path):  # of a machine that lost power
            draft.replace(path)
        draft.unlink(missing_ok=True)
    return path.read_text(encoding="ascii").strip()


def _is_empty(path: Path) -> bool:
    return not path.exists() or path.stat().st_size == 0


def as_list(tags: dict[str, str]) -> list[dict[str, str]]:
    """Return tags as the API takes them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def as_dict(tags: list[dict[str, Any]] | None) -> dict[str, str]:
    """Return tags that the API gave."""
    return {each["Key"]: each["Value"] for each in tags or ()}
