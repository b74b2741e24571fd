"""The record of a suite in its results, ``<suite>/suite.json``: measures, pairs of systems, and positions."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints, field_validator

from harness.config import ConfigModel, read_record
from harness.driver.records import to_json
from harness.errors import FileError, UsageError
from harness.evaluation import measure_names
from harness.results.pin_lock import Sha256

FILE = "suite.json"
MOST_BYTES = 4 << 20
INSTANCE_PATTERN = r"^[A-Za-z0-9._-]{1,64}$"
_REMEDY = "run its suite again, which writes it"
# Folders between a job and its suite.
_LEVELS = 5

# Kinds of pairs that a suite declares: two systems, or a seed and its model.
PairKind = Literal["firstp", "exact", "seeds"]


@dataclass(frozen=True)
class ToldMachine:
    """The machine of a service that ran already, as its user told it: an instance type, or what an hour costs."""

    instance: Annotated[str, StringConstraints(pattern=INSTANCE_PATTERN)] | None = None
    usd_per_hour: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class SuiteRecord(ConfigModel):
    """Content of ``suite.json``.

    Pairs map a system to its partner; ``positions`` maps a dataset to the SHA-256 of its positions, whose file is at
    :func:`positions_path`.  ``service`` is what a user told of a service that ran already; no result holds it.
    """

    model_config = ConfigDict(extra="ignore")

    measures: tuple[str, ...]
    firstp: dict[str, str] = Field(default={})
    exact: dict[str, str] = Field(default={})
    seeds: dict[str, str] = Field(default={})
    positions: dict[str, Sha256] = Field(default={})
    service: ToldMachine | None = None

    @field_validator("measures")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) > measure_names.MOST_NAMES:
            raise ValueError(f"has {len(value):,} names; the limit is {measure_names.MOST_NAMES}")
        try:
            measure_names.check(value)
        except UsageError as error:
            raise ValueError(str(error).partition("; ")[0]) from None
        return value

    def text(self) -> str:
        """Return the content of the file, without empty parts."""
        return to_json(self.model_dump(mode="json", exclude_defaults=True), indent=2) + "\n"


def positions_path(suite: Path, sha256: str) -> Path:
    """Return the path of a dataset's positions in a suite's folder."""
    return suite / "samples" / f"{sha256}.positions.jsonl"


def read_positions_path(suite: Path, dataset: str) -> Path | None:
    """Return the file of a dataset's positions in a suite's folder, or None.

    Raises:
        FileError: the record is damaged.
    """
    path = suite / FILE
    sha256 = _read(path).positions.get(dataset) if os.path.lexists(path) else None
    positions = positions_path(suite, sha256) if sha256 else None
    return positions if positions and positions.is_file() else None


def read_measures(root: Path) -> tuple[str, ...]:
    """Return the measures of the suites below a folder, or of its own suite, without duplicates."""
    return tuple(dict.fromkeys(name for record in _records(root)[0].values() for name in record.measures))


def read_pairs(root: Path, kind: PairKind) -> dict[str, str]:
    """Return each system's partner, as the suites of :func:`read_measures` name it; the last of two names counts."""
    return {system: other for record in _records(root)[0].values() for system, other in getattr(record, kind).items()}


def read_told(root: Path) -> dict[tuple[str, str], ToldMachine]:
    """Return what users told of services' machines, by the names of two folders: the suite's and the one above."""
    found = {}
    for path in _paths(root):  # also of a suite whose measures are too many together with the others'
        with suppress(FileError):  # `unreadable` names it
            if (told := _read(path).service) is not None:
                suite = path.absolute().parent
                found[suite.parent.name, suite.name] = told
    return found


def unreadable(root: Path) -> list[FileError]:
    """Return the error of each record of the suites of :func:`read_measures` that is left out."""
    return _records(root)[1]


def _records(root: Path) -> tuple[dict[Path, SuiteRecord], list[FileError]]:
    """Read the records below a folder, or of its own suite, and the error of each that is left out.

    A damaged record is left out, and a record that would exceed the limit of measures together with the others.
    """
    records: dict[Path, SuiteRecord] = {}
    errors: list[FileError] = []
    measures: set[str] = set()
    for path in _paths(root):
        try:
            record = _read(path)
            if (count := len(measures.union(record.measures))) > measure_names.MOST_NAMES:
                fault = f"makes {count:,} measures with the other suites'; the limit is {measure_names.MOST_NAMES}"
                raise FileError(f"{path}: {fault}; name those to show, or give the folder of one suite")
        except FileError as error:
            errors.append(error)
        else:
            records[path] = record
            measures.update(record.measures)
    return records, errors


def _paths(root: Path) -> list[Path]:
    """Return the records below a folder, or of its own suite."""
    patterns = (FILE, f"*/{FILE}", f"*/*/{FILE}")  # a suite, suites, origins
    paths = sorted({path for pattern in patterns for path in root.glob(pattern)})
    if not paths:
        paths = [path for folder in root.absolute().parents[:_LEVELS] if (path := folder / FILE).is_file()][:1]
    return paths


def _read(path: Path) -> SuiteRecord:
    return read_record(SuiteRecord, path, MOST_BYTES, _REMEDY)
