"""`harness bill`: what the stored systems cost in a month at some traffic."""

from __future__ import annotations

from dataclasses import replace

import click

from harness.analysis import bills, larger_sizes
from harness.analysis.axes import cell_of
from harness.cli.locations import as_given, results_argument
from harness.cli.options import given_options, price_options
from harness.cli.output import PICTURES, Destination, destination_options
from harness.cli.stored_results import StoredResults, show_pictures, stored_results
from harness.cli.traffic import TrafficOptions, traffic_options
from harness.commands import command
from harness.errors import UnknownName
from harness.experiments.viability import acceptance
from harness.pricing.bill import USUAL
from harness.pricing.prices import PriceSelection
from harness.report.bill import answer, bill_document
from harness.report.query_prices import prices_answer, query_prices_document
from harness.results.schema import glob_of


@click.command()
@results_argument()
@traffic_options
@click.option(
    "--max-latency",
    "targets",
    multiple=True,
    metavar="FIGURE=TIME",
    help="Only systems whose mean, p50, p95 or p99 is at most this, e.g. p95=20ms; repeatable.",
)
@price_options
@destination_options("md", "csv", "json", *PICTURES, wide=True)
@stored_results
def bill(stored: StoredResults, targets: tuple[str, ...], traffic: TrafficOptions, destination: Destination) -> None:
    """Bill the stored RESULTS (a folder; default: results) by the month, at your traffic.  Runs nothing.

    Without a traffic, it shows three prices of a query: sequential, saturated and metered (serverless).

    Machines are rented all month, busy or not, and are enough for the busiest hour.  Also says how busy they are,
    which system is the cheapest, from how many queries on another one is, and up to how many serverless costs less.  A
    picture (--format png, svg, pdf) shows the bill at any traffic.
    """
    if not (targets or destination.pictures or traffic.given):
        prices = stored.priced(stored.read()).table
        destination.show_report(
            query_prices_document(prices), lambda escape, width: prices_answer(prices, escape, width)
        )
        return
    at = traffic.read(USUAL if destination.pictures else None)
    at = at.model_copy(update={"max_latency": targets or at.max_latency})
    most_s = acceptance.parse_criteria(at.max_latency, ()).targets
    if unknown := next((figure for figure in most_s if figure not in bills.FIGURES), None):
        raise UnknownName("latency figure", unknown, bills.FIGURES)
    table = stored.priced(stored.read()).table
    if at.documents is not None:
        processes = stored.by_process_at_sizes(table.rows)
        rows = larger_sizes.with_predicted(table.rows, processes, at.documents, stored.pricing())
        table = replace(table, rows=rows)
    groups = bills.find(table, at, most_s)
    if destination.pictures:
        from harness.report.plots import bills as plots

        show_pictures(plots.pictures(groups, at, table), plots.missing(groups), destination)
        return
    first = next((group.cheapest[0].row for group in groups if group.cheapest), None)
    results = as_given(str(stored.results), stored.cache)
    quality, by_hand = command("report", results), ""
    if first is not None and not first.predicted_from:
        given = given_options(*TrafficOptions.__dataclass_fields__, *PriceSelection.__dataclass_fields__)
        by_hand = command("explain", glob_of(cell_of(first)), results=results, **given)
    destination.show_report(
        bill_document(groups, at, table),
        lambda escape, width: answer(groups, at, table, escape, width, by_hand, quality),
    )
