"""Origins of merged results: ``origin.toml``, one folder above the suites, written by a merge.

A job's key says what was measured, not on which machine, so jobs of two origins never count as attempts at the same
job.  Results without a merge have no origin.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.config import ConfigModel, read_toml, validate
from harness.errors import FileError
from harness.untrusted import escaped

FILE = "origin.toml"
NAME_FAULT = "is not a valid name of an origin; write letters, digits, '.', '_' and '-'"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class Origin(ConfigModel):
    """Content of ``origin.toml``: a name, and the hash of the jobs merged under it (:mod:`harness.results.merge`)."""

    name: str
    jobs: int
    sha256: str


def is_valid_name(name: str) -> bool:
    """Return whether an origin may have this name, which also names a folder."""
    return _NAME.fullmatch(name) is not None


def read(folder: Path) -> Origin | None:
    """Return the origin of a folder; ``None``: the folder has no origin.

    Raises:
        FileError: its ``origin.toml`` is damaged or gives a name that an origin cannot have.
    """
    path = folder / FILE
    if not os.path.lexists(path):
        return None
    origin = validate(Origin, read_toml(path, links=False), path)
    if not is_valid_name(origin.name):
        raise FileError(f"{path}: {origin.name!r} {NAME_FAULT}")
    return origin


def text(origin: Origin) -> str:
    """Return the content of ``origin.toml``."""
    return (
        "# Written by `harness merge`: whose results lie here.  Measure into other folders, and merge again.\n"
        f'name = "{origin.name}"\njobs = {origin.jobs}\nsha256 = "{origin.sha256}"\n'
    )


@dataclass
class JobOrigins:
    """Reader of the origins of jobs; reads each ``origin.toml`` once.

    With ``unreadable``, the error about a damaged file is added there, and its jobs have their folder's name as origin,
    so that they are never pooled with others.
    """

    unreadable: list[FileError] | None = None
    _names: dict[Path, str | None] = field(default_factory=dict)
    _folders: dict[str, Path] = field(default_factory=dict)

    def of_job(self, folder: Path) -> str | None:
        """Return the origin of a job's folder.

        Raises:
            FileError: as :func:`read`, or two folders have one name; never with ``unreadable``.
        """
        parent = origin_folder(folder)
        if parent is None:
            return None
        if parent not in self._names:
            try:
                self._names[parent] = self._named(parent)
            except FileError as error:
                if self.unreadable is None:
                    raise
                self.unreadable.append(error)
                self._names[parent] = self._free_name(parent)
        return self._names[parent]

    def _free_name(self, parent: Path) -> str:
        """Return the folder's name, with as many of those above as tell it from other origins."""
        ends = (escaped("/".join(parent.parts[-count:])) for count in range(1, len(parent.parts) + 1))
        # Two paths may look alike after escaping.
        free = (end for end in ends if self._folders.setdefault(end, parent) == parent)
        return next(free, f"origin {len(self._folders)}")

    def _named(self, parent: Path) -> str | None:
        origin = read(parent)
        if origin and self._folders.setdefault(origin.name, parent) != parent:
            other = self._folders[origin.name]
            raise FileError(f"{parent / FILE}: {origin.name!r} is also the name of {other}; rename one of them")
        return origin.name if origin else None


def origin_folder(job: Path) -> Path | None:
    """Return the folder that holds a job's suite: for merged results, the origin's."""
    # <origin>/<suite>/<system>/<dataset>/<scenario>/<profile>/<key>
    above = job.absolute().parents
    return above[5] if len(above) > 5 else None


def digest(records: Mapping[str, str]) -> str:
    """Return the hash of merged jobs' records, each of which names its files by their hashes.

    Args:
        records: sha256 of each ``result.json``, by its job's path within the origin.
    """
    lines = "".join(f"{sha256}  {folder}\n" for folder, sha256 in sorted(records.items()))
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()
