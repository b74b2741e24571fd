"""What decides an image: its recipe, a hash that needs no engine and no download."""

from __future__ import annotations

import json
import re
from pathlib import Path

import harness
from harness import filesystem
from harness.launch.images import base_image
from harness.launch.images.catalog import System, images_dir
from harness.launch.images.platforms import AMD64
from harness.launch.images.system_files import Asset
from harness.records import digest

# The modules beside harness/driver/ that the driver imports: standard library only.
_DRIVER_MODULES = ("__init__.py", "records.py")

# Files of an engine's folder that people or the host read, and no image holds.
_HOST_ONLY = re.compile(r"engine\.toml|requirements(-[a-z0-9]+)*\.in")
_LOCK = re.compile(r"requirements(-[a-z0-9]+)*\.lock")


def engine_recipe(system: System) -> str:
    """Hash of everything that decides the image of the system's engine, which all its systems share."""
    decides = {
        "base": base_image.recipe("base"),
        "engine": _hashes(engine_files(system)),
        "shared": _hashes(shared_files(system)),
        "packages": _hashes(system.shared_locks),
        "driver": _hashes(driver_files()),
        "assets": _declared(system.engine_assets),
    }
    if system.platform != AMD64:  # which was the only one at first: its recipes stay what they were
        decides["platform"] = system.platform
    if system.toolchain:
        decides["toolchain"] = base_image.recipe("toolchain")
    return digest(decides)


def recipe(system: System) -> str:
    """Hash of everything that decides the system's image."""
    return digest(
        {
            "engine": engine_recipe(system),
            "dockerfile": filesystem.sha256(dockerfile(system)),
            "assets": _declared(system.system_assets),
            "prepare": [system.prepare, system.prepared_with] if system.system_assets else None,
            "components": [[each.name, each.engine, each.resumable_builds, recipe(each)] for each in system.components],
        }
    )


def dockerfile(system: System) -> Path:
    """How the system's image is made of its engine's: a file of ``images/templates/``."""
    if system.components:
        kind = "joined"
    elif not system.system_assets:
        kind = "plain"
    else:
        kind = "prepared" if system.prepare else "assets"
    return images_dir() / "templates" / f"{kind}.Dockerfile"


def engine_files(system: System) -> dict[str, Path]:
    """Return the files of an engine's folder that go into its build, by name: top files and Python packages."""
    folder = system.engine_dir
    files = {path.name: path for path in sorted(folder.iterdir()) if path.is_file()}
    packages = sorted(path.parent for path in folder.glob("*/__init__.py"))
    files |= {path.relative_to(folder).as_posix(): path for each in packages for path in sorted(each.rglob("*.py"))}
    own = {name: path for name, path in files.items() if not (_HOST_ONLY.fullmatch(name) or _LOCK.fullmatch(name))}
    return {**own, "requirements.lock": system.lock}


def shared_files(system: System) -> dict[str, Path]:
    """Return the files of code that the engine shares with others, by their path on the import path."""
    files = (path for folder in system.shared for path in sorted(folder.rglob("*.py")))
    return {path.relative_to(_shared_root(path, system)).as_posix(): path for path in files}


def driver_files() -> dict[str, Path]:
    """The driver's files by their place on the import path (``harness/records.py`` ...)."""
    package = Path(harness.__file__).resolve().parent
    files = [*(package / name for name in _DRIVER_MODULES), *sorted((package / "driver").rglob("*.py"))]
    return {path.relative_to(package.parent).as_posix(): path for path in files}


def _shared_root(path: Path, system: System) -> Path:
    return next(folder.parent for folder in system.shared if path.is_relative_to(folder))


def _hashes(files: dict[str, Path]) -> dict[str, str]:
    return {name: filesystem.sha256(path) for name, path in files.items()}


def _declared(assets: tuple[Asset, ...]) -> dict[str, str]:
    return {f"{asset.folder}/{name}": sha for asset in assets for name, sha in asset.sha256.items()}


# image, or beside its adapter.


def told(system: System, environments: list[dict[str, str]]) -> str:
    """The file's text.

    Args:
        environments: of each component in turn, the variables that its own image gives its processes.
    """
    components = [
        {
            "name": each.name,
            "engine": each.engine,
            # Two engines that put theirs into one place would else be one, unnoticed.
            "adapter_sha256": filesystem.sha256(each.engine_dir / "adapter.py"),
            "resumable_builds": each.resumable_builds,
            "environment": environment,
        }
        for each, environment in zip(system.components, environments, strict=True)
    ]
    return json.dumps(components, indent=2, sort_keys=True)
