"""CSV files that people keep by hand or a script writes: strict reading, errors that name file and line."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from pathlib import Path

from harness.errors import FileError

Row = dict[str, str]


def held(path: Path) -> bytes:
    """Read a shipped file.

    Raises:
        FileError: missing or unreadable.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise FileError(f"{path}: no such file; it belongs to instance_profiles/") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error}") from error


def rows(path: Path, header: str, content: bytes | None = None) -> Iterator[tuple[str, Row]]:
    """Each row with its place, ``<file>:<line>``.

    Args:
        path: the file; it names the place also where ``content`` was read already.
        header: the first line, which says the columns.
        content: what the file holds, where it was read already.

    Raises:
        FileError: missing, unreadable, another header, or a row of another length.
    """
    try:
        text = (held(path) if content is None else content).decode("utf-8")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        found = ",".join(next(reader, []))
        if found != header:
            raise FileError(f"{path}:1: the header is {found!r}; it must be {header!r}")
        columns = header.split(",")
        for values in reader:
            place = f"{path}:{reader.line_num}"
            if len(values) != len(columns):
                raise FileError(f"{place}: {len(values)} fields, must be {len(columns)}; mend the row")
            yield place, dict(zip(columns, values, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path}: cannot be read: {error}") from error


def number(place: str, row: Row, column: str, *, zero: bool = False) -> float:
    """A number above 0, or 0 where that may be."""
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and (value > 0 or (zero and value == 0))):
        raise FileError(f"{place}: {column} is {row[column]!r}; write a number{' of 0 or' if zero else ''} above 0")
    return value


def count(place: str, row: Row, column: str) -> int:
    """A whole number."""
    if not re.fullmatch("[0-9]{1,9}", row[column], flags=re.ASCII):
        raise FileError(f"{place}: {column} is {row[column]!r}; write a whole number")
    return int(row[column])


def truth(place: str, row: Row, column: str) -> bool:
    """``true`` or ``false``."""
    if row[column] not in ("true", "false"):
        raise FileError(f"{place}: {column} is {row[column]!r}; write true or false")
    return row[column] == "true"
