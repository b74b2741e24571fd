"""Configuration: shipped data, the cache folder, and TOML and CSV files that people write.

Errors name the file, the key or line, and the fix.
"""

from __future__ import annotations

import copy
import csv
import datetime
import functools
import io
import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from harness.errors import FileError, UsageError, nearest_or_known
from harness.untrusted import (
    check_names,
    check_storable,
    decode,
    finite_number,
    mistake,
    one_line,
    parse_json,
    read_whole,
    reading,
    reason_of,
)

CACHE_VARIABLE = "HARNESS_CACHE"
NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
_MAX_TOML_BYTES = 1 << 20
# A line that begins with a key of a hundred parts or more: a.a.a. and so on, quoted or not.
_LONG_KEY = re.compile(
    r"""^[ \t]*\[{0,2}[ \t]*(?:(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*\.[ \t]*){99}""", re.MULTILINE
)
_COUNT = re.compile("[0-9]{1,9}")
# More than any shipped table has.
_MAX_CSV_BYTES = 64 << 20

# Column name -> text.
CsvRow = dict[str, str]


class ConfigModel(BaseModel):
    """Base of every record read from TOML: frozen; unknown keys, infinite numbers and control characters are errors.

    Free text is :class:`harness.untrusted.ForeignText`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @model_validator(mode="after")
    def _names(self) -> Self:
        check_names(self)
        return self


Model = TypeVar("Model", bound=ConfigModel)
Value = TypeVar("Value")


@functools.cache
def data_root() -> Path:
    """Return the folder of ``images/``, ``instance_profiles/``, ``datasets/`` and the studies."""
    package = Path(__file__).resolve().parent
    shipped = package / "shipped"  # in a wheel
    return shipped if shipped.is_dir() else package.parent


def page(name: str) -> str:
    """Return where to read a page such as ``docs/guides/platforms.md``: its name in a clone, else the file's path."""
    root = data_root()
    return str(root / name) if root.name == "shipped" else name


def published_folder() -> Path:
    """Return the folder of the published results that ship with harness."""
    return data_root() / "results" / "published"


def published_names() -> tuple[str, ...]:
    """Return the names of the published results that ship with harness."""
    folder = published_folder()
    return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir())) if folder.is_dir() else ()


def results_by_name(results: Path) -> Path:
    """Return the shipped folder of published results for its name; a folder of that name here comes first.

    ``santhanam2023`` and ``results/published/santhanam2023`` name the same results, wherever one is.
    """
    *folders, name = results.parts or ("",)
    shipped = published_folder() / name
    if os.path.lexists(results) or folders not in ([], ["results", "published"]):
        return results
    return shipped if re.fullmatch(NAME_PATTERN, name) and shipped.is_dir() else results


def suite_names() -> list[str]:
    """Return the names of the suites that ship with harness."""
    return sorted(path.stem for path in (data_root() / "suites").glob("*.toml"))


def suite_by_name(suite: Path) -> Path:
    """Return the file of the shipped suite for its name; a file of that name here comes first.

    ``quickstart`` and ``suites/quickstart.toml`` name the same suite, wherever one is.
    """
    if suite.is_file() or suite not in (Path(suite.stem), Path("suites", f"{suite.stem}.toml")):
        return suite
    shipped = data_root() / "suites" / f"{suite.stem}.toml"
    return shipped if re.fullmatch(NAME_PATTERN, suite.stem) and shipped.is_file() else suite


def default_cache_folder() -> Path:
    """Return the cache folder by the XDG convention."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "ir-harness")


def cache_folder() -> Path:
    """Return the folder of downloads, corpora, indexes and computed rows; HARNESS_CACHE may name it.

    Raises:
        UsageError: as :func:`absolute_folder`.
    """
    return absolute_folder(os.environ.get(CACHE_VARIABLE) or default_cache_folder())


def absolute_folder(folder: Path | str, remedy: str = f"name a cache with {CACHE_VARIABLE} or --cache") -> Path:
    """Return a folder's absolute path, with the user's home for ``~``.

    Raises:
        UsageError: the user has no home folder, as in a container that sets no HOME.
    """
    try:
        return Path(folder).expanduser().absolute()
    except RuntimeError:
        raise UsageError(f"{folder}: this system has no home folder for {Path(folder).parts[0]!r}; {remedy}") from None


def read_toml(path: Path, *, links: bool = True) -> dict[str, Any]:
    """Parse a TOML file: a regular file of at most 1 MiB.

    Args:
        path: the file.
        links: it may be a symbolic link to one; not in a folder that others fill.

    Raises:
        FileError: it is missing, unreadable, not UTF-8 or not TOML, or a number in it can be stored nowhere.
    """
    try:
        # A few files are read very often: parse each text once, and give each caller its own copy.
        return copy.deepcopy(
            _parse_toml(decode(read_whole(path, _MAX_TOML_BYTES, links=links), path, encoding="utf-8-sig"))
        )
    except FileNotFoundError:
        raise FileError(f"{path}: this file does not exist; check the path") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {reason_of(error)}; name a TOML file") from error
    except ValueError as error:  # a TOMLDecodeError, or a number of thousands of digits
        raise FileError(f"{path}: {reason_of(error)}; correct it") from error
    except RecursionError:
        raise FileError(f"{path}: not valid TOML: nested too deep; restore it") from None


@functools.lru_cache(maxsize=256)
def _parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        ValueError: it is not TOML, has a key of a hundred parts, which may take the parser minutes, or a huge number.
    """
    if match := _LONG_KEY.search(text):
        raise ValueError(f"line {text.count(chr(10), 0, match.start()) + 1} has a key of a hundred parts")
    raw = tomllib.loads(text)
    _check_numbers(raw, "")
    return raw


