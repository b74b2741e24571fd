"""`harness reprice`: the same measurements at other prices."""

from __future__ import annotations

import datetime
from pathlib import Path

import click

from harness.cli.asked import Market, asked_measures, market_options
from harness.cli.places import mirrored
from harness.cli.tables import FORMATS, measures_option, output_option, show, stored_rows
from harness.console import cache_option, one_line_errors, results_argument


@click.command()
@results_argument
@market_options
@click.option(
    "--against",
    type=click.DateTime(formats=["%Y-%m-%d"]),
    help="Compare with the prices of this date.  [default: the newest, or those before the ones asked for]",
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="md", show_default=True)
@output_option
@measures_option
@cache_option
@one_line_errors
@mirrored("results")
def reprice(
    results: Path,
    market: Market,
    against: datetime.datetime | None,
    form: str,
    output: Path | None,
    measures: str,
    cache: Path,
) -> None:
    """Price the stored RESULTS (a folder; default: results) at two dates, and show what changes.  Runs nothing.

    Each row at the other date's prices, on that same instance at the new ones, and on the cheapest instance of the new
    date; then the verdicts that flip, and the instance types that are gone.
    """
    from harness import pricing
    from harness import reprice as repricing
    from harness.report.repricing import render

    now = market.snapshot()
    before = repricing.other(now, against.date() if against else None)
    measured = stored_rows(results, asked_measures(measures), cache, for_prices=True)
    found = repricing.compare(measured, pricing.tariff(before), pricing.tariff(now))
    show(render(found, form), output)


COMMANDS = (reprice,)
