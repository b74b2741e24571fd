"""`harness report`: the table, the page or the pictures of stored results.

Each layout imports what it alone needs, so that the first screen waits for no other's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import click

from harness.analysis import published, results_folder
from harness.cli.locations import as_given, results_argument
from harness.cli.options import carbon_options, check_needs, parsed_by, parsed_late, record_options
from harness.cli.output import FORMATS, PAGE, PICTURES, Destination, destination_options
from harness.cli.stored_results import (
    StoredResults,
    draw,
    judging_options,
    measures_option,
    rates_option,
    show_pictures,
    stored_results,
    tested,
)
from harness.cli.traffic import at_option
from harness.commands import command
from harness.driver.records import Outcome
from harness.errors import UnknownName, UsageError
from harness.report import LAYOUTS, render, study
from harness.report.currency import CURRENCIES, USD, Currency
from harness.report.summary import SummaryView, paper_section, summary_section
from harness.results import foreign
from harness.untrusted import split_list

if TYPE_CHECKING:
    from harness.analysis.cheapest import QualityGoal
    from harness.analysis.published import Published
    from harness.analysis.results_folder import ReadResults
    from harness.analysis.table import Table

LONG_DOCUMENTS = "long-documents"
# The line that says where everything else is.
POINTER = "all columns and notes: --wide   how a number was made: {}"


def _view(columns: tuple[str, ...], sort: str, currency: str) -> SummaryView:
    return SummaryView(columns=columns, sort=sort, currency=CURRENCIES[currency])


view_options = record_options(
    "view",
    _view,
    click.option(
        "--columns",
        default="",
        callback=parsed_by(split_list),
        metavar="NAME,...",
        show_default=False,
        help="Show these: hardware, machine, MEASURE, latency, p95, throughput, memory, gpu_memory,"
        " index, cost, carbon, build, GFLOP, parameters; of two stages ceiling, gain, harm, pairs, tokens; of"
        " language models token_price; or a figure by its name in CSV, such as p99_ms or load_s.",
    ),
    click.option("--sort", default="", show_default=False, metavar="NAME", help="Sort by this column."),
    click.option(
        "--currency",
        type=click.Choice(tuple(CURRENCIES)),
        default="usd",
        help="Count US$, or grams of CO2e: a range that is estimated from CPU time, watts and the grid.",
    ),
)


@dataclass(frozen=True)
class ReportRequest:
    """Request for a report: the results, the shape and the destination.

    ``reference`` is the system of ``pooled`` that others are compared with (empty: the quickest).  ``at`` is a number
    of documents to predict.
    """

    stored: StoredResults
    layout: str
    destination: Destination
    view: SummaryView
    goal: QualityGoal | None
    amrs: Mapping[str, float]
    pooled: bool
    reference: str
    at: int | None

    @property
    def form(self) -> str:
        """The format."""
        return self.destination.form

    @property
    def short(self) -> bool:
        """True for a person who reads the answer first: the summary of the rows, without --wide."""
        return self.form == "md" and self.layout == "rows" and not self.destination.wide

    @cached_property
    def paper(self) -> Published | None:
        """The tables of a paper that a study knows, where the folder holds them."""
        results = self.stored.results
        paper = published.read(results) if published.is_in(results) else None
        return paper if paper is not None and study.of(paper) is not None else None

    def read(self, *, distances: bool = False) -> ReadResults:
        """Read the results once, by the layout's measures unless others are chosen, at the selected prices."""
        # A paper's layout has the measures of its study; any other layout has the suite's.
        defaults = study.load(self.layout).MEASURES if self.layout in study.names() else ()
        stored = replace(self.stored, measures=self.stored.measures or defaults)
        return stored.priced(stored.read(distances=distances))


@click.command()
@results_argument()
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
    "--pooled",
    is_flag=True,
    help="Join merged results of at least four machines: each figure on another machine (md, csv or json).",
)
@click.option(
    "--reference",
    default="",
    show_default=False,
    metavar="SYSTEM",
    help="--pooled: the system that the others are compared with.  [default: the quickest]",
)
@at_option(
    "Predict what each system costs at this many documents (10M), from rows of several sizes (md, csv, json or a"
    " picture)."
)
@click.option(
    "--at-least",
    "goal",
    callback=parsed_by(parsed_late("harness.analysis.cheapest", "parse_goal")),
    metavar="MEASURE=VALUE",
    help="Find the cheapest row whose mean reaches this (nDCG@10=0.68), or is at most this far below another system's"
    " (nDCG@10=bm25-0.002), and the next cheaper one.",
)
@measures_option(
    "As ir_measures writes them; in tables also FD@10, a Frechet distance by the vectors of harness embed.", None
)
@view_options
@rates_option
@judging_options
@carbon_options
@stored_results
@record_options("request", ReportRequest)
def report(request: ReportRequest) -> None:
    """Show systems, quality, latency and cost of the stored RESULTS (a folder; default: results).  Runs nothing.

    --wide has every column and note; csv and json always do.

    With png, svg or pdf: pictures of each dataset, into the folder that -o names; --amrs is for pictures of Dynascores.
    """
    _check_options(request)
    next(show for takes, show in _LAYOUTS if takes(request))(request)


