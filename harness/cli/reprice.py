"""`harness reprice`: the same measurements at other prices."""

from __future__ import annotations

import datetime
from pathlib import Path

import click

from harness.cli.locations import mirrored
from harness.cli.options import Market, asked_measures, cache_option, market_options, one_line_errors, results_argument
from harness.cli.report import FORMATS, measures_option, output_option, show, stored_rows


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
    from harness.analysis import reprice as repricing
    from harness.analysis import row_pricing
    from harness.report import writers
    from harness.report.repricing import repricing_document

    now = market.snapshot()
    before = repricing.other(now, against.date() if against else None)
    measured = stored_rows(results, asked_measures(measures), cache, for_prices=True)
    found = repricing.compare(measured, row_pricing.tariff(before), row_pricing.tariff(now))
    show(writers.write(repricing_document(found), form), output)


COMMANDS = (reprice,)
