"""What :mod:`harness.batch.making` asks of each kind of thing in AWS."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.aws.connections import Connections
from harness.batch import names
from harness.errors import AwsError

# Until a queue or an environment has become what was asked for: minutes where machines must go first.
_WAIT_S = 900.0
_POLL_S = 2.0


@dataclass(frozen=True)
class Found:
    """A thing that is there; ``attributes`` are what references to it mean (``Ref``, ``Arn`` ...).

    ``status``, ``state`` and ``reason`` are Batch's words for how it is, where it says so.
    """

    name: str
    tags: dict[str, str]
    attributes: dict[str, str] = field(default_factory=dict)
    status: str = "VALID"
    state: str = "ENABLED"
    reason: str = ""

    @property
    def ill(self) -> str | None:
        """Why no job could run by it, in a few words; ``None``: it could."""
        if self.state == "ENABLED" and self.status not in ("INVALID", "DELETING"):
            return None
        return ", ".join(word for word in (self.state.lower(), self.status.lower(), self.reason) if word)


class Kind(Protocol):
    """One kind of thing.  ``properties`` are CloudFormation's, with all references resolved."""

    word: str

    def find(self, name: str) -> Found | None:
        """The one of that name."""

    def make(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        """Make it, and wait until it can be referred to."""

    def change(self, name: str, properties: dict[str, Any], tags: dict[str, str]) -> None:
        """Make the one that is there as it should be."""

    def remove(self, name: str) -> None:
        """Remove it, and wait until it is gone."""


@dataclass(frozen=True)
class Place:
    """The account's side that all kinds share: connections, and how waiting is done."""

    connections: Connections
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def client(self, service: str) -> Any:
        """A client."""
        return self.connections.client(service)

    def wait(self, what: str, done: Callable[[], bool]) -> None:
        """Ask until it is so.

        Raises:
            AwsError: it does not become so.
        """
        until = self.clock() + _WAIT_S
        while not done():
            if self.clock() > until:
                raise AwsError(f"{what} takes over {_WAIT_S / 60:.0f} minutes; give the same command again", "Slow")
            self.sleep(_POLL_S)


def as_map(tags: list[dict[str, str]]) -> dict[str, str]:
    """``[{Key, Value}]`` -> a mapping."""
    return {each["Key"]: each["Value"] for each in tags}


def as_list(tags: dict[str, str]) -> list[dict[str, str]]:
    """A mapping -> ``[{Key, Value}]``."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def ours(found: Found, suite: str) -> bool:
    """Whether a thing of our name was made by us, for that suite."""
    return found.tags.get(names.SUITE_TAG) == suite
