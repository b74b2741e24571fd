"""Pins as TOML: printed for people, and put into a system's file with nothing else of it changed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from harness.catalog import System, images_dir, own_images_dir
from harness.errors import FileError
from harness.system_files import Asset

_TABLE = "[[assets]]"
_PINS = "[assets.sha256]"


def as_toml(asset: Asset) -> str:
    """The asset's tables, as its system's file holds them."""
    keys = asset.model_dump(exclude_none=True, exclude={"sha256", "files"})
    lines = [_TABLE, *(f"{name} = {_quoted(str(value))}" for name, value in keys.items())]
    return "\n".join([*lines, "", *_pins(asset)]) + "\n"


def edited(system: System, pinned: Sequence[Asset]) -> tuple[Path, str]:
    """The file that gets a system's pins, and its text with them.

    It is the system's own file where that can be written, else one of the same name in the user's folder.

    Raises:
        FileError: neither can be, or the file cannot be edited line by line.
    """
    path = _source(system)
    text = with_pins(path.read_text(encoding="utf-8"), pinned, path)
    if _writable(path):
        return path, text
    own = own_images_dir()
    if own is None:
        raise FileError(
            f"{path}: cannot be written; set HARNESS_IMAGES to a folder of your own, which then gets"
            f" {system.engine}/systems/{path.name}"
        )
    (own / system.engine / "systems").mkdir(parents=True, exist_ok=True)
    return own / system.engine / "systems" / path.name, text


def with_pins(text: str, assets: Sequence[Asset], path: Path) -> str:
    """The text of a system's file with its asset tables pinned; comments and all other keys stay.

    Args:
        assets: pinned, in the file's order.
        path: names the file in errors.

    Raises:
        FileError: its tables are written in a way that cannot be edited line by line.
    """
    head, *blocks = _split(text)
    told = "".join([head, *(_edited(block, asset) for block, asset in zip(blocks, assets, strict=False))])
    before = tomllib.loads(text)
    wanted = {**before, "assets": [asset.model_dump(exclude_none=True, exclude={"files"}) for asset in assets]}
    if len(blocks) != len(assets) or _loads(told) != wanted:
        raise FileError(f"{path}: its [[assets]] cannot be edited safely; put the printed tables there by hand")
    return told


def _source(system: System) -> Path:
    """The file that declares a system; a user's own comes before the shipped one.

    Raises:
        FileError: it is gone.
    """
    name = f"{system.engine}/systems/{system.name}.toml"
    for folder in filter(None, (own_images_dir(), images_dir())):
        if (folder / name).is_file():
            return folder / name
    raise FileError(f"{images_dir() / name}: no such file; was it removed just now?")


def _split(text: str) -> list[str]:
    """What stands before the first asset, and then one part for each asset, up to the next table of another kind."""
    parts = [""]
    inside = False
    for line in text.splitlines(keepends=True):
        header = line.split("#")[0].strip()
        if header == _TABLE:
            inside = True
            parts.append("")
        elif inside and header.startswith("[") and header.endswith("]") and not header.startswith("[assets."):
            return ["\0"]  # assets that are not at the file's end
        parts[-1] += line
    return parts


def _edited(block: str, asset: Asset) -> str:
    """One asset's lines: its revision and checksums new, its list of bare names gone."""
    kept: list[str] = []
    listing = pins = False
    lines = block.splitlines()
    behind: list[str] = []  # what stands between this asset and the next
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        behind.insert(0, lines.pop())
    for line in lines:
        header = line.split("#")[0].strip()
        if header.startswith("["):
            pins = header == _PINS
        if re.match(r"\s*files\s*=", line):
            listing = True
        if listing or pins:
            listing = listing and "]" not in header
            continue
        if not re.match(r"\s*(revision|sha256)\s*=", line):
            kept.append(line)
    if asset.revision is not None:
        after = next((number for number, line in enumerate(kept, 1) if re.match(r"\s*hub\s*=", line)), len(kept))
        kept.insert(after, f"revision = {_quoted(asset.revision)}")
    while kept and not kept[-1].strip():
        kept.pop()
    return "\n".join([*kept, "", *_pins(asset), *behind]) + "\n"


def _pins(asset: Asset) -> list[str]:
    return [_PINS, *(f"{_quoted(name)} = {_quoted(sha)}" for name, sha in sorted(asset.sha256.items()))]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _loads(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def _writable(path: Path) -> bool:
    """Whether the file can be replaced; tried, because permissions alone do not tell of a read-only disk."""
    probe = path.with_name(f".{path.name}.probe")
    try:
        probe.touch()
        probe.unlink()
    except OSError:
        return False
    return True
