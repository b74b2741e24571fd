"""The inputs of an image: its recipe, a hash that needs no engine or download, and its build contexts.

A context is a tar of everything that the build may see.  Owners, modes and times in it are fixed, because the builder's
cache compares them.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TypeAlias

from harness import filesystem
from harness.config import page
from harness.containment import files_inside, inside
from harness.driver.records import PROTOCOL_VERSION, digest
from harness.errors import FileError
from harness.launch.images import base_image, driver_code
from harness.launch.images.asset import Asset, checksums
from harness.launch.images.catalog import images_dir
from harness.launch.images.dockerfile import IMAGE_ARGUMENTS, Dockerfile, shared_stages
from harness.launch.images.platforms import AMD64
from harness.launch.images.systems import PARAMETERS, System

# Files, or their contents, by their path in a tar; None is a folder.
Entries: TypeAlias = dict[str, Path | bytes | None]
# The limit of an engine's own files, and of the code that it shares.  Weights and packages come from elsewhere.
MOST_CODE_BYTES = 512 << 20

# Files of an engine's folder for people or the host.
_HOST_ONLY = re.compile(r"engine\.toml|requirements(-[a-z0-9]+)*(@[a-z0-9._-]+)?\.in")
_GUIDE = page("docs/guides/add-a-system.md")
_LOCK = re.compile(r"requirements(-[a-z0-9]+)*(@[a-z0-9._-]+)?\.lock")


def engine_recipe(system: System, *, lean: bool = False) -> str:
    """Hash all inputs of the image of a system's engine; ``lean`` is the one of its stage of that name.

    The driver counts by its protocol: most changes of its code leave timings as they are.
    """
    decides = {
        "base": base_image.recipe("base"),
        "engine": _hashes(engine_files(system)),
        "shared": _hashes(shared_files(system)),
        "packages": _hashes(system.shared_locks),
        "stages": _hashes(shared_stages(system.shared)),
        "driver": PROTOCOL_VERSION,
        "assets": checksums(system.engine_assets),
    }
    if system.platform != AMD64:  # the first platform, whose recipes stay the same
        decides["platform"] = system.platform
    if debs := _hashes(system.debian_locks):
        decides["debian"] = debs
    if system.toolchain:
        decides["toolchain"] = base_image.recipe("toolchain")
    if lean:
        decides["stage"] = "lean"
    if system.service and system.service.image:
        decides["service"] = system.service.model_dump(mode="json")
    return digest(decides)


def recipe(system: System) -> str:
    """Hash all inputs of a system's image."""
    return digest(
        {
            "engine": engine_recipe(system, lean=system.lean),
            "dockerfile": filesystem.sha256(dockerfile(system)),
            "assets": checksums(system.assets),
            "prepare": [system.prepare, system.prepared_with] if system.assets else None,
            "components": [[component.name, component.engine, recipe(component)] for component in system.components],
        }
    )


def dockerfile(system: System) -> Path:
    """Return the file of ``images/templates/`` that makes a system's image of its engine's."""
    if system.components:
        kind = "joined"
    elif not system.assets:
        kind = "plain"
    else:
        kind = "prepared" if system.prepare else "assets"
    return images_dir() / "templates" / f"{kind}.Dockerfile"


def engine_files(system: System) -> dict[str, Path]:
    """Return the files of an engine's folder that go into its build, by name: top files and Python packages.

    Raises:
        FileError: a file that every engine has is missing.
    """
    folder = system.engine_dir
    for path in (folder / "Dockerfile", *system.shared_locks.values(), system.lock):
        if not path.is_file():
            raise FileError(f"{path}: no such file; the engine {system.engine!r} needs it: see {_GUIDE}")
    files = {
        path.name: inside(folder, path.name)
        for path in filesystem.without_litter(sorted(folder.iterdir()))
        if path.is_file()
    }
    packages = sorted(path.parent.name for path in folder.glob("*/__init__.py"))
    modules = (
        path
        for package in packages
        for path in filesystem.without_litter(files_inside(inside(folder, package), "*.py"))
    )
    files |= {path.relative_to(folder).as_posix(): path for path in modules}
    own = {name: path for name, path in files.items() if not (_HOST_ONLY.fullmatch(name) or _LOCK.fullmatch(name))}
    return {**own, "requirements.lock": system.lock}


def engine_dockerfile(system: System, arguments: Mapping[str, str]) -> Dockerfile:
    """Return the Dockerfile of an engine as a build with these arguments runs it.

    Raises:
        ImageError: it would fetch something, or cannot be read.
    """
    return Dockerfile.of(system.engine_dir / "Dockerfile", system.shared).for_build(arguments)


def needed(locks: Mapping[str, Path], system: System, *, lean: bool) -> dict[str, Path]:
    """Return the locks of shared code, by folder, whose packages an engine's image, or its lean one, copies.

    Raises:
        ImageError: as :func:`engine_dockerfile`.
    """
    built = engine_dockerfile(system, dict.fromkeys(IMAGE_ARGUMENTS, "any") | ({"STAGE": "lean"} if lean else {}))
    return {name: lock for name, lock in locks.items() if built.copies(f"packages/{name}")}


