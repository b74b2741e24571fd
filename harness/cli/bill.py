"""`harness bill`: what the stored systems cost in a month at some traffic."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from harness import config
from harness.analysis import bills
from harness.analysis.table import Table
from harness.cli.locations import mirrored
from harness.cli.options import FiniteRange, cache_option, price_options, results_argument
from harness.cli.output import Destination, destination_options
from harness.cli.stored_results import StoredResults, stored_results
from harness.commands import option
from harness.errors import UnknownName, UsageError
from harness.experiments.viability import acceptance
from harness.pricing.bill import Traffic, read_traffic
from harness.report.bill import answer, bill_document
from harness.report.query_prices import prices_answer, query_prices_document


@click.command()
@mirrored("results")
@results_argument
@click.option("--queries-per-month", metavar="N", help="Queries in a month, e.g. 250000, 3M or 1.5G.")
@click.option("--peak", type=FiniteRange(1), help="Rate of the busiest hour over the mean rate.  [default: 3]")
@click.option(
    "--max-latency",
    "targets",
    multiple=True,
    metavar="FIGURE=TIME",
    help="Only systems whose mean, p50, p95 or p99 is at most this, e.g. p95=20ms; repeatable.",
)
@click.option("--documents", metavar="N", help="Documents, e.g. 8.8M.  [default: as many as were measured]")
@click.option("--changed", type=FiniteRange(0), help="Share of the documents indexed again each month.  [default: 0]")
@click.option("--builds", type=FiniteRange(0), help="Builds of the whole index each month.  [default: 1]")
@click.option("--machines", type=click.IntRange(1), help="Fewest machines; 2 where one may fail.  [default: 1]")
@click.option(
    "--traffic",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="These numbers from the table [traffic] of a TOML file; an option replaces its number.",
)
@price_options
@destination_options("md", "csv", "json", wide=True)
@cache_option
@stored_results
def bill(
    stored: StoredResults, targets: tuple[str, ...], file: Path | None, destination: Destination, **given: Any
) -> None:
    """Bill the stored RESULTS (a folder; default: results) by the month, at your traffic.  Runs nothing.

    Without a traffic, it shows three prices of a query: sequential, saturated and metered (serverless).

    Machines are rented all month, busy or not, and are enough for the busiest hour.  Also says how busy they are,
    which system is the cheapest, from how many queries on another one is, and up to how many serverless costs less.
    """
    if file is None and not targets and not {name for name, value in given.items() if value is not None}:
        _show_prices(stored.priced(stored.read()).table, destination)
        return
    traffic = _traffic(file, {name: value for name, value in given.items() if value is not None})
    most_s = acceptance.parse_criteria(targets, ()).targets
    if unknown := next((figure for figure in most_s if figure not in bills.FIGURES), None):
        raise UnknownName("latency figure", unknown, bills.FIGURES)
    table = stored.priced(stored.read()).table
    groups = bills.find(table, traffic, most_s)
    if destination.form == "md" and not destination.wide:
        destination.show_answer(lambda escape, width: answer(groups, traffic, table, escape, width))
    else:
        destination.show_report(bill_document(groups, traffic, table))


def _show_prices(table: Table, destination: Destination) -> None:
    if destination.form == "md" and not destination.wide:
        destination.show_answer(lambda escape, width: prices_answer(table, escape, width))
    else:
        destination.show_report(query_prices_document(table))


def _traffic(file: Path | None, given: dict[str, Any]) -> Traffic:
    """Return the traffic of the options, on top of a file's.

    Raises:
        UsageError: an option is no number, or the queries are missing.
        FileError: the file cannot be read, or one of its numbers is wrong.
    """
    for name, kind in (("queries_per_month", float), ("documents", round)):
        if name in given:
            given[name] = kind(_amount(given[name], option(name.replace("_", "-"))))
    if file is not None:
        return read_traffic(file, given)
    if "queries_per_month" not in given:
        raise UsageError("how many queries a month? e.g. --queries-per-month 3M, or --traffic FILE")
    return config.validate(Traffic, given, Path("the options"), "traffic")


def _amount(text: str, option: str) -> float:
    """Parse a number that may end in k, M or G.

    Raises:
        UsageError: it is something else.
    """
    match = re.fullmatch(r"([0-9][0-9_,]*(?:\.[0-9]+)?) ?([kMG]?)", text.strip(), flags=re.ASCII)
    if match is None:
        raise UsageError(f"{option} {text!r}: write a number, e.g. 250000, 3M or 1.5G")
    return float(re.sub("[_,]", "", match[1])) * {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}[match[2]]
