"""Read dated files of numbers that people write: ``<kind>/<date>.toml``, append-only, each with its checksum.

The user's folder comes before the shipped one, as for the prices of instances.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

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


@dataclass(frozen=True)
class DatedFiles(Generic[File]):
    """All files of a kind, which have a folder of that name in ``instance_profiles/``, or in another ``root``.

    ``none_as_old`` begins the error where all files are younger than the date asked for; empty: that is no error.
    """

    kind: str
    model: type[File]
    none_as_old: str = ""

    def read(self, root: Path | None = None) -> tuple[File, ...]:
        """Return all files, the oldest first; none where the folder is missing.

        A file whose name is not a date is named and ignored.

        Raises:
            FileError: a file is wrong, or its checksum differs.
        """
        files: dict[datetime.date, File] = {}
        for folder in instances.folders(root):
            for path in sorted((folder / self.kind).glob("*.toml")):
                as_of = prices.date_or_none(path.stem)
                if as_of is None:
                    prices.ignore(path, "<date>.toml")
                elif as_of not in files:
                    files[as_of] = _read(path, self.model)
        return tuple(files[as_of] for as_of in sorted(files))

    def newest(self, as_of: datetime.date | None = None, root: Path | None = None) -> File | None:
        """Return the newest file, or the newest up to ``as_of``; ``None``: there is none.

        Raises:
            UsageError: all files are younger than ``as_of``.
            FileError: a file is wrong, or its checksum differs.
        """
        known = self.read(root)
        found = _newest(known, as_of)
        if self.none_as_old and known and found is None:
            dates = listed([str(each.as_of) for each in known])
            raise UsageError(f"{self.none_as_old} from {as_of} or before; choose one of these dates: {dates}")
        return found

    def other(self, now: File | None, against: datetime.date | None = None, root: Path | None = None) -> File | None:
        """Choose the file to compare with: of a date, else the newest, else the ones before; ``None``: no others.

        Raises:
            FileError: a file is wrong, or its checksum differs.
        """
        known = self.read(root)
        if against is None and now is not None:
            known = tuple(each for each in known if each.as_of != now.as_of)
        return _newest(known, against)


def _read(path: Path, model: type[File]) -> File:
    prices.read_checked(path)
    found = validate(model, read_toml(path), path)
    if found.date != path.stem:
        raise FileError(f"{path}: date is {found.date!r}, the file is named {path.name!r}; correct one")
    return found


def _newest(known: Sequence[File], as_of: datetime.date | None) -> File | None:
    return next((each for each in reversed(known) if as_of is None or each.as_of <= as_of), None)