def _check_options(request: ReportRequest) -> None:
    """Raise UsageError for an option that the chosen shape has no use for."""
    check_needs(reference="pooled")
    given = {"--at": request.at is not None, "--pooled": request.pooled, "--at-least": request.goal is not None}
    own = [name for name, is_given in given.items() if is_given]
    forms = (*FORMATS, *PICTURES) if own[:1] == ["--at"] else FORMATS
    if own and (own[1:] or request.layout != "rows" or request.view != SummaryView() or request.form not in forms):
        raise UsageError(
            f"{own[0]} has its own columns, in {', '.join(forms[:-1])} or {forms[-1]}; leave out --layout, --columns,"
            f" --sort, --currency, {', '.join(name for name in given if name != own[0])} and other formats"
        )
    if request.goal is not None and request.stored.measures:
        raise UsageError("--at-least names its own measure; leave --measures out")
    if request.view != SummaryView() and not request.short:
        raise UsageError(
            "--columns, --sort and --currency change the short table; leave out --wide, --layout and --format"
            " (csv and json have the CO2e too)"
        )
    if request.amrs and request.form not in PICTURES:
        raise UsageError("--amrs is for pictures; harness leaderboard has it for tables and the page. Leave it out.")


def _cheapest(request: ReportRequest) -> None:
    """Show the cheapest row that reaches a goal."""
    from harness.analysis import cheapest
    from harness.report.cheapest import answer, cheapest_document

    goal = request.goal
    assert goal is not None, "the layout takes no other request"
    results = replace(request, stored=replace(request.stored, measures=(goal.measure,))).read()
    table = results.table
    if goal.measure not in table.measures:
        raise UnknownName("measure", goal.measure, table.measures)
    found = cheapest.find(table, results.per_query, goal)
    request.destination.show_report(
        cheapest_document(found, goal, table), lambda escape, width: (answer(found, goal, table, escape, width),)
    )


def _pooled(request: ReportRequest) -> None:
    """Show the figures on another machine."""
    from harness.analysis import history, other_machines
    from harness.report.other_machines import check, pool, pooled_document
    from harness.results import reader

    stored, reference = request.stored, request.reference
    if not results_folder.may_have_jobs(stored.results):
        raise UsageError(f"{stored.results}: no stored jobs in it, so no machines to join; leave --pooled out")
    table = request.read().table
    rows = [row for row in table.rows if row.origin is not None]
    check(other_machines.cells(rows, {}, {}), reference)  # before every record is read again
    work_s = history.work_s(reader.read_jobs(stored.results), rows)
    cells = other_machines.cells(rows, stored.by_process(rows), work_s)
    request.destination.show_report(pooled_document(pool(table, cells, reference)))


def _at_size(request: ReportRequest) -> None:
    """Show what systems cost at a number of documents that was not measured."""
    from harness.report.larger_sizes import predicted, sizes_document

    stored, destination = request.stored, request.destination
    assert request.at is not None, "the layout takes no other request"
    table = request.read().table
    made = predicted(table, stored.by_process_at_sizes(table.rows), request.at, stored.pricing())
    if destination.pictures:
        from harness.report.plots import larger_sizes as plots  # late: matplotlib

        show_pictures(plots.pictures(made), (), destination)
    else:
        destination.show_report(sizes_document(made))


def _page(request: ReportRequest) -> None:
    if request.layout != "rows":
        raise UsageError(f"--layout {request.layout}: a page has its own layout; leave --layout out")
    request.destination.show(request.stored.page(request.stored.read()))


