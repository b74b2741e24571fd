"""The command that makes images before anything is measured."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from harness.cli.options import cache_option, columns, models_option, one_line_errors, platform_option
from harness.errors import ImageError, UnknownName

if TYPE_CHECKING:
    import docker

    from harness.launch.images.builder import Image
    from harness.launch.images.catalog import System
    from harness.progress import Screen


@click.command()
@click.argument("systems", nargs=-1)
@click.option("--engine", "engines", multiple=True, metavar="NAME", help="Also an engine's, without any weights.")
@click.option("--gpus", is_flag=True, help="Those for hardware profiles with GPUs, of engines that have such.")
@platform_option("Those for this platform (arm64: Graviton), emulated where it is not the engine's own.")
@cache_option
@models_option
@one_line_errors
def images(
    systems: tuple[str, ...],
    engines: tuple[str, ...],
    gpus: bool,
    platform: str | None,
    cache: Path,
    models: Path | None,
) -> None:
    """Make the images of SYSTEMS, or without any the one of each engine (no weights), and say how large they are.

    `harness run` makes what it needs by itself; this makes it beforehand.  Exit code 1 if one cannot be made.
    """
    import docker

    from harness.launch.docker_errors import engine_errors
    from harness.progress import Screen

    wanted = _wanted(systems, engines, 1 if gpus else 0)
    with engine_errors():
        client = docker.from_env(timeout=120)
    screen, rows, complaints = Screen(Console(stderr=True)), [], []
    with closing(client):
        how = _How(client, cache.expanduser().absolute(), models, platform, screen)
        for what, made, took_s in _made(how, wanted):
            if isinstance(made, ImageError):
                complaints.append(str(made))
            else:
                size = f"{made.size_bytes / 1e6:,.0f} MB"
                short = made.digest.removeprefix("sha256:")[:12]
                rows.append((what, made.platform, size, f"{took_s:.1f} s", short, made.reference))
    columns(("image of", "platform", "size", "took", "digest", "tag"), rows)
    for complaint in complaints:
        click.echo(f"harness: {complaint}", err=True)
    sys.exit(1 if complaints else 0)


def _wanted(systems: tuple[str, ...], engines: tuple[str, ...], gpus: int) -> list[tuple[System, bool]]:
    """List the images to make: a system each, and whether the image of its engine is meant."""
    from harness.launch.images import catalog

    chosen = [(system.on(gpus), False) for system in catalog.named(systems).values()]
    known = {each.engine: each.on(gpus) for each in catalog.systems().values()}
    for name in dict.fromkeys(engines):
        if name not in known:
            raise UnknownName("engine", name, known)
        chosen.append((known[name], True))
    return chosen or [(each, True) for each in known.values() if each.accelerator or not gpus]


@dataclass(frozen=True)
class _How:
    """Arguments that the making of every image shares."""

    client: docker.DockerClient
    cache: Path
    models: Path | None
    platform: str | None
    screen: Screen


def _made(how: _How, wanted: list[tuple[System, bool]]) -> Iterator[tuple[str, Image | ImageError, float]]:
    """Each image with the seconds that it took, or why there is none; one that fails stops no other."""
    from harness.launch.images import builder

    for system, engine in wanted:
        what = f"the engine {system.engine_image}" if engine else system.image
        started = time.monotonic()
        made: Image | ImageError
        try:
            with how.screen.task(f"{what}: image"):
                ensure = builder.ensure_engine if engine else partial(builder.ensure, models=how.models)
                made = ensure(how.client, system, cache=how.cache, report=how.screen.say, platform=how.platform)
        except ImageError as error:
            made = error
        yield what, made, time.monotonic() - started


COMMANDS = (images,)
