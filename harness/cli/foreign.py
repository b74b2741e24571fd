"""`harness import`: quality that others report, and points of vector searches, next to stored results."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path

import click

from harness.analysis import foreign_quality, results_folder
from harness.analysis.table import Table
from harness.cli.lines import say
from harness.cli.locations import readable
from harness.cli.options import PATH, cache_option, parse_measures, parsed_by, results_option
from harness.config import page
from harness.errors import UsageError, counted
from harness.report import foreign_figures
from harness.results import foreign, foreign_formats
from harness.results.foreign import MARK
from harness.untrusted import one_line

# Lines on matched systems that a person sees.
_MOST = 12


def _parse_models(texts: Iterable[str]) -> dict[str, str]:
    models = {}
    for text in texts:
        system, mark, model = text.partition("=")
        if not (system and mark and model):
            raise UsageError(f"--model {text!r}: write SYSTEM=MODEL or SYSTEM=MODEL@REVISION")
        models[system] = model
    return models


@click.command("import", epilog=f"\b\nWhat is read, and how it is shown: {page('docs/guides/exchange.md')}")
@click.argument("source", type=click.Choice(list(foreign_formats.SOURCES)))
@click.argument("files", type=PATH, nargs=-1, required=True, metavar="FILE...")
@results_option
@click.option(
    "--measures",
    metavar="NAME,...",
    default="nDCG@10",
    callback=parsed_by(parse_measures),
    help="Of mteb and hakari: take these, as ir_measures writes them.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="SYSTEM=MODEL[@REVISION]",
    callback=parsed_by(_parse_models),
    help="Say which model a system has, where the results do not or the revisions differ.",
)
@cache_option
def import_(
    source: str,
    files: tuple[Path, ...],
    results: Path | str,
    measures: tuple[str, ...],
    models: dict[str, str],
    cache: Path,
) -> None:
    """Import result FILEs of others, or folders of them, into a results folder.  Runs nothing.

    mteb and hakari report the quality of models: tables show it next to the measured cost, marked as not measured here,
    where model and revision are a system's.  ann-benchmarks (the CSV of data_export.py) and vectordbbench report recall
    and queries a second: harness report --format png draws them.
    """
    if not isinstance(results, Path):
        raise UsageError("import writes into a folder; name a local one with --results")
    folder = readable(results, cache)
    if not results_folder.has_suites(folder):
        raise UsageError(f"{results}: no stored jobs in it; import writes into a folder of your own results")
    rows = results_folder.read(folder).table.rows
    imported = foreign_formats.read(source, list(files), frozenset(measures))
    if not imported.qualities and not imported.points:
        wanted = " or ".join(measures) if source in ("mteb", "hakari") else "recall and queries a second"
        raise UsageError(
            f"no figure in {counted(imported.files, 'file')} of {source}: none has {wanted}; nothing was written"
        )
    today = datetime.datetime.now(datetime.UTC).date()
    record = foreign.write(folder, imported.qualities, imported.points, models, today)
    figures = len(imported.qualities) + len(imported.points)
    without = f", {imported.without:,} without a figure" if imported.without else ""
    say(f"{source}: {counted(figures, 'figure')} in {counted(imported.files, 'file')}{without}")
    if imported.qualities:
        _say_matches(results_folder.read(folder).table)
    for text in foreign_quality.other_revisions(imported.qualities, rows, record):
        say(one_line(text))
    say(f"written: {folder / foreign.FILE}")
    if imported.qualities:
        say(f"harness report shows what matches a system, marked {MARK}")
    else:
        say("harness report --format png -o FOLDER draws recall against queries a second")


def _say_matches(table: Table) -> None:
    """Say which systems have which quality, or that none has."""
    of_rows = ((row.system, name, item) for row in table.rows for name, item in row.foreign.items())
    found = list(dict.fromkeys(f"{system}: {name} {foreign_figures.marked(item)}" for system, name, item in of_rows))
    for text in found if len(found) <= _MOST else [*found[:_MOST], f"and {len(found) - _MOST} more"]:
        say(one_line(text))
    if not found:
        models = sorted({model for row in table.rows for model in row.models})
        has = f"they have {', '.join(models)}" if models else "they name none"
        say(one_line(f"no figure is of a model of these results ({has}); add --model SYSTEM=MODEL"))