def shared_files(system: System) -> dict[str, Path]:
    """Return the files of code that the engine shares with others, by their path on the import path."""
    return {
        path.relative_to(folder.parent).as_posix(): path
        for folder in system.shared
        for path in filesystem.without_litter(files_inside(folder, "*.py"))
    }


def code_files(system: System) -> dict[str, Path | bytes]:
    """Return the files of an engine, its shared code and the driver, by their path in a context."""
    shared = {f"shared/{name}": path for name, path in shared_files(system).items()}
    driver = {f"driver/{name}": path for name, path in driver_code.files().items()}
    return {**engine_files(system), **shared, **driver}


def _hashes(files: dict[str, Path]) -> dict[str, str]:
    """Hash the files of a folder.

    Raises:
        FileError: they are larger than code is.
    """
    size = sum(path.stat().st_size for path in files.values())
    if size > MOST_CODE_BYTES:
        folder = max(files.values(), key=lambda path: path.stat().st_size).parent
        text = f"has {size >> 20:,} MiB of files for the build; the limit is {MOST_CODE_BYTES >> 20} MiB"
        raise FileError(f"{folder}: {text}; declare weights as assets, and move other files out")
    return {name: filesystem.sha256(path) for name, path in files.items()}


def components_json(system: System, environments: list[dict[str, str]]) -> str:
    """Write ``components.json``, from which a joining engine starts its components.

    Args:
        environments: the environment of each component's own image, in order.
    """
    components = [
        {
            "name": component.name,
            "engine": component.engine,
            # Detects two engines that put their adapters into one place.
            "adapter_sha256": filesystem.sha256(_adapter(component)),
            "environment": environment,
        }
        for component, environment in zip(system.components, environments, strict=True)
    ]
    return json.dumps(components, indent=2, sort_keys=True)


def _adapter(component: System) -> Path:
    path = inside(component.engine_dir, "adapter.py")
    if not path.is_file():
        raise FileError(f"{path}: no such file; a component needs it: see {_GUIDE}")
    return path


def engine_context(system: System, fetched: Mapping[Path, Path], files: Path, arguments: Mapping[str, str]) -> Entries:
    """Return the context of an engine's image: its folder, wheels, shared code, assets and the driver.

    Args:
        fetched: folders of wheels and of Debian's files by the lock that names them, the engine's and the
            :func:`needed` ones of its shared code.
        files: folder of the engine's assets.
        arguments: the build arguments, by which the Dockerfile is checked.

    Raises:
        ImageError: the Dockerfile would fetch something, or cannot be read.
    """
    folders = ("wheels", "assets", "assets/engine", "shared", "packages", "driver")
    entries: Entries = {**dict.fromkeys(folders), **code_files(system)}
    entries["Dockerfile"] = engine_dockerfile(system, arguments).text.encode()
    entries |= _files("wheels", fetched[system.lock])
    lean = arguments.get("STAGE") == "lean"
    for name, lock in needed(system.shared_locks, system, lean=lean).items():
        package = f"packages/{name}"
        entries |= {package: None, f"{package}/wheels": None, f"{package}/requirements.lock": lock}
        entries |= _files(f"{package}/wheels", fetched[lock])
    for name, lock in needed(system.debian_locks, system, lean=lean).items():
        entries |= {f"packages/{name}": None, f"packages/{name}/debs": None}
        entries |= _files(f"packages/{name}/debs", fetched[lock])
    return entries | _assets("assets/engine", system.engine_assets, files)


def system_context(system: System, files: Path, components: str, arguments: Mapping[str, str]) -> Entries:
    """Return the context of a system's image: its assets, their parameters, and its components."""
    text = Dockerfile.of(dockerfile(system)).for_build(arguments).text
    entries: Entries = {"Dockerfile": text.encode(), "assets": None}
    entries |= {"system.json": prepare_parameters(system).encode(), "components.json": components.encode()}
    return entries | _assets("assets", system.assets, files)


def prepare_parameters(system: System) -> str:
    """Write the parameters that ``prepare`` declares to read, as JSON."""
    read = system.prepared_with
    parameters = {kind: {name: read[name] for name in getattr(system, kind) if name in read} for kind in PARAMETERS}
    return json.dumps(parameters, indent=2, sort_keys=True)


def _assets(folder: str, declared: tuple[Asset, ...], files: Path) -> dict[str, Path | None]:
    """Return the entries of assets, each of them in a folder."""
    folders = dict.fromkeys(f"{folder}/{asset.folder}" for asset in declared)
    return {**folders, **{f"{folder}/{name}": files / name for name in checksums(declared)}}


def _files(name: str, folder: Path) -> dict[str, Path]:
    return {f"{name}/{path.name}": path for path in sorted(folder.iterdir())}


def write_tar(target: IO[bytes], entries: Entries) -> None:
    """Write a tar without owners and times."""
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            if content is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
                continue
            entry.mode = 0o644
            with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
                entry.size = file.seek(0, io.SEEK_END)
                file.seek(0)
                tar.addfile(entry, file)
