"""What the command line asks for, as the other modules want it."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import platforms
from harness.errors import UnknownName, UsageError

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


def asked_measures(text: str) -> tuple[str, ...]:
    """The names that ``--measures`` holds.

    Raises:
        UsageError: none.
    """
    names = tuple(text.split())
    if not names:
        raise UsageError("--measures names none; name some, e.g. 'RR@10 nDCG@10', or leave it out")
    return names


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


def platform_option(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """``--platform``, by any of its names, handed over by Docker's."""

    def parsed(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
        try:
            return platforms.parse(given) if given is not None else None
        except UnknownName as error:  # click reads options before the command's own errors are caught
            raise click.BadParameter(str(error)) from error

    return click.option("--platform", metavar="linux/amd64|linux/arm64", callback=parsed, help=what)


def run_options(suite: Path, results: Path, only: str | None, fresh: bool, cache: Path) -> Options:
    """What a run is told, with folders that do not hang on where we are."""
    from harness.inputs import Options

    return Options(results.absolute(), cache.expanduser().absolute(), suite.absolute().parent, only, fresh)


def chosen_launcher(name: str, cache: Path, models: Path | None, emulated: str | None = None) -> Launcher:
    """The launcher of that name; the caller closes it.

    Args:
        emulated: a platform that it is to make images for, and to run jobs of even where that is emulated.

    Raises:
        UsageError: this launcher has no other platform than the host's.
    """
    if name == "docker":
        from harness.launch.docker import DockerLauncher

        return DockerLauncher(cache, models, platform=emulated, emulated=emulated is not None)
    if emulated is not None:
        raise UsageError(f"--platform is for containers, not for --launcher {name}; leave one of the two away")
    if name == "process":
        from harness.launch.process import ProcessLauncher

        return ProcessLauncher(cache, models)
    from harness.launch.fake import FakeLauncher

    return FakeLauncher()
