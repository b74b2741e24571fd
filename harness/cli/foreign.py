"""`harness import`: quality that others report, and points of vector searches, next to stored results."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from harness.analysis import foreign_quality, results_folder
from harness.analysis.table import Table
from harness.cli.lines import say
from harness.cli.locations import readable
from harness.cli.options import PATH, cache_option, parse_measures, parsed_by, results_option
from harness.config import page
from harness.errors import UnknownName, UsageError, counted, listed
from harness.evaluation import measure_names
from harness.report import foreign_figures
from harness.results import foreign, foreign_formats
from harness.results.foreign import MARK
from harness.results.foreign_formats import Imported
from harness.untrusted import one_line

# A model's name on the hub, and its revision or the beginning of it; empty: none.
_MODEL = re.compile(r"([A-Za-z0-9][A-Za-z0-9._/-]{0,199}(@[A-Za-z0-9._-]{1,64})?)?")
# Lines on matched systems that a person sees.
_MOST = 12


def _parse_models(texts: Iterable[str]) -> dict[str, str]:
    models = {}
    for text in texts:
        system, mark, model = text.partition("=")
        if not (system and mark) or not _MODEL.fullmatch(model):
            raise UsageError(
                f"--model {text!r}: write SYSTEM=MODEL or SYSTEM=MODEL@REVISION; SYSTEM= removes what was said before"
            )
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
    help="mteb, hakari: take these, as ir_measures writes them.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="SYSTEM=MODEL[@REVISION]",
    callback=parsed_by(_parse_models),
    help="mteb, hakari: the model of a system, where the results do not say it or the revisions differ.",
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
    if not results_folder.may_have_jobs(folder):
        raise UsageError(f"{results}: no stored jobs in it; import writes into a folder of your own results")
    of_models = source in ("mteb", "hakari")
    if models and not of_models:
        raise UsageError(f"--model goes with mteb and hakari; {source} has no models")
    rows = results_folder.read(folder).table.rows
    systems = dict.fromkeys(row.system for row in rows)
    if unknown := next((name for name in models if name not in systems), None):
        raise UnknownName("system", unknown, systems)
    wanted = [str(measure) for measure in measure_names.parse(measures)]
    imported = foreign_formats.read(source, list(files), frozenset(wanted))
    if not imported.qualities and not imported.points:
        lacking = " or ".join(wanted) if of_models else "recall and queries a second"
        raise UsageError(
            f"no figure in {counted(imported.files, 'file')} of {source}: none has {lacking}; nothing was written"
        )
    today = datetime.datetime.now(datetime.UTC).date()
    record = foreign.write(folder, imported.qualities, imported.points, models, today)
    figures = len(imported.qualities) + len(imported.points)
    without = f", {imported.without:,} without a figure" if imported.without else ""
    say(f"{source}: {counted(figures, 'figure')} in {counted(imported.files, 'file')}{without}")
    absent = [name for name in wanted if of_models and name not in {each.measure for each in imported.qualities}]
    if absent:
        say(f"none of them has {', '.join(absent)}")
    told = list(foreign_quality.other_revisions(imported.qualities, rows, record))
    matched = of_models and _say_matches(results_folder.read(folder).table, imported, told)
    for text in told:
        say(one_line(text))
    say(f"written: {folder / foreign.FILE}")
    if matched:
        say(f"harness report shows them, marked {MARK}")
    elif not of_models:
        say("harness report --format png -o FOLDER draws recall against queries a second")


def _say_matches(table: Table, imported: Imported, told: Sequence[str]) -> bool:
    """Say which systems have which quality, or that none has; return whether one has.

    Args:
        table: rows with the figures of others.
        imported: what was read just now.
        told: what is said of other revisions.
    """
    of_rows = ((row.system, name, item) for row in table.rows for name, item in row.foreign.items())
    found = list(dict.fromkeys(f"{system}: {name} {foreign_figures.marked(item)}" for system, name, item in of_rows))
    for text in found if len(found) <= _MOST else [*found[:_MOST], f"and {len(found) - _MOST} more"]:
        say(one_line(text))
    if not found and not told:
        theirs = listed(sorted({each.model for each in imported.qualities}), 5)
        say(one_line(f"no system has one of these models ({theirs}); say which has: --model SYSTEM=MODEL"))
    return bool(found)
