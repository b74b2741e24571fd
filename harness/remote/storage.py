"""The contract of a storage: where a command and its workers exchange files.

S3 (:mod:`harness.aws.objects`) and a shared folder (:mod:`harness.remote.shared_folder`) implement it.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

_CHUNK = 1 << 20


@dataclass(frozen=True)
class StoredObject:
    """An object as a listing shows it; ``name`` is relative to the place that was listed.

    ``etag`` changes whenever the content does; ``modified`` is by the storage's clock.
    """

    name: str
    size_bytes: int
    etag: str
    modified: datetime.datetime


@dataclass(frozen=True)
class ObjectState:
    """The state of an object as the storage states it.

    ``checksum`` is computed by the storage from the bytes that it holds.  ``age`` is by the storage's clock, and zero
    where nothing deletes old objects.
    """

    size_bytes: int
    checksum: str
    age: datetime.timedelta


def copied(source: IO[bytes], sink: IO[bytes], most_bytes: int | None = None) -> str:
    """Copy at most one chunk more than ``most_bytes``; return the SHA-256 of what was copied."""
    content, left = hashlib.sha256(), most_bytes
    while (left is None or left >= 0) and (chunk := source.read(_CHUNK)):
        left = None if left is None else left - len(chunk)
        content.update(chunk)
        sink.write(chunk)
    return content.hexdigest()


@dataclass
class Clock:
    """The latest time that a storage has shown, in seconds since 1970 (0: none yet): this machine's may be off."""

    now: float = 0.0

    def note(self, time_s: float) -> None:
        """Remember a time, unless a later one is known."""
        self.now = max(self.now, time_s)


class Storage(Protocol):
    """Named objects below one place; names are relative to it, with ``/`` between their parts.

    Objects are whole or absent.  Every method raises a RemoteError: code ``Busy`` or ``Unreached`` may pass,
    ``NoStorage`` means that the place does not exist.
    """

    @property
    def clock(self) -> Clock:
        """The clock of this storage."""

    def ask_time(self) -> None:
        """Ask the storage for any answer, so that its clock is up to date."""

    def where(self, name: str = "") -> str:
        """Return an object's address for messages; of the place itself, the text that opens it again."""

    def below(self, *names: str) -> Storage:
        """Return the storage below a folder of this place."""

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the objects whose names begin with ``prefix``, sorted by name."""

    def get(self, name: str, most_bytes: int) -> bytes | None:
        """Return an object's content, or ``None`` if it does not exist.

        Raises:
            RemoteError: code ``TooLarge``: it has more than ``most_bytes``.
        """

    def download(self, name: str, path: Path, most_bytes: int) -> str | None:
        """Copy an object into a file and return its SHA-256; ``None``: it does not exist, or may not be read.

        The hash is wrong if the object has more than ``most_bytes``.
        """

    def put(self, name: str, content: bytes) -> object:
        """Write an object, over an existing one."""

    def put_new(self, name: str, content: bytes) -> bool:
        """Write an object unless it exists; return whether it was written.  Of several writers one wins."""

    def upload_new(self, name: str, path: Path) -> bool:
        """Write a file of any size unless the object exists; return whether it was written."""

    def copy_new(self, name: str, to: str) -> bool:
        """Copy an object within the storage unless the target exists; return whether it was written."""

    def size(self, name: str) -> int | None:
        """Return how many bytes an object has; ``None``: it does not exist."""

    def state(self, name: str) -> ObjectState | None:
        """Return the state of an object; ``None``: it does not exist."""

    def checksum_of(self, path: Path) -> str:
        """Return the checksum that the storage states of a file after :meth:`upload_new`."""

    def verified(self, name: str, sha256: str, size_bytes: int) -> ObjectState | None:
        """Return the state of an object if it has exactly this content, else ``None``."""

    def delete(self, names: Iterable[str]) -> int:
        """Delete objects, present or not; return how many were named."""
