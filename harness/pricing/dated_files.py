"""Read dated files of numbers that people write: ``<kind>/<date>.toml``, append-only, each with its checksum.

The user's folder comes before the shipped one, as for the prices of instances.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from harness.config import ConfigModel, read_toml, validate
from harness.errors import FileError, UsageError, listed
from harness.pricing import instances, prices


class DatedFile(ConfigModel):
    """Dated file: its date and its source."""

    date: str = Field(description="the date of the numbers, as in the file's name")
    source: str = Field(description="who collected the numbers")

    @property
    def as_of(self) -> datetime.date:
        """Return the date of the numbers."""
        return datetime.date.fromisoformat(self.date)


File = TypeVar("File", bound=DatedFile)


def read(kind: str, model: type[File], root: Path | None = None) -> tuple[File, ...]:
    """Read all files of a kind (a folder of ``instance_profiles/``), the oldest first; none where it is missing.

    A file whose name is not a date is named and ignored.

    Raises:
        FileError: a file is wrong, or its checksum differs.
    """
    files: dict[datetime.date, File] = {}
    for path in (path for folder in instances.folders(root) for path in sorted((folder / kind).glob("*.toml"))):
        as_of = prices.date_or_none(path.stem)
        if as_of is None:
            prices.ignore(path, "<date>.toml")
        elif as_of not in files:
            files[as_of] = _read(path, model)
    return tuple(files[as_of] for as_of in sorted(files))


def _read(path: Path, model: type[File]) -> File:
    prices.read_checked(path)
    found = validate(model, read_toml(path), path)
    if found.date != path.stem:
        raise FileError(f"{path}: date is {found.date!r}, the file is named {path.name!r}; correct one")
    return found


def newest(known: Sequence[File], as_of: datetime.date | None = None) -> File | None:
    """Return the newest file, or the newest up to ``as_of``; ``None``: there are none."""
    return next((each for each in reversed(known) if as_of is None or each.as_of <= as_of), None)


def chosen(known: Sequence[File], as_of: datetime.date | None, what: str) -> File | None:
    """Return the newest numbers, or the newest up to ``as_of``; ``None``: none are stored at all.

    Raises:
        UsageError: all are younger than ``as_of``; begins with ``what``.
    """
    found = newest(known, as_of)
    if known and found is None:
        dates = listed([str(each.as_of) for each in known])
        raise UsageError(f"{what} from {as_of} or before; choose one of these dates: {dates}")
    return found


def other(known: Sequence[File], now: File | None, against: datetime.date | None = None) -> File | None:
    """Choose the file to compare with: of a date, else the newest, else the ones before; ``None``: no others."""
    if against is not None:
        return newest(known, against)
    return newest([each for each in known if now is None or each.as_of != now.as_of])
