"""Clients of AWS services, with the retries that all of harness wants; places in S3 (``s3://bucket/prefix``)."""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness import extras, filesystem
from harness.aws import S3, is_s3
from harness.aws.errors import aws_errors
from harness.errors import RemoteError, UsageError
from harness.remote.storage import Clock
from harness.untrusted import one_line

# Threads that transfer objects; each needs a connection.
CONNECTIONS = 32
_ATTEMPTS = 8
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# Of the environment and of a profile; the role of a machine is known only to the services that are asked for it.
_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_PROFILE_CREDENTIALS = (
    "aws_access_key_id",
    "credential_process",
    "role_arn",
    "sso_session",
    "sso_start_url",
    "web_identity_token_file",
)
# Distinguishes the users of one role.
VARIABLE = "HARNESS_OWNER"
SUITE = "harness:suite"
RUN = "harness:run"
PART = "harness:part"
OWNER = "harness:owner"
EXPIRY = "harness:expiry"


class Connections:
    """boto3 clients of one account, made at their first use; safe to share between threads.

    Credentials, profile, region and endpoints (``AWS_ENDPOINT_URL``) are found as the AWS command line finds them;
    none of them is ever stored or printed.

    Raises:
        UsageError: boto3 is not installed.
    """

    def __init__(self, region: str | None = None) -> None:
        extras.require("boto3")
        self._region = region
        self._clients: dict[tuple[str, str | None, int], Any] = {}
        self._lock = threading.Lock()
        self._owners: dict[str, str] = {}
        self.clock = Clock()

    @property
    def region(self) -> str | None:
        """Return the given region, else the configured one."""
        with aws_errors("reading the AWS configuration"):
            configured: str | None = self._session.region_name
        # boto3 does not read AWS_REGION.
        return self._region or os.environ.get("AWS_REGION") or configured

    @property
    def known_region(self) -> str:
        """Return the region; raise a RemoteError if none is configured."""
        if self.region is None:
            raise RemoteError("no AWS region; set AWS_REGION or give --region", "NoRegion")
        return self.region

    def configured(self) -> str:
        """Return where credentials are configured: the environment, or the profile of that name; asks no service.

        Raises:
            RemoteError: neither has any, or the profile does not exist.
        """
        import botocore.session

        with aws_errors("reading the AWS configuration"):
            session = botocore.session.get_session()
            profile = session.get_scoped_config()
        if any(os.environ.get(name) for name in _CREDENTIALS):
            return "the environment"
        if any(profile.get(key) for key in _PROFILE_CREDENTIALS):
            return f"the profile {one_line(session.profile or 'default', 80)}"
        raise RemoteError("no AWS credentials; set AWS_PROFILE (aws configure sso)", "NoCredentials")

    def regions(self, service: str) -> list[str]:
        """Return the regions of a service that this version of boto3 knows, in all partitions; asks no service."""
        with aws_errors("reading the AWS configuration"):
            partitions = self._session.get_available_partitions()
            return [name for each in partitions for name in self._session.get_available_regions(service, each)]

    def client(self, service: str, region: str | None = None, *, attempts: int = _ATTEMPTS) -> Any:
        """Return the client of a service (``s3``, ``ec2``, ``iam`` ...).

        It sends a request at most ``attempts`` times if it fails on the way, or with a status of 500 and above.

        Raises:
            RemoteError: no region or no credentials are configured.
        """
        from botocore.config import Config

        key = service, region or self.region, attempts
        with self._lock:
            if key not in self._clients:
                config = Config(
                    retries={"mode": "standard", "total_max_attempts": attempts},
                    max_pool_connections=CONNECTIONS,
                    connect_timeout=10,
                    read_timeout=60,
                    user_agent_appid="ir-harness",
                )
                with aws_errors(f"connecting to {service}"):
                    made = self._session.client(service, region_name=key[1], config=config)
                if service == "s3":
                    made.meta.events.register("provide-client-params.s3", self._with_owner)
                    made.meta.events.register("after-call.s3", self._answered)
                self._clients[key] = made
            return self._clients[key]

    def expect_owner(self, bucket: str) -> None:
        """Have S3 refuse every request to a bucket of another account."""
        with aws_errors("asking AWS which account this is"):
            self._owners[bucket] = self.client("sts").get_caller_identity()["Account"]

    def _with_owner(self, params: dict[str, Any], model: Any, **_: Any) -> dict[str, Any]:
        members = model.input_shape.members if model.input_shape else {}
        buckets = {
            "ExpectedBucketOwner": params.get("Bucket"),
            "ExpectedSourceBucketOwner": params.get("CopySource", {}).get("Bucket"),
        }
        owners = {key: self._owners[of] for key, of in buckets.items() if key in members and of in self._owners}
        return {**owners, **params}

    def _answered(self, parsed: dict[str, Any], **_others: Any) -> None:
        if at := answered_at(parsed):
            self.clock.note(at.timestamp())

    @cached_property
    def _session(self) -> Any:
        import boto3
        import botocore.session

        session = botocore.session.get_session()
        session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_timestamp)
        return boto3.session.Session(botocore_session=session)


