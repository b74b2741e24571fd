"""Find and build the images of engines and systems.

A system has two images: its engine's (base, packages, code, driver), which all systems of the engine share, and its
own, with the system's weights as the last layer.  Weights that are prepared once may need fewer packages afterwards:
such a system's image is made from a lean image of its engine.  Systems of one engine with the same weights have one
image, and so share indexes.  Each platform has its own images.  The Docker engine builds images for other platforms
than its own under emulation.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any

import docker
import psutil
from docker.errors import ImageNotFound

from harness import filesystem
from harness.config import page
from harness.driver.records import digest
from harness.errors import ImageError
from harness.launch.connection import engine_errors
from harness.launch.images import assets, base_image, debian, driver_code, emulation, engine_build, platforms, recipes
from harness.launch.images.asset import Asset, checksums
from harness.launch.images.dockerfile import Dockerfile
from harness.launch.images.engine_build import BuildLimits
from harness.launch.images.recipes import engine_recipe, recipe
from harness.launch.images.systems import WHOLE_ENGINE, System
from harness.progress import Progress, silent
from harness.untrusted import MAX_TEXT, one_line

log = logging.getLogger(__name__)

RECIPE_LABEL = "harness.recipe"
ENGINE_LABEL = "harness.engine"
# Hash of the driver's code.  A system's image inherits it from its engine's.
DRIVER_LABEL = "harness.driver"

# Bounds the log of a step that prints without end.
_LOG_CHARS = 16 << 20
# Begins the line that ends a failed build.
_FAILURE = "FAILED: "
# Below this, a step's message about a full disk is about the engine's disk, not one in its container.
_ROOMY_BYTES = 2 << 30
_LAST_LINES = 5
# Docker counts the steps of all stages, Podman of each, which it names first.
_STEP = re.compile(r"(?:Step|(?P<stage>\[\d+/\d+\] )?STEP) (?P<number>\d+)/(?P<all>\d+) ?: ")
# The exit code of a step, in the words of Docker and of Podman.
_EXIT = r" (?:code:|exit status) "
_COLOURS = re.compile("\x1b\\[[0-9;]*m")
# The engine's words when somebody removed the image of a step that it took from its cache.
_STEP_GONE = re.compile("(failed to get digest|unknown parent image ID|No such image:) sha256:")


@dataclass(frozen=True)
class Image:
    """An image in the engine's store.  ``digest`` is its id (``sha256:...``), which names its content.

    ``recipe`` is the hash of its inputs and ``driver`` the hash of the driver's code in it.  ``platform`` is Docker's
    name (``linux/arm64``).
    """

    reference: str
    recipe: str
    digest: str
    size_bytes: int
    driver: str
    platform: str = platforms.AMD64


class _NeedsWholeEngine(ImageError):
    """A system's files cannot be made ready in the lean image of its engine."""


class _StepGone(ImageError):
    """A step's image was removed during the build."""


def _check_made_for(system: System) -> None:
    """Raise ImageError if the system has no image for its platform."""
    if system.platform not in platforms.PLATFORMS:
        names = " and ".join(platforms.PLATFORMS)
        raise ImageError(f"system {system.name!r}: images are made for {names}, this engine is {system.platform}")
    if system.lacking:
        other = f"take another platform or hardware profile ({page('docs/guides/platforms.md')})"
        raise ImageError(f"system {system.name!r}: {system.lacking}; {other}")


@dataclass(frozen=True)
class ImageTarget:
    """An image to find or build, and its names in the engine's store and in messages."""

    system: System
    hash_inputs: Callable[[System], str]
    repository: str
    owner: str
    image: str
    dockerfile: Path
    lean: bool = False
    shared: tuple[Path, ...] = ()

    @cached_property
    def recipe(self) -> str:
        """Return the hash of all inputs."""
        return self.hash_inputs(self.system)

    @property
    def reference(self) -> str:
        """Return its tag."""
        return f"{self.repository}:{platforms.with_platform(self.recipe[:12], self.system.platform)}"

    @staticmethod
    def of_system(system: System) -> ImageTarget:
        """Name a system's image."""
        owner, file = f"system {system.name!r}", recipes.dockerfile(system)
        return ImageTarget(system, recipe, f"harness-{system.image}", owner, system.image, file)

    @staticmethod
    def of_engine(system: System, *, lean: bool = False) -> ImageTarget:
        """Name the image of a system's engine, whole or lean."""
        name = f"{system.engine_image}-lean" if lean else system.engine_image
        owner, file = f"engine {system.engine!r}", system.engine_dir / "Dockerfile"
        hash_inputs, shown = partial(engine_recipe, lean=lean), f"the engine {name}"
        repository = f"harness-engine-{name}"
        return ImageTarget(system, hash_inputs, repository, owner, shown, file, lean=lean, shared=system.shared)


