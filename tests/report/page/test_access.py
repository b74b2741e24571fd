"""Keyboard, screen reader, narrow windows, paper, dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.report.page import made
from tests.report.page.conftest import Open

pytestmark = pytest.mark.browser


def focused(page: Page) -> str:
    return str(page.evaluate("[document.activeElement].map((at) => at.id || at.dataset.column || at.textContent)[0]"))


def cell(page: Page, column: str, line: int) -> Locator:
    """The button of a cell; lines from 1."""
    return page.locator(f'#body tr:nth-child({line}) button[data-column="{column}"]').first


def test_keyboard_reaches_every_control(page: Page) -> None:
    """Tab reaches every control once, the table has one stop, arrows go on inside, Enter opens and Escape closes."""
    seen: list[str] = []
    for _ in range(120):
        page.keyboard.press("Tab")
        here = focused(page)
        if seen and here == seen[0]:
            break
        seen.append(here)
    for wanted in (
        "weight-accuracy",
        "weight-cost",
        "weight-latency",
        "rate-latency",
        "query",
        "intervals",
        "traffic",
        "queries",
    ):
        assert wanted in seen, wanted
    assert {"page-next", "dataset", "measure", "mode", "region"} <= set(seen)
    assert {"across", "outcome", "validity", "envelope"} <= set(seen)
    assert page.locator('#body button[tabindex="0"]').count() == 1
    page.locator('#body button[tabindex="0"]').focus()
    expect(cell(page, "rank", 1)).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(cell(page, "score", 2)).to_be_focused()
    page.keyboard.press("End")
    expect(cell(page, "validity", 2)).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(cell(page, "rank", 1)).to_be_focused()  # above the first row there is nothing
    page.keyboard.press("Enter")
    expect(page.locator("#evidence")).to_be_visible()
    page.keyboard.press("Escape")
    expect(cell(page, "rank", 1)).to_be_focused()


def test_a_pressed_button_keeps_the_focus_visibly(page: Page) -> None:
    page.locator('th[data-column="cost"] button').focus()
    page.keyboard.press("Enter")
    expect(page.locator('th[data-column="cost"]')).to_have_attribute("aria-sort", "ascending")
    expect(page.locator('th[data-column="cost"] button')).to_be_focused()
    page.locator("#page-next").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#page-next")).to_have_css("outline-style", "solid")
    expect(page.locator("#page-of")).to_have_text("page 2 of 2")
    expect(page.locator("#page-next")).to_be_focused()


def test_the_skip_link_leads_to_the_table_and_leaves_the_address(page: Page) -> None:
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#leaderboard")).to_be_focused()
    assert "leaderboard" not in page.evaluate("window.location.hash")


def test_every_control_and_picture_has_an_accessible_name(page: Page) -> None:
    for box in page.locator("select, input").all():
        label = page.locator(f'label[for="{box.get_attribute("id")}"]')
        assert label.count() == 1 and label.inner_text().strip(), box.get_attribute("id")
    page.evaluate("harnessPage.redrawPictures()")
    for chart in page.locator(".chart[role=img]").all():
        assert len(str(chart.get_attribute("aria-label"))) > 40
    assert page.locator(".chart svg:not([aria-hidden])").count() == 0
    assert page.locator("figure details summary").count() == 6
    assert page.locator("#table thead th[scope=col]").count() == page.locator("#head th").count() > 10
    assert page.locator("#body tr th[scope=row]").count() == page.locator("#body tr").count()
    assert page.locator("html").get_attribute("lang") == "en"


def test_new_order_is_announced_when_a_slider_stops(page: Page) -> None:
    message = page.locator("#said")
    assert message.get_attribute("aria-live") == "polite"
    expect(message).to_contain_text("60 rows: 1 ")
    before = message.inner_text()
    page.locator("#weight-latency").fill("95")
    expect(message).not_to_have_text(before)
    assert re.match(r"60 rows: 1 \S+ on \S+; 2 \S+ on ", message.inner_text())
    assert page.locator("#weight-latency").get_attribute("aria-valuetext") == "95 per cent"


@pytest.mark.parametrize("made_of", ["usual", "hostile"])
def test_page_never_scrolls_sideways(open_file: Open, file: Path, hostile_file: Path, made_of: str) -> None:
    page = open_file({"usual": file, "hostile": hostile_file}[made_of], "#d=*", width=320, height=800)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    for width in (320, 390, 768, 1024, 1440):
        page.set_viewport_size({"width": width, "height": 800})
        page.evaluate("harnessPage.redrawPictures()")
        assert page.evaluate("[innerWidth, document.documentElement.scrollWidth <= innerWidth]") == [width, True]


def test_print_has_every_row_no_controls_and_black_text(open_rows: Open) -> None:
    page = open_rows(*made.rows(130), "#n=2", colours="dark")
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#body tr").count() == 130
    for name in ("#controls", "#filters", "#pager", ".skip"):
        assert not page.locator(name).first.is_visible(), name
    assert page.locator("#footnotes").is_visible()
    colours = page.evaluate(
        """() => Array.from(
          document.querySelectorAll("h1, p, th, td, button, span, li"), (each) => getComputedStyle(each).color
        )"""
    )
    assert set(colours) == {"rgb(0, 0, 0)"}
    assert page.locator("figure .chart svg").count() == 6
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("#body tr").count() == 40
    assert page.pdf().startswith(b"%PDF")


def test_dark_scheme_has_light_text(open_file: Open, file: Path) -> None:
    page = open_file(file, colours="dark")
    colours = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.documentElement).backgroundColor]"
    )
    ink, back = (sum(int(part) for part in re.findall(r"\d+", colour)[:3]) for colour in colours)
    assert ink > 500 > 200 > back
