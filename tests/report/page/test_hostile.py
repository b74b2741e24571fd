"""A stranger's names and texts are shown, and do nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.report.page import made
from tests.report.page.conftest import Open

pytestmark = pytest.mark.browser


@pytest.fixture
def hostile(open_file: Open, hostile_file: Path) -> Page:
    return open_file(hostile_file, "#d=scifact")


def test_hostile_names_and_evidence_are_shown_as_text(hostile: Page) -> None:
    lines = hostile.locator("#body tr", has_text=made.HOSTILE)
    assert lines.count() == 2
    for button in lines.locator("button").all():
        button.click()
        expect(hostile.locator("#evidence")).to_be_visible()
        assert hostile.locator("#evidence img, #evidence script").count() == 0
        hostile.keyboard.press("Escape")
        expect(hostile.locator("#evidence")).to_be_hidden()
    hostile.evaluate("harnessPage.redrawPictures()")
    assert hostile.locator("main img, main script").count() == 0
    scripts = hostile.locator("body > script").count()
    assert hostile.evaluate("document.scripts.length") == scripts


def test_the_content_policy_stops_an_injected_script(browser: Browser, hostile_file: Path) -> None:
    """A script that got into the page does not run, and can send nothing."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    refused: list[str] = []
    page.on("console", lambda each: refused.append(each.text))
    page.goto(hostile_file.as_uri())
    ran = page.evaluate(
        """async () => {
          const script = document.createElement("script");
          script.textContent = "window.ran = true";
          document.body.append(script);
          const sent = await fetch("data:text/plain,x").then(() => true, () => false);
          return [window.ran === true, sent];
        }"""
    )
    context.close()
    assert ran == [False, False]
    assert any("Content Security Policy" in each for each in refused)
