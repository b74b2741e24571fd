"""The user data of EC2 workers: the script that installs the engine and harness, and starts the worker."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from harness.aws.clients import S3Uri
from harness.errors import UsageError
from harness.remote.bundle import pins
from harness.remote.failures import ACCESS_KEY
from harness.remote.records import VERSION, ShippedInput

# EC2's own limit, before it is encoded.
MAXIMUM_USER_DATA_BYTES = 16_384
_TEMPLATE = Path(__file__).resolve().parent / "user-data.sh"
# boto3 and its dependencies: with these a worker fetches the bundle, which pins the other packages.
BOTO3 = ("boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ACCOUNT = re.compile(r"(?<!\d)\d{12}(?!\d)")
_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")


def refuse_accounts(work: S3Uri) -> None:
    """Refuse a work place with an account's number: logs name it."""
    if _ACCOUNT.search(str(work)):
        raise UsageError(
            "the work place's name holds twelve digits, like an account number, which harness never writes;"
            " choose another bucket or prefix"
        )


def render_user_data(
    work: S3Uri, run_id: str, part: str, bundle: ShippedInput, region: str, limit_s: int, *, gpus: bool
) -> str:
    """Return the bash script for Amazon Linux 2023 and Debian 12; ``gpus``: refuse to go on without."""
    for what, name in (("run id", run_id), ("part", part), ("region", region)):
        if not _NAME.fullmatch(name):
            raise UsageError(f"{what} {name!r}: letters, digits, '.', '_' and '-' only")
    refuse_accounts(work)
    if limit_s < 60:
        raise UsageError(f"a worker that lives only {limit_s} s can do nothing; allow at least a minute")
    values = {
        "WORK": shlex.quote(str(work)),
        "RUN": run_id,
        "PART": part,
        "BUNDLE": shlex.quote(bundle.name),
        "BUNDLE_SHA256": shlex.quote(bundle.sha256),
        "LIMIT_S": str(limit_s),
        "GPUS": "yes" if gpus else "no",
        "REGION": region,
        "VERSION": str(VERSION),
        "PINS": "\n".join(pins(*BOTO3)),
    }
    text = re.sub(r"@([A-Z0-9_]+)@", lambda match: values[match[1]], _TEMPLATE.read_text(encoding="utf-8"))
    size = len(text.encode())
    if size > MAXIMUM_USER_DATA_BYTES:
        raise UsageError(
            f"user data has {size:,} bytes; EC2 takes {MAXIMUM_USER_DATA_BYTES:,}. Shorten the prefix of {work}"
        )
    if ACCESS_KEY.search(text) or any(value and value in text for value in map(os.environ.get, _SECRET_VARIABLES)):
        raise UsageError("user data would hold an AWS key, which anyone on the machine can read; check --work")
    return text
