"""`harness reprice`: the same measurements at other prices."""

from __future__ import annotations

import datetime
from pathlib import Path

import click

from harness.analysis import reprice as repricing
from harness.analysis import row_pricing
from harness.cli.locations import mirrored
from harness.cli.options import (
    PriceSelection,
    cache_option,
    date_option,
    parse_measures,
    price_options,
    results_argument,
)
from harness.cli.output import FORMATS, format_option, output_option, show
from harness.cli.stored_results import StoredResults, measures_option
from harness.report import writers
from harness.report.repricing import repricing_document


@click.command()
@results_argument
@price_options
@date_option(
    "--against",
    "Compare with the prices of this date.  [default: the newest, or those before the ones asked for]",
)
@format_option(*FORMATS)
@output_option
@measures_option
@cache_option
@mirrored("results")
def reprice(
    results: Path,
    selection: PriceSelection,
    against: datetime.date | None,
    form: str,
    output: Path | None,
    measures: str,
    cache: Path,
) -> None:
    """Price the stored RESULTS (a folder; default: results) at two dates, and show what changes.  Runs nothing.

    Each row at the other date's prices, on that same instance at the new ones, and on the cheapest instance of the new
    date; then the verdicts that flip, and the instance types that are gone.
    """
    now = selection.snapshot()
    before = repricing.other_prices(now, against)
    rows = StoredResults(results, parse_measures(measures), cache).rows(columns=row_pricing.COLUMNS)
    repriced = repricing.compare(rows, row_pricing.tariff(before), row_pricing.tariff(now))
    show(writers.write(repricing_document(repriced), form), output)
