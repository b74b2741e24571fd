"""Swept systems in the page: points of one sweep are joined in order of cost, named once, labelled by their values."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from harness.analysis.table import Row
from harness.estimate import Estimate
from harness.results.schema import SweepPoint
from tests.report.page import made
from tests.report.page.conftest import Open
from tests.support import sample_records

pytestmark = pytest.mark.browser

HOSTILE = "</text><script>alert(1)</script>{b}"


def point(system: str, key: str, latency_s: float, accuracy: float, **params: int | str) -> Row:
    """A row of made-up measures, and a point of a sweep if it has parameters."""
    sweep = SweepPoint(system, {**params}) if params else None
    measures = dict.fromkeys(made.MEASURES, Estimate(accuracy))
    return sample_records.row(
        system=f"{system}-{key}", key=key, sweep=sweep, measures=measures, latency_mean_s=Estimate(latency_s)
    )


ROWS = (
    point("words", "w", 0.001, 0.25),
    point("deep", "b", 0.009, 0.75, depth=20),
    point("deep", "a", 0.004, 0.5, depth=10),
    point("deep", "c", 0.030, 0.8, depth=50),
    point("odd", "o", 0.002, 0.3, form=HOSTILE),
)


def texts(page: Page, selector: str) -> list[str]:
    return [str(each) for each in page.locator(selector).evaluate_all("(all) => all.map((each) => each.textContent)")]


@pytest.mark.parametrize("width", [390, 1280])
def test_points_of_a_sweep_are_one_labelled_curve(open_rows: Open, width: int) -> None:
    page = open_rows(ROWS, width=width)
    colour = page.locator("#figure-front .legend li").first.locator("path").first.get_attribute("stroke")
    paths = page.locator(f'#chart-front svg path[fill="none"][stroke="{colour}"]').evaluate_all(
        """(all) => all.map((each) =>
            each.getAttribute("d").match(/[ML][^ML]+/g).map((part) => parseFloat(part.slice(1))))"""
    )
    (across,) = [each for each in paths if len(each) > 2]
    assert len(across) == 3 and across == sorted(across), "joined in order of cost"
    assert texts(page, "#figure-front .legend li") == ["deep (depth)", "odd (form)", "words-w"]
    shown = texts(page, "#chart-front svg text")
    assert {"10", "20", "50"} <= set(shown) and not any("deep-" in each for each in shown)
    assert HOSTILE in shown, "a value is text, never markup"
    page.locator("#figure-front summary").click()
    assert "deep-b" in page.locator("#figure-front tbody").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
