"""Pins: the revision and the sha256 of a system's files, asked of the model hub or read off a local folder."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness import filesystem
from harness.errors import FileError, ImageError, UsageError
from harness.launch.images.catalog import System, images_dir, own_images_dir
from harness.launch.images.system_files import Asset

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo, RepoSibling


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


# How long the hub may be silent at one request.
_TIMEOUT_S = 15.0

Report = Callable[[str], None]


def look_up(system: System, models: Path | None, *, newest: bool, report: Report) -> list[Asset]:
    """All assets of a system with their pins: of the local folder if one is given, else of the hub.

    Raises:
        UsageError: the system has no files of its own, or they are not where they were said to be.
        ImageError: the hub does not answer, or has no such model, revision or file.
    """
    if not system.system_assets:
        others = ", ".join(each.name for each in system.components)
        raise UsageError(
            f"system {system.name!r} has no files to pin; " + (f"pin {others}" if others else "it needs none")
        )
    if models is not None:
        return [from_folder(each, models) for each in system.system_assets]
    return [from_hub(each, newest=newest, report=report) for each in system.system_assets]


def from_hub(asset: Asset, *, newest: bool, report: Report) -> Asset:
    """The asset as the hub has it: weights by the sha256 that the hub keeps, small files by their content.

    Args:
        newest: take the hub's newest commit, also where the asset names a revision.
        report: is told when the hub names another licence than the asset, and which pins the newest commit changes.

    Raises:
        UsageError: the asset names no model of the hub.
        ImageError: the hub does not answer, has no such model, revision or file, or another one than was pinned.
    """
    if asset.hub is None:
        raise UsageError(f"{asset.folder!r} names no model of the hub; give its files with --models DIR")
    with _hub_errors(asset.hub):
        info = _ask(asset.hub, None if newest else asset.revision)
        found = {each.rfilename: each for each in info.siblings or ()}
        missing = [name for name in asset.names if name not in found]
        if missing or info.sha is None:
            has = ", ".join(sorted(found)) or "nothing"
            raise ImageError(
                f"the hub's {asset.hub} has no {', '.join(missing)} at {(info.sha or 'its newest commit')[:12]}, it"
                f" has {has}; mend the names of {asset.folder!r}, or choose another revision"
            )
        _compare_licences(asset, info, report)
        with filesystem.temporary_folder("pin") as scratch:
            checked = {name: _hub_sha256(asset.hub, info.sha, found[name], scratch) for name in asset.names}
    for name, changed in _changed(asset, checked).items():
        if not newest:
            raise ImageError(f"the hub's {asset.hub} at {info.sha[:12]}: {changed}; mend {name!r}, or add --newest")
        report(f"{asset.folder}: {changed}")
    return asset.pinned(info.sha, checked)


def from_folder(asset: Asset, models: Path) -> Asset:
    """The asset as a local folder of models has it, under the asset's folder name or the hub's id.

    A local file does not tell of which commit it is: a revision is kept as it was declared.

    Raises:
        UsageError: a file is not there, or is another than was pinned.
    """
    places = [models / each for each in (asset.folder, asset.hub) if each]
    place = next((each for each in places if each.is_dir()), None)
    if place is None:
        raise UsageError(f"there is no folder {' or '.join(map(str, places))}; put the files of the model there")
    missing = [name for name in asset.names if not (place / name).is_file()]
    if missing:
        raise UsageError(f"{place} has no {', '.join(missing)}; add them, or mend the names of {asset.folder!r}")
    checked = {name: filesystem.sha256(place / name) for name in asset.names}
    for changed in _changed(asset, checked).values():
        raise UsageError(f"{place}: {changed}; replace the file by the one that is meant")
    return asset.pinned(asset.revision, checked)


def _changed(asset: Asset, checked: dict[str, str]) -> dict[str, str]:
    """What is told of each file that is pinned already, and is another now."""
    return {
        name: f"{name} has the sha256 {checked[name]}, the system's file says {sha}"
        for name, sha in asset.sha256.items()
        if checked[name] != sha
    }


def _ask(hub: str, revision: str | None) -> ModelInfo:
    from huggingface_hub import HfApi

    return HfApi().model_info(hub, revision=revision, files_metadata=True, timeout=_TIMEOUT_S)


def _hub_sha256(hub: str, revision: str, file: RepoSibling, scratch: Path) -> str:
    """What the hub says of a large file; a small one it keeps by git's own hash, so that one is downloaded."""
    from huggingface_hub import hf_hub_download

    if file.lfs is not None:
        return file.lfs.sha256
    return filesystem.sha256(Path(hf_hub_download(hub, file.rfilename, revision=revision, local_dir=scratch)))


def _compare_licences(asset: Asset, info: ModelInfo, report: Report) -> None:
    said = getattr(info.card_data, "license", None)
    if isinstance(said, str) and said.casefold() != asset.licence.casefold():
        report(f"{asset.folder}: the hub gives the licence of {asset.hub} as {said!r}, the file as {asset.licence!r}")


@contextlib.contextmanager
def _hub_errors(hub: str) -> Iterator[None]:
    """Whatever goes wrong between here and the hub becomes one line."""
    from huggingface_hub import errors

    # What the HTTP client itself raises; which client that is depends on the hub library's version.
    transport: type[Exception] = errors.HfHubHTTPError.__mro__[1]
    instead = "give the files with --models DIR"
    try:
        yield
    except errors.GatedRepoError as error:
        raise ImageError(
            f"the hub gives {hub} to whom it was granted alone; log in ('hf auth login'), or {instead}"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ImageError(
            f"the hub knows no model {hub}; mend its name, log in if it is private, or {instead}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ImageError(f"the hub's {hub} has no such revision; add --newest, or mend it") from error
    except (transport, OSError, ValueError) as error:
        why = re.sub(r"\s+", " ", str(error)) or type(error).__name__
        raise ImageError(f"the hub does not answer for {hub}: {why[:200]}; connect to it, or {instead}") from error
