"""`harness worker`: measure parts of suites that others submit through a shared folder."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness import config
from harness.cli.options import FiniteRange, cache_option
from harness.remote import folder_worker
from harness.remote.shared_folder import open_folder


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="FOLDER")
@click.option(
    "--idle",
    "idle_s",
    metavar="SECONDS",
    type=FiniteRange(min=1),
    default=600.0,
    help="End after so many seconds without work.",
)
@cache_option
def worker(folder: Path, idle_s: float, cache: Path) -> None:
    """Measure on this machine what `harness run --work FOLDER` submits.

    Takes one part of a suite after the other. If a worker is stopped or dies, another worker goes on with its part;
    only the job that was running begins again. Exit code 1 if a part could not be done.
    """
    sys.exit(0 if folder_worker.serve(open_folder(folder), config.absolute_folder(cache), idle_s) else 1)
