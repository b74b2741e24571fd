"""A system over other weights: the published system's file with the assets replaced by what was made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness import filesystem
from harness.config import read_toml
from harness.errors import FileError

# What is made here comes of all-MiniLM-L6-v2 or of a seed.
_LICENCE = "Apache-2.0"


def write(
    published: Path,
    name: str,
    *,
    models: Path,
    images: Path,
    note: str,
    components: dict[str, str] | None = None,
    params: dict[str, Any] | None = None,
) -> Path:
    """Write ``images/<engine>/systems/<name>.toml``; returns its path.

    The parameters stay what the published system's are unless told otherwise; so do the names of the assets' folders.

    Args:
        published: the published system's file.
        name: of the new system.
        models: a folder that holds ``<asset folder>/<file>``; every file in it counts.
        images: a folder for ``HARNESS_IMAGES``.
        note: what the checkpoint is, in one line; tables show it.
        components: for a system that joins others, what to join instead, by the name in the published file.
        params: parameters with other values than the published system's; those that it does not set are added to
            its search parameters.

    Raises:
        FileError: the published file cannot be read, or a folder of its assets was not made.
    """
    told = read_toml(published)
    changed = {
        "description": f"{published.stem} over a checkpoint made here",
        "stand_in": note,
        **{key: value for key, value in told.items() if key not in ("description", "stand_in", "assets", "components")},
    }
    renamed, given = components or {}, dict(params or {})
    if "components" in told:
        changed["components"] = [renamed.get(each, each) for each in told["components"]]
    for table in ("build_params", "search_params"):
        if table in told:
            changed[table] = {_renamed(key, renamed): given.pop(key, value) for key, value in told[table].items()}
    if given:
        changed["search_params"] = {**changed.get("search_params", {}), **given}
    # One folder may be published in parts, from several places.
    folders = dict.fromkeys(asset["folder"] for asset in told.get("assets", []))
    changed["assets"] = [_asset(models / folder) for folder in folders]
    target = images / published.parent.parent.name / "systems" / f"{name}.toml"
    text = as_toml(changed)
    if not target.is_file() or target.read_text(encoding="utf-8") != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_suffix(".partial")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(target)
    return target


def checksums(folder: Path) -> dict[str, str]:
    """sha256 of every file of a folder, by its path in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): filesystem.sha256(path) for path in files}


def as_toml(told: dict[str, Any]) -> str:
    """Scalars, lists of scalars, tables and lists of tables, as they stand in a system's file."""
    lines: list[str] = []
    _table(lines, "", told)
    return "\n".join(lines).lstrip("\n") + "\n"


def _table(lines: list[str], path: str, told: dict[str, Any]) -> None:
    nested = {key: value for key, value in told.items() if isinstance(value, dict) or _is_tables(value)}
    # A string of JSON is one of TOML; so are its numbers, its lists and true and false.
    lines += [f"{_key(key)} = {json.dumps(value)}" for key, value in told.items() if key not in nested]
    for key, value in nested.items():
        inside = f"{path}.{_key(key)}" if path else _key(key)
        for each in value if isinstance(value, list) else [value]:
            lines += ["", f"[[{inside}]]" if isinstance(value, list) else f"[{inside}]"]
            _table(lines, inside, each)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)


def _asset(folder: Path) -> dict[str, Any]:
    found = checksums(folder)
    if not found:
        raise FileError(f"{folder}: this folder does not hold weights; make it first")
    return {"folder": folder.name, "licence": _LICENCE, "sha256": found}


def _renamed(key: str, components: dict[str, str]) -> str:
    """``<component>.<parameter>`` under the component's new name."""
    first, dot, rest = key.partition(".")
    return f"{components.get(first, first)}{dot}{rest}"
