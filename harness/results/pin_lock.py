"""The lock of a suite's results, ``<suite>/pins.json``: the bytes of model files that system files do not pin.

A run writes it at the first use of such files.  Later runs, other machines and readers take the same bytes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from harness.config import NAME_PATTERN, ConfigModel, read_record, validate
from harness.containment import is_plain_name
from harness.driver.records import to_json
from harness.errors import StoreError

FILE = "pins.json"
MOST_BYTES = 4 << 20
# One or two plain names; the hub's client would read other names as files of this machine.
HUB_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$"
REVISION_PATTERN = r"^[0-9a-f]{40}$"

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class LockedFiles(ConfigModel):
    """Files in a folder of a system: the hub's model and commit, and each file's sha256 by name.

    ``newest``: the system's file does not name a commit, so the newest was taken.  ``hub`` and ``revision`` are
    ``None`` for files of a local folder with an unknown commit.
    """

    hub: str | None = Field(default=None, pattern=HUB_PATTERN)
    revision: str | None = Field(default=None, pattern=REVISION_PATTERN)
    newest: bool = False
    sha256: dict[str, Sha256] = Field(min_length=1)

    @field_validator("sha256")
    @classmethod
    def _plain_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not is_plain_name(name):
                raise ValueError(f"{name[:80]!r} does not name a file below the folder")
        return value


class PinLock(ConfigModel):
    """Content of ``pins.json``: the locked files by system and folder."""

    systems: dict[Name, dict[Name, LockedFiles]] = Field(default={})

    def files(self, system: str, folder: str) -> LockedFiles | None:
        """Return the locked files of a system's folder, or None."""
        return self.systems.get(system, {}).get(folder)

    def newest(self, hub: str | None) -> str | None:
        """Return the commit of a model that an earlier system took as the newest."""
        entries = (files for folders in self.systems.values() for files in folders.values())
        return next((files.revision for files in entries if hub and files.hub == hub and files.newest), None)

    def including(self, system: str, folder: str, files: LockedFiles) -> PinLock:
        """Return the lock with a folder's files added or replaced."""
        return PinLock(systems={**self.systems, system: {**self.systems.get(system, {}), folder: files}})

    def joined(self, other: PinLock) -> PinLock | None:
        """Return the entries of both locks; ``None`` if they name different bytes for one folder."""
        joined = self
        for system, folders in other.systems.items():
            for folder, files in folders.items():
                if joined.files(system, folder) not in (None, files):
                    return None
                joined = joined.including(system, folder, files)
        return joined


def read(suite: Path) -> PinLock:
    """Read the lock of a suite's folder; a missing lock is empty.

    Raises:
        FileError: it is damaged.
    """
    path = suite / FILE
    if not os.path.lexists(path):
        return PinLock()
    return read_record(PinLock, path, MOST_BYTES, "restore it, or remove it to pin again")


def parse(raw: Any, place: Path) -> PinLock:
    """Check the parsed content of a lock; raise FileError about ``place`` if it is not valid."""
    return validate(PinLock, raw, place)


def plain(lock: PinLock) -> dict[str, Any]:
    """Return a lock for JSON."""
    return lock.model_dump(mode="json", exclude_none=True)


def content(lock: PinLock) -> bytes:
    """Return the bytes of the file.

    Raises:
        StoreError: the file would be larger than readers accept.
    """
    made = (to_json(plain(lock), indent=2) + "\n").encode("utf-8")
    if len(made) > MOST_BYTES:
        raise StoreError(
            f"{FILE}: would have {len(made):,} bytes; the limit is {MOST_BYTES:,}. Measure fewer systems in a suite"
        )
    return made
