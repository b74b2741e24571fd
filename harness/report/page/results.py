"""The page of a results folder: its title, its answer and its data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.analysis import bills, published, published_measures, row_pricing
from harness.analysis.results_folder import ReadResults
from harness.analysis.row_pricing import Tariff
from harness.analysis.table import Table
from harness.pricing.bill import USUAL
from harness.report import bill
from harness.report.page import PageSource, page_content, render_page
from harness.report.page.answer import answer_html
from harness.report.page.groups import ranking_data
from harness.report.published_measures import first_screen
from harness.report.summary import SummaryView, summary_section
from harness.report.writers import plain_escape

# Characters of a table of bills next to the picture.
_STATIC_WIDTH = 80


def results_page(results: Path, found: ReadResults, tariff: Tariff, view: str = "") -> str:
    """Return the HTML page of unpriced results, which opens with these prices and this view."""
    table, per_query = row_pricing.price(found.table, tariff), found.per_query
    measures_alone = published.has_measures_alone(results)
    title, about = f"Results in {results.resolve().name}", ()
    if published.is_in(results):
        paper = (published_measures if measures_alone else published).read(results).about
        title, about = f"{paper.cited}, as published", paper.citation_lines()
    content = PageSource(
        title=title,
        about=about,
        measured=found.table,
        tariff=tariff,
        ranking=ranking_data(table, per_query),
        quantiles_s={key: values.quantiles_s for key, values in per_query.items()},
        notes=table.notes,
        view=view,
    )
    if measures_alone:
        answer = first_screen(published_measures.read(results), plain_escape)
    else:
        pointed = SummaryView(rest="click a number of the leaderboard")
        answer = summary_section(table, found.compare, plain_escape, pointed)
    return render_page(page_content(content), answer_html(answer), bills_html(table))


def bills_html(table: Table) -> str:
    """Return the bills at the usual traffic, which a page shows without JavaScript."""
    sections = bill.answer(bills.find(table, USUAL, {}), USUAL, table, plain_escape, _STATIC_WIDTH)
    return "\n".join(answer_html(replace(section, notes=())) for section in sections)
