"""User data: a script that makes an instance a box."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from harness.aws.clients import S3Uri
from harness.aws.cloud_run import archive
from harness.aws.cloud_run.records import VERSION, Input
from harness.errors import UsageError

# EC2's own limit, before it is encoded.
MOST_BYTES = 16_384
_TEMPLATE = Path(__file__).resolve().parent / "user-data.sh"
# boto3 and its dependencies: with these a box fetches the bundle, which pins the other packages.
BOTO3 = ("boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ACCESS_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")
_ACCOUNT = re.compile(r"(?<!\d)\d{12}(?!\d)")
_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")


@dataclass(frozen=True)
class Boot:
    """A box's part and lifetime; ``gpus``: refuse to go on without."""

    work: S3Uri
    run_id: str
    part: str
    bundle: Input
    region: str
    limit_s: int
    gpus: bool


def refuse_accounts(work: S3Uri) -> None:
    """Refuse a work place with an account's number: logs name it."""
    if _ACCOUNT.search(str(work)):
        raise UsageError(
            "the work place has twelve digits in its name, as accounts have, and harness writes none of those down;"
            " choose another bucket or prefix"
        )


def render(boot: Boot) -> str:
    """Return the bash script for Amazon Linux 2023 and Debian 12."""
    for what, name in (("run id", boot.run_id), ("part", boot.part), ("region", boot.region)):
        if not _NAME.fullmatch(name):
            raise UsageError(f"{what} {name!r}: letters, digits, '.', '_' and '-' only")
    refuse_accounts(boot.work)
    if boot.limit_s < 60:
        raise UsageError(f"a box that may live {boot.limit_s} s does nothing; allow at least a minute")
    values = {
        "WORK": shlex.quote(str(boot.work)),
        "RUN": boot.run_id,
        "PART": boot.part,
        "BUNDLE": shlex.quote(boot.bundle.name),
        "BUNDLE_SHA256": shlex.quote(boot.bundle.sha256),
        "LIMIT_S": str(boot.limit_s),
        "GPUS": "yes" if boot.gpus else "no",
        "REGION": boot.region,
        "VERSION": str(VERSION),
        "PINS": "\n".join(archive.pins(*BOTO3)),
    }
    text = re.sub(r"@([A-Z0-9_]+)@", lambda found: values[found[1]], _TEMPLATE.read_text(encoding="utf-8"))
    size = len(text.encode())
    if size > MOST_BYTES:
        raise UsageError(f"user data of {size:,} bytes, EC2 takes {MOST_BYTES:,}; shorten the prefix of {boot.work}")
    if _ACCESS_KEY.search(text) or any(value and value in text for value in map(os.environ.get, _SECRET_VARIABLES)):
        raise UsageError("user data would hold an AWS key, which anyone on the machine can read; is it in --work?")
    return text
