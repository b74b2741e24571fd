"""`harness leaderboard`: stored results of one dataset, ranked."""

from __future__ import annotations

from dataclasses import replace

import click

from harness.analysis import axes, axis_numbers, dynascore
from harness.analysis import leaderboard as boards
from harness.analysis.leaderboard import LeaderboardQuery
from harness.cli.locations import results_argument
from harness.cli.options import FiniteRange, parsed_by, price_options, record_options
from harness.cli.output import PAGE, PICTURES, Destination, destination_options
from harness.cli.stored_results import (
    StoredResults,
    draw,
    judging_options,
    measures_option,
    rates_option,
    stored_results,
)
from harness.commands import option
from harness.errors import UsageError
from harness.report.leaderboard import leaderboard_document

leaderboard_options = record_options(
    "query",
    LeaderboardQuery,
    click.option("--dataset", help="Dataset to rank.  [default: the only one]"),
    click.option(
        "--weights",
        default="default",
        callback=parsed_by(axis_numbers.parse_weights),
        metavar="AXIS=W,...",
        help=f"{', '.join(axis_numbers.PRESETS)} (of Santhanam et al. 2023), or weights that sum to 1."
        "  Axes: accuracy, cost, latency, memory, index, throughput.",
    ),
    click.option(
        "--mode",
        type=click.Choice(dynascore.MODES),
        help="Compute exchange rates of the ranked rows.  [default: the paper's, of published results; else reference]",
    ),
    rates_option,
    click.option("--cutoff", type=FiniteRange(0), metavar="POINTS", help="Of mode robust.  [default: from the sample]"),
    click.option("--rank-by", metavar="AXIS", help="Rank by this axis alone instead of the Dynascore."),
    click.option(
        "--front",
        default="accuracy,cost,latency",
        callback=parsed_by(axis_numbers.parse_front),
        help="Two or three axes of the Pareto front.",
    ),
    click.option("--suite", help="Only rows of this suite."),
    click.option("--scenario", help="Only rows of this scenario."),
)


@click.command()
@results_argument()
@record_options("bounds", axis_numbers.parse_bounds)  # above the query's options: the query takes the bounds
@measures_option("As ir_measures writes them; the first is the accuracy.", None)
@leaderboard_options
@click.option("--at-most", metavar="AXIS=X,...", help="Rank only rows of at most these, e.g. latency=50,cost=2.")
@click.option("--at-least", metavar="AXIS=X,...", help="Rank only rows of at least these, e.g. accuracy=38.")
@judging_options
@price_options
@destination_options("md", "csv", "json", "latex", PAGE, *PICTURES, wide=True)
@stored_results
def leaderboard(stored: StoredResults, query: LeaderboardQuery, destination: Destination) -> None:
    """Rank the stored RESULTS (a folder; default: results) of one dataset.  Runs nothing.

    By Dynascore (accuracy, cost and latency weighed), or by one axis among the rows that keep thresholds.  Also
    shows the exchange rates, the stability of each rank, and the Pareto front.
    """
    from harness.report.page import check_view, view_fragment  # late: few commands write a page

    found = stored.read()
    table, per_query = stored.priced(found).table, found.per_query
    datasets = sorted({row.dataset for row in table.rows})
    if query.dataset is None and len(datasets) != 1:
        choices = " | ".join(option("dataset", name) for name in datasets)
        raise UsageError(f"the results cover {len(datasets)} datasets; choose one: {choices}")
    query = replace(query, dataset=query.dataset or datasets[0], measure=(stored.measures or table.measures)[0])
    if destination.form == PAGE:
        check_view(query)
    board = boards.build(table, per_query, query)
    if destination.form in PICTURES:
        rows = tuple(row for row in table.rows if axes.comparison_group(row) == board.place)
        draw(replace(table, rows=rows), per_query, query, destination, ("ranks", "winners", "cost"))
    elif destination.form == PAGE:
        destination.show(stored.page(found, view_fragment(query, board.place)))
    else:
        destination.show_report(leaderboard_document(board))
