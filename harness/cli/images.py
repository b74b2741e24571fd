"""`harness images`: build images in advance."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click

from harness import config
from harness.cli.options import cache_option, models_option, platform_option
from harness.cli.output import columns, show_errors
from harness.errors import FileError, HarnessError, ImageError, UnknownName
from harness.jobs.pinning import pin_alone
from harness.launch import connection
from harness.launch.connection import engine_errors
from harness.launch.docker import DockerLauncher
from harness.launch.images import catalog
from harness.launch.images.builder import Image, ImageBuilder
from harness.launch.images.systems import System
from harness.progress import task

log = logging.getLogger(__name__)


@click.command()
@click.argument("systems", nargs=-1)
@click.option("--engine", "engines", multiple=True, metavar="NAME", help="An engine's image too, without weights.")
@click.option("--gpus", is_flag=True, help="Images for hardware profiles with GPUs, of engines that have them.")
@platform_option("Images for this platform (arm64: Graviton), emulated if it is not the Docker engine's.")
@cache_option
@models_option
def images(
    systems: tuple[str, ...],
    engines: tuple[str, ...],
    gpus: bool,
    platform: str | None,
    cache: Path,
    models: Path | None,
) -> None:
    """Build the images of SYSTEMS (default: each engine's, without weights), and print their sizes.

    `harness run` builds missing images itself; this command builds them in advance.  Exit code 1 if a build fails.
    """
    wrong: dict[str, FileError] = {}
    unpinned: list[HarnessError] = []
    declared = _pinned(systems, DockerLauncher(cache, models), unpinned)
    named = bool(systems or engines)
    chosen = _chosen(declared, engines, 1 if gpus else 0, wrong) if declared or engines or not named else []
    with engine_errors():
        client = connection.connect(120)
    rows: list[tuple[str, ...]] = []
    errors: list[HarnessError] = unpinned if named else [*wrong.values()]
    with closing(client):
        builder = ImageBuilder(client, config.absolute_folder(cache), models, platform)
        for name, made, took_s in _image_lines(builder, chosen):
            if isinstance(made, HarnessError):
                errors.append(made)
            else:
                size = f"{made.size_bytes / 1e6:,.0f} MB"
                short = made.digest.removeprefix("sha256:")[:12]
                rows.append((name, made.platform, size, f"{took_s:.1f} s", short, made.reference))
    columns(("image of", "platform", "size", "took", "digest", "tag"), rows)
    show_errors(errors)
    sys.exit(1 if errors else 0)


def _pinned(systems: tuple[str, ...], launcher: DockerLauncher, errors: list[HarnessError]) -> list[System]:
    """Return the pinned systems by name; a system that cannot be pinned is an error, and the others go on."""
    pinned = []
    for system in catalog.named(systems).values():
        try:
            pinned.append(pin_alone(system, launcher))
        except ImageError as error:
            errors.append(ImageError(f"{system.name}: {error}"))
    return pinned


def _chosen(
    declared: list[System], engines: tuple[str, ...], gpus: int, wrong: dict[str, FileError]
) -> list[tuple[System, bool]]:
    """List the images to build: a system, and whether its engine's image is meant."""
    used = [system.for_job(kind, gpus=gpus) for system in declared for kind in ("build", "search")]
    wanted = {system.image: system for system in used}
    chosen = [(system, False) for system in wanted.values()]
    by_engine = {system.engine: system.for_job("build", gpus=gpus) for system in catalog.systems(wrong=wrong).values()}
    for name in dict.fromkeys(engines):
        if name not in by_engine:
            raise UnknownName("engine", name, by_engine)
        chosen.append((by_engine[name], True))
    return chosen or [(system, True) for system in by_engine.values() if system.accelerator or not gpus]


def _image_lines(
    builder: ImageBuilder, chosen: list[tuple[System, bool]]
) -> Iterator[tuple[str, Image | HarnessError, float]]:
    """Yield each image or error with its seconds; go on after a failed image."""
    for system, engine in chosen:
        name = f"the engine {system.engine_image}" if engine else system.image
        started = time.monotonic()
        made: Image | HarnessError
        try:
            with task(f"{name}: image"):
                made = builder.ensure_engine(system) if engine else builder.ensure(system)
        except (ImageError, FileError) as error:
            made = error
        yield name, made, time.monotonic() - started
