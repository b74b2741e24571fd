"""System images: what decides them, whether they are there, and how they are made.

A build gets everything in its context (wheels, assets, adapter, driver) and runs without network.
"""

from __future__ import annotations

import fcntl
import hashlib
import platform
import re
import tarfile
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import docker
from docker.errors import ImageNotFound

from harness import assets, base_image
from harness.catalog import System
from harness.engine import engine_errors
from harness.errors import ImageError
from harness.records import digest

RECIPE_LABEL = "harness.recipe"
SYSTEM_LABEL = "harness.system"

# The modules beside harness/measure/ that the in-image driver imports: standard library only.
_DRIVER_MODULES = ("__init__.py", "cgroup.py", "kernel_files.py", "records.py")

# Files of an engine's folder that people or the host read, and no image holds.
_HOST_ONLY = ("engine.toml", "requirements.in")


@dataclass(frozen=True)
class Image:
    """An image in the engine's store.  ``digest`` is its id (``sha256:...``), which names its content."""

    reference: str
    digest: str
    size_bytes: int


def recipe(system: System) -> str:
    """Hash of everything that decides the image's content; needs no engine and no download."""
    declared = (*system.engine_assets, *system.system_assets)
    return digest(
        {
            "base": base_image.recipe(),
            "engine": {name: _sha256(path) for name, path in _engine_files(system.engine_dir).items()},
            "driver": {name: _sha256(path) for name, path in driver_files().items()},
            "assets": {f"{asset.folder}/{name}": sha for asset in declared for name, sha in asset.sha256.items()},
        }
    )


def driver_files() -> dict[str, Path]:
    """The driver's files by their place on the import path (``harness/records.py`` ...)."""
    package = Path(__file__).resolve().parent
    files = [*(package / name for name in _DRIVER_MODULES), *sorted((package / "measure").rglob("*.py"))]
    return {path.relative_to(package.parent).as_posix(): path for path in files}


def find(client: docker.DockerClient, system: System) -> Image | None:
    """The image of exactly this recipe, or ``None`` when it has still to be made.

    Raises:
        EngineError: the Docker engine does not answer.
    """
    return _find(client, system, recipe(system))


def ensure(
    client: docker.DockerClient, system: System, *, cache: Path, models: Path | None, report: Callable[[str], None]
) -> Image:
    """The image of a system; what is missing (base, then the image) is made.

    Raises:
        ImageError: a part cannot be had, or the build fails; says which step, and where the log is.
        EngineError: the Docker engine does not answer.
    """
    wanted = recipe(system)
    present = _find(client, system, wanted)
    if present is not None:
        return present
    with _one_at_a_time(cache):
        # Another process may have built it meanwhile; a second build would move the tag to another digest.
        return _find(client, system, wanted) or _make(client, system, wanted, cache=cache, models=models, report=report)


def _make(
    client: docker.DockerClient,
    system: System,
    wanted: str,
    *,
    cache: Path,
    models: Path | None,
    report: Callable[[str], None],
) -> Image:
    if platform.machine() not in ("x86_64", "AMD64"):
        raise ImageError(f"system {system.name!r}: images are made for x86-64, this host is {platform.machine()}")
    wheelhouse = assets.wheels(system.engine_dir, system.extra_indexes, cache, report)
    files = assets.fetch(system, cache, models, report)
    with engine_errors():
        base = base_image.ensure(client, cache, report)
    report(f"building the image of {system.name}")
    with tempfile.TemporaryFile() as context:
        _write_context(context, system, wheelhouse, files)
        if recipe(system) != wanted:
            raise ImageError(f"system {system.name!r}: its files were edited while they were packed; run this again")
        context.seek(0)
        _build(client, system, wanted, base=base, context=context, cache=cache)
    made = _find(client, system, wanted)
    if made is None:
        raise ImageError(f"system {system.name!r}: the image that was just built is gone; run this again")
    return made


def _find(client: docker.DockerClient, system: System, wanted: str) -> Image | None:
    reference = _reference(system, wanted)
    with engine_errors():
        try:
            found = client.images.get(reference)
        except ImageNotFound:
            return None
    # The tag holds a part of the recipe only, and anyone may tag.
    if found.labels.get(RECIPE_LABEL) != wanted:
        return None
    return Image(reference, str(found.id), int(found.attrs["Size"]))


def _reference(system: System, wanted: str) -> str:
    return f"harness-{system.name}:{wanted[:12]}"


def _engine_files(folder: Path) -> dict[str, Path]:
    """The files of an engine's folder that go into the build, by name."""
    return {path.name: path for path in sorted(folder.iterdir()) if path.is_file() and path.name not in _HOST_ONLY}


def _write_context(target: IO[bytes], system: System, wheelhouse: Path, files: Path) -> None:
    """Write the build context as a tar.  Owners, modes and times are fixed: the builder's cache looks at them."""
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for folder in ("wheels", "assets", "assets/engine", "assets/system", "driver"):
            _add(tar, folder, None)
        for name, path in _engine_files(system.engine_dir).items():
            _add(tar, name, path)
        for wheel in sorted(wheelhouse.iterdir()):
            _add(tar, f"wheels/{wheel.name}", wheel)
        for part, declared in (("engine", system.engine_assets), ("system", system.system_assets)):
            for asset in declared:
                _add(tar, f"assets/{part}/{asset.folder}", None)
                for name in sorted(asset.sha256):
                    _add(tar, f"assets/{part}/{asset.folder}/{name}", files / asset.folder / name)
        for name, path in driver_files().items():
            _add(tar, f"driver/{name}", path)


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


def _build(
    client: docker.DockerClient, system: System, wanted: str, *, base: str, context: IO[bytes], cache: Path
) -> None:
    """Run the build; what it says is kept in the cache, up to a bound.

    Raises:
        ImageError: a step failed.
    """
    log = cache / "logs" / f"harness-{system.name}-{wanted[:12]}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    step, last, room = "the start", deque[str](maxlen=10), _LOG_CHARS
    with engine_errors(), log.open("w", encoding="utf-8") as sink:
        events = client.api.build(
            fileobj=context,
            custom_context=True,
            decode=True,
            tag=_reference(system, wanted),
            buildargs={"BASE": base},
            labels={RECIPE_LABEL: wanted, SYSTEM_LABEL: system.name},
            network_mode="none",
            rm=True,
            forcerm=True,
        )
        for line in _lines(events):
            sink.write(f"{line}\n"[: max(room, 0)])
            room -= len(line) + 1
            last.append(line)
            if line.startswith("Step "):
                step = line
                last.clear()
            if line.startswith(_FAILED):
                said = " | ".join(last)[-2000:]
                raise ImageError(f"system {system.name!r}: its image failed at {step[:80]!r}: {said}; its log is {log}")


# A step that prints without end fills neither the disk nor our memory.
_LOG_CHARS = 16 << 20
# Marks the line that ends a failed build.
_FAILED = "FAILED: "
_COLOURS = re.compile("\x1b\\[[0-9;]*m")


def _lines(events: Iterator[dict[str, Any]]) -> Iterator[str]:
    """The text of a build's event stream, line by line."""
    for event in events:
        if "error" in event:
            # The engine quotes the whole command here; the step names it already.
            yield _FAILED + " ".join(str(event["error"]).split()).rpartition("' returned a ")[2]
        plain = _COLOURS.sub("", str(event.get("stream", "")))
        yield from (line.rstrip() for line in plain.splitlines() if line.strip())


@contextmanager
def _one_at_a_time(cache: Path) -> Iterator[None]:
    """Let one process at a time fetch and build; the kernel lets go of the lock when a process dies."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
