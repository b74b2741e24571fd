"""Commands that hand stored results on: export, merge, verify.  They run nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.locations import as_given, mirrored, named_as_given, source
from harness.cli.options import Market, asked_measures, cache_option, market_options, one_line_errors, results_argument
from harness.cli.report import measures_option
from harness.errors import UsageError
from harness.untrusted import one_line

if TYPE_CHECKING:
    from harness.analysis.table import Table
    from harness.results.reader import StoredJob

FORMATS = ("parquet", "sqlite", "csv", "ir_metadata")


@click.command()
@results_argument
@click.option("--format", "form", type=click.Choice(FORMATS), required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The file or folder to make.")
@click.option("--samples", is_flag=True, help="sqlite: every raw sample too.")
@click.option("--actor-name", help="ir_metadata: who did it; left out unless given.")
@click.option("--actor-team", help="ir_metadata: their team; left out unless given.")
@measures_option
@market_options
@cache_option
@one_line_errors
@mirrored("results", wants="ALL")
def export(
    results: Path,
    form: str,
    output: Path,
    samples: bool,
    actor_name: str | None,
    actor_team: str | None,
    measures: str,
    market: Market,
    cache: Path,
) -> None:
    """Write the stored RESULTS (a folder; default: results) for other programs.

    parquet, sqlite and csv hold the table, with the columns of docs/reference/columns.md; ir_metadata is a folder with a YAML
    file (https://www.ir-metadata.org) and the run of each job.
    """
    if samples and form != "sqlite":
        raise UsageError("--samples goes with --format sqlite; harness.load_samples gives them as a frame")
    if (actor_name or actor_team) and form != "ir_metadata":
        raise UsageError("--actor-name and --actor-team go with --format ir_metadata")
    asked = asked_measures(measures)
    if form == "ir_metadata":
        _ir_metadata(results, asked, output, actor_name, actor_team)
    else:
        _table(results, form, output, samples, _priced(results, asked, market, cache))
    click.echo(f"written: {output}")


def _priced(results: Path, measures: tuple[str, ...], market: Market, cache: Path) -> Table:
    from harness.cli.report import stored_table

    return stored_table(results, measures, market, cache)


def _table(results: Path, form: str, output: Path, samples: bool, table: Table) -> None:
    from harness.report.export import export_csv, export_parquet, export_sqlite

    if form == "csv":
        export_csv(table, output)
    elif form == "parquet":
        export_parquet(table, output)
    else:
        jobs = _jobs(results)
        if samples and not jobs:
            raise UsageError(f"{results}: published tables have no samples; leave --samples out")
        export_sqlite(table, jobs, output, samples=samples)


def _ir_metadata(results: Path, measures: tuple[str, ...], output: Path, name: str | None, team: str | None) -> None:
    from harness.report.ir_metadata import Actor, export_ir_metadata

    jobs = _jobs(results)
    if not jobs:
        raise UsageError(f"{results}: no stored job in it, and published tables have no runs to describe")
    actor = Actor(name, team) if name or team else None
    with _bar("exporting") as step:
        export_ir_metadata(results, jobs, measures, output, actor=actor, done=lambda done: step(done, len(jobs)))


def _jobs(results: Path) -> tuple[StoredJob, ...]:
    from harness.results import reader

    return reader.read_jobs(results)


@click.command()
@click.argument("sources", metavar="[NAME=]RESULTS...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The folder to make.")
@cache_option
@one_line_errors
def merge(sources: tuple[str, ...], output: Path, cache: Path) -> None:
    """Join results folders of several people or machines in one, each under the name of its origin.

    An origin is called as its folder unless it is given a NAME; folders that were merged before keep their origins.
    Tables of the new folder have a column for it, and jobs of two origins are never put together.
    """
    from harness.results import merge as merge_results

    with named_as_given(cache):
        found = merge_results.named(source(each, cache) for each in sources)
        with _bar("verifying") as step:
            made = merge_results.merge(found, output, progress=step)
    for origin in made.origins:
        click.echo(f"{origin.name}: {origin.jobs:,} jobs")
    click.echo(f"written: {output}" if made.new else f"nothing to do: {output} holds this already")


@click.command()
@results_argument
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    help="A report or leaderboard (--format json) whose figures are to follow too, at its own prices and measures.",
)
@cache_option
@one_line_errors
@mirrored("results", wants="ALL", thorough=True)
def verify(results: Path, against: Path | None, cache: Path) -> None:
    """Recompute all checksums and derived figures of the stored RESULTS (a folder; default: results).

    One line for each that does not follow: its place, what is stored, what follows. Exit code 1 if there is any.
    """
    from harness.report.verify import verify_results

    with _bar("verifying") as step:
        found = verify_results(results, cache=cache.expanduser().absolute(), against=against, progress=step)
    for mismatch in found.mismatches:
        click.echo(one_line(as_given(str(mismatch), cache)))
    if found.mismatches:
        click.echo(f"{found.looked_at}: {len(found.mismatches):,} do not follow", err=True)
        sys.exit(1)
    click.echo(f"{found.looked_at}: all follows")


@contextmanager
def _bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal while jobs are gone through; elsewhere nothing, as nobody waits there."""
    from rich.console import Console

    from harness.progress import Progress, Screen

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _done, _total: None
        return
    with Screen(console).task(title) as watcher:
        yield lambda done, total: watcher(Progress("jobs", done, total))


COMMANDS = (export, merge, verify)
