"""Find and build the images of engines and systems.

A system has two images: its engine's (base, packages, code, driver), which all systems of the engine share, and its
own, with the system's weights as the last layer.  Systems of one engine with the same weights have one image, and so
share indexes.  Each platform has its own images; those of another platform than the Docker engine's are built under
emulation.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import docker
from docker.errors import ImageNotFound

from harness import filesystem
from harness.errors import ImageError
from harness.launch.docker_errors import engine_errors
from harness.launch.images import assets, base_image, emulation, platforms, recipes
from harness.launch.images.catalog import System
from harness.launch.images.recipes import engine_recipe, recipe
from harness.untrusted import MAX_TEXT, one_line

log = logging.getLogger(__name__)

RECIPE_LABEL = "harness.recipe"
ENGINE_LABEL = "harness.engine"

# Engines and systems share files: what one process downloads, another waits for.
_ASSETS_LOCK = "assets"

# Bounds the log of a step that prints without end.
_LOG_CHARS = 16 << 20
# Begins the line that ends a failed build.
_FAILURE = "FAILED: "
# Below this, a step's message about a full disk is about the engine's disk, not one in its container.
_ROOMY_BYTES = 2 << 30
_COLOURS = re.compile("\x1b\\[[0-9;]*m")


@dataclass(frozen=True)
class Image:
    """An image in the engine's store.  ``digest`` is its id (``sha256:...``), which names its content.

    ``platform`` is Docker's name (``linux/arm64``).
    """

    reference: str
    digest: str
    size_bytes: int
    platform: str = platforms.AMD64


def find(client: docker.DockerClient, system: System, *, platform: str | None = None) -> Image | None:
    """Return the image of a system's present recipe, or ``None``.

    Args:
        platform: by default the engine's own.

    Raises:
        EngineError: the Docker engine does not answer.
    """
    return _find(client, _Target.system(_on_platform(client, system, platform)))


def ensure(
    client: docker.DockerClient,
    system: System,
    *,
    cache: Path,
    models: Path | None,
    platform: str | None = None,
) -> Image:
    """Return the image of a system, after building what is missing: base, engine, components, image.

    Args:
        platform: by default the engine's own.

    Raises:
        ImageError: an input is missing, the system has no image for that platform, or the build fails; names the step
            and the log.
        EngineError: the Docker engine does not answer.
    """
    system = _on_platform(client, system, platform)
    present = _find(client, _Target.system(system))
    if present is not None:
        return present
    _check_made_for(system)
    emulation.ensure(client, system.platform, cache)
    return _Builder(client, cache, models).system(system)


def ensure_engine(
    client: docker.DockerClient,
    system: System,
    *,
    cache: Path,
    platform: str | None = None,
) -> Image:
    """Return the image of a system's engine, without weights; otherwise like :func:`ensure`."""
    system = _on_platform(client, system, platform)
    present = _find(client, _Target.engine(system))
    if present is not None:
        return present
    _check_made_for(system)
    emulation.ensure(client, system.platform, cache)
    return _Builder(client, cache, None).engine(system)


def _on_platform(client: docker.DockerClient, system: System, platform: str | None) -> System:
    return system.made_for(platform or emulation.native(client))


def _check_made_for(system: System) -> None:
    """Raise ImageError if the system has no image for its platform."""
    if system.platform not in platforms.PLATFORMS:
        known = " and ".join(platforms.PLATFORMS)
        raise ImageError(f"system {system.name!r}: images are made for {known}, this engine is {system.platform}")
    if system.lacking:
        raise ImageError(f"system {system.name!r}: {system.lacking}; take another platform (docs/guides/platforms.md)")


@dataclass(frozen=True)
class _Target:
    """An image to find or build: its name in the engine's store and its recipe."""

    repository: str
    recipe: str
    platform: str

    @property
    def reference(self) -> str:
        return f"{self.repository}:{platforms.with_platform(self.recipe[:12], self.platform)}"

    @staticmethod
    def system(system: System) -> _Target:
        return _Target(f"harness-{system.image}", recipe(system), system.platform)

    @staticmethod
    def engine(system: System) -> _Target:
        return _Target(f"harness-engine-{system.engine_image}", engine_recipe(system), system.platform)


