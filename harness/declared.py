"""Files that people write (TOML) -> validated objects, with errors that name file, key and fix."""

from __future__ import annotations

import copy
import functools
import json
import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import FileError, did_you_mean
from harness.untrusted import read_whole


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