@dataclass(frozen=True)
class ImageBuilder:
    """Finds images in an engine's store, and builds missing ones after the images below them.

    Args:
        models: a local folder of models, besides the hub.
        platform: of the images; the engine's own if not given.
        limits: of each build.
        progress: takes the steps of each build.
        measures_alike: takes the driver's hash of an image that is there; another is built again.
    """

    client: docker.DockerClient
    cache: Path
    models: Path | None = None
    platform: str | None = None
    limits: BuildLimits = field(default_factory=BuildLimits)
    progress: Progress = silent
    measures_alike: Callable[[str | None], bool] = driver_code.measures_alike

    def find(self, system: System) -> Image | None:
        """Return the image of a system's present recipe, or ``None``; its driver may be one that measures alike.

        Raises:
            EngineError: the Docker engine does not answer.
        """
        return self._find(ImageTarget.of_system(self._on_platform(system)))

    def ensure(self, system: System) -> Image:
        """Return the image of a system, after building what is missing: base, engine, components, image.

        Raises:
            ImageError: an input is missing, the system has no image for that platform, or the build fails; names the
                step and the log.
            EngineError: the Docker engine does not answer.
        """
        return self._ensure(ImageTarget.of_system(self._on_platform(system)), self._new_system)

    def ensure_engine(self, system: System, *, lean: bool = False) -> Image:
        """Return the image of a system's engine, without weights; otherwise like :meth:`ensure`."""
        return self._ensure(ImageTarget.of_engine(self._on_platform(system), lean=lean), self._new_engine)

    def _on_platform(self, system: System) -> System:
        return system.for_platform(system.on_platform or self.platform or emulation.native(self.client))

    def _find(self, target: ImageTarget) -> Image | None:
        with engine_errors():
            try:
                image = self.client.images.get(target.reference)
            except ImageNotFound:
                return None
        # The tag holds only a part of the recipe, and any process may tag an image.
        if image.labels.get(RECIPE_LABEL) != target.recipe:
            return None
        driver = str(image.labels.get(DRIVER_LABEL))
        if not self.measures_alike(driver):
            return None
        size_bytes, platform = int(image.attrs["Size"]), target.system.platform
        return Image(target.reference, target.recipe, str(image.id), size_bytes, driver, platform)

    def _ensure(self, target: ImageTarget, build: Callable[[ImageTarget], Image]) -> Image:
        present = self._find(target)
        if present is not None:  # without the lock, which a build of another recipe may hold
            return present
        _check_made_for(target.system)
        emulation.ensure(self.client, target.system.platform, self.cache)
        # Check again under the lock: a second build would move the tag to another digest.
        with filesystem.cache_lock(self.cache, target.repository):
            return self._find(target) or build(target)

    def _new_system(self, target: ImageTarget) -> Image:
        system = target.system
        files = self._assets(system.name, system.assets)
        images = [self.ensure(component) for component in system.components]
        components = recipes.components_json(system, [self._environment(image) for image in images])

        def build(engine: Image, **further: str) -> Image:
            arguments = {"ENGINE": engine.reference, **further}
            context = recipes.system_context(system, files, components, arguments)
            # No label has the system's name, so that equal content is an equal image.  A joined image has its
            # engine's driver upon layers of its components.
            return self._build(target, context, arguments, {DRIVER_LABEL: engine.driver} if images else {})

        if images:
            names = zip(("FIRST", "SECOND"), images, strict=False)
            joined = {name: image.reference for name, image in names}
            # Adapters of components may need what an older driver lacks.
            current = replace(self, measures_alike=driver_code.is_current)
            return build(current.ensure_engine(system), NAME=system.engine, **joined)
        if not system.prepare or not system.assets:
            return build(self.ensure_engine(system))
        runtime = self.ensure_engine(system, lean=system.lean)
        prepared = {"PREPARE": system.prepare, "RUNTIME": runtime.reference}
        if system.lean and system.prepare_lean:
            try:
                return build(runtime, **prepared)
            except _NeedsWholeEngine:
                log.info(f"{system.name}: the lean engine cannot make its files ready; taking the whole one")
        return build(self.ensure_engine(system) if system.lean else runtime, **prepared)

    def _new_engine(self, target: ImageTarget) -> Image:
        system = target.system
        fetched = {
            lock: assets.wheels(lock, system.extra_indexes, self.cache, system.platform)
            for lock in (*recipes.needed(system.shared_locks, system, lean=target.lean).values(), system.lock)
        }
        debs = recipes.needed(system.debian_locks, system, lean=target.lean)
        fetched |= {lock: debian.fetch(lock, self.cache) for lock in debs.values()}
        files = self._assets(system.engine, system.engine_assets)
        names = ("base", "toolchain") if system.toolchain else ("base",)
        with engine_errors():
            arguments = {
                name.upper(): base_image.ensure(self.client, self.cache, name, system.platform) for name in names
            }
        if target.lean:
            arguments["STAGE"] = "lean"
        context = recipes.engine_context(system, fetched, files, arguments)
        labels = {ENGINE_LABEL: system.engine, DRIVER_LABEL: driver_code.code_hash()}
        return self._build(target, context, arguments, labels)

    def _assets(self, owner: str, files: tuple[Asset, ...]) -> Path:
        # Engines and systems share files: what one downloads, another waits for.
        with filesystem.cache_lock(self.cache, f"assets-{digest(checksums(files))[:16]}"):
            return assets.fetch(owner, files, self.cache, self.models)

    def _environment(self, image: Image) -> dict[str, str]:
        """Return the environment of an image's processes."""
        with engine_errors():
            declared = self.client.images.get(image.reference).attrs["Config"]["Env"] or []
        return dict(variable.partition("=")[::2] for variable in declared)

    def _build(
        self, target: ImageTarget, context: recipes.Entries, arguments: dict[str, str], labels: dict[str, str]
    ) -> Image:
        log.info(f"building the image of {target.image} for {target.system.platform}")
        with tempfile.TemporaryFile() as packed:
            recipes.write_tar(packed, context)
            if target.hash_inputs(target.system) != target.recipe:
                raise ImageError(f"{target.owner}: its files were edited while they were packed; run this again")
            packed.seek(0)
            try:
                self.run_build(target, packed, arguments, labels)
            except _StepGone:
                log.info(f"{target.owner}: the engine lost the image of a cached step; building again")
                packed.seek(0)
                self.run_build(target, packed, arguments, labels)
        made = self._find(target)
        if made is None:
            raise ImageError(f"{target.owner}: the image that was just built is gone; run this again")
        return made

    def run_build(
        self, target: ImageTarget, context: IO[bytes], arguments: dict[str, str], labels: dict[str, str]
    ) -> None:
        """Build an image from a context; the cache's folder ``logs/`` takes the log.

        Raises:
            ImageError: a step failed, or the build passed a limit; quotes its last lines, names the Dockerfile's line
                and the log.
            EngineError: the Docker engine does not answer.
            StoreError: the engine's disk is full.
        """
        log_file = self.cache / "logs" / f"{target.reference.replace(':', '-')}.log"
        log_file.parent.mkdir(parents=True, exist_ok=True)
        most_bytes = psutil.virtual_memory().total // 2  # as of an index build
        step, last, room, failed = "", deque[str](maxlen=_LAST_LINES), _LOG_CHARS, False
        with engine_errors(), log_file.open("w", encoding="utf-8") as sink:
            parameters = {
                "t": target.reference,
                "buildargs": json.dumps(arguments),
                "labels": json.dumps({RECIPE_LABEL: target.recipe, **labels}),
                "platform": target.system.platform,
                "networkmode": "none",
                # Untrusted weights may claim any size: do not let them take the host's memory.
                "memory": str(most_bytes),
                "memswap": str(most_bytes),
                "rm": "1",
                "forcerm": "1",
            }
            for line in _log_lines(engine_build.events(self.client, context, parameters, self.limits)):
                sink.write(f"{line}\n"[: max(room, 0)])
                room -= len(line) + 1
                if failed:  # read on, so that no connection stays open
                    continue
                last.append(line)
                if found := _STEP.match(line):
                    step = line
                    last.clear()
                    self.progress(int(found["number"]), int(found["all"]), f"steps of {target.image}")
                failed = line.startswith(_FAILURE)
        if failed:
            words = "\n".join(last)
            if filesystem.reports_full_disk(words):
                with engine_errors():
                    root = Path(self.client.info()["DockerRootDir"])
                full = root.is_dir() and shutil.disk_usage(root).free < _ROOMY_BYTES
                filesystem.raise_if_disk_full(target.owner, words if full else last[-1])
            output = " | ".join(last)[-2000:]
            number = _STEP.match(step)
            built = Dockerfile.of(target.dockerfile, target.shared).for_build(arguments)
            counted = number is not None and number["stage"] is None
            place = (built.place_of_step(int(number["number"])) if number and counted else None) or target.dockerfile
            at = f" at {step[number.end() :][:80]!r}" if number else ""
            whole = re.search(f"{_EXIT}{WHOLE_ENGINE}$", words)
            error = _NeedsWholeEngine if whole else _StepGone if _STEP_GONE.search(last[-1]) else ImageError
            raise error(f"{place}: the image of {target.owner} failed{at}: {output}; the whole log is {log_file}")


def _log_lines(events: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Yield the text of a build's event stream, line by line."""
    for event in events:
        if "error" in event:
            # Without the command, which the engine quotes in full and the step names already.
            said = " ".join(str(event["error"]).split()).rpartition("' returned a ")[2]
            yield _FAILURE + one_line(said.rpartition('": while running runtime: ')[2], MAX_TEXT)
        text = _COLOURS.sub("", str(event.get("stream", "")))
        yield from (one_line(line.rstrip(), MAX_TEXT) for line in text.splitlines() if line.strip())
