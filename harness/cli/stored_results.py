"""Inputs of commands that only read: stored results with prices and measures, and run files with qrels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.analysis import results_folder, row_pricing
from harness.analysis.results_folder import ReadResults, Selection
from harness.analysis.row_pricing import Tariff
from harness.analysis.table import Row, Table
from harness.cli.lines import say
from harness.cli.locations import as_given, if_any, readable
from harness.cli.options import (
    PATH,
    Command,
    Decorator,
    cache_option,
    only_option,
    parse_measures,
    parsed_by,
    parsed_late,
    record_options,
    results_path,
)
from harness.cli.output import Destination
from harness.commands import command
from harness.errors import UsageError
from harness.evaluation import measure_names, trec_lines
from harness.pricing import instances
from harness.pricing.prices import DEFAULT_PRICES, PriceSelection
from harness.report.plots import KINDS
from harness.results import reader, suite_record
from harness.untrusted import one_line

if TYPE_CHECKING:
    from harness.analysis.leaderboard import LeaderboardQuery
    from harness.analysis.rejudge import QrelsOverride
    from harness.evaluation.judged_runs import JudgedRuns
    from harness.evaluation.per_query import PerQuery
    from harness.progress import Progress
    from harness.report.plots.style import Picture
    from harness.results.foreign import ForeignPoint

# Up to this number of rows, values by query are read for one sentence.
_MOST_TESTED = 500


def measures_option(
    text: str = "As ir_measures writes them.", default: Sequence[str] | None = measure_names.DEFAULT
) -> Decorator:
    """Make ``--measures``; with the default ``None``, of stored results: the command gets none for the suite's."""
    if default is None:
        text = f"{text}  [default: the suite's, else {' '.join(measure_names.DEFAULT)}]"
    words = None if default is None else " ".join(default)
    return click.option(
        "--measures", metavar="NAME,...", default=words, callback=parsed_by(parse_measures, ()), help=text
    )


without_queries_option = click.option(
    "--without-queries",
    type=PATH,
    metavar="FILE",
    help="Leave these queries out of the measures: ids, one a line (harness leakage --write makes it).",
)


def qrels_option(text: str) -> Decorator:
    """Make ``--qrels``."""
    return click.option("--qrels", type=PATH, help=text)


def queries_option(text: str = "With run files: the queries that count, as JSON lines or id<TAB>text.") -> Decorator:
    """Make ``--queries``."""
    return click.option("--queries", type=PATH, help=f"{text}  [default: those judged]")


rates_option = click.option(
    "--amrs",
    callback=parsed_by(parsed_late("harness.analysis.axis_numbers", "parse_rates"), {}),
    metavar="AXIS=RATE,...",
    help="Fixed exchange rates, e.g. latency=33.0507,cost=10.4392.",
)


def judging_options(command: Command) -> Command:
    """Add ``--qrels`` and ``--without-queries``, by which stored runs are judged."""
    option = qrels_option(
        "Judge by this file, which holds the stored judgements and more (harness qrels add makes it);"
        " nothing is measured again."
    )
    return option(without_queries_option(command))


