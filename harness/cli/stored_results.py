"""Inputs of commands that run nothing: stored results with prices and measures, and run files with qrels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from harness import datasets
from harness.analysis import published, rejudge, results_folder, row_pricing
from harness.analysis.leaderboard import LeaderboardQuery
from harness.analysis.rejudge import QrelsOverride
from harness.analysis.row_pricing import Tariff
from harness.analysis.stored_runs import read_stored_runs
from harness.analysis.table import Table
from harness.cli.locations import absolute, readable
from harness.cli.options import DEFAULT_PRICES, Command, PriceSelection, only_option, results_path
from harness.datasets import Dataset
from harness.errors import UsageError
from harness.evaluation import judged_runs, measure_names, trec_lines
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.per_query import PerQuery
from harness.progress import Progress, bar
from harness.report.page import PageSource, PublishedRates, answer_html, page_content, ranking_data, render_page
from harness.report.plots import KINDS, album
from harness.report.summary import summary_section
from harness.untrusted import MAX_TEXT, one_line

measures_option = click.option(
    "--measures", default=" ".join(measure_names.DEFAULT), show_default=True, help="As ir_measures writes them."
)
without_queries_option = click.option(
    "--without-queries",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Leave these queries out of the measures: ids, one a line (harness leakage writes such).",
)
queries_option = click.option(
    "--queries",
    type=click.Path(path_type=Path),
    help="With run files: the queries that count, as JSON lines or id<TAB>text.  [default: those judged]",
)


def judging_options(command: Command) -> Command:
    """``--qrels`` and ``--without-queries``, which :func:`harness.analysis.rejudge.read` takes."""
    qrels_option = click.option(
        "--qrels",
        type=click.Path(path_type=Path),
        help="Judge by this file, which holds the stored judgements and more (harness qrels add makes such);"
        " nothing is measured again.",
    )
    return qrels_option(without_queries_option(command))


def runs_arguments(command: Command) -> Command:
    """``RUNS...``, ``--qrels``, ``--queries`` and ``--only``, which :func:`judged` takes."""
    qrels_option = click.option(
        "--qrels",
        type=click.Path(path_type=Path),
        help="With run files: their judgements.  With results: judge by this file, which holds the stored ones and"
        " more.",
    )
    runs_argument = click.argument("runs", nargs=-1, type=results_path, metavar="[RUNS]...")
    return runs_argument(qrels_option(queries_option(only_option(command))))


@dataclass(frozen=True)
class StoredResults:
    """A results folder as a command reads it.

    ``override``: other qrels, or queries left out.  ``keys``: of the jobs that count, where not all do.
    """

    folder: Path
    measures: tuple[str, ...]
    cache: Path
    selection: PriceSelection = DEFAULT_PRICES
    override: QrelsOverride | None = None
    keys: frozenset[str] | None = None

    def table(self, *, priced: bool = True, columns: Collection[str] | None = None, distances: bool = False) -> Table:
        """Return the table, at the selected prices unless ``priced`` is off.

        ``columns`` and ``distances``: see :func:`harness.analysis.results_folder.load_rows`.
        """
        table = results_folder.load_rows(
            self.folder,
            self.measures,
            keys=self.keys,
            cache=absolute(self.cache),
            columns=columns,
            override=self.override,
            distances=distances,
        )
        return row_pricing.price(table, self._tariff()) if priced else table

    def _tariff(self) -> Tariff:
        return row_pricing.tariff(self.selection.snapshot(), choice=self.selection.choice)

    def per_query(self) -> Mapping[str, PerQuery]:
        """Return the rows' values by query."""
        return results_folder.load_per_query(
            self.folder, self.measures, cache=absolute(self.cache), override=self.override
        )

    def page(self, view: str = "") -> str:
        """Return the HTML page, which opens with the selected prices and this view."""
        tariff = self._tariff()
        rows, per_query = self.table(priced=False), self.per_query()
        table = row_pricing.price(rows, tariff)
        title, about, rates = _paper(self.folder)
        content = PageSource(
            title=title or f"Results in {self.folder.resolve().name}",
            about=about,
            measured=rows,
            tariff=tariff,
            ranking=ranking_data(table, per_query, rates),
            quantiles_s={key: values.quantiles_s for key, values in per_query.items()},
            notes=table.notes,
            view=view,
        )
        answer = summary_section(table, per_query, lambda text: one_line(text, MAX_TEXT))
        return render_page(page_content(content), answer_html(answer))


