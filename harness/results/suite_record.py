"""The record of a suite beside its results: ``<suite>/suite.json``, the measures that the suite names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.records import to_json
from harness.untrusted import parse_json, read_whole, reading

FILE = "suite.json"
MOST_BYTES = 64 << 10
# Folders between a job and its suite.
_LEVELS = 5


def text(measures: Iterable[str]) -> str:
    """Return the content of the record."""
    return to_json({"measures": list(measures)}, indent=2) + "\n"


def read_measures(root: Path) -> tuple[str, ...]:
    """Return the measures of the suites below a folder, or of the one that it is in, without duplicates.

    Raises:
        FileError: a record is damaged.
    """
    patterns = (FILE, f"*/{FILE}", f"*/*/{FILE}")  # a suite, suites, origins
    paths = sorted({path for pattern in patterns for path in root.glob(pattern)})
    if not paths:
        paths = [path for folder in root.absolute().parents[:_LEVELS] if (path := folder / FILE).is_file()][:1]
    return tuple(dict.fromkeys(name for path in paths for name in _names(path)))


def _names(path: Path) -> Iterator[str]:
    wrong = (OSError, ValueError, KeyError, TypeError)
    with reading(path, "run its suite again, which writes it", fault="damaged", damage=wrong):
        names = parse_json(read_whole(path, MOST_BYTES))["measures"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("'measures' is no list of names")
    yield from names
