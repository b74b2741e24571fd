"""System images: whether they are there, and how they are made.

Two images a system: its engine's (base, packages, code, driver), which all systems of the engine share, and its own,
the same with the system's weights as the last layer.  Systems of one engine with the same weights have one image, and
so share what is built with it.  Each platform has images of its own; those of another platform than the engine's are
built under emulation.
"""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import ImageNotFound

from harness import filesystem
from harness.errors import ImageError
from harness.launch.docker_errors import engine_errors
from harness.launch.images import assets, base_image, context, emulation, platforms, recipes
from harness.launch.images.catalog import System
from harness.launch.images.docker_build import build
from harness.launch.images.recipes import engine_recipe, recipe

log = logging.getLogger(__name__)

RECIPE_LABEL = "harness.recipe"
ENGINE_LABEL = "harness.launch.docker_errors"

# Engines and systems have files in common: what one process downloads, another waits for.
_FETCHING = "assets"


@dataclass(frozen=True)
class Image:
    """An image in the engine's store.  ``digest`` is its id (``sha256:...``), which names its content.

    ``platform``: Docker's name of what it runs on (``linux/arm64``).
    """

    reference: str
    digest: str
    size_bytes: int
    platform: str = platforms.AMD64


def find(client: docker.DockerClient, system: System, *, platform: str | None = None) -> Image | None:
    """The image of exactly this recipe, or ``None`` when it has still to be made.

    Args:
        platform: what it is for; the engine's own if not given.

    Raises:
        EngineError: the Docker engine does not answer.
    """
    return _find(client, _Wanted.system(_for(client, system, platform)))


def ensure(
    client: docker.DockerClient,
    system: System,
    *,
    cache: Path,
    models: Path | None,
    platform: str | None = None,
) -> Image:
    """The image of a system; what is missing (base, engine, components, then the image) is made.

    Args:
        platform: what it is for; the engine's own if not given.

    Raises:
        ImageError: a part cannot be had, the system has no image for that platform, or the build fails; says which
            step, and where the log is.
        EngineError: the Docker engine does not answer.
    """
    system = _for(client, system, platform)
    present = _find(client, _Wanted.system(system))
    if present is not None:
        return present
    _check_made_for(system)
    emulation.ensure(client, system.platform, cache)
    return _Maker(client, cache, models).system(system)


def ensure_engine(
    client: docker.DockerClient,
    system: System,
    *,
    cache: Path,
    platform: str | None = None,
) -> Image:
    """The image of a system's engine, without any weights; arguments and errors are those of :func:`ensure`."""
    system = _for(client, system, platform)
    present = _find(client, _Wanted.engine(system))
    if present is not None:
        return present
    _check_made_for(system)
    emulation.ensure(client, system.platform, cache)
    return _Maker(client, cache, None).engine(system)


def _for(client: docker.DockerClient, system: System, platform: str | None) -> System:
    return system.made_for(platform or emulation.native(client))


def _check_made_for(system: System) -> None:
    """Nothing is begun that cannot end well."""
    if system.platform not in platforms.PLATFORMS:
        known = " and ".join(platforms.PLATFORMS)
        raise ImageError(f"system {system.name!r}: images are made for {known}, this engine is {system.platform}")
    if system.lacking:
        raise ImageError(f"system {system.name!r}: {system.lacking}; take another platform (docs/guides/platforms.md)")


@dataclass(frozen=True)
class _Wanted:
    """An image that is asked for: where it lies in the engine's store, and the recipe that it must be of."""

    repository: str
    recipe: str
    platform: str

    @property
    def reference(self) -> str:
        return f"{self.repository}:{platforms.apart(self.recipe[:12], self.platform)}"

    @staticmethod
    def system(system: System) -> _Wanted:
        return _Wanted(f"harness-{system.image}", recipe(system), system.platform)

    @staticmethod
    def engine(system: System) -> _Wanted:
        return _Wanted(f"harness-engine-{system.engine_image}", engine_recipe(system), system.platform)


