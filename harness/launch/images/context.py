"""Build contexts: everything that the build of an image may see, as a tar.

Owners, modes and times are fixed: the builder's cache looks at them.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from harness.launch.images import recipes
from harness.launch.images.catalog import System
from harness.launch.images.system_files import Asset
from harness.records import Scalar


def engine(target: IO[bytes], system: System, wheels: Mapping[Path, Path], files: Path) -> None:
    """The context of an engine's image: its folder, wheels, shared code, assets and the driver.

    Args:
        wheels: folder of wheels by the lock that names them, of the engine and of its shared code.
        files: folder of the engine's assets.
    """
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for folder in ("wheels", "assets", "assets/engine", "shared", "packages", "driver"):
            _add(tar, folder, None)
        for name, path in recipes.engine_files(system).items():
            _add(tar, name, path)
        _add_all(tar, "wheels", wheels[system.lock])
        for name, lock in system.shared_locks.items():
            for folder in (f"packages/{name}", f"packages/{name}/wheels"):
                _add(tar, folder, None)
            _add(tar, f"packages/{name}/requirements.lock", lock)
            _add_all(tar, f"packages/{name}/wheels", wheels[lock])
        _add_assets(tar, "assets/engine", system.engine_assets, files)
        for name, path in recipes.shared_files(system).items():
            _add(tar, f"shared/{name}", path)
        for name, path in recipes.driver_files().items():
            _add(tar, f"driver/{name}", path)


def system(target: IO[bytes], system: System, files: Path, components: str) -> None:
    """The context of a system's image: assets, parameters that shape them, and what is told of its components."""
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, "Dockerfile", recipes.dockerfile(system))
        _add(tar, "assets", None)
        _add_assets(tar, "assets", system.system_assets, files)
        _add_text(tar, "system.json", parameters(system))
        _add_text(tar, "components.json", components)


def parameters(system: System) -> str:
    """What ``prepare`` is told, as JSON: the parameters that it declares to read."""
    chosen = set(system.prepared_with)

    def of(params: dict[str, Scalar]) -> dict[str, Scalar]:
        return {name: value for name, value in params.items() if name in chosen}

    told = {"build_params": of(system.build_params), "search_params": of(system.search_params)}
    return json.dumps(told, indent=2, sort_keys=True)


def _add_assets(tar: tarfile.TarFile, place: str, declared: tuple[Asset, ...], files: Path) -> None:
    for asset in declared:
        _add(tar, f"{place}/{asset.folder}", None)
        for name in sorted(asset.sha256):
            _add(tar, f"{place}/{asset.folder}/{name}", files / asset.folder / name)


def _add_all(tar: tarfile.TarFile, place: str, folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        _add(tar, f"{place}/{path.name}", path)


def _add(tar: tarfile.TarFile, name: str, path: Path | None) -> None:
    """Add a file, or a folder when ``path`` is ``None``."""
    entry = tarfile.TarInfo(name)
    if path is None:
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(entry)
        return
    entry.mode, entry.size = 0o644, path.stat().st_size
    with path.open("rb") as file:
        tar.addfile(entry, file)


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry, raw = tarfile.TarInfo(name), text.encode("utf-8")
    entry.mode, entry.size = 0o644, len(raw)
    tar.addfile(entry, io.BytesIO(raw))
