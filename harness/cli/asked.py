"""What the command line asks for, as the other modules want it."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from harness.inputs import Options
    from harness.launch.base import Launcher
    from harness.prices import Snapshot


@dataclass(frozen=True)
class Market:
    """Which prices are asked for; ``None``: the usual ones."""

    as_of: datetime.date | None = None
    region: str | None = None
    term: str | None = None

    def snapshot(self) -> Snapshot:
        """Read them.

        Raises:
            UsageError: there are none such.
            FileError: a file is missing or wrong.
        """
        from harness import prices

        return prices.snapshot(self.as_of, region=self.region, term=self.term)


def market_options(command: Callable[..., None]) -> Callable[..., None]:
    """``--as-of``, ``--region`` and ``--term``, handed over as one :class:`Market`."""

    @click.option(
        "--as-of",
        type=click.DateTime(formats=["%Y-%m-%d"]),
        help="Prices of this date, or the last before it.  [default: the newest]",
    )
    @click.option("--region", help="Prices of this region.  [default: the one in instance_profiles/defaults.toml]")
    @click.option("--term", metavar="on-demand|reserved-1y|reserved-3y|spot", help="[default: on-demand]")
    @wraps(command)
    def wrapped(
        *args: Any, as_of: datetime.datetime | None, region: str | None, term: str | None, **others: Any
    ) -> None:
        command(*args, market=Market(as_of.date() if as_of else None, region, term), **others)

    return wrapped


def run_options(suite: Path, results: Path, only: str | None, fresh: bool, cache: Path) -> Options:
    """What a run is told, with folders that do not hang on where we are."""
    from harness.inputs import Options

    return Options(results.absolute(), cache.expanduser().absolute(), suite.absolute().parent, only, fresh)


def chosen_launcher(name: str, cache: Path, models: Path | None) -> Launcher:
    """The launcher of that name; the caller closes it."""
    if name == "docker":
        from harness.launch.docker import DockerLauncher

        return DockerLauncher(cache, models)
    if name == "process":
        from harness.launch.process import ProcessLauncher

        return ProcessLauncher(cache, models)
    from harness.launch.fake import FakeLauncher

    return FakeLauncher()
