"""Every number opens its evidence, and the evidence says where the number is from."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from harness.analysis import causes, row_pricing
from harness.analysis.axes import cell_of
from harness.analysis.table import Cause
from harness.commands import command
from harness.pricing import prices, serverless
from harness.report import explain
from harness.report.page import PageSource
from harness.report.page.answer import encodable
from harness.report.page.rows import all_tariffs
from harness.results.schema import glob_of
from harness.untrusted import one_line
from tests.report.page import made
from tests.report.page.conftest import Open
from tests.report.page.test_access import cell

pytestmark = pytest.mark.browser

# An address that opens the evidence of a number.
EVIDENCE = re.compile("[#&]e=")
NUMBERS = ["rank", "instance", "score", "accuracy", "latency", "p95", "cost", "memory", "index"]


def opened(page: Page, line: int, column: str) -> str:
    cell(page, column, line).click()
    expect(page.locator("#evidence")).to_be_visible()
    return page.locator("#evidence").inner_text()


@pytest.mark.parametrize("column", [*NUMBERS, "front", "outcome", "validity"])
def test_every_number_has_evidence(shared: Page, results: PageSource, column: str) -> None:
    page = shared
    page.evaluate("harnessPage.change(harnessPage.parse(''))")
    text = opened(page, 1, column)
    page.keyboard.press("Escape")
    expect(page.locator("#evidence")).to_be_hidden()
    first = page.evaluate("harnessPage.content.rows[harnessPage.view().rows[0]].key")
    row = next(each for each in results.measured.rows if each.key == first)
    assert row.machine is not None
    for part in (*row.keys, row.machine.cpu_model, row.machine.kernel, row.system, row.profile):
        assert str(part) in text
    assert command("run", "SUITE", fresh=True, only=glob_of(cell_of(row))) in text
    assert "How it was made" in text


def explained(page: Page) -> list[list[list[str]]]:
    """The page's texts on all rows, at the chosen prices."""
    script = "(row) => harnessPage.explained(row, harnessPage.view())"
    return list(page.evaluate(f"harnessPage.content.rows.map({script})"))


@pytest.mark.parametrize("made_of", ["usual", "hostile"])
def test_evidence_has_the_texts_of_explain_at_all_prices(open_rows: Open, made_of: str) -> None:
    rows, found = made.rows(40) if made_of == "usual" else (made.hostile(), {})
    rows = [*rows, *made.throughputs()]
    page = open_rows(rows, found)
    ordered = sorted(rows, key=lambda row: (row.system, row.profile, row.per_query_key))
    opening = row_pricing.tariff(prices.snapshot(), serverless=serverless.FILES.newest())
    tariffs = all_tariffs(opening)
    assert len(tariffs) > 3
    for number, tariff in enumerate(tariffs):
        page.evaluate("(snapshot) => harnessPage.change({ snapshot })", number)
        for row, texts in zip(ordered, explained(page), strict=True):
            shown = texts
            priced = row_pricing.price_row(row, tariff)
            wanted = [[one_line(title), one_line(text)] for title, text in explain.row_paragraphs(priced)]
            if tariff.snapshot != opening.snapshot:
                # Builds and storage are known at the first prices alone.
                wanted = [each for each in wanted if each[0] not in (explain.INDEX_COST, explain.BILL)]
                shown = [each for each in texts if each[0] != explain.BILL]
            assert [[title, encodable(text)] for title, text in wanted] == shown


def test_panel_shows_every_paragraph_of_its_row_once(page: Page) -> None:
    opened(page, 2, "latency")
    shown = page.locator("#evidence .explained strong").all_inner_texts()
    row = page.evaluate("harnessPage.view().rows[1]")
    all_titles = [title for title, _ in explained(page)[row]]
    assert shown[0] == "Latency" and {"Cost", "Measured on", "Trust", "Stored jobs"} < set(all_titles)
    assert sorted(each for each in shown if each in all_titles) == sorted(all_titles)
    assert "latency_mean_ms (ms)" in shown and "How it is made" in shown


def test_a_score_shows_its_terms(page: Page) -> None:
    text = opened(page, 1, "score")
    view = page.evaluate(
        """() => { const view = harnessPage.view(); const row = view.rows[0];
          const of = (axis) => harnessPage.axisValues(axis, view.state).value[row];
          return { score: view.score[row], rates: view.rankings[0].metrics.map((each) => each.rate.value),
                   values: ["accuracy", "cost", "latency"].map(of) }; }"""
    )
    accuracy, cost, latency = view["values"]
    by_hand = 0.5 * accuracy - 0.25 * cost / view["rates"][0] - 0.25 * latency / view["rates"][1]
    assert view["score"] == pytest.approx(by_hand)
    assert f"= {view['score']:.6g}" in text
    assert "0.5 ×" in text and "exchange rate of cost" in text
    for change in ("with other queries", "without each other system", "with weights moved by up to 0.1"):
        assert re.search(rf"rank {change}: \d", text), change
    assert "set of systems: " in text


def test_samples_are_a_histogram_and_a_distribution(page: Page) -> None:
    opened(page, 1, "latency")
    for kind in ("histogram", "ecdf"):
        assert page.locator(f'#evidence [data-chart="{kind}"] svg path').count() > 3
    bins = page.evaluate(
        """() => harnessPage.binsOf(harnessPage.content.rows[harnessPage.view().rows[0]].quantiles, true)"""
    )
    assert sum(share for _, _, share in bins) == pytest.approx(100)
    assert all(share >= 0 for _, _, share in bins)


def test_a_noisy_row_shows_its_finding(page: Page) -> None:
    page.locator("#validity").select_option("noisy")
    text = opened(page, 1, "validity")
    assert "Drift: the slowest trial's mean is 1.53 times" in text and "noisy: drift" in text
    assert f"What to do{causes.TEXTS[Cause.DRIFT].advice}" in text.replace("\n", "")


def test_equal_samples_are_a_sentence_not_pictures(open_rows: Open) -> None:
    (row, *_), found = made.rows(1)
    page = open_rows([row], {row.key: replace(found[row.key], quantiles_s=(0.002,) * 51)})
    assert "all took 2.00 ms" in opened(page, 1, "latency")
    assert page.locator("#evidence .chart").count() == 0
    expect(page.locator("#figure-ecdf .chart")).to_be_hidden()


def test_contested_point_names_the_contesting_rows(page: Page) -> None:
    page.locator('th[data-column="front"] button').click()
    states = page.locator('#body td[data-column="front"]').all_inner_texts()
    place = next((number for number, state in enumerate(states, 1) if "contested" in state), None)
    assert place is not None
    assert "by their values" in opened(page, place, "front")


@pytest.mark.parametrize("leave", ["Escape", "Back"])
def test_closed_evidence_leaves_the_address_and_restores_the_focus(page: Page, leave: str) -> None:
    opened(page, 3, "cost")
    expect(page).to_have_url(EVIDENCE)
    if leave == "Escape":
        page.keyboard.press("Escape")
    else:
        page.go_back()
    expect(page.locator("#evidence")).to_be_hidden()
    expect(cell(page, "cost", 3)).to_be_focused()  # a moment after it is hidden
    expect(page).not_to_have_url(EVIDENCE)


def test_evidence_fits_a_narrow_window(page: Page) -> None:
    page.set_viewport_size({"width": 320, "height": 640})
    opened(page, 1, "score")
    box = page.locator("#evidence").bounding_box()
    assert box is not None and box["width"] <= 320 and box["height"] <= 640
    assert page.locator("#evidence").evaluate("(each) => each.scrollWidth <= each.clientWidth")
