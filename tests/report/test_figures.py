"""A figure is one entry: registered here alone, it is in every table, file, page and text."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path

import pytest

from harness.analysis import reprice, row_pricing
from harness.analysis.table import Price, Row, Table
from harness.estimate import Estimate
from harness.pricing import prices
from harness.report import explain, render, row_figures, writers
from harness.report import page as pages
from harness.report.export import rows_frame
from harness.report.figures import EVERYWHERE, Figure, Place, Prices
from harness.report.page import PageSource
from harness.report.page.groups import RankingData
from harness.report.repricing import repricing_document
from harness.report.summary import SummaryView, summary_section
from scripts.docs import generate
from tests.support import sample_records
from tests.support.sample_records import compare_by

HOURS = 730
MEANING = "price of a month of the row's instance"
# The least that an entry needs.
BILL = Figure(
    name="usd_per_month",
    unit="US$",
    meaning=MEANING,
    read=lambda row: None if row.price is None else row.price.usd_per_hour * HOURS,
    prices=Prices.HOUR,
)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Figure:
    monkeypatch.setitem(row_figures.FIXED, "costs", (*row_figures.FIXED["costs"], BILL))
    return BILL


@pytest.fixture
def measured() -> Table:
    return Table((sample_records.row(system="bm25"), sample_records.row(system="late")), ("nDCG@10",))


@pytest.fixture
def priced(measured: Table) -> Table:
    return row_pricing.price(measured, row_pricing.tariff(prices.snapshot()))


def _price(row: Row) -> Price:
    assert row.price is not None
    return row.price


@pytest.mark.usefixtures("registered")
def test_added_figure_is_in_files_and_in_their_documentation(priced: Table) -> None:
    usd = _price(priced.rows[0]).usd_per_hour * HOURS
    (line, _) = csv.DictReader(io.StringIO(render(priced, "csv")))
    assert float(line["usd_per_month"]) == usd
    frame = rows_frame(priced)
    assert frame["usd_per_month"][0] == usd and frame.attrs["meanings"]["usd_per_month"] == MEANING
    assert f"| `usd_per_month` | US$ | number | {MEANING} |" in generate.columns_page()


@pytest.mark.usefixtures("registered")
def test_added_figure_is_in_the_tables_of_people(priced: Table) -> None:
    usd = f"{_price(priced.rows[0]).usd_per_hour * HOURS:.1f}"
    for form in ("md", "latex"):
        text = render(priced, form)
        assert "usd per month" in " ".join(text.replace("\\\\", " ").split()) and usd in text, form
    asked = SummaryView(columns=("usd_per_month",), sort="usd_per_month")
    (grid,) = summary_section(priced, compare_by(), str, asked).grids
    assert grid.headers[:2] == ("system", "usd per month, US$") and grid.cells[0][1] == usd
    unasked = summary_section(priced, compare_by(), str).grids[0].headers
    assert not any("usd per month" in header for header in unasked), "the first screen has few columns"


def test_added_figure_is_on_the_first_screen_where_it_says_so(priced: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    first = dataclasses.replace(BILL, places=BILL.places | {Place.FIRST})
    monkeypatch.setitem(row_figures.FIXED, "costs", (*row_figures.FIXED["costs"], first))
    assert "usd per month, US$" in summary_section(priced, compare_by(), str).grids[0].headers


@pytest.mark.usefixtures("registered")
def test_added_figure_is_explained(priced: Table) -> None:
    assert list(explain.column_paragraphs("usd_per_month", priced)) == [
        ("usd_per_month (US$)", "Price of a month of the row's instance.")
    ]
    assert "usd_per_month" in explain.names(priced)
    usd = f"{_price(priced.rows[0]).usd_per_hour * HOURS:.1f}"
    assert dict(explain.row_paragraphs(priced.rows[0]))["usd per month"] == (
        f"{usd} US$: Price of a month of the row's instance."
    )


@pytest.mark.usefixtures("registered")
def test_added_figure_of_prices_is_repriced_at_both_dates(measured: Table) -> None:
    tariff = row_pricing.tariff(prices.snapshot())
    dearer = tuple((instance, usd * 2) for instance, usd in tariff.snapshot.prices)
    later = dataclasses.replace(tariff.snapshot, prices=dearer)
    document = repricing_document(reprice.compare(measured, tariff, row_pricing.tariff(later)))
    (line, _) = csv.DictReader(io.StringIO(writers.write(document, "csv")))
    before, same = float(line["before_usd_per_month"]), float(line["same_usd_per_month"])
    assert before == float(line["before_price_usd_per_hour"]) * HOURS and same == pytest.approx(2 * before)
    assert "usd per month, same instance" in writers.write(document, "md")


@pytest.mark.parametrize("in_table", [False, True])
def test_added_figure_is_data_of_the_page(measured: Table, monkeypatch: pytest.MonkeyPatch, in_table: bool) -> None:
    places = EVERYWHERE | ({Place.PAGE_TABLE} if in_table else set())
    figure = dataclasses.replace(BILL, places=places)
    monkeypatch.setitem(row_figures.FIXED, "costs", (*row_figures.FIXED["costs"], figure))
    source = PageSource("made", measured, row_pricing.tariff(prices.snapshot()), RankingData({}))
    content = json.loads(json.dumps(pages.page_content(source)))
    known = {each["name"]: number for number, each in enumerate(content["figures"])}
    assert content["figures"][known["usd_per_month"]] == {
        **{"name": "usd_per_month", "label": "usd per month", "unit": "US$", "prices": "hour"}
    }
    # The page multiplies by the price of the hour that is chosen.
    assert [row["figures"][str(known["usd_per_month"])] for row in content["rows"]] == [[HOURS], [HOURS]]
    columns = {each["name"]: each for each in content["columns"]}
    assert ("usd_per_month" in columns) is in_table
    if in_table:
        assert columns["usd_per_month"]["text"] == "usd per month, US$" and columns["usd_per_month"]["meaning"]


def test_names_of_figures_are_unique() -> None:
    table = Table((), ("nDCG@10",))
    figures = row_figures.all_figures(table)
    names = [column.name for column in row_figures.all_columns(("nDCG@10",), ("encode",))]
    assert len(names) == len(set(names))
    shorts = [figure.alias for figure in figures]
    assert len(shorts) == len(set(shorts))


def test_scripts_of_the_page_name_no_figure_that_they_do_not_compute() -> None:
    scripts = "".join(path.read_text(encoding="utf-8") for path in Path(pages.__file__).parent.glob("*.js"))
    computed = {"cost", "latency", "throughput", "p50_ms", "memory", "index", "tokens", "key", "detail", "system"}
    figures = {each.name for block in row_figures.FIXED.values() for each in block if Place.PAGE in each.places}
    assert {name for name in figures - computed if f'"{name}"' in scripts} == set()


def test_missing_value_has_a_reason_only_where_the_row_should_have_it() -> None:
    figure = Figure(name="x", meaning="x", read=lambda row: None, applies=lambda row: row.gpus > 0)
    assert figure.estimate(sample_records.row(gpus=1)) == Estimate(None, reason="not measured")
    assert figure.estimate(sample_records.row(gpus=0)) == Estimate(None)
