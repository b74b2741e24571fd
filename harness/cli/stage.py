"""`harness stage`: a suite as one folder for machines without a network."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.launchers import builder_option, run_options, start_builder
from harness.cli.lines import say
from harness.cli.options import SUITE_FILE, cache_option, models_option, results_option
from harness.cli.output import columns
from harness.commands import option, words
from harness.filesystem import CHECKSUMS
from harness.jobs.suite import load
from harness.remote.stage import LAUNCHERS
from harness.remote.stage import stage as stage_suite


@click.command()
@click.argument("suite", type=SUITE_FILE)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.option(
    "--launcher",
    type=click.Choice(LAUNCHERS),
    default=LAUNCHERS[0],
    help="What jobs run in there. apptainer: images. process: plain child processes, with the engines' packages.",
)
@results_option
@builder_option
@cache_option
@models_option
def stage(
    suite: Path, folder: Path, launcher: str, results: Path, builder: str, cache: Path, models: Path | None
) -> None:
    """Put all that SUITE needs into DIR, for machines without a network: images, data, finished indexes, harness.

    There `DIR/harness run DIR/suite.toml` measures; it needs the Python that this command ran with, and no home folder.
    The same command goes on after a stop, and makes nothing twice.  `sha256sum -c SHA256SUMS` in DIR checks a copy.
    """
    options = run_options(suite, results, None, False, cache)
    start_builder(builder)
    parts = stage_suite(load(suite), suite, options, launcher, folder.absolute(), models)
    columns(
        ("staged", "in DIR", "size"), [(each.kind, each.name, f"{each.size_bytes / 1e6:,.1f} MB") for each in parts]
    )
    say(f"check a copy: (cd {words(folder)} && sha256sum --quiet -c {CHECKSUMS})")
    run = words(folder / "harness", "run", folder / "suite.toml")
    say(f"there: {run} {option('launcher', launcher)} {option('results', folder / 'results')}")
