"""`harness history`: one figure over results of several commits or dates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import click

from harness.analysis import history as histories
from harness.analysis.axes import cell_of
from harness.analysis.history import DatedResults
from harness.cli.lines import say
from harness.cli.locations import mirrored, readable
from harness.cli.options import only_option, price_options, results_path
from harness.cli.output import PICTURES, Destination, destination_options, write
from harness.cli.stored_results import StoredResults, measures_option, show_pictures, stored_results
from harness.errors import UsageError
from harness.estimate import Varies
from harness.report import otava
from harness.report.gate import canonical, figure_named, is_measure
from harness.report.history import History, history_document
from harness.results import reader, seals, suite_record
from harness.results.schema import matches

# Each is in the folder of a suite.
_OF_SUITES = (seals.MANIFEST, suite_record.FILE, "samples")


@click.command()
@mirrored("results")
@click.argument("results", type=results_path)
@click.argument("more", nargs=-1, type=results_path, metavar="[RESULTS]...")
@click.option(
    "--figure",
    "name",
    default="latency",
    show_default=True,
    metavar="FIGURE",
    help="A column of columns.md or its short name, as cpu, memory or nDCG@10.",
)
@only_option
@click.option(
    "--scaled",
    is_flag=True,
    help="Join what several CPUs measured: scale times by the speed of fixed work around the trials.",
)
@measures_option("As ir_measures writes them.", None)
@price_options
@destination_options("md", "csv", "json", *PICTURES, "otava", wide=True)
@stored_results
def history(
    stored: StoredResults,
    more: Sequence[Path | str],
    name: str,
    only: str | None,
    destination: Destination,
    *,
    scaled: bool,
) -> None:
    """Show one figure over RESULTS of several commits or dates.  Runs nothing.

    RESULTS are folders of results, one for each commit or date, or a folder of such folders.  They have their folders'
    names, and the order of their jobs' dates.  What another CPU measured is another series.  Where Apache Otava is
    installed, it says where the mean changed; --format otava writes its files.
    """
    otava_folder = destination.folder if destination.form == "otava" else None
    name = canonical(name)
    if is_measure(name):
        stored = replace(stored, measures=(*stored.measures, name))
    paths = list(_results([stored.results, *(readable(path, stored.cache) for path in more)]))
    each = [replace(stored, results=path) for path in paths]
    read = [own.priced(own.read()).table for own in each]
    figure = figure_named(name, read[0])
    if scaled and (figure.unit not in ("s", "ms") or figure.varies is Varies.BUILD):
        raise UsageError(f"--scaled scales times of queries, and {figure.alias} is not one; leave it out")
    snapshots = [
        DatedResults(
            label,
            rows := [row for row in table.rows if only is None or matches(cell_of(row), only)],
            histories.work_s(reader.read_jobs(own.results), rows) if scaled else {},
        )
        for label, own, table in zip(_labels(paths), each, read, strict=True)
    ]
    series = histories.series(filter(attrgetter("rows"), snapshots), figure.estimate, figure.varies, scaled=scaled)
    if not series:
        raise UsageError(f"--only {only!r} matches no row; see `harness report`")
    notes = dict.fromkeys(note for table in read for note in table.unreadable)
    found = History(figure, series, notes=tuple(notes))
    if otava_folder:
        otava_folder.mkdir(parents=True, exist_ok=True)
        for file, text in otava.files_of(found).items():
            write(otava_folder / file, text)
        say(f"written: {otava_folder}; Apache Otava reads {otava.CONFIG} there")
        return
    found = otava.with_changes(found)
    if destination.pictures:
        from harness.report.plots import history as plots  # late: matplotlib

        show_pictures(plots.pictures(found), (), destination)
    else:
        destination.show_report(history_document(found))


def _labels(paths: Sequence[Path]) -> list[str]:
    """Name folders by their names, or by as many of their last names as make them differ."""
    parts = [path.resolve().parts for path in paths]
    for count in range(1, max(map(len, parts)) + 1):
        labels = ["/".join(each[-count:]) for each in parts]
        if len(set(labels)) == len(set(parts)):
            break
    return labels


def _results(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the folders of results; of a folder that has none of its own, those in it.

    Raises:
        UsageError: there are none.
    """
    for path in paths:
        if _has_suites(path):
            yield path
            continue
        inside = (
            [each for each in sorted(path.iterdir()) if each.is_dir() and _has_suites(each)] if path.is_dir() else []
        )
        if not inside:
            raise UsageError(f"{path}: no stored jobs in it; name folders that `harness run --results` wrote")
        yield from inside


def _has_suites(path: Path) -> bool:
    return path.is_dir() and any((each / name).exists() for each in path.iterdir() for name in _OF_SUITES)
