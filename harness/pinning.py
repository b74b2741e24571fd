"""Pins: the revision and the sha256 of a system's files, asked of the model hub or read off a local folder."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from harness import leftovers
from harness.catalog import System
from harness.errors import ImageError, UsageError
from harness.system_files import Asset

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

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
        with leftovers.temporary("pin") as scratch:
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
    checked = {name: _sha256(place / name) for name in asset.names}
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
    return _sha256(Path(hf_hub_download(hub, file.rfilename, revision=revision, local_dir=scratch)))


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


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