class _Maker:
    """Makes images, each from what it is made of."""

    def __init__(self, client: docker.DockerClient, cache: Path, models: Path | None) -> None:
        self._client = client
        self._cache = cache
        self._models = models

    def system(self, system: System) -> Image:
        wanted = _Wanted.system(system)
        # Another process may have built it meanwhile; a second build would move the tag to another digest.
        with filesystem.cache_lock(self._cache, wanted.repository):
            return _find(self._client, wanted) or self._new_system(system, wanted)

    def engine(self, system: System) -> Image:
        wanted = _Wanted.engine(system)
        present = _find(self._client, wanted)
        if present is not None:  # whoever builds another of its recipes does not hold this up
            return present
        with filesystem.cache_lock(self._cache, wanted.repository):
            return _find(self._client, wanted) or self._new_engine(system, wanted)

    def _new_system(self, system: System, wanted: _Wanted) -> Image:
        with filesystem.cache_lock(self._cache, _FETCHING):
            files = assets.fetch(system.name, system.system_assets, self._cache, self._models)
        images = [self.system(each) for each in system.components]
        arguments = {"ENGINE": self.engine(system).reference}
        arguments |= {name: image.reference for name, image in zip(("FIRST", "SECOND"), images, strict=False)}
        if system.prepare and system.system_assets:
            arguments["PREPARE"] = system.prepare
        if images:
            arguments["NAME"] = system.engine
        told = recipes.told(system, [self._environment(image) for image in images])
        log.info(f"building the image of {system.image} for {system.platform}")
        with tempfile.TemporaryFile() as packed:
            context.system(packed, system, files, told)
            self._check_same(f"system {system.name!r}", recipe(system), wanted)
            packed.seek(0)
            build(
                self._client,
                f"system {system.name!r}",
                wanted.reference,
                context=packed,
                arguments=arguments,
                # No name of the system: equal content is to be an equal image.
                labels={RECIPE_LABEL: wanted.recipe},
                cache=self._cache,
                platform=system.platform,
            )
        return self._made(f"system {system.name!r}", wanted)

    def _new_engine(self, system: System, wanted: _Wanted) -> Image:
        what, platform = f"engine {system.engine!r}", system.platform
        wheels = {
            lock: assets.wheels(lock, system.extra_indexes, self._cache, platform)
            for lock in (*system.shared_locks.values(), system.lock)
        }
        with filesystem.cache_lock(self._cache, _FETCHING):
            files = assets.fetch(system.engine, system.engine_assets, self._cache, self._models)
        with engine_errors():
            bases = {"BASE": "base", **({"TOOLCHAIN": "toolchain"} if system.toolchain else {})}
            arguments = {
                key: base_image.ensure(self._client, self._cache, name, platform) for key, name in bases.items()
            }
        log.info(f"building the image of the engine {system.engine_image} for {platform}")
        with tempfile.TemporaryFile() as packed:
            context.engine(packed, system, wheels, files)
            self._check_same(what, engine_recipe(system), wanted)
            packed.seek(0)
            build(
                self._client,
                what,
                wanted.reference,
                context=packed,
                arguments=arguments,
                labels={RECIPE_LABEL: wanted.recipe, ENGINE_LABEL: system.engine},
                cache=self._cache,
                platform=platform,
            )
        return self._made(what, wanted)

    def _environment(self, image: Image) -> dict[str, str]:
        """The environment that an image's processes get."""
        with engine_errors():
            declared = self._client.images.get(image.reference).attrs["Config"]["Env"] or []
        return dict(each.partition("=")[::2] for each in declared)

    def _check_same(self, what: str, now: str, wanted: _Wanted) -> None:
        if now != wanted.recipe:
            raise ImageError(f"{what}: its files were edited while they were packed; run this again")

    def _made(self, what: str, wanted: _Wanted) -> Image:
        made = _find(self._client, wanted)
        if made is None:
            raise ImageError(f"{what}: the image that was just built is gone; run this again")
        return made


def _find(client: docker.DockerClient, wanted: _Wanted) -> Image | None:
    with engine_errors():
        try:
            found = client.images.get(wanted.reference)
        except ImageNotFound:
            return None
    # The tag holds a part of the recipe only, and anyone may tag.
    if found.labels.get(RECIPE_LABEL) != wanted.recipe:
        return None
    return Image(wanted.reference, str(found.id), int(found.attrs["Size"]), wanted.platform)
