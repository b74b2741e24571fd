"""`harness export`, `merge` and `verify`: stored results for other programs, joined, checked."""

from __future__ import annotations

import sys
from dataclasses import astuple
from pathlib import Path

import click

from harness import extras
from harness.analysis import passport, results_folder
from harness.analysis.axes import cell_of
from harness.analysis.passport import Hub
from harness.cli.lines import say
from harness.cli.locations import as_given, named_as_given, results_argument, source
from harness.cli.options import cache_option, only_option, price_options, record_options
from harness.cli.output import FORMATS, Destination, destination_options, output_option
from harness.cli.stored_results import StoredResults, measures_option, stored_results
from harness.config import page
from harness.errors import UsageError
from harness.progress import bar
from harness.report.export import FORMATS as EXPORT_FORMATS
from harness.report.export import export_csv, export_parquet, export_sqlite, new_path
from harness.report.ir_metadata import export_ir_metadata
from harness.report.verify import verification_document, verify_results
from harness.results import merge as merge_results
from harness.results import reader
from harness.results.integrity_samples import Mismatch
from harness.results.schema import matches
from harness.untrusted import one_line


def _actor(name: str | None, team: str | None) -> dict[str, str | None]:
    return {"name": name, "team": team}


@click.command(epilog=f"\b\nColumns: {page('docs/reference/columns.md')}")
@results_argument(files="ALL")
@click.option("--format", "form", type=click.Choice(EXPORT_FORMATS), required=True)
@output_option("The file or folder to make.", required=True)
@click.option("--samples", is_flag=True, help="sqlite: raw samples too.")
@record_options(
    "actor",
    _actor,
    click.option("--actor-name", "name", help="ir_metadata: name of the actor."),
    click.option("--actor-team", "team", help="ir_metadata: team of the actor."),
)
@record_options(
    "hub",
    Hub,
    click.option("--hub-dataset", "dataset", metavar="ID", help="passport: the dataset's name on the hub."),
    click.option("--hub-task", "task", metavar="ID", help="passport: the task's name there."),
    click.option("--source", metavar="URL", help="passport: where the whole results are."),
)
@only_option
@measures_option(default=None)
@price_options
@stored_results
def export(
    stored: StoredResults,
    form: str,
    output: Path,
    only: str | None,
    *,
    samples: bool,
    actor: dict[str, str | None],
    hub: Hub,
) -> None:
    """Write the stored RESULTS (a folder; default: results) for other programs.

    parquet, sqlite and csv hold the table; ir_metadata is a folder with a YAML file (https://www.ir-metadata.org) and
    the run of each job.  passport is a sealed YAML file with a kilobyte for each row that --only names: for a model
    card (.eval_results) or an appendix, and every command that reads RESULTS reads it.
    """
    if samples and form != "sqlite":
        raise UsageError("--samples goes with --format sqlite; harness.load_samples gives them as a frame")
    if any(actor.values()) and form != "ir_metadata":
        raise UsageError("--actor-name and --actor-team go with --format ir_metadata")
    if form != "passport" and (only is not None or hub != Hub()):
        raise UsageError("--only, --hub-dataset, --hub-task and --source go with --format passport")
    if hub.source is not None and not hub.source.startswith(("https://", "http://")):
        raise UsageError(f"--source {hub.source!r}: write an address that begins with https://")
    if (hub.dataset is None) != (hub.task is None):
        raise UsageError("--hub-dataset and --hub-task name one task together; give both")
    if form in ("parquet", "sqlite"):
        extras.require("pandas")
    if form == "csv":
        export_csv(stored.priced(stored.read()).table, output)
    elif form == "parquet":
        export_parquet(stored.priced(stored.read()).table, output)
    elif form == "sqlite":
        table = stored.priced(stored.read()).table
        jobs = reader.read_jobs(stored.results) if results_folder.may_have_jobs(stored.results) else ()
        if samples and not jobs:
            raise UsageError(f"{stored.results}: no samples in it; leave --samples out")
        export_sqlite(table, jobs, output, samples=samples)
    elif form == "passport":
        _export_passports(stored, output, only, hub)
    else:
        none = f"{stored.results}: no stored job in it, and published tables have no runs to describe"
        jobs = reader.read_jobs(stored.results, none)
        measures = stored.measures or results_folder.suite_measures(stored.results)
        with bar("exporting", "jobs") as step:
            export_ir_metadata(stored.results, jobs, measures, output, actor=actor, progress=step)
    say(f"written: {output}")


def _export_passports(stored: StoredResults, output: Path, only: str | None, hub: Hub) -> None:
    """Write the passports of the rows that are named; a row that can have none is named on stderr."""
    if output.suffix not in passport.SUFFIXES:
        raise UsageError(f"{output}: the name of a passport's file ends in .yaml, by which commands know it")
    if not results_folder.may_have_jobs(stored.results):
        raise UsageError(f"{stored.results}: no stored jobs in it, and a passport is of stored jobs")
    table, jobs = stored.priced(stored.read()).table, reader.read_jobs(stored.results)
    by_key = {(job.origin, job.result.key): job for job in jobs}
    named = [row for row in table.rows if only is None or matches(cell_of(row), only)]
    if not named:
        raise UsageError(f"--only {only!r} matches no row; see `harness report`")
    entries, left_out = [], list[str]()
    for row in named:
        try:
            entries.append(passport.of_row(row, by_key[row.origin, row.key], next(iter(table.measures), ""), hub))
        except UsageError as error:
            left_out.append(str(error))
    if not entries:
        raise UsageError(left_out[0])
    text = passport.written(entries)
    with new_path(output) as path:
        path.write_text(text, encoding="utf-8")
    for reason in left_out:
        say(one_line(f"no passport: {reason}"), err=True)


@click.command()
@click.argument("sources", metavar="[NAME=]RESULTS...", nargs=-1, required=True)
@output_option("The folder to make.", required=True)
@cache_option
def merge(sources: tuple[str, ...], output: Path, cache: Path) -> None:
    """Merge results folders of several people or machines into one, each under the name of its origin.

    An origin has its folder's name, or NAME; merged folders keep their origins.  Tables of the new folder have a column
    for the origin, and jobs of different origins are never pooled.
    """
    with named_as_given(cache):
        folders = merge_results.parse_sources(source(text, cache) for text in sources)
        with bar("verifying", "jobs") as step:
            merged = merge_results.merge(folders, output, progress=step)
    for origin in merged:
        say(f"{origin.name}: {origin.jobs:,} jobs")
    say(f"written: {output}")


@click.command()
@results_argument(files="ALL", thorough=True)
@destination_options(*FORMATS, wide=True)
@cache_option
def verify(results: Path, destination: Destination, cache: Path) -> None:
    """Check the stored RESULTS (a folder; default: results) by their seals and checksums, and recompute their figures.

    Checks every file of a job, the suite's manifest, suite.json, pins.json, qrels, query samples and verdicts, and the
    origins of merged results.  Does not check reports, which `harness report` writes again.

    Prints a line for each mismatch (its place, the stored and the recomputed value), a note about unchecked files, then
    the number of mismatches.  Exit code 1 if it is not 0.
    """
    with bar("verifying", "jobs") as step:
        verified = verify_results(results, step)
    mismatches = [Mismatch(*(as_given(text, cache) for text in astuple(each))) for each in verified.mismatches]
    notes = [as_given(note, cache) for note in verified.notes]
    destination.show_report(verification_document(verified.looked_at, mismatches, notes))
    sys.exit(1 if mismatches else 0)
