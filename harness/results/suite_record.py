"""The record of a suite in its results, ``<suite>/suite.json``: measures, pairs of systems, and positions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, field_validator

from harness.config import ConfigModel, read_record
from harness.driver.records import to_json
from harness.errors import FileError, UsageError
from harness.evaluation import measure_names
from harness.results.pin_lock import Sha256

FILE = "suite.json"
MOST_BYTES = 4 << 20
_REMEDY = "run its suite again, which writes it"
# Folders between a job and its suite.
_LEVELS = 5

# Kinds of pairs that a suite declares: two systems, or a seed and its model.
PairKind = Literal["firstp", "exact", "seeds"]


class SuiteRecord(ConfigModel):
    """Content of ``suite.json``.

    Pairs map a system to its partner; ``positions`` maps a dataset to the SHA-256 of its positions, whose file is at
    :func:`positions_path`.
    """

    model_config = ConfigDict(extra="ignore")

    measures: tuple[str, ...]
    firstp: dict[str, str] = Field(default={})
    exact: dict[str, str] = Field(default={})
    seeds: dict[str, str] = Field(default={})
    positions: dict[str, Sha256] = Field(default={})

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


def text(
    measures: Iterable[str],
    pairs: Mapping[PairKind, Mapping[str, str]] | None = None,
    positions: Mapping[str, str] | None = None,
) -> str:
    """Return the content of the record without empty parts; arguments as the fields of :class:`SuiteRecord`."""
    parts = {name: dict(part) for name, part in (*(pairs or {}).items(), ("positions", positions)) if part}
    return to_json({"measures": list(measures), **parts}, indent=2) + "\n"


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
    return tuple(dict.fromkeys(name for record in _records(root)[0] for name in record.measures))


def read_pairs(root: Path, kind: PairKind) -> dict[str, str]:
    """Return each system's partner, as the suites of :func:`read_measures` name it; the last of two names counts."""
    return {system: other for record in _records(root)[0] for system, other in getattr(record, kind).items()}


def unreadable(root: Path) -> list[FileError]:
    """Return the error of each record of the suites of :func:`read_measures` that is left out."""
    return _records(root)[1]


def _records(root: Path) -> tuple[list[SuiteRecord], list[FileError]]:
    """Read the records below a folder, or of its own suite, and the error of each that is left out.

    A damaged record is left out, and a record that would exceed the limit of measures together with the others.
    """
    patterns = (FILE, f"*/{FILE}", f"*/*/{FILE}")  # a suite, suites, origins
    paths = sorted({path for pattern in patterns for path in root.glob(pattern)})
    if not paths:
        paths = [path for folder in root.absolute().parents[:_LEVELS] if (path := folder / FILE).is_file()][:1]
    records: list[SuiteRecord] = []
    errors: list[FileError] = []
    measures: set[str] = set()
    for path in paths:
        try:
            record = _read(path)
            if (count := len(measures.union(record.measures))) > measure_names.MOST_NAMES:
                fault = f"makes {count:,} measures with the other suites'; the limit is {measure_names.MOST_NAMES}"
                raise FileError(f"{path}: {fault}; name those to show, or give the folder of one suite")
        except FileError as error:
            errors.append(error)
        else:
            records.append(record)
            measures.update(record.measures)
    return records, errors


def _read(path: Path) -> SuiteRecord:
    return read_record(SuiteRecord, path, MOST_BYTES, _REMEDY)
