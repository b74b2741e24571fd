"""Pins: the revision and file hashes of a system's assets, from the model hub or a local folder."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import huggingface_hub
import tomlkit
from tomlkit.items import AoT, Item, KeyType, SingleKey, Table

from harness import filesystem
from harness.containment import inside
from harness.errors import FileError, ImageError, MissingWeights, UsageError
from harness.launch.images.asset import Asset
from harness.launch.images.assets import model_file
from harness.launch.images.catalog import own_images_dir
from harness.launch.images.systems import System
from harness.untrusted import ForeignText, escaped, one_line

log = logging.getLogger(__name__)

_HUB_TIMEOUT_S = 15.0
_REMEDY = "give the files with --models DIR"


class HubSilent(MissingWeights):
    """Error of a hub that does not answer; ``remedy`` says what to do."""

    remedy = f"connect to it, or {_REMEDY}"


def look_up(system: System, models: Path | None, *, newest: bool) -> list[Asset]:
    """Pin all assets of a system from a local folder if given, else from the hub.

    Raises:
        UsageError: the system has no files of its own, or they are missing.
        ImageError: the hub does not answer, or lacks the model, revision or file.
    """
    if not system.assets:
        others = ", ".join(component.name for component in system.components)
        raise UsageError(
            f"system {system.name!r} has no files to pin; " + (f"pin {others}" if others else "it needs none")
        )
    if models is not None:
        return [from_folder(asset, models) for asset in system.assets]
    return [from_hub(asset, newest=newest) for asset in system.assets]


def from_hub(asset: Asset, *, newest: bool) -> Asset:
    """Pin an asset by the hub: weights by the hub's sha256, small files by content that has the hub's git hash.

    Args:
        newest: take the newest commit even if the asset names a revision.

    Raises:
        UsageError: the asset names no model of the hub.
        HubSilent: the hub does not answer.
        StoreError: the disk is full.
        ImageError: the hub lacks the model, revision or file, or its file differs from the pin or its own checksum.
    """
    if asset.hub is None:
        raise UsageError(f"{asset.folder!r} names no model of the hub; give its files with --models DIR")
    with _hub_errors(asset.hub):
        revision = None if newest else asset.revision
        api = huggingface_hub.HfApi()
        info = api.model_info(asset.hub, revision=revision, files_metadata=True, timeout=_HUB_TIMEOUT_S)
        files = {file.rfilename: file for file in info.siblings or ()}
        missing = [name for name in asset.names if name not in files]
        if missing or info.sha is None:
            present = ", ".join(sorted(files)) or "nothing"
            raise ImageError(
                f"the hub's {asset.hub} has no {', '.join(missing)} at {(info.sha or 'its newest commit')[:12]}, it"
                f" has {present}; correct the names of {asset.folder!r}, or choose another revision"
            )
        licence = getattr(info.card_data, "license", None)
        if isinstance(licence, str) and licence.casefold() != str(asset.licence).casefold():
            declared = f"the file as {asset.licence!r}"
            log.info(
                f"{asset.folder}: the hub gives the licence of {asset.hub} as {ForeignText(licence)!r}, {declared}"
            )
        checked = {name: lfs.sha256 for name in asset.names if (lfs := files[name].lfs) is not None}
        with filesystem.temporary_folder("pin") as scratch:
            for name in asset.names:
                if name not in checked:  # a small file, which the hub keeps by git's hash
                    path = Path(api.hf_hub_download(asset.hub, name, revision=info.sha, local_dir=scratch))
                    if (expected := files[name].blob_id) not in (None, (actual := _git_hash(path))):
                        text = f"{name} has the git hash {actual}, the hub says {expected}"
                        raise ImageError(f"the hub's {asset.hub} at {info.sha[:12]}: {text}; run this again")
                    checked[name] = filesystem.sha256(path)
    for name, changed in _changed(asset, checked).items():
        if not newest:
            raise ImageError(
                f"the hub's {asset.hub} at {info.sha[:12]}: {changed}; correct {name!r}, or pin with --newest"
            )
        log.info(f"{asset.folder}: {changed}")
    return asset.pinned(info.sha, checked)


def from_folder(asset: Asset, models: Path) -> Asset:
    """Pin an asset by a local folder of models, under the asset's folder name or the hub's id.

    A declared revision stays, because a local file does not show its commit.

    Raises:
        UsageError: a file is missing, or differs from its pin.
    """
    folders = [name for name in (asset.folder, asset.hub) if name]
    found = next((name for name in folders if (models / name).is_dir()), None)
    if found is None:
        named = " or ".join(str(models / name) for name in folders)
        raise UsageError(f"the folder {named} does not exist; put the model's files there")
    folder, files = models / found, {name: model_file(asset, models, found, name) for name in asset.names}
    missing = [name for name, path in files.items() if not path.is_file()]
    if missing:
        raise UsageError(f"{folder} has no {', '.join(missing)}; add them, or correct the names of {asset.folder!r}")
    checked = {name: filesystem.sha256(path) for name, path in files.items()}
    for changed in _changed(asset, checked).values():
        raise UsageError(f"{folder}: {changed}; replace that file")
    return asset.pinned(asset.revision, checked)


def _git_hash(path: Path) -> str:
    """Return the hash by which git, and so the hub, knows a small file."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _changed(asset: Asset, checked: dict[str, str]) -> dict[str, str]:
    """Describe each pinned file that differs from its pin, by name."""
    return {
        name: f"{name} has the sha256 {checked[name]}, the system's file says {sha}"
        for name, sha in asset.sha256.items()
        if checked[name] != sha
    }