def draw(
    table: Table,
    per_query: Mapping[str, PerQuery],
    query: LeaderboardQuery,
    form: str,
    output: Path | None,
    kinds: Sequence[str] = KINDS,
) -> None:
    """Draw a table's pictures into a folder; print a line on stderr for each missing one."""
    if output is None:
        raise UsageError(f"--format {form} writes several files; name a folder for them with -o")
    drawn = album.plots_of(table, per_query, query, kinds)
    for reason in drawn.missing:
        click.echo(one_line(reason), err=True)
    for path in album.write_plots(drawn.pictures, output, form):
        click.echo(one_line(str(path)))
    if not drawn.pictures:
        sys.exit(1)


def load_dataset(name: str, cache: Path) -> Dataset:
    """Load a dataset by its name or folder, with a bar while a large corpus is prepared.

    Raises:
        UnknownName: there is no such dataset.
        FileError: a file of it is missing or wrong.
    """
    with bar(f"{name}: corpus", "documents", line=True) as step:
        return datasets.load(datasets.find(name, Path.cwd()), absolute(cache), step)


def measures_for(measure: str) -> tuple[str, ...]:
    """Return the default measures, whose rows are likely cached, if they contain this one; else this one."""
    return measure_names.DEFAULT if measure in measure_names.DEFAULT else (measure,)


def judged(
    runs: tuple[Path | str, ...],
    qrels: Path | None,
    queries: Path | None,
    only: str | None,
    cache: Path,
    without_queries: Path | None = None,
) -> tuple[JudgedRuns, ...]:
    """Return the judged runs, one entry for each dataset, query sample and collection.

    Args:
        runs: one folder of results (or its URI in S3; by default ``results``), or run files.
        qrels: of run files; for results, replaces the stored qrels.
        queries: of run files.
        only: of stored results.
        cache: the mirror of results in S3.
        without_queries: ids of queries that do not count.

    Raises:
        UsageError: the arguments do not go together, there is no run, or no such query.
        FileError: a file is missing or damaged.
    """
    if qrels is None or _is_results(runs):
        if queries is not None:
            raise UsageError("--queries is of run files; name their judgements with --qrels, or leave it out")
        if len(runs) > 1 or any(isinstance(run, Path) and trec_lines.is_readable(run) for run in runs):
            raise UsageError("run files need their judgements; name them with --qrels, or give one folder of results")
        folder = readable(runs[0] if runs else Path("results"), cache)
        assert folder is not None
        stored = read_stored_runs(folder, only)
        override = rejudge.read(qrels, without_queries)
        return stored if override is None else rejudge.override_runs(stored, override)
    if only is not None:
        raise UsageError("--only is of stored results; leave it out, or leave --qrels out")
    if not runs:
        raise UsageError("--qrels needs run files beside it; name at least one")
    texts = judged_runs.read_queries(queries) if queries else None
    return of_files(qrels, [Path(run) for run in runs], texts, without_queries)


def of_files(
    qrels: Path,
    runs: Sequence[Path],
    queries: Mapping[str, str] | None,
    without_queries: Path | None,
    watch: Callable[[Path], Progress | None] = lambda _: None,
) -> tuple[JudgedRuns]:
    """Read run files and their qrels; ``watch`` gives the progress callback of each file."""
    override = rejudge.read(None, without_queries)
    read = judged_runs.read_runs(qrels, runs, queries, watch)
    return (read if override is None else rejudge.override_runs((read,), override)[0],)


def _is_results(runs: tuple[Path | str, ...]) -> bool:
    """Return whether one folder of results is named, or a location in S3, which no run file has."""
    return len(runs) == 1 and (isinstance(runs[0], str) or runs[0].is_dir())


def _paper(folder: Path) -> tuple[str | None, tuple[str, ...], tuple[PublishedRates, ...]]:
    """Return the title, citation and exchange rates of the paper whose tables a folder holds."""
    if not published.is_in(folder):
        return None, (), ()
    paper = published.read(folder).about
    rates = tuple(PublishedRates("the paper's", data.name, "RR@10", data.amrs) for data in paper.datasets if data.amrs)
    who = f"{paper.authors[0].split()[-1]} et al." if len(paper.authors) > 2 else " and ".join(paper.authors)
    return f"{who} {paper.year}, as published", (paper.citation(), f"Licence of the figures: {paper.licence}"), rates
