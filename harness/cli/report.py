"""`harness report`: the table, the page or the pictures of stored results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import click

from harness.analysis import cheapest, long_documents, published, published_measures, results_folder, seeds
from harness.analysis.cheapest import QualityGoal
from harness.analysis.leaderboard import LeaderboardQuery
from harness.cli.leaderboard import rates_option
from harness.cli.locations import as_given, mirrored
from harness.cli.options import (
    cache_option,
    parsed_by,
    price_options,
    record_options,
    results_argument,
)
from harness.cli.output import FORMATS, PAGE, PICTURES, Destination, destination_options
from harness.cli.stored_results import (
    StoredResults,
    draw,
    judging_options,
    show_pictures,
    stored_measures_option,
    stored_results,
)
from harness.commands import command
from harness.errors import UnknownName, UsageError
from harness.report import LAYOUTS, render, study
from harness.report import cheapest as cheapest_report
from harness.report.long_documents import answer, long_documents_document
from harness.report.plots import long_documents as long_plots
from harness.report.published_measures import measures_document
from harness.report.summary import SummaryView, summary_section
from harness.untrusted import split_list

LONG_DOCUMENTS = "long-documents"
# The line that says where everything else is.
POINTER = "all columns and notes: --wide   how a number was made: {}"


def _view(columns: tuple[str, ...], sort: str) -> SummaryView:
    return SummaryView(columns=columns, sort=sort)


view_options = record_options(
    "view",
    _view,
    click.option(
        "--columns",
        default="",
        callback=parsed_by(split_list),
        metavar="NAME,...",
        show_default=False,
        help="Show these: hardware, machine, MEASURE, latency, p95, throughput, memory,"
        " gpu_memory, index, cost, build, GFLOP, parameters; of two stages ceiling, gain, harm, pairs, tokens; of"
        " language models token_price; or a figure by its name in CSV, such as p99_ms or load_s.",
    ),
    click.option("--sort", default="", show_default=False, metavar="NAME", help="Sort by this column."),
)


@click.command()
@mirrored("results")
@results_argument
@destination_options(
    *FORMATS,
    "latex",
    PAGE,
    *PICTURES,
    text="html: one file that opens in a browser, with all prices, pictures and evidence in it.",
    wide=True,
)
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default="rows",
    help="One row for each cell; the shape of the paper's Table 3 (latency and cost by hardware, then accuracy); or"
    " what reading long documents gains over FirstP, and what it costs.",
)
@click.option(
    "--at-least",
    "goal",
    callback=parsed_by(cheapest.parse_goal),
    metavar="MEASURE=VALUE",
    help="Find the cheapest row whose mean reaches this (nDCG@10=0.68), or lies at most so far below another system's"
    " (nDCG@10=bm25-0.002), and the next cheaper one.",
)
@stored_measures_option(
    "As ir_measures writes them; in tables also FD@10, a Frechet distance by the vectors of harness embed."
)
@view_options
@rates_option
@judging_options
@price_options
@cache_option
@stored_results
def report(
    stored: StoredResults,
    layout: str,
    destination: Destination,
    view: SummaryView,
    goal: QualityGoal | None,
    amrs: Mapping[str, float],
) -> None:
    """Show systems, quality, latency and cost of the stored RESULTS (a folder; default: results).  Runs nothing.

    --wide has every column and note; csv, json and latex always do.

    With png, svg or pdf: pictures of each dataset, into the folder that -o names; --amrs is for pictures of Dynascores.
    """
    chosen = stored.measures
    short = destination.form == "md" and layout == "rows" and not destination.wide
    _check_options(destination.form, short, view, amrs)
    if goal is not None:
        if layout != "rows" or view != SummaryView() or chosen or destination.form not in FORMATS:
            raise UsageError(
                "--at-least has columns and a measure of its own, in md, csv or json; leave out --layout, --columns,"
                " --sort, --measures and other formats"
            )
        _cheapest(replace(stored, measures=(goal.measure,)), goal, destination)
        return
    # A paper's layout has the measures of its study, any other those of the suite.
    defaults = study.load(layout).MEASURES if layout in study.names() else ()
    stored = replace(stored, measures=chosen or defaults)
    if layout == LONG_DOCUMENTS and destination.form != PAGE:
        _long_documents(stored, destination)
    elif layout == "rows" and destination.form != PAGE and published.has_measures_alone(stored.results):
        _measures(stored, destination, view)
    elif destination.form == PAGE:
        if layout != "rows":
            raise UsageError(f"--layout {layout}: a page has one layout of its own; leave --layout out")
        destination.show(stored.page())
    elif destination.form in PICTURES:
        if layout != "rows":
            raise UsageError(f"--layout {layout} is the shape of a table; leave it out to draw pictures")
        table = stored.table()
        draw(table, stored.per_query(), LeaderboardQuery("", table.measures[0], amrs=amrs), destination)
    else:
        # A paper's own tables are hundreds of lines: a terminal gets the answer first, as does who names columns.
        answers = short and (destination.on_terminal or view != SummaryView())
        whole = layout == "rows" and stored.override is None and not answers
        text = _published(stored, destination.form) if whole else None
        if text is None and short:
            view = replace(
                view,
                measures=chosen,
                pointers=(POINTER.format(command("explain", results=as_given(str(stored.results), stored.cache))),),
            )
            table = stored.table(distances=True)
            table, per_query = stored.averaged(table, stored.tested(table))
            destination.show_answer(lambda escape, width: (summary_section(table, per_query, escape, view, width),))
        else:
            destination.show(text or render(stored.table(distances=True), destination.form, layout=layout))


def _check_options(form: str, short: bool, view: SummaryView, amrs: Mapping[str, float]) -> None:
    """Raise UsageError for an option that the chosen form has no use for."""
    if view != SummaryView() and not short:
        raise UsageError("--columns and --sort are of the short table; leave out --wide, --layout and --format")
    if amrs and form not in PICTURES:
        raise UsageError("--amrs is for pictures; harness leaderboard has it for tables and the page. Leave it out.")


def _cheapest(stored: StoredResults, goal: QualityGoal, destination: Destination) -> None:
    """Show the cheapest row that reaches a goal."""
    table = stored.table()
    if goal.measure not in table.measures:
        raise UnknownName("measure", goal.measure, table.measures)
    found = cheapest.find(table, stored.per_query(), goal)
    if destination.form == "md" and not destination.wide:
        destination.show_answer(lambda escape, width: (cheapest_report.answer(found, goal, table, escape, width),))
    else:
        destination.show_report(cheapest_report.cheapest_document(found, goal, table))


def _long_documents(stored: StoredResults, destination: Destination) -> None:
    """Show what reading beyond the first part gains and costs."""
    folder = destination.folder if destination.form in PICTURES else None
    if published.is_in(stored.results):
        raise UsageError(
            f"{stored.results}: a paper's figures have no times or queries to compare; leave --layout out, which shows"
            " its printed gains"
        )
    table, per_query = stored.averaged(stored.table(), stored.per_query())
    firstp = seeds.models_of(results_folder.load_firstp(stored.results), results_folder.load_seeds(stored.results))
    made = long_documents.build(table, per_query, firstp, (*table.measures, "")[0])
    paper = published_measures.long_documents()
    if folder is not None:
        drawn = long_plots.write_pictures(made, paper, folder, destination.form)
        show_pictures(drawn, [] if made.groups else ["no picture: no suite of these results names a FirstP ([firstp])"])
    elif destination.form == "md" and not destination.wide:
        destination.show_answer(lambda escape, width: (answer(made, paper, escape, width),))
    else:
        destination.show_report(long_documents_document(made, paper))


def _measures(stored: StoredResults, destination: Destination, view: SummaryView) -> None:
    """Show a paper's measures, which have neither latency nor cost."""
    if destination.form in PICTURES or view != SummaryView():
        option = "--columns and --sort are" if view != SummaryView() else f"--format {destination.form} is"
        raise UsageError(
            f"{stored.results}: {option} of latency and cost, which this paper does not print; leave it out"
        )
    destination.show_report(measures_document(published_measures.read(stored.results), stored.table()))


def _published(stored: StoredResults, form: str) -> str | None:
    """Write published tables in their paper's shape; ``None``: the folder holds jobs, or no study knows the paper."""
    if not published.is_in(stored.results):
        return None
    paper = published.read(stored.results)
    known = study.of(paper)
    return None if known is None else known.render_paper(paper, paper.follows(), stored.selection.snapshot(), form)