@dataclass(frozen=True)
class StoredResults:
    """A results folder as a command reads it.

    ``measures``: none for the suite's.  ``qrels`` replace the stored ones, ``without_queries`` names queries to leave
    out.  ``keys``: of the jobs that count, where not all do.
    """

    results: Path
    cache: Path
    measures: tuple[str, ...] = ()
    selection: PriceSelection = DEFAULT_PRICES
    qrels: Path | None = None
    without_queries: Path | None = None
    keys: frozenset[str] | None = None

    @cached_property
    def override(self) -> QrelsOverride | None:
        """Other qrels, or queries left out."""
        if self.qrels is None and self.without_queries is None:
            return None
        from harness.analysis import rejudge  # late: only for other judgements

        return rejudge.read(self.qrels, self.without_queries)

    def read(self, *, distances: bool = False) -> ReadResults:
        """Read the folder, without prices; arguments as the fields of :class:`Selection`."""
        selection = Selection(self.measures, self.keys, self.override, distances)
        return results_folder.read(self.results, selection, cache=if_any(self.cache))

    def priced(self, found: ReadResults) -> ReadResults:
        """Price what was read at the selected prices."""
        return replace(found, table=row_pricing.price(found.table, self.tariff))

    def by_process(self, rows: Sequence[Row]) -> dict[str, tuple[Row, ...]]:
        """Return the priced rows of each process of some rows, by ``per_query_key``."""
        from harness.analysis.rows import by_process  # late: it reads every record again

        jobs = reader.read_jobs(self.results)
        return by_process(jobs, rows, partial(row_pricing.price, tariff=self.tariff))

    def by_process_at_sizes(self, rows: Sequence[Row]) -> dict[str, tuple[Row, ...]]:
        """Return the rows of each process of the systems of several sizes; reads nothing where there are none."""
        from harness.analysis.larger_sizes import sized_rows  # late: few results have sizes

        sized = sized_rows(rows) if results_folder.may_have_jobs(self.results) else []
        return self.by_process(sized) if sized else {}

    def pricing(self) -> Callable[[Row], Row]:
        """Return a function that prices a row at the selected prices."""
        return partial(row_pricing.price_row, tariff=self.tariff)

    @cached_property
    def tariff(self) -> Tariff:
        """The selected prices."""
        return results_folder.tariff(self.results, self.selection)

    def averaged(self, found: ReadResults) -> ReadResults:
        """Replace the rows of each model's seeds by one row."""
        models = suite_record.read_pairs(self.results, "seeds") if results_folder.may_have_jobs(self.results) else {}
        if not models:
            return found
        from harness.analysis import seeds  # late: most suites name no seeds

        table, per_query = seeds.averaged(found.table, found.per_query, models)
        return ReadResults(table, lambda: per_query)

    def page(self, found: ReadResults, view: str = "") -> str:
        """Return the HTML page of unpriced results, which opens with the selected prices and this view."""
        from harness.report.page.results import results_page  # late, as most commands write no page

        return results_page(self.results, found, self.tariff, view)

    def measure_note(self, table: Table) -> Iterator[str]:
        """Yield why the first of the default measures is shown, and how to choose, where the suites name none."""
        if self.measures or not results_folder.may_have_jobs(self.results) or suite_record.read_measures(self.results):
            return
        if table.measures:
            other = command("report", as_given(str(self.results), self.cache), measures="nDCG@10")
            text = "the first measure of the paper that harness follows, is shown because the suite names none"
            yield f"{table.measures[0]}, {text}; another: {other}"

    def are_current(self, found: ReadResults, *pages: Path) -> bool:
        """Return whether files are as they were written from these results at the newest prices."""
        return found.cache is not None and found.cache.are_current(pages, self._page_inputs())

    def keep_pages(self, found: ReadResults, *pages: Path) -> None:
        """Remember that these files were written from these results at the newest prices."""
        if found.cache is not None:
            found.cache.keep_pages(pages, self._page_inputs())

    def _page_inputs(self) -> list[Path]:
        """Return the files besides the results that a page depends on: prices, and what is told of a service."""
        return [*instances.files(), *self.results.glob(suite_record.FILE)]


def tested(found: ReadResults) -> ReadResults:
    """Leave the values by query out where reading them is slow: of a large table, or one of distances alone."""
    # A Frechet distance describes a whole run, not a query.
    by_query = any(not name.startswith("FD") for name in found.table.measures)
    return found if by_query and len(found.table.rows) <= _MOST_TESTED else replace(found, read_values=dict, cache=None)


# ``--cache``; the command gets RESULTS, measures, prices, qrels and it as one record.
stored_results = record_options("stored", StoredResults, cache_option)