def _check_numbers(value: Any, key: str) -> None:
    """Raise ValueError for a number that no stored result can hold; checks of each file refuse infinite ones."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_numbers(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for inner in value:
            _check_numbers(inner, key)
    elif isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        try:
            check_storable(value)
        except ValueError as error:
            raise ValueError(f"key '{one_line(key, 80)}': {error}") from None


def validate(model: type[Model], raw: Any, path: Path, prefix: str = "") -> Model:
    """Check ``raw`` against ``model``; report the first mistake in one line.

    Raises:
        FileError: names the file, the key and, for an unknown key, the nearest known one.
    """
    try:
        # As JSON: in Python mode, strictness (no "5" for a number) would refuse TOML's lists for tuples.
        return model.model_validate_json(json.dumps(raw, default=str), strict=True)
    except ValidationError as error:
        unknown = next((item["loc"] for item in error.errors() if item["type"] == "extra_forbidden"), None)
        if unknown is not None:
            key = ".".join(map(str, (*filter(None, [prefix]), *unknown)))
            keys = _known_keys(model, unknown)
            hint = nearest_or_known(str(unknown[-1]), keys, label="known keys")
            raise FileError(f"{path}: unknown key '{key}'{hint}") from error
        raise FileError(f"{path}: {mistake(error, prefix)}") from error


def read_record(model: type[Model], path: Path, most_bytes: int, remedy: str) -> Model:
    """Read a record in JSON that harness wrote; raise FileError, which ends in the remedy, if it is damaged."""
    with reading(path, remedy, fault="damaged", damage=(OSError, ValueError)):
        raw = parse_json(read_whole(path, most_bytes))
    try:
        return validate(model, raw, path)
    except FileError as error:
        raise FileError(f"{error}; {remedy}") from error


def _known_keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> set[str]:
    """Return the keys that are allowed where the unknown key at ``loc`` is."""
    current: Any = model
    parts = iter(loc[:-1])
    for part in parts:
        if isinstance(part, int):
            continue
        field = current.model_fields.get(part) if hasattr(current, "model_fields") else None
        if field is None:
            return set()
        current = _inner_model(field.annotation)
        if get_origin(field.annotation) is dict:
            next(parts, None)  # the name of the table in the table
    return set(getattr(current, "model_fields", {}))


def _inner_model(annotation: Any) -> Any:
    """Return the model inside ``tuple[Model, ...]``, ``Model | None``, ``dict[str, Model]`` or plain ``Model``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if (model := _inner_model(argument)) is not None:
            return model
    return None


def read_shipped(path: Path) -> bytes:
    """Read a shipped file of ``instance_profiles/``.

    Raises:
        FileError: missing or unreadable.
    """
    try:
        return read_whole(path, _MAX_CSV_BYTES, links=True)
    except FileNotFoundError:
        raise FileError(f"{path}: this file does not exist; install harness again") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {reason_of(error)}; restore it") from error


def csv_rows(path: Path, header: str, content: bytes | None = None) -> Iterator[tuple[str, CsvRow]]:
    """Yield each row of a CSV file with its location, ``<file>:<line>``.

    Args:
        header: the expected first line.
        content: the file's content, if it was read already.

    Raises:
        FileError: missing, unreadable, another header, a row of another length, or a cell with a control character.
    """
    try:
        text = decode(read_shipped(path) if content is None else content, path, encoding="utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        first = ",".join(next(reader, []))
        if first != header:
            raise FileError(f"{path}:1: the header is {first!r}; it must be {header!r}")
        columns = header.split(",")
        # Tens of thousands of rows are checked at once; a quote may hold a line end.
        printable = '"' not in text and text.replace("\n", "").isprintable()
        for values in reader:
            location = f"{path}:{reader.line_num}"
            if len(values) != len(columns):
                raise FileError(f"{location}: {len(values)} fields, must be {len(columns)}; correct the row")
            row = dict(zip(columns, values, strict=True))
            if not printable:
                try:
                    check_names(row)
                except ValueError as error:
                    raise FileError(f"{location}: {error}") from None
            yield location, row
    except csv.Error:
        raise FileError(f"{path}:{reader.line_num}: not CSV; correct the quotes of the row") from None


def csv_number(location: str, row: CsvRow, column: str, *, zero: bool = False) -> float:
    """Parse a number above 0, or of 0 if ``zero``."""

    def parse(text: str) -> float:
        value = finite_number(text)
        if value < 0 or (value == 0 and not zero):
            raise ValueError
        return value

    return _cell(location, row, column, parse, f"a number{' of 0 or' if zero else ''} above 0")


def csv_count(location: str, row: CsvRow, column: str) -> int:
    """Parse a whole number."""

    def parse(text: str) -> int:
        if not _COUNT.fullmatch(text):
            raise ValueError
        return int(text)

    return _cell(location, row, column, parse, "a whole number")


def csv_bool(location: str, row: CsvRow, column: str) -> bool:
    """Parse ``true`` or ``false``."""
    return _cell(location, row, column, ("false", "true").index, "true or false") == 1


def csv_date(location: str, row: CsvRow, column: str) -> datetime.date | None:
    """Parse a date; ``None`` for an empty cell."""
    return _cell(location, row, column, datetime.date.fromisoformat, "YYYY-MM-DD") if row[column] else None


def _cell(location: str, row: CsvRow, column: str, parse: Callable[[str], Value], form: str) -> Value:
    try:
        return parse(row[column])
    except ValueError:
        raise FileError(f"{location}: {column} is {row[column]!r}; write {form}") from None