def _long_documents(request: ReportRequest) -> None:
    """Show what reading beyond the first part gains and costs."""
    from harness.analysis import long_documents, seeds
    from harness.report.long_documents import answer, long_documents_document
    from harness.report.plots.long_documents import pictures
    from harness.results import suite_record

    stored, destination = request.stored, request.destination
    if published.is_in(stored.results):
        raise UsageError(
            f"{stored.results}: a paper's figures have no times or queries to compare; leave --layout out, which shows"
            " its printed gains"
        )
    found = stored.averaged(request.read())
    firstp = seeds.models_of(
        suite_record.read_pairs(stored.results, "firstp"),
        suite_record.read_pairs(stored.results, "seeds"),
    )
    made = long_documents.build(found.table, found.per_query, firstp, (*found.table.measures, "")[0])
    if destination.pictures:
        missing = [] if made.groups else ["no picture: no suite of these results names a FirstP ([firstp])"]
        show_pictures(pictures(made), missing, destination)
    else:
        destination.show_report(long_documents_document(made), lambda escape, width: (answer(made, escape, width),))


def _measures(request: ReportRequest) -> None:
    """Show a paper's measures, which have neither latency nor cost."""
    from harness.analysis import published_measures
    from harness.report.published_measures import measures_document

    view, results = request.view, request.stored.results
    if request.form in PICTURES or view != SummaryView():
        option = "--columns, --sort and --currency are" if view != SummaryView() else f"--format {request.form} is"
        raise UsageError(f"{results}: {option} of latency and cost, which this paper does not print; leave it out")
    request.destination.show_report(measures_document(published_measures.read(results), request.read().table))


def _pictures(request: ReportRequest) -> None:
    from harness.analysis.leaderboard import LeaderboardQuery

    if request.layout != "rows":
        raise UsageError(f"--layout {request.layout} shapes a table; leave it out to draw pictures")
    found = request.read()
    query = LeaderboardQuery("", found.table.measures[0], amrs=request.amrs)
    figures, _ = foreign.read_if_whole(request.stored.results)
    draw(found.table, found.per_query, query, request.destination, points=figures.points if figures else ())


def _is_known_paper(request: ReportRequest) -> bool:
    """Return whether a paper's own tables answer: a terminal gets the summary first, as does who names columns."""
    stored = request.stored
    summarised = request.short and (request.destination.on_terminal or request.view != SummaryView())
    whole = request.layout == "rows" and stored.override is None and not summarised
    return whole and request.paper is not None


def _published(request: ReportRequest) -> None:
    """Show published tables in their paper's shape."""
    paper = request.paper
    known = None if paper is None else study.of(paper)
    assert paper is not None and known is not None, "the layout takes no other request"
    prices = request.stored.selection.snapshot()
    request.destination.show(known.render_paper(paper, paper.follows(), prices, request.form))


def _summary(request: ReportRequest) -> None:
    """Show few columns, and the pointers to everything else."""
    stored = request.stored
    explained = command("explain", results=as_given(str(stored.results), stored.cache))
    found = stored.averaged(tested(request.read(distances=True)))
    _check_amounts(found.table, request.view.currency)
    pointers = (POINTER.format(explained), *stored.measure_note(found.table))
    view = replace(request.view, measures=stored.measures, pointers=pointers)
    request.destination.show_answer(
        lambda escape, width: (summary_section(found.table, found.compare, escape, view, width),)
    )


def _check_amounts(table: Table, currency: Currency) -> None:
    """Raise UsageError where no measured row has CO2e, with the reason."""
    reasons = [row.carbon.grams.reason for row in table.rows if row.outcome is Outcome.OK]
    if currency is not USD and reasons and None not in reasons:
        raise UsageError(f"no row has an estimate of CO2e: {reasons[0]}")


def _paper(request: ReportRequest) -> None:
    """Show the one table that a paper prints."""
    from harness.report import latex

    table = request.stored.averaged(request.read(distances=True)).table
    request.destination.show(latex.write_sections((paper_section(table, latex.escape, latex.is_whole),)))


def _whole_table(request: ReportRequest) -> None:
    text = render(request.read(distances=True).table, request.form, layout=request.layout)
    request.destination.show(text)


# The requests that a layout takes, and how it shows one; the first layout that takes a request shows it.
_LAYOUTS: tuple[tuple[Callable[[ReportRequest], bool], Callable[[ReportRequest], None]], ...] = (
    (lambda request: request.at is not None, _at_size),
    (lambda request: request.pooled, _pooled),
    (lambda request: request.goal is not None, _cheapest),
    (lambda request: request.form == PAGE, _page),
    (lambda request: request.layout == LONG_DOCUMENTS, _long_documents),
    (lambda request: request.layout == "rows" and published.has_measures_alone(request.stored.results), _measures),
    (lambda request: request.form in PICTURES, _pictures),
    (_is_known_paper, _published),
    (lambda request: request.short, _summary),
    (lambda request: request.form == "latex" and not request.destination.wide and request.layout == "rows", _paper),
    (lambda _: True, _whole_table),
)
