"""`harness report`: the table, the page or the pictures of stored results."""

from __future__ import annotations

from pathlib import Path

import click

from harness.analysis import published, rejudge
from harness.analysis.leaderboard import LeaderboardQuery
from harness.cli.locations import mirrored
from harness.cli.options import PriceSelection, cache_option, parse_measures, price_options, results_argument
from harness.cli.output import (
    FORMATS,
    PAGE,
    PICTURES,
    answer_options,
    format_option,
    picture_output_option,
    pointers,
    show,
    show_answer,
    show_page,
)
from harness.cli.stored_results import StoredResults, draw, judging_options
from harness.errors import UsageError
from harness.evaluation import measure_names
from harness.report import render, study
from harness.report.summary import SummaryView, summary_section

# Each layout and its default measures.
MEASURES = {"rows": " ".join(measure_names.DEFAULT), "santhanam2023": "RR@10 Success@10"}


@click.command()
@results_argument
@format_option(
    *FORMATS,
    "latex",
    PAGE,
    *PICTURES,
    text="html: one file that opens in a browser, with all prices, pictures and evidence in it.",
)
@picture_output_option
@click.option(
    "--layout",
    type=click.Choice(tuple(MEASURES)),
    default="rows",
    show_default=True,
    help="One row for each cell, or the shape of the paper's Table 3: latency and cost by hardware, then accuracy.",
)
@click.option(
    "--measures",
    help="As ir_measures writes them; in tables also FD@10, a Frechet distance by the vectors of harness embed.  "
    f"[default: {MEASURES['rows']}; layout santhanam2023: {MEASURES['santhanam2023']}]",
)
@answer_options
@judging_options
@price_options
@cache_option
@mirrored("results")
def report(
    results: Path,
    form: str,
    layout: str,
    wide: bool,
    columns: str,
    sort: str,
    output: Path | None,
    measures: str | None,
    qrels: Path | None,
    without_queries: Path | None,
    selection: PriceSelection,
    cache: Path,
) -> None:
    """Show the stored RESULTS (a folder; default: results): systems, quality, latency and cost.  Runs nothing.

    --wide has every column and note; csv, json and latex always do.

    With png, svg or pdf: pictures of each dataset, into the folder that -o names.
    """
    names = parse_measures(MEASURES[layout] if measures is None else measures)
    override = rejudge.read(qrels, without_queries)
    stored = StoredResults(results, names, cache, selection, override)
    if form == PAGE:
        if layout != "rows":
            raise UsageError(f"--layout {layout}: a page has one layout of its own; leave --layout out")
        show_page(stored.page(), output)
    elif form in PICTURES:
        if layout != "rows":
            raise UsageError(f"--layout {layout} is the shape of a table; leave it out to draw pictures")
        draw(stored.table(), stored.per_query(), LeaderboardQuery("", names[0]), form, output)
    elif form == "md" and layout == "rows" and not wide:
        view = SummaryView(names if measures else (), tuple(columns.split()), sort, pointers(results))
        table, per_query = stored.table(distances=True), stored.per_query()
        show_answer(lambda escape, width: summary_section(table, per_query, escape, view, width), output)
    else:
        text = _published(results, form, selection) if layout == "rows" and override is None else None
        show(text or render(stored.table(distances=True), form, layout=layout), output)


def _published(results: Path, form: str, selection: PriceSelection) -> str | None:
    """Write published tables in their paper's shape; ``None``: the folder holds jobs, or no study knows the paper."""
    if not published.is_in(results):
        return None
    paper = published.read(results)
    known = study.of(paper)
    return None if known is None else known.render_paper(paper, paper.follows(), selection.snapshot(), form)
