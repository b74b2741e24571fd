"""Files that people write (TOML) -> validated objects, with errors that name file, key and fix."""

from __future__ import annotations

import copy
import csv
import functools
import io
import json
import math
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import FileError, did_you_mean
from harness.untrusted import read_whole

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"


# MERGED harness.config: Where downloads, corpora, indexes and kept rows are, unless somebody says otherwise.


VARIABLE = "HARNESS_CACHE"


def usual() -> Path:
    """The place by convention (XDG)."""
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "ir-harness")


def default() -> Path:
    """What the environment names, else the usual place; absolute."""
    return Path(os.environ.get(VARIABLE) or usual()).expanduser().absolute()


# MERGED harness.config: CSV files that people keep by hand or a script writes: strict reading, errors that name
# file and line.


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


class Declared(BaseModel):
    """Base of everything read from TOML: frozen; unknown keys and numbers that are not finite are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Model = TypeVar("Model", bound=Declared)
_MOST_BYTES = 1 << 20


def read_toml(path: Path, *, strangers: bool = False) -> dict[str, Any]:
    """Parse a TOML file; a stranger's must be a regular file of sound size.

    Raises:
        FileError: it is missing, unreadable, no UTF-8 or no TOML.
    """
    try:
        # Few files are read very often: their text is parsed once, and each caller gets a copy of its own.
        content = read_whole(path, _MOST_BYTES) if strangers else path.read_bytes()
        return copy.deepcopy(_parsed(content.decode("utf-8")))
    except FileNotFoundError:
        raise FileError(f"{path}: no such file; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise FileError(f"{path}: cannot be read: {what}") from error
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{path}: not valid TOML: {error}") from error
    except RecursionError:
        raise FileError(f"{path}: not valid TOML: nested too deep; restore it") from None


_parsed = functools.lru_cache(maxsize=256)(tomllib.loads)


def validate(model: type[Model], raw: Any, path: Path, prefix: str = "") -> Model:
    """Check ``raw`` against ``model``; the first thing wrong becomes one line.

    Raises:
        FileError: names the file, the key and, for an unknown key, the nearest known one.
    """
    try:
        # As JSON, because strictness (no "5" or true for a number) would else refuse TOML's lists for tuples.
        return model.model_validate_json(json.dumps(raw, default=str), strict=True)
    except ValidationError as error:
        errors = error.errors()
        # A misspelt required key is both unknown and missing; the unknown one is where the mistake stands.
        first = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
        key = ".".join(str(part) for part in (*([prefix] if prefix else []), *first["loc"]))
        if first["type"] == "extra_forbidden":
            known = _known_keys(model, first["loc"])
            hint = did_you_mean(str(first["loc"][-1]), known) or f"; known keys: {', '.join(sorted(known))}"
            raise FileError(f"{path}: unknown key '{key}'{hint}") from error
        if first["type"] == "missing":
            raise FileError(f"{path}: key '{key}' is missing; add it") from error
        if first["type"] == "tuple_type":
            raise FileError(f'{path}: key \'{key}\': expected a list, e.g. ["a", "b"]') from error
        if first["type"] == "model_type":
            raise FileError(f"{path}: key '{key}': expected a table: [{key}] and its keys below") from error
        message = first["msg"].removeprefix("Value error, ")
        raise FileError(f"{path}: key '{key}': {message}") from error


def _known_keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> set[str]:
    """The keys allowed where the unknown key at ``loc`` stands."""
    current: Any = model
    for part in loc[:-1]:
        if isinstance(part, int):
            continue
        field = current.model_fields.get(part) if hasattr(current, "model_fields") else None
        if field is None:
            return set()
        current = _inner_model(field.annotation)
    return set(getattr(current, "model_fields", {}))


def _inner_model(annotation: Any) -> Any:
    """The model inside ``tuple[Model, ...]``, ``Model | None``, ``dict[str, Model]`` or plain ``Model``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _inner_model(argument)
        if found is not None:
            return found
    return None


@functools.cache
def data_root() -> Path:
    """Return the folder that holds ``images/``, ``instance_profiles/``, ``datasets/`` and the studies."""
    package = Path(__file__).resolve().parent
    shipped = package / "shipped"  # where a wheel puts them
    return shipped if shipped.is_dir() else package.parent
