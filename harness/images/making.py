"""System images: whether they are there, and how they are made.

Two images a system: its engine's (base, packages, code, driver), which all systems of the engine share, and its own,
the same with the system's weights as the last layer.  Systems of one engine with the same weights have one image, and
so share what is built with it.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import ImageNotFound

from harness import assets, base_image, locks
from harness.catalog import System
from harness.engine import engine_errors
from harness.errors import ImageError
from harness.images import components, context
from harness.images.building import build
from harness.images.recipe import engine_recipe, recipe

RECIPE_LABEL = "harness.recipe"
ENGINE_LABEL = "harness.engine"

# Engines and systems have files in common: what one process downloads, another waits for.
_FETCHING = "assets"


@dataclass(frozen=True)
class Image:
    """An image in the engine's store.  ``digest`` is its id (``sha256:...``), which names its content."""

    reference: str
    digest: str
    size_bytes: int


def find(client: docker.DockerClient, system: System) -> Image | None:
    """The image of exactly this recipe, or ``None`` when it has still to be made.

    Raises:
        EngineError: the Docker engine does not answer.
    """
    return _find(client, f"harness-{system.image}", recipe(system))


def ensure(
    client: docker.DockerClient, system: System, *, cache: Path, models: Path | None, report: Callable[[str], None]
) -> Image:
    """The image of a system; what is missing (base, engine, components, then the image) is made.

    Raises:
        ImageError: a part cannot be had, or the build fails; says which step, and where the log is.
        EngineError: the Docker engine does not answer.
    """
    present = find(client, system)
    if present is not None:
        return present
    return _Maker(client, cache, models, report).system(system)


def ensure_engine(client: docker.DockerClient, system: System, *, cache: Path, report: Callable[[str], None]) -> Image:
    """The image of a system's engine, without any weights."""
    return _Maker(client, cache, None, report).engine(system)


class _Maker:
    """Makes images, each from what it is made of."""

    def __init__(
        self, client: docker.DockerClient, cache: Path, models: Path | None, report: Callable[[str], None]
    ) -> None:
        self._client = client
        self._cache = cache
        self._models = models
        self._report = report

    def system(self, system: System) -> Image:
        wanted, repository = recipe(system), f"harness-{system.image}"
        # Another process may have built it meanwhile; a second build would move the tag to another digest.
        with locks.alone(self._cache, repository):
            return _find(self._client, repository, wanted) or self._new_system(system, repository, wanted)

    def engine(self, system: System) -> Image:
        wanted, repository = engine_recipe(system), f"harness-engine-{system.engine_image}"
        present = _find(self._client, repository, wanted)
        if present is not None:  # whoever builds another of its recipes does not hold this up
            return present
        with locks.alone(self._cache, repository):
            return _find(self._client, repository, wanted) or self._new_engine(system, repository, wanted)

    def _new_system(self, system: System, repository: str, wanted: str) -> Image:
        with locks.alone(self._cache, _FETCHING):
            files = assets.fetch(system.name, system.system_assets, self._cache, self._models, self._report)
        images = [self.system(each) for each in system.components]
        arguments = {"ENGINE": self.engine(system).reference}
        arguments |= {name: image.reference for name, image in zip(("FIRST", "SECOND"), images, strict=False)}
        if system.prepare and system.system_assets:
            arguments["PREPARE"] = system.prepare
        if images:
            arguments["NAME"] = system.engine
        told = components.told(system, [self._environment(image) for image in images])
        self._report(f"building the image of {system.image}")
        with tempfile.TemporaryFile() as packed:
            context.system(packed, system, files, told)
            self._check_same(f"system {system.name!r}", recipe(system), wanted)
            packed.seek(0)
            build(
                self._client,
                f"system {system.name!r}",
                f"{repository}:{wanted[:12]}",
                context=packed,
                arguments=arguments,
                # No name of the system: equal content is to be an equal image.
                labels={RECIPE_LABEL: wanted},
                cache=self._cache,
            )
        return self._made(f"system {system.name!r}", repository, wanted)

    def _new_engine(self, system: System, repository: str, wanted: str) -> Image:
        what = f"engine {system.engine!r}"
        if platform.machine() not in ("x86_64", "AMD64"):
            raise ImageError(f"{what}: images are made for x86-64, this host is {platform.machine()}")
        wheelhouse = assets.wheels(system.lock, system.extra_indexes, self._cache, self._report)
        with locks.alone(self._cache, _FETCHING):
            files = assets.fetch(system.engine, system.engine_assets, self._cache, self._models, self._report)
        with engine_errors():
            arguments = {"BASE": base_image.ensure(self._client, self._cache, self._report)}
            if system.toolchain:
                arguments["TOOLCHAIN"] = base_image.ensure(self._client, self._cache, self._report, "toolchain")
        self._report(f"building the image of the engine {system.engine_image}")
        with tempfile.TemporaryFile() as packed:
            context.engine(packed, system, wheelhouse, files)
            self._check_same(what, engine_recipe(system), wanted)
            packed.seek(0)
            build(
                self._client,
                what,
                f"{repository}:{wanted[:12]}",
                context=packed,
                arguments=arguments,
                labels={RECIPE_LABEL: wanted, ENGINE_LABEL: system.engine},
                cache=self._cache,
            )
        return self._made(what, repository, wanted)

    def _environment(self, image: Image) -> dict[str, str]:
        """The environment that an image's processes get."""
        with engine_errors():
            declared = self._client.images.get(image.reference).attrs["Config"]["Env"] or []
        return dict(each.partition("=")[::2] for each in declared)

    def _check_same(self, what: str, now: str, wanted: str) -> None:
        if now != wanted:
            raise ImageError(f"{what}: its files were edited while they were packed; run this again")

    def _made(self, what: str, repository: str, wanted: str) -> Image:
        made = _find(self._client, repository, wanted)
        if made is None:
            raise ImageError(f"{what}: the image that was just built is gone; run this again")
        return made


def _find(client: docker.DockerClient, repository: str, wanted: str) -> Image | None:
    reference = f"{repository}:{wanted[:12]}"
    with engine_errors():
        try:
            found = client.images.get(reference)
        except ImageNotFound:
            return None
    # The tag holds a part of the recipe only, and anyone may tag.
    if found.labels.get(RECIPE_LABEL) != wanted:
        return None
    return Image(reference, str(found.id), int(found.attrs["Size"]))