@contextlib.contextmanager
def _hub_errors(hub: str) -> Iterator[None]:
    """Turn every failure of the hub into an ImageError of one line, and a full disk into a StoreError."""
    from huggingface_hub import errors  # it imports an HTTP client, which takes 0.15 s

    # The HTTP client's own errors; the client depends on the hub library's version.
    transport: type[Exception] = errors.HfHubHTTPError.__mro__[1]
    try:
        yield
    except errors.GatedRepoError as error:
        raise ImageError(f"the hub restricts access to {hub}; log in ('hf auth login'), or {_REMEDY}") from error
    except errors.RepositoryNotFoundError as error:
        raise ImageError(
            f"the hub has no model {hub}; correct the name, log in for a private one, or {_REMEDY}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ImageError(f"the hub's {hub} has no such revision; correct it, or pin with --newest") from error
    except (transport, OSError, ValueError) as error:
        filesystem.raise_if_disk_full(f"the hub's {hub}", str(error))
        reason = one_line(str(error), 200) or type(error).__name__
        raise HubSilent(f"the hub does not answer for {hub}: {reason}; {HubSilent.remedy}") from error


def as_toml(asset: Asset) -> str:
    """Write an asset's tables as in its system's file, safe to show."""
    declared = asset.model_dump(exclude_none=True, exclude={"sha256", "files"})
    text = tomlkit.dumps({"assets": [{**declared, "sha256": _checksums(asset)}]})
    # They can only be in its strings, where this is TOML's own escape.
    return "".join(each if each == "\n" or escaped(each) == each else f"\\U{ord(each):08x}" for each in text)


def edited(system: System, pinned: Sequence[Asset]) -> tuple[Path, str]:
    """Return the file to hold a system's pins, and its new text.

    It is the system's own file if that is writable, else one of the same name in the user's folder.

    Raises:
        FileError: neither is writable, or the file has no ``[[assets]]`` tables.
    """
    path = system.file
    text = with_pins(path.read_text(encoding="utf-8"), pinned, path)
    if _writable(path):
        return path, text
    own = own_images_dir()
    if own is None:
        raise FileError(
            f"{path}: cannot be written; set HARNESS_IMAGES to a folder of your own, which then gets"
            f" {system.engine}/systems/{path.name}"
        )
    target = inside(own, f"{system.engine}/systems/{path.name}")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target, text


def with_pins(text: str, assets: Sequence[Asset], path: Path) -> str:
    """Pin the asset tables in the text of a system's file; comments and all other keys stay.

    Args:
        assets: pinned, in the file's order.
        path: names the file in errors.

    Raises:
        FileError: its assets are not written as ``[[assets]]`` tables.
    """
    document = tomlkit.parse(text)
    tables = document.get("assets")
    if not isinstance(tables, AoT) or len(tables) != len(assets):
        raise FileError(f"{path}: its [[assets]] cannot be edited safely; put the printed tables there by hand")
    for table, asset in zip(tables, assets, strict=True):
        _pin(table, asset)
    return tomlkit.dumps(document)


def _pin(table: Table, asset: Asset) -> None:
    """Set the revision and hashes of an asset's table."""
    checksums = table.get("sha256")
    comments = _pop_trailing(checksums if isinstance(checksums, Table) else table)
    for key in ("files", "sha256"):
        table.pop(key, None)
    _pop_trailing(table)
    if asset.revision is not None:
        table["revision"] = asset.revision
    table.add(tomlkit.nl())
    table["sha256"] = _checksums(asset)
    for comment in comments:
        table["sha256"].add(comment)


def _pop_trailing(table: Table) -> list[Item]:
    """Remove and return the blank lines and comments before the next table; the parser adds them to this one."""
    body = table.value.body
    trailing: list[Item] = []
    while body and body[-1][0] is None:
        trailing.insert(0, body.pop()[1])
    return trailing


def _checksums(asset: Asset) -> Table:
    table = tomlkit.table()
    for name, checksum in sorted(asset.sha256.items()):
        table.add(SingleKey(name, KeyType.Basic), checksum)
    return table


def _writable(path: Path) -> bool:
    """Check by trial that the file can be replaced: permissions do not show a read-only disk."""
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            return True
    except OSError:
        return False
