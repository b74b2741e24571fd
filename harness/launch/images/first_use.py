"""Pins at first use: files that no system's file pins, at the declared revision, else the newest, are locked."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import FileError, ImageError, MissingWeights, UsageError, counted
from harness.launch.images.asset import Asset
from harness.launch.images.systems import System
from harness.results.pin_lock import LockedFiles, PinLock

if TYPE_CHECKING:
    from harness.launch.images.pins import HubSilent

log = logging.getLogger(__name__)

_SHORT = 12
# A source that refuses leaves the other one; a full disk stops the run.
_REFUSALS = (ImageError, UsageError, FileError)


def locked(system: System, lock: PinLock, place: Path) -> System:
    """Return a system with the pins that a lock holds for it and its components.

    Args:
        place: the lock's file, for messages.

    Raises:
        UsageError: the system's file has named other bytes since.
    """
    return _pinned(system, lambda name, asset: _locked(name, asset, lock, place))


@dataclass
class FirstUse:
    """Pins unpinned files of systems, and adds them to ``lock``; ``place`` is its file, ``models`` a local folder."""

    lock: PinLock
    place: Path
    models: Path | None
    _silent: HubSilent | None = field(default=None, init=False)

    def pin(self, system: System) -> System:
        """Pin a system and its components: by the lock, else by the hub, else by the local folder.

        Raises:
            UsageError: the lock and the system's file name different bytes.
            ImageError: neither the hub nor the local folder has the files, or they differ from what is known.
            StoreError: the disk is full.
        """
        return _pinned(locked(system, self.lock, self.place), self._look_up)

    def _look_up(self, name: str, asset: Asset) -> Asset:
        if not asset.unpinned:
            return asset
        known = self.lock.files(name, asset.folder)
        newest = known.newest if known else asset.revision is None
        if asset.revision is None and (earlier := self.lock.newest(asset.hub)):
            asset = asset.model_copy(update={"revision": earlier})  # one commit for all systems of a model
        found, source = self._found(asset)
        log.info(f"  {name}: {source}: {counted(len(found.sha256), 'file')} pinned at first use")
        files = LockedFiles(hub=found.hub, revision=found.revision, newest=newest, sha256=found.sha256)
        self.lock = self.lock.including(name, asset.folder, files)
        return found

    def _found(self, asset: Asset) -> tuple[Asset, str]:
        """Return an asset's pins and their source."""
        from harness.launch.images import pins  # the hub's client takes 0.3 s, and workers have none

        try:
            found = self._from_hub(asset)
            return found, f"{found.hub} at {str(found.revision)[:_SHORT]}, by the hub's checksums"
        except _REFUSALS as refused:
            kind = MissingWeights if isinstance(refused, MissingWeights) else ImageError
            if self.models is None:
                raise kind(str(refused)) from refused
            try:
                return pins.from_folder(asset, self.models), f"the folder {self.models} (the hub was not compared)"
            except _REFUSALS as error:
                reason = str(refused).partition("; ")[0]
                raise kind(f"{reason}, and {error}") from error

    def _from_hub(self, asset: Asset) -> Asset:
        from harness.launch.images import pins

        if asset.hub and self._silent:  # do not wait for it once more
            raise MissingWeights(f"the hub does not answer for {asset.hub} either; {self._silent.remedy}")
        try:
            return pins.from_hub(asset, newest=False)
        except pins.HubSilent as error:
            self._silent = error
            raise


def _pinned(system: System, pin: Callable[[str, Asset], Asset]) -> System:
    """Return a system with its own and its components' assets pinned, and a note of what was not pinned before."""

    def changed(part: System) -> dict[str, object]:
        assets = tuple(pin(part.base_name, asset) for asset in part.assets)
        pairs = zip(part.assets, assets, strict=True)
        new = [after for before, after in pairs if before.unpinned and not after.unpinned]
        return {"assets": assets, "first_use": tuple(dict.fromkeys((*part.first_use, *map(_note, new))))}

    return system.each_part(changed)


def _note(asset: Asset) -> str:
    at = f" at {asset.revision[:_SHORT]}" if asset.revision else ""
    return f"{asset.hub or asset.folder}{at}"


def _locked(name: str, asset: Asset, lock: PinLock, place: Path) -> Asset:
    """Pin an asset by the lock's entry, if there is one.

    Raises:
        UsageError: the asset names another model, commit or checksum.
    """
    files = lock.files(name, asset.folder)
    if files is None:
        return asset
    if difference := _difference(asset, files):
        raise UsageError(
            f"{place}: {name} was measured here with {difference}; choose another --results, or remove its entry"
            " there to measure it anew"
        )
    if not asset.unpinned:
        return asset
    missing = [each for each in asset.files if each not in files.sha256]
    known = {**asset.sha256, **{each: files.sha256[each] for each in asset.files if each in files.sha256}}
    changed = {"revision": files.revision or asset.revision, "sha256": known, "files": missing}
    return Asset.model_validate({**asset.model_dump(), **changed})


def _difference(asset: Asset, files: LockedFiles) -> str | None:
    """Return what an asset's declaration and the lock disagree about, in a few words."""
    if asset.hub != files.hub:
        return f"{files.hub or 'local files'}, its file now names {asset.hub or 'local files'}"
    for name, sha256 in asset.sha256.items():
        if (other := files.sha256.get(name, sha256)) != sha256:
            return f"{name} of sha256 {other[:_SHORT]}, its file now says {sha256[:_SHORT]}"
    if asset.unpinned and asset.revision and files.revision and asset.revision != files.revision:
        return f"{files.hub} at {files.revision[:_SHORT]}, its file now says {asset.revision[:_SHORT]}"
    return None