def _timestamp(value: Any) -> datetime.datetime:
    """Read a time as botocore does, whose own reader takes longer than all else of a listing."""
    from botocore.utils import parse_timestamp

    if isinstance(value, str) and value.endswith("Z"):
        with suppress(ValueError):
            return datetime.datetime.fromisoformat(value)
    time: datetime.datetime = parse_timestamp(value)
    return time


def answered_at(answer: dict[str, Any]) -> datetime.datetime | None:
    """Return the time of an answer by AWS' clock: this machine's may be off."""
    from email.utils import parsedate_to_datetime

    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return parsedate_to_datetime(date) if date else None


@dataclass(frozen=True)
class S3Uri:
    """A place in S3; ``prefix`` has no slash at its ends, and is empty for a whole bucket."""

    bucket: str
    prefix: str = ""

    @property
    def beginning(self) -> str:
        """Return the text with which the keys of all objects of this place begin."""
        return f"{self.prefix}/" if self.prefix else ""

    def key(self, *names: str) -> str:
        """Return the key of something below this place."""
        return "/".join(filter(None, (self.prefix, *names)))

    def below(self, *names: str) -> S3Uri:
        """Return a place below this one."""
        return S3Uri(self.bucket, self.key(*names))

    def __str__(self) -> str:
        return S3 + "/".join(filter(None, (self.bucket, self.prefix)))


def parse_uri(text: str) -> S3Uri:
    """Read ``s3://bucket/prefix``; raise a UsageError for another text."""
    if not is_s3(text):
        raise UsageError(f"{text!r} is not a place in S3; write s3://BUCKET or s3://BUCKET/PREFIX")
    bucket, _, prefix = text.removeprefix(S3).partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise UsageError(f"{text!r}: {bucket!r} is not a bucket's name; write s3://BUCKET or s3://BUCKET/PREFIX")
    prefix = prefix.strip("/")
    if prefix and any(part in ("", ".", "..") for part in prefix.split("/")):
        raise UsageError(f"{text!r}: the prefix has an empty part, '.' or '..'; write s3://BUCKET/PREFIX")
    return S3Uri(bucket, prefix)


def owner(connections: Connections, cache: Path) -> str:
    """Return a hash that tells the users of one account apart, and nothing else.

    Users who share a role differ by the id in ``HARNESS_OWNER``, or by an id that is drawn once for a cache.
    """
    with aws_errors("asking AWS for the user's identity"):
        arn = connections.client("sts").get_caller_identity()["Arn"]
    before, kind, after = arn.partition(":assumed-role/")
    role = after.partition("/")[0]
    # Each process gives its role session a new name; sessions of IAM Identity Center are named after their user.
    if kind and not role.startswith("AWSReservedSSO_"):
        arn = f"{before}{kind}{role} {os.environ.get(VARIABLE) or random_id(cache / 'owner')}"
    return hashlib.sha256(f"harness owner {arn}".encode()).hexdigest()[:12]


def random_id(path: Path) -> str:
    """Return the random id in a file; concurrent first calls return the same id."""
    if not path.exists() or not path.stat().st_size:  # it is empty after a loss of power
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        with filesystem.lock(path):
            if not path.stat().st_size:
                path.write_text(f"{secrets.token_hex(16)}\n", encoding="ascii")
    return path.read_text(encoding="ascii").strip()


def as_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as the API takes them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def as_dict(tags: list[dict[str, Any]] | None) -> dict[str, str]:
    """Return tags that the API gave."""
    return {tag["Key"]: tag["Value"] for tag in tags or ()}
