"""Swept systems in the page: points of one sweep are joined in order of cost, named once, labelled by their values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from harness.results.schema import SweepPoint
from tests.report.page.conftest import Open
from tests.support import publisher
from tests.support.command_line import call
from tests.support.publisher import Made

pytestmark = pytest.mark.browser

HOSTILE = "</text><script>alert(1)</script>{b}"


def deep(name: object, latency_ms: float, ranks: tuple[int, ...], **params: int | str) -> Made:
    return Made(f"deep-{name}", latency_ms, ranks, sweep=SweepPoint("deep", {**params}))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("curves")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE", str(folder / "cache"))
        results = publisher.put(
            folder / "results",
            Made("words", 1.0, (4,)),
            deep("b", 9.0, (1, 2), depth=20),
            deep("a", 4.0, (2,), depth=10),
            deep("c", 30.0, (1, 1, 2), depth=50),
            Made("odd", 2.0, (3,), sweep=SweepPoint("odd", {"form": HOSTILE})),
            measures=("RR@10",),
        )
        done = call("report", str(results), "--format", "html", "-o", str(folder / "page.html"))
        assert done.exit_code == 0, done.output
        yield folder / "page.html"


def texts(page: Page, selector: str) -> list[str]:
    return [str(each) for each in page.locator(selector).evaluate_all("(all) => all.map((each) => each.textContent)")]


@pytest.mark.parametrize("width", [390, 1280])
def test_points_of_a_sweep_are_one_labelled_curve(open_file: Open, file: Path, width: int) -> None:
    page = open_file(file, width=width)
    colour = page.locator("#figure-front .legend li").first.locator("path").first.get_attribute("stroke")
    paths = page.locator(f'#chart-front svg path[fill="none"][stroke="{colour}"]').evaluate_all(
        """(all) => all.map((each) =>
            each.getAttribute("d").match(/[ML][^ML]+/g).map((part) => parseFloat(part.slice(1))))"""
    )
    (across,) = [each for each in paths if len(each) > 2]
    assert len(across) == 3 and across == sorted(across), "joined in order of cost"
    assert texts(page, "#figure-front .legend li") == ["deep (depth)", "odd (form)", "words"]
    shown = texts(page, "#chart-front svg text")
    assert {"10", "20", "50"} <= set(shown) and not any("deep-" in each for each in shown)
    assert HOSTILE in shown, "a value is text, never markup"
    page.locator("#figure-front summary").click()
    assert "deep-b" in page.locator("#figure-front tbody").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
