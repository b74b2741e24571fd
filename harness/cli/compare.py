"""`harness compare`: two systems, query by query."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.asked import Market, market_options
from harness.cli.judging import instead_of, judging_options
from harness.cli.places import mirrored
from harness.cli.tables import (
    FORMATS,
    measures_option,
    output_option,
    per_query_of,
    show,
    stored_table,
)
from harness.console import cache_option, one_line_errors, results_option, results_path


@click.command()
@click.argument("a")
@click.argument("b")
@results_option
@click.option(
    "--with", "others", type=results_path, metavar="PATH", help="Look for B in this folder.  [default: --results]"
)
@measures_option
@judging_options
@market_options
@click.option("--format", "form", type=click.Choice(FORMATS), default="md", show_default=True)
@output_option
@cache_option
@one_line_errors
@mirrored("results", "others")
def compare(
    a: str,
    b: str,
    results: Path,
    others: Path | None,
    measures: str,
    qrels: Path | None,
    without_queries: Path | None,
    market: Market,
    form: str,
    output: Path | None,
    cache: Path,
) -> None:
    """Compare B with A, query by query: latency and each measure, with intervals.  Runs nothing.

    A and B are globs over system/dataset/scenario/profile, or over any one of them.  Rows of the same dataset, query
    sample and profile are compared, or the only two.  Says how many queries would show a difference of that size.
    """
    from harness import comparison
    from harness.report.comparison import render

    names, instead = tuple(measures.split()), instead_of(qrels, without_queries)
    there = others or results
    ours, theirs = (stored_table(each, names, market, cache, instead=instead) for each in (results, there))
    found, found_there = (per_query_of(each, names, cache, instead) for each in (results, there))
    pairs = comparison.pairs(ours.rows, theirs.rows, a, b)
    made = [
        comparison.compare(one, two, comparison.of(found, one), comparison.of(found_there, two), ours.measures)
        for one, two in pairs
    ]
    show(render(made, form), output)


COMMANDS = (compare,)
