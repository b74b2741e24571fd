"""AWS misbehaves: errors put into the orchestrator's own clients, where boto3 would have raised them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from harness.aws.clients import Connections
from harness.aws.ec2 import backend
from tests.aws.server import REGION

# EC2's server errors; the others are the client's.
_ABOVE_500 = ("Insufficient", "Internal", "ServiceUnavailable", "SlowDown", "RequestLimitExceeded", "5")


@dataclass
class Injected:
    """Errors of some calls.

    ``event`` is botocore's, e.g. ``s3`` or ``ec2.RunInstances``; ``when`` gets the number of the call (from 0) and
    its parameters, and gives the error's code, and after a blank more of its message, or nothing.
    """

    connections: Connections
    event: str
    when: Callable[[int, dict[str, Any]], str | None]
    calls: int = 0
    raised: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        service = self.event.partition(".")[0]
        clients = [self.connections.client(service, REGION if service == "ec2" else None)]
        if service == "ec2":
            clients.append(self.connections.client("ec2", REGION, attempts=backend.ATTEMPTS))
        for client in clients:
            client.meta.events.register(f"before-call.{self.event}", self._answer)

    def _answer(self, params: dict[str, Any], **_: Any) -> tuple[Any, dict[str, Any]] | None:
        with self._lock:
            number = self.calls
            self.calls += 1
            code = self.when(number, params)
            self.raised += code is not None
        if code is None:
            return None
        code, _, more = code.partition(" ")
        message = f"injected {code} of account 123456789012 {more}"
        status = 500 if code.startswith(_ABOVE_500) else 400
        return SimpleNamespace(status_code=status, headers={}), {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"HTTPHeaders": {}, "HTTPStatusCode": status},
        }


@dataclass
class Tokens:
    """EC2 as strict about client tokens as it is, for :class:`Injected`: what was refused for want of machines holds
    its token, too.  ``refuse`` says which requests are; ``mismatched`` counts the tokens that were used for another.
    """

    refuse: Callable[[int], str | None]
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    mismatched: int = 0

    def __call__(self, number: int, params: dict[str, Any]) -> str | None:
        body: dict[str, Any] = dict(params["body"])
        if self.seen.setdefault(body["ClientToken"], body) != body:
            self.mismatched += 1
            return "IdempotentParameterMismatch"
        return self.refuse(number)
