"""Clients of AWS services, with the retries that all of harness wants."""

from __future__ import annotations

import datetime
import threading
from contextlib import suppress
from typing import Any

from harness.aws.failures import aws_errors

# S3 transfers of the orchestrator run in so many threads; each needs a connection.
CONNECTIONS = 32
_ATTEMPTS = 8


class Connections:
    """boto3 clients of one account, made when first asked for; safe to share between threads.

    Credentials, profile, region and endpoints (``AWS_ENDPOINT_URL``) are found as the AWS command line finds them;
    none of them is ever stored or printed.
    """

    def __init__(self, region: str | None = None) -> None:
        self._region = region
        self._session: Any = None
        self._clients: dict[tuple[str, str | None, int], Any] = {}
        self._lock = threading.Lock()
        self._expected: dict[str, str] = {}

    @property
    def region(self) -> str | None:
        """The region that was asked for, else the one that is configured."""
        return self._region or self._open().region_name

    def client(self, service: str, region: str | None = None, *, attempts: int = _ATTEMPTS) -> Any:
        """The client of a service (``s3``, ``ec2``, ``iam`` ...).

        Args:
            service: its name.
            region: another than the usual one.
            attempts: how often a request is sent that fails on the way or with a status of 500 and above.

        Raises:
            AwsError: no region or no credentials are configured.
        """
        from botocore.config import Config

        region = region or self.region
        with self._lock:
            if (service, region, attempts) not in self._clients:
                config = Config(
                    retries={"mode": "standard", "total_max_attempts": attempts},
                    max_pool_connections=CONNECTIONS,
                    connect_timeout=10,
                    read_timeout=60,
                    user_agent_appid="ir-harness",
                )
                with aws_errors(f"connecting to {service}"):
                    made = self._open().client(service, region_name=region, config=config)
                if service == "s3":
                    made.meta.events.register("provide-client-params.s3", self._with_owner)
                self._clients[service, region, attempts] = made
            return self._clients[service, region, attempts]

    def expect_owner(self, bucket: str) -> None:
        """Have every S3 request to a bucket refused unless the bucket is of our own account.

        Raises:
            AwsError: AWS does not say which account this is.
        """
        with aws_errors("asking AWS which account this is"):
            account = self.client("sts").get_caller_identity()["Account"]
        self._expected[bucket] = account

    def _with_owner(self, params: dict[str, Any], model: Any, **_: Any) -> dict[str, Any]:
        taken = model.input_shape.members if model.input_shape else {}
        source = params.get("CopySource", "")
        named = {
            "ExpectedBucketOwner": params.get("Bucket"),
            "ExpectedSourceBucketOwner": source["Bucket"] if isinstance(source, dict) else source.partition("/")[0],
        }
        more = {key: self._expected[of] for key, of in named.items() if key in taken and of in self._expected}
        return {**more, **params}

    def _open(self) -> Any:
        if self._session is None:
            import boto3
            import botocore.session

            session = botocore.session.get_session()
            session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_timestamp)
            self._session = boto3.session.Session(botocore_session=session)
        return self._session


def _timestamp(value: Any) -> datetime.datetime:
    """As botocore reads it; the dates of a long listing take it longer than all the rest."""
    from botocore.utils import parse_timestamp

    if isinstance(value, str) and value.endswith("Z"):
        with suppress(ValueError):
            return datetime.datetime.fromisoformat(value)
    found: datetime.datetime = parse_timestamp(value)
    return found
