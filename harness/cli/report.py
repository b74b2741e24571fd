"""Commands that make tables of stored results, and run nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.locations import Opened, as_given, mirrored
from harness.cli.options import (
    Market,
    asked_measures,
    cache_option,
    market_options,
    one_line_errors,
    results_argument,
    write,
)
from harness.cli.plots import draw
from harness.cli.run_options import instead_of, judging_options
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.analysis.rejudge import Instead
    from harness.analysis.table import Measurements, Table
    from harness.evaluation.per_query import PerQuery
    from harness.jobs.orchestrator import RunSummary
    from harness.report.page import KnownRates


FORMATS = ("md", "csv", "json")
PAGE = "html"
PICTURES = ("png", "svg", "pdf")
output_option = click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write to this file instead of the terminal."
)
# The layouts of a report, and the measures that each shows unless others are asked for.
MEASURES = {"rows": "RR@10 Success@10 nDCG@10", "santhanam2023": "RR@10 Success@10"}
measures_option = click.option(
    "--measures", default=MEASURES["rows"], show_default=True, help="As ir_measures writes them."
)
layout_option = click.option(
    "--layout",
    type=click.Choice(tuple(MEASURES)),
    default="rows",
    show_default=True,
    help="One row for each cell, or the shape of the paper's Table 3: latency and cost by hardware, then accuracy.",
)


@click.command()
@results_argument
@click.option(
    "--format",
    "form",
    type=click.Choice((*FORMATS, "latex", PAGE, *PICTURES)),
    default="md",
    show_default=True,
    help="html: one file that opens in a browser, with all prices, pictures and evidence in it.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write to this file instead of the terminal; pictures: to this folder.",
)
@layout_option
@click.option(
    "--measures",
    help="As ir_measures writes them; in tables also FD@10, a Frechet distance by the vectors of harness embed.  "
    f"[default: {MEASURES['rows']}; layout santhanam2023: {MEASURES['santhanam2023']}]",
)
@judging_options
@market_options
@cache_option
@one_line_errors
@mirrored("results")
def report(
    results: Path,
    form: str,
    layout: str,
    output: Path | None,
    measures: str | None,
    qrels: Path | None,
    without_queries: Path | None,
    market: Market,
    cache: Path,
) -> None:
    """Make the table of the stored RESULTS (a folder; default: results).  Runs nothing.

    With png, svg or pdf: pictures of each dataset, into the folder that -o names.
    """
    asked = asked_measures(MEASURES[layout] if measures is None else measures)
    instead = instead_of(qrels, without_queries)
    if form == PAGE:
        if layout != "rows":
            raise UsageError(f"--layout {layout}: a page has one layout of its own; leave --layout out")
        show_page(page(results, asked, market, cache, instead=instead), output)
        return
    if form in PICTURES:
        if layout != "rows":
            raise UsageError(f"--layout {layout} is the shape of a table; leave it out to draw pictures")
        _draw(results, form, output, asked, market, cache, instead)
        return
    text = _published(results, form, market) if layout == "rows" and instead is None else None
    show(text or _stored(results, form, layout, asked, market, cache, instead), output)


def _draw(
    results: Path,
    form: str,
    output: Path | None,
    measures: tuple[str, ...],
    market: Market,
    cache: Path,
    instead: Instead | None,
) -> None:
    """All pictures that the results have."""
    from harness.analysis.leaderboard import Asked

    table = stored_table(results, measures, market, cache, instead=instead)
    draw(table, per_query_of(results, measures, cache, instead), Asked("", measures[0]), form, output)


def show(text: str, output: Path | None) -> None:
    """To the terminal, or into a file."""
    if output is None:
        click.echo(text, nl=False)
    else:
        write(output, text)


def show_page(text: str, output: Path | None) -> None:
    """Into a file, or whatever is no terminal."""
    if output is None and sys.stdout.isatty():
        raise UsageError("--format html: a page is no text for a terminal; name a file for it with -o page.html")
    show(text, output)


def _stored(
    results: Path,
    form: str,
    layout: str,
    measures: tuple[str, ...],
    market: Market,
    cache: Path,
    instead: Instead | None,
) -> str:
    from harness.report import render

    table = stored_table(results, measures, market, cache, instead=instead, distances=True)
    return render(table, form, layout=layout)


def _published(results: Path, form: str, market: Market) -> str | None:
    """Write published tables in their paper's shape; ``None``: the folder holds jobs, or no study knows the paper."""
    from harness.analysis import published

    if not published.is_in(results):
        return None
    from harness.report import study

    paper = published.read(results)
    known = study.of(paper)
    return None if known is None else known.render_paper(paper, paper.follows(), market.snapshot(), form)