class _Builder:
    """Builds images after those that they are made of."""

    def __init__(self, client: docker.DockerClient, cache: Path, models: Path | None) -> None:
        self._client = client
        self._cache = cache
        self._models = models

    def system(self, system: System) -> Image:
        target = _Target.system(system)
        # Check again under the lock: a second build would move the tag to another digest.
        with filesystem.cache_lock(self._cache, target.repository):
            return _find(self._client, target) or self._new_system(system, target)

    def engine(self, system: System) -> Image:
        target = _Target.engine(system)
        present = _find(self._client, target)
        if present is not None:  # without the lock, which a build of another recipe may hold
            return present
        with filesystem.cache_lock(self._cache, target.repository):
            return _find(self._client, target) or self._new_engine(system, target)

    def _new_system(self, system: System, target: _Target) -> Image:
        with filesystem.cache_lock(self._cache, _ASSETS_LOCK):
            files = assets.fetch(system.name, system.assets, self._cache, self._models)
        images = [self.system(component) for component in system.components]
        arguments = {"ENGINE": self.engine(system).reference}
        arguments |= {name: image.reference for name, image in zip(("FIRST", "SECOND"), images, strict=False)}
        if system.prepare and system.assets:
            arguments["PREPARE"] = system.prepare
        if images:
            arguments["NAME"] = system.engine
        components = recipes.components_json(system, [self._environment(image) for image in images])
        log.info(f"building the image of {system.image} for {system.platform}")
        with tempfile.TemporaryFile() as packed:
            recipes.write_system_context(packed, system, files, components)
            self._check_same(f"system {system.name!r}", recipe(system), target)
            packed.seek(0)
            build_image(
                self._client,
                f"system {system.name!r}",
                target.reference,
                context=packed,
                arguments=arguments,
                # Without the system's name, so that equal content is an equal image.
                labels={RECIPE_LABEL: target.recipe},
                cache=self._cache,
                platform=system.platform,
            )
        return self._image(f"system {system.name!r}", target)

    def _new_engine(self, system: System, target: _Target) -> Image:
        what, platform = f"engine {system.engine!r}", system.platform
        wheels = {
            lock: assets.wheels(lock, system.extra_indexes, self._cache, platform)
            for lock in (*system.shared_locks.values(), system.lock)
        }
        with filesystem.cache_lock(self._cache, _ASSETS_LOCK):
            files = assets.fetch(system.engine, system.engine_assets, self._cache, self._models)
        with engine_errors():
            bases = {"BASE": "base", **({"TOOLCHAIN": "toolchain"} if system.toolchain else {})}
            arguments = {
                key: base_image.ensure(self._client, self._cache, name, platform) for key, name in bases.items()
            }
        log.info(f"building the image of the engine {system.engine_image} for {platform}")
        with tempfile.TemporaryFile() as packed:
            recipes.write_engine_context(packed, system, wheels, files)
            self._check_same(what, engine_recipe(system), target)
            packed.seek(0)
            build_image(
                self._client,
                what,
                target.reference,
                context=packed,
                arguments=arguments,
                labels={RECIPE_LABEL: target.recipe, ENGINE_LABEL: system.engine},
                cache=self._cache,
                platform=platform,
            )
        return self._image(what, target)

    def _environment(self, image: Image) -> dict[str, str]:
        """Return the environment of an image's processes."""
        with engine_errors():
            declared = self._client.images.get(image.reference).attrs["Config"]["Env"] or []
        return dict(variable.partition("=")[::2] for variable in declared)

    def _check_same(self, what: str, now: str, target: _Target) -> None:
        if now != target.recipe:
            raise ImageError(f"{what}: its files were edited while they were packed; run this again")

    def _image(self, what: str, target: _Target) -> Image:
        made = _find(self._client, target)
        if made is None:
            raise ImageError(f"{what}: the image that was just built is gone; run this again")
        return made


def _find(client: docker.DockerClient, target: _Target) -> Image | None:
    with engine_errors():
        try:
            found = client.images.get(target.reference)
        except ImageNotFound:
            return None
    # The tag holds only a part of the recipe, and any process may tag.
    if found.labels.get(RECIPE_LABEL) != target.recipe:
        return None
    return Image(target.reference, str(found.id), int(found.attrs["Size"]), target.platform)


def build_image(
    client: docker.DockerClient,
    what: str,
    tag: str,
    *,
    context: IO[bytes],
    arguments: dict[str, str],
    labels: dict[str, str],
    cache: Path,
    platform: str | None = None,
) -> None:
    """Build ``tag`` from a context.

    Args:
        what: names the image in messages (``system 'bm25'``).
        cache: its folder ``logs/`` takes the log.
        platform: by default the engine's own.

    Raises:
        ImageError: a step failed; quotes its last lines and names the log.
        EngineError: the Docker engine does not answer.
        StoreError: the engine's disk is full.
    """
    log_file = cache / "logs" / f"{tag.replace(':', '-')}.log"
    log_file.parent.mkdir(parents=True, exist_ok=True)
    step, last, room, failed = "the start", deque[str](maxlen=10), _LOG_CHARS, False
    with engine_errors(), log_file.open("w", encoding="utf-8") as sink:
        events = client.api.build(
            fileobj=context,
            custom_context=True,
            decode=True,
            tag=tag,
            buildargs=arguments,
            labels=labels,
            platform=platform,
            network_mode="none",
            # Untrusted weights may claim any size: do not let them take the host's memory.
            container_limits={"memory": _half_of_memory(), "memswap": _half_of_memory()},
            rm=True,
            forcerm=True,
        )
        for line in _log_lines(events):
            sink.write(f"{line}\n"[: max(room, 0)])
            room -= len(line) + 1
            if failed:  # read on, so that no connection stays open
                continue
            last.append(line)
            if line.startswith("Step "):
                step = line
                last.clear()
            failed = line.startswith(_FAILURE)
    if failed:
        words = "\n".join(last)
        if filesystem.reports_full_disk(words):
            filesystem.raise_if_disk_full(what, words if _little_room(client) else last[-1])
        output = " | ".join(last)[-2000:]
        raise ImageError(f"{what}: its image failed at {step[:80]!r}: {output}; its log is {log_file}")


def _little_room(client: docker.DockerClient) -> bool:
    """Check whether the engine's disk is this host's and nearly full."""
    with engine_errors():
        root = Path(client.info()["DockerRootDir"])
    return root.is_dir() and shutil.disk_usage(root).free < _ROOMY_BYTES


def _half_of_memory() -> int:
    """Return half of the host's memory in bytes, the limit of index builds too."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _log_lines(events: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Yield the text of a build's event stream, line by line."""
    for event in events:
        if "error" in event:
            # Without the command, which the engine quotes in full and the step names already.
            yield _FAILURE + one_line(" ".join(str(event["error"]).split()).rpartition("' returned a ")[2], MAX_TEXT)
        text = _COLOURS.sub("", str(event.get("stream", "")))
        yield from (one_line(line.rstrip(), MAX_TEXT) for line in text.splitlines() if line.strip())
