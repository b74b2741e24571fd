"""What time it is at AWS, from its answers: this machine's clock may be off, and is never asked."""

from __future__ import annotations

import threading
from typing import Any

from harness.aws.conditional import said_at
from harness.aws.connections import Connections


class AwsTime:
    """The latest time that S3 has said in any answer, in seconds since 1970."""

    def __init__(self, connections: Connections) -> None:
        self._latest = 0.0
        self._lock = threading.Lock()
        connections.client("s3").meta.events.register("after-call.s3", self._heard)

    def _heard(self, parsed: dict[str, Any], **_others: Any) -> None:
        said = said_at(parsed)
        if said is not None:
            with self._lock:
                self._latest = max(self._latest, said.timestamp())

    @property
    def now(self) -> float:
        """Seconds since 1970; 0 before the first answer."""
        with self._lock:
            return self._latest