@dataclass(frozen=True)
class RunSelection:
    """One folder of results, by default ``results``, or run files with their qrels and queries."""

    runs: tuple[Path | str, ...]
    cache: Path
    qrels: Path | None = None
    queries: Path | None = None
    only: str | None = None
    without_queries: Path | None = None

    @property
    def names_results(self) -> bool:
        """Return whether one folder of results is named, or a location in S3, which no run file has."""
        return len(self.runs) == 1 and (isinstance(self.runs[0], str) or self.runs[0].is_dir())

    @property
    def names_run_files(self) -> bool:
        """Return whether a readable run file is named."""
        return any(isinstance(run, Path) and trec_lines.is_readable(run) for run in self.runs)

    def judged(self) -> tuple[JudgedRuns, ...]:
        """Return the judged runs, one entry for each dataset, query sample and collection.

        Raises:
            UsageError: the arguments do not go together, or a run or a query does not exist.
            FileError: a file is missing or damaged.
        """
        if self.qrels is None or self.names_results:
            return self._stored()
        if self.only is not None:
            raise UsageError("--only needs stored results; leave it out, or leave --qrels out")
        if not self.runs:
            raise UsageError("--qrels needs run files; name at least one")
        return read_run_files(self.qrels, [*map(Path, self.runs)], self.queries, self.without_queries)

    def _stored(self) -> tuple[JudgedRuns, ...]:
        if self.queries is not None:
            raise UsageError("--queries needs run files; name their judgements with --qrels, or leave --queries out")
        if len(self.runs) > 1 or self.names_run_files:
            raise UsageError("run files need their judgements; name them with --qrels, or give one folder of results")
        folder = readable(self.runs[0] if self.runs else Path("results"), self.cache)
        from harness.analysis import rejudge, stored_runs  # late: most commands read rows, not runs

        stored = stored_runs.read_stored_runs(folder, self.only)
        override = rejudge.read(self.qrels, self.without_queries)
        return stored if override is None else rejudge.override_runs(stored, override)


# ``RUNS...``, ``--qrels``, ``--queries`` and ``--only``; the command gets them as one record.
runs_options = record_options(
    "runs",
    RunSelection,
    click.argument("runs", nargs=-1, type=results_path, metavar="[RUNS]..."),
    qrels_option(
        "With run files: their judgements.  With results: judge by this file, which holds the stored ones and more."
    ),
    queries_option(),
    only_option,
)


def draw(
    table: Table,
    per_query: Mapping[str, PerQuery],
    query: LeaderboardQuery,
    destination: Destination,
    kinds: Sequence[str] = KINDS,
    points: Sequence[ForeignPoint] = (),
) -> None:
    """Draw a table's pictures into a folder, and the points that others report of vector searches."""
    from harness.report.plots import album, foreign

    drawn = album.plots_of(table, per_query, query, kinds)
    pictures = [*(each.picture for each in drawn.pictures), *foreign.recall_plots(points)]
    show_pictures(pictures, drawn.missing, destination)


def show_pictures(pictures: Iterable[Picture], missing: Iterable[str], destination: Destination) -> None:
    """Draw pictures, and print a line on stderr for each missing one, and the paths; exit code 1 without any."""
    from harness.report.plots import style

    folder = destination.folder
    for reason in missing:
        say(one_line(reason), err=True)
    any_picture = False
    for path in style.save_each(pictures, folder, destination.form):
        any_picture = True
        say(one_line(str(path)))
    if not any_picture:
        sys.exit(1)


def read_run_files(
    qrels: Path,
    runs: Sequence[Path],
    queries: Path | None,
    without_queries: Path | None,
    watch: Callable[[Path], Progress | None] = lambda _: None,
) -> tuple[JudgedRuns]:
    """Read run files and their qrels; ``watch`` gives the progress callback of each file."""
    from harness.analysis import rejudge
    from harness.evaluation import judged_runs

    texts = judged_runs.read_queries(queries) if queries else None
    override = rejudge.read(None, without_queries)
    runs_of_files = judged_runs.read_runs(qrels, runs, texts, watch)
    return (runs_of_files if override is None else rejudge.override_runs((runs_of_files,), override)[0],)
