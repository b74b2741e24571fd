"""The record of a suite in its results, ``<suite>/suite.json``: measures, pairs of systems, and positions."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from harness.driver.records import to_json
from harness.errors import FileError, UsageError
from harness.evaluation import measure_names
from harness.untrusted import check_names, parse_json, read_whole, reading

FILE = "suite.json"
MOST_BYTES = 4 << 20
Part = TypeVar("Part")
# Folders between a job and its suite.
_LEVELS = 5
_SHA256 = re.compile("[0-9a-f]{64}")


# Kinds of pairs that a suite declares: two systems, or a seed and its model.
FIRSTP, EXACT, SEEDS = "firstp", "exact", "seeds"
KINDS = (FIRSTP, EXACT, SEEDS)


def text(
    measures: Iterable[str],
    pairs: Mapping[str, Mapping[str, str]] | None = None,
    positions: Mapping[str, str] | None = None,
) -> str:
    """Return the content of the record without empty parts.

    ``pairs`` map systems to their partners, by one of ``KINDS``; ``positions`` datasets to the SHA-256 of their
    positions, whose files are at :func:`positions_path`.
    """
    parts = {name: dict(part) for name, part in {**(pairs or {}), "positions": positions}.items() if part}
    return to_json({"measures": list(measures), **parts}, indent=2) + "\n"


def positions_path(suite: Path, sha256: str) -> Path:
    """Return the path of a dataset's positions in a suite's folder."""
    return suite / "samples" / f"{sha256}.positions.jsonl"


def read_positions_path(suite: Path, dataset: str) -> Path | None:
    """Return the file of a dataset's positions in a suite's folder, or None.

    Raises:
        FileError: the record is damaged.
    """
    if not os.path.lexists(suite / FILE):
        return None
    sha256 = dict(_read(suite / FILE, _positions)).get(dataset)
    path = None if sha256 is None else positions_path(suite, sha256)
    return path if path is not None and path.is_file() else None


def read_measures(root: Path) -> tuple[str, ...]:
    """Return the measures of the suites below a folder, or of its own suite, without duplicates.

    A damaged record has no measures, nor has a record that would exceed the limit together with the others
    (:func:`unreadable` names both).
    """
    return _measures(_paths(root))[0]


def _measures(paths: Iterable[Path]) -> tuple[tuple[str, ...], list[FileError]]:
    """Return the measures of :func:`read_measures`, and an error for each record whose measures are left out."""
    found: tuple[str, ...] = ()
    errors = []
    for path in paths:
        try:
            more = tuple(dict.fromkeys((*found, *_read(path, _names))))
            if len(more) > measure_names.MOST_NAMES:
                text = f"makes {len(more):,} measures with the other suites'; the limit is {measure_names.MOST_NAMES}"
                raise FileError(f"{path}: {text}; name those to show, or give the folder of one suite")
            found = more
        except FileError as error:
            errors.append(error)
    return found, errors


def read_pairs(root: Path, kind: str) -> dict[str, str]:
    """Return each system's partner (of one of ``KINDS``), as the suites of :func:`read_measures` name it.

    The last of two names counts.
    """
    part = functools.partial(_pairs, kind)
    return {system: other for path in _paths(root) for system, other in _readable(path, part)}


def unreadable(root: Path) -> tuple[FileError, ...]:
    """Return the error of each damaged record of the suites of :func:`read_measures`."""
    paths = _paths(root)
    _, found = _measures(paths)
    pairs = (functools.partial(_pairs, kind) for kind in KINDS)
    parts: tuple[Callable[[Any], list[Any]], ...] = (_positions, *pairs)
    named = {str(error) for error in found}
    for path in paths:
        try:
            for part in parts:
                _read(path, part)
        except FileError as error:
            # A record that cannot be read has one error.
            found += [error] if str(error) not in named else []
    return tuple(found)


def _paths(root: Path) -> list[Path]:
    patterns = (FILE, f"*/{FILE}", f"*/*/{FILE}")  # a suite, suites, origins
    paths = sorted({path for pattern in patterns for path in root.glob(pattern)})
    if not paths:
        paths = [path for folder in root.absolute().parents[:_LEVELS] if (path := folder / FILE).is_file()][:1]
    return paths


def _read(path: Path, part: Callable[[Any], list[Part]]) -> list[Part]:
    """Read a part of a record; raise FileError if it is damaged."""
    wrong = (OSError, ValueError, KeyError, TypeError, AttributeError)
    with reading(path, "run its suite again, which writes it", fault="damaged", damage=wrong):
        return part(parse_json(read_whole(path, MOST_BYTES)))


def _readable(path: Path, part: Callable[[Any], list[Part]]) -> list[Part]:
    try:
        return _read(path, part)
    except FileError:
        return []


def _names(content: Any) -> list[str]:
    names = content["measures"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("'measures' must be a list of names")
    if len(names) > measure_names.MOST_NAMES:
        raise ValueError(f"'measures' has {len(names):,} names; the limit is {measure_names.MOST_NAMES}")
    try:
        measure_names.check(names)
    except UsageError as error:
        raise ValueError(str(error).partition("; ")[0]) from None
    return names


def _positions(content: Any) -> list[tuple[str, str]]:
    hashes = content.get("positions", {})
    if not isinstance(hashes, dict) or not all(
        isinstance(each, str) and _SHA256.fullmatch(each) for each in hashes.values()
    ):
        raise ValueError("'positions' must name a SHA-256 for each dataset")
    check_names(hashes, "positions")
    return list(hashes.items())


def _pairs(kind: str, content: Any) -> list[tuple[str, str]]:
    pairs = content.get(kind, {})
    if not isinstance(pairs, dict) or not all(isinstance(name, str) for name in pairs.values()):
        raise ValueError(f"'{kind}' must name a system for each system")
    check_names(pairs, kind)
    return list(pairs.items())