def page(
    results: Path,
    measures: tuple[str, ...],
    market: Market,
    cache: Path,
    keys: frozenset[str] | None = None,
    view: str = "",
    instead: Instead | None = None,
) -> str:
    """The page of what is stored there, opening with these prices and that view."""
    from harness.analysis import results_folder, row_pricing
    from harness.report import page as pages

    at = row_pricing.tariff(market.snapshot())
    measured = stored_rows(results, measures, cache, keys, instead=instead)
    table = results_folder.priced(measured, at)
    found = per_query_of(results, measures, cache, instead)
    title, about, rates = _published_as(results)
    content = pages.Page(
        title=title or f"Results in {results.resolve().name}",
        about=about,
        measured=measured,
        tariff=at,
        weighing=pages.weighing(table, found, rates),
        quantiles_s={key: each.quantiles_s for key, each in found.items()},
        notes=table.notes,
        view=view,
    )
    return pages.render(pages.of(content))


def _published_as(results: Path) -> tuple[str | None, tuple[str, ...], tuple[KnownRates, ...]]:
    """The name of the paper whose tables the folder holds, what it is, and the exchange rates of its scores."""
    from harness.analysis import published

    if not published.is_in(results):
        return None, (), ()
    from harness.report.page import KnownRates

    paper = published.read(results).about
    rates = tuple(KnownRates("the paper's", each.name, "RR@10", each.amrs) for each in paper.datasets if each.amrs)
    who = f"{paper.authors[0].split()[-1]} et al." if len(paper.authors) > 2 else " and ".join(paper.authors)
    return f"{who} {paper.year}, as published", (paper.citation(), f"Licence of the figures: {paper.licence}"), rates


def stored_table(
    results: Path,
    measures: tuple[str, ...],
    market: Market,
    cache: Path,
    keys: frozenset[str] | None = None,
    instead: Instead | None = None,
    *,
    distances: bool = False,
) -> Table:
    """The table of what is stored there, at these prices; ``distances``: they may be among the measures."""
    from harness.analysis import results_folder, row_pricing

    at = row_pricing.tariff(market.snapshot())
    return results_folder.priced(stored_rows(results, measures, cache, keys, instead=instead, distances=distances), at)


def stored_rows(
    results: Path,
    measures: tuple[str, ...],
    cache: Path,
    keys: frozenset[str] | None = None,
    *,
    for_prices: bool = False,
    instead: Instead | None = None,
    distances: bool = False,
) -> Measurements:
    """The measured rows of what is stored there."""
    from harness.analysis import results_folder

    place = cache.expanduser().absolute()

    def say(text: str) -> None:
        click.echo(as_given(text, place), err=True)

    return results_folder.rows_of(
        results,
        measures,
        keys=keys,
        cache=place,
        say=say,
        for_prices=for_prices,
        instead=instead,
        distances=distances,
    )


def measures_for(measure: str) -> tuple[str, ...]:
    """The measures whose rows are read where one is asked for: the usual ones, which are likely kept, if it is among
    them.
    """
    usual = tuple(MEASURES["rows"].split())
    return usual if measure in usual else (measure,)


def per_query_of(
    results: Path, measures: tuple[str, ...], cache: Path, instead: Instead | None = None
) -> Mapping[str, PerQuery]:
    """What the rows of what is stored there are made of, by query."""
    from harness.analysis import results_folder

    return results_folder.per_query_of(results, measures, cache=cache.expanduser().absolute(), instead=instead)


def finish(place: Opened, suite: str, measures: tuple[str, ...], summary: RunSummary) -> None:
    """Print the table, write the report, and say where everything lies."""
    from rich.console import Console

    from harness.report import render

    folder, cache = place.folder / suite, place.cache
    table = stored_table(folder, measures, Market(), cache, summary.keys)
    click.echo(render(table, "terminal", width=Console().width), nl=False)
    written, opens = folder / "report.md", folder / "report.html"
    write(written, render(table, "md"))
    write(opens, page(folder, measures, Market(), cache, summary.keys))
    place.publish(written, opens)
    click.echo(f"\n{len(summary.jobs)} jobs run, {summary.done_before} were done before")
    click.echo(
        f"results: {place.shown(folder)}\nreport:  {place.shown(written)}\npage:    {opens} (open it in a browser)"
    )


COMMANDS = (report,)
