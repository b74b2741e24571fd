"""Files of a dataset, plain, ``.gz`` or ``.zst`` -> lines, JSON objects or columns, each with its place."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from harness.errors import FileError

SUFFIXES = ("", ".gz", ".zst")
_DAMAGED = (EOFError, OSError, zlib.error)


def find(folder: Path, patterns: Iterable[str]) -> list[Path]:
    """Files in ``folder`` that match a pattern, plain or compressed; the plain one where both are there."""
    found: dict[Path, Path] = {}
    for pattern in patterns:
        for suffix in SUFFIXES:
            for path in sorted(folder.glob(pattern + suffix)):
                if path.is_file():
                    found.setdefault(path.parent / plain_name(path), path)
    return list(found.values())


def plain_name(path: Path) -> str:
    """The file's name without ``.gz`` or ``.zst``."""
    return path.name.removesuffix(".gz").removesuffix(".zst")


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file's content, uncompressed.

    Raises:
        FileError: it cannot be opened, or turns out to be damaged while it is read.
    """
    try:
        with path.open("rb") as file:
            if path.suffix == ".gz":
                yield cast(IO[bytes], gzip.GzipFile(fileobj=file))
            elif path.suffix == ".zst":
                import pyarrow as pa  # says so when a file is cut off, which zstandard's reader does not

                yield io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd"), 1 << 20)
            else:
                yield file
    except _DAMAGED as error:
        raise FileError(f"{path}: cannot be read: {error}") from error


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Each line with its number, from 1; a byte order mark is no part of the first.

    Raises:
        FileError: the file cannot be read, is damaged or is not UTF-8.
    """
    number = 0
    with opened(path) as file:
        try:
            for line in file:
                number += 1
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except (UnicodeDecodeError, *_DAMAGED) as error:
            raise FileError(f"{path}: line {number}: cannot be read: {error}") from error


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line's object with its place; empty lines are left out.

    Raises:
        FileError: as :func:`lines`, or a line is no JSON object.
    """
    for number, line in lines(path):
        if not line.strip():
            continue
        place = f"{path}: line {number}"
        try:
            raw = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise FileError(f"{place}: not valid JSON: {error}") from error
        if not isinstance(raw, dict):
            raise FileError(f"{place}: {type(raw).__name__}, expected an object")
        yield place, raw


def columns(path: Path, layouts: Iterable[str], header: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Tab-separated fields of each line with their place; empty lines are left out.

    Args:
        layouts: names of the columns, joined by a blank, of each width that is allowed.
        header: the first line names columns.

    Raises:
        FileError: as :func:`lines`, or a line has another number of fields.
    """
    expected = {len(layout.split()): layout for layout in layouts}
    for number, ended in lines(path):
        line = ended.rstrip("\r\n")
        if not line or (header and number == 1):
            continue
        fields = line.split("\t")
        if len(fields) not in expected:
            wanted = " or ".join(f"'{layout}'" for layout in expected.values())
            raise FileError(f"{path}: line {number}: {len(fields)} fields between tabs, expected {wanted}")
        yield f"{path}: line {number}", fields


def text_of(place: str, raw: dict[str, Any], key: str) -> str:
    """The text under a key.

    Raises:
        FileError: it is missing, or something else than text.
    """
    value = raw.get(key)
    if not isinstance(value, str):
        what = "is missing" if value is None else f"is {type(value).__name__}, expected text"
        raise FileError(f"{place}: key '{key}' {what}")
    return value
