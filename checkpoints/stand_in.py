"""A system over other weights: the published system's file with the assets replaced by what was made here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomlkit

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
    return write_system(images / published.parent.parent.name / "systems" / f"{name}.toml", changed)


def write_system(file: Path, keys: dict[str, Any]) -> Path:
    """Write a system's file, unless it is there and the same; return it."""
    text = tomlkit.dumps(keys)
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        with filesystem.atomic_write(file) as partial:
            partial.write_text(text, encoding="utf-8")
    return file


def checksums(folder: Path) -> dict[str, str]:
    """sha256 of every file of a folder, by its path in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): filesystem.sha256(path) for path in files}


def _asset(folder: Path) -> dict[str, Any]:
    found = checksums(folder)
    if not found:
        raise FileError(f"{folder}: this folder does not hold weights; make it first")
    return {"folder": folder.name, "licence": _LICENCE, "sha256": found}


def _renamed(key: str, components: dict[str, str]) -> str:
    """``<component>.<parameter>`` under the component's new name."""
    first, dot, rest = key.partition(".")
    return f"{components.get(first, first)}{dot}{rest}"
