"""Pages in a headless Chromium that has no network; whatever a page complains about fails its test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from harness.report import page as pages
from harness.report.page import Page as Made
from tests.page import made

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
Open = Callable[..., Page]

# Image builds may run beside.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real one; ``scripts/test-tools`` sees to it that there is one."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("no chromium is on the path; run scripts/test-tools, or deselect with -m 'not browser'")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def open_file(browser: Browser) -> Iterator[Open]:
    """Opens a file as a person does, at a fragment, in a window of a size; fails on any complaint or request."""
    complaints: list[str] = []
    contexts = []

    def opened(path: Path, fragment: str = "", *, width: int = 1280, height: int = 900, **options: object) -> Page:
        context = browser.new_context(offline=True, viewport={"width": width, "height": height}, **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda each: complaints.append(each.text) if each.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
        page.on("request", lambda each: None if each.url.startswith(path.as_uri()) else complaints.append(each.url))
        page.goto(path.as_uri() + fragment)
        page.wait_for_function("document.querySelector('#body tr') !== null || document.querySelector('#count')")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="session")
def results() -> Made:
    """Two datasets, 60 rows each: ok, noisy, invalid and failed ones."""
    rows, found = made.rows(120, datasets=("scifact", "nfcorpus"))
    return made.page_of(rows, found)


@pytest.fixture(scope="session")
def file(results: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(pages.render(pages.of(results)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def shared(browser: Browser, file: Path) -> Iterator[Page]:
    """One page for tests that only ask it to compute; each says all that its answer hangs on."""
    context = browser.new_context(offline=True)
    opened = context.new_page()
    opened.goto(file.as_uri())
    yield opened
    context.close()


@pytest.fixture
def page(open_file: Open, file: Path) -> Page:
    """The made-up results, as they open."""
    return open_file(file)
