"""The page's monthly bill: as Python reckons it, at the traffic that the address holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from harness.analysis import bills, row_pricing
from harness.estimate import Estimate
from harness.pricing import bill_curve
from harness.pricing.bill import USUAL, Service, Traffic
from harness.report.bill import answer
from harness.report.page import PageSource
from harness.report.writers import plain_escape
from tests.report.page import made
from tests.report.page.conftest import Open

pytestmark = pytest.mark.browser
_BILLS = """(traffic) => {
  harnessPage.change({ traffic });
  const known = harnessPage.billsOf(harnessPage.view());
  const next = known.changes.find((each) => each.queries > traffic * (1 + 1e-9));
  const keys = (places) => places.map((at) => known.services[at].row.key).sort();
  return {
    bills: Object.fromEntries(known.services.map((service) => [service.row.key, harnessPage.billOf(service, traffic)])),
    cheapest: keys(harnessPage.cheapestOf(known.services, traffic)),
    next: next ? [next.queries, keys(next.cheapest)] : null,
    sentence: harnessPage.billSentence(known, harnessPage.view()),
    paid: harnessPage.paidSentence(known, harnessPage.view()),
  };
}"""


@pytest.mark.parametrize("queries", [1e4, 3e6, 2.628e7, 87.6e6, 1.5e9, 1e10])
def test_bills_and_their_sentence_equal_those_of_python(shared: Page, results: PageSource, queries: float) -> None:
    shared.evaluate("harnessPage.change(harnessPage.parse(''))")
    shown: dict[str, Any] = shared.evaluate(_BILLS, queries)
    traffic, table = Traffic(queries_per_month=queries), row_pricing.price(results.measured, results.tariff)
    group = next(each for each in bills.find(table, traffic, {}) if each.place.dataset == "scifact")
    assert {one.row.per_query_key for one in group.bills} == set(shown["bills"])
    for one in group.bills:
        found, wanted = shown["bills"][one.row.per_query_key], one.bill
        assert (found["machines"], found["busy"], found["search"]) == (wanted.machines, wanted.busy, wanted.search_usd)
        parts = [found["builds"], found["storage"], found["total"]]
        assert parts == pytest.approx([wanted.builds_usd, wanted.storage_usd, wanted.total_usd.value], rel=1e-12)
    assert shown["cheapest"] == sorted(one.row.per_query_key for one in group.cheapest)
    if group.change is None or group.change.queries_per_month > bill_curve.MOST_QUERIES:
        assert shown["next"] is None
    else:
        assert shown["next"] == [
            pytest.approx(group.change.queries_per_month),
            sorted(one.row.per_query_key for one in group.then),
        ]
        (section,) = answer([group], traffic, table, plain_escape)
        assert section.after[0].startswith(shown["sentence"])
        assert section.after[1] == shown["paid"]


@pytest.mark.parametrize("qps", [0.4, 7.25, 88.0, 6700.0])
def test_curve_equals_that_of_python(shared: Page, qps: float) -> None:
    service = Service(capacity_qps=Estimate(qps), usd_per_hour=0.05132, build_usd=0.25)
    script = "(usd) => harnessPage.curveOf([{ qps: usd[0], usd: 0.05132, build: 0.25, storage: null }])"
    points = bill_curve.curve(bill_curve.MonthlyCost((service,), USUAL))
    assert shared.evaluate(script, [qps]) == [pytest.approx(point, rel=1e-12) for point in points]


def test_slider_and_number_change_the_traffic_that_the_address_holds(page: Page) -> None:
    sentence, table = page.locator("#bill-sentence"), page.locator("#bill-table")
    expect(table).to_contain_text("Bills at 3 million queries a month.")
    before = sentence.inner_text()
    page.locator("#queries").fill("2.5G")
    page.locator("#queries").press("Enter")
    expect(table).to_contain_text("Bills at 2.5 billion queries a month.")
    expect(sentence).not_to_have_text(before)
    assert page.evaluate("location.hash") == "#t=2500000000"
    page.locator("#traffic").focus()
    page.locator("#traffic").press("ArrowLeft")
    expect(page.locator("#queries")).to_have_value("2.45G")
    assert page.locator("#traffic").get_attribute("aria-valuetext") == "2.45 billion queries a month"
    page.locator("#queries").fill("3 apples")
    page.locator("#queries").press("Enter")
    expect(table).to_contain_text("Bills at 2.45 billion queries a month.")


def test_bills_are_there_without_javascript(browser: Browser, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(file.as_uri())
    assert page.locator("#bill-table td", has_text="1 x ").first.is_visible()
    assert "queries a month" in page.locator("#bill-table").inner_text()
    context.close()


def test_row_of_a_throughput_without_latencies_has_no_bill(open_rows: Open) -> None:
    page = open_rows(made.throughputs())
    offline = page.evaluate("harnessPage.content.groups.findIndex((group) => group.scenario === 'offline')")
    page.evaluate("(group) => harnessPage.change({ group })", offline)
    # Rows under load and in batches share their documents: the bills are the two under load.
    assert page.locator("#bill-table tbody tr").count() == 2
