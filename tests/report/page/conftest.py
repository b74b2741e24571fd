"""Pages in a headless Chromium without a network; a complaint of a page fails its test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from harness.analysis.table import Row
from harness.evaluation.per_query import PerQuery
from harness.report.page import PageSource
from tests.report.page import made

BLANK = "about:blank"
Open = Callable[..., Page]
Samples = dict[str, PerQuery]
Rows = tuple[list[Row], Samples]
Colours = Literal["light", "dark"]

# Image builds may run at the same time.
expect.set_options(timeout=30_000)


class Tab:
    """A reused browser tab: a new one takes three times as long as opening a page."""

    def __init__(self, browser: Browser) -> None:
        self.page = browser.new_context(offline=True).new_page()
        self.complaints: list[str] = []
        self._uri = BLANK
        self.page.set_default_timeout(60_000)
        self.page.on("console", lambda each: self._complain(each.text, each.type in ("error", "warning")))
        self.page.on("pageerror", lambda error: self._complain(str(error)))
        self.page.on("dialog", lambda dialog: self._complain(f"a dialog: {dialog.message}"))
        self.page.on("request", lambda each: self._complain(each.url, not each.url.startswith((self._uri, BLANK))))

    def open(
        self, path: Path, fragment: str = "", width: int = 1280, height: int = 900, colours: Colours = "light"
    ) -> Page:
        self._uri = path.as_uri()
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(media="null", color_scheme=colours)
        self.page.goto(self._uri + fragment)
        self.page.wait_for_function("document.querySelector('#body tr') !== null || document.querySelector('#count')")
        return self.page

    def clear(self) -> list[str]:
        """Close the page; return its complaints."""
        self.page.mouse.move(0, 0)
        self.page.goto(BLANK)
        complaints, self.complaints = self.complaints, []
        return complaints

    def _complain(self, what: str, really: bool = True) -> None:
        if really:
            self.complaints.append(what)


@pytest.fixture(scope="session")
def tabs() -> list[Tab]:
    """Return the list of idle tabs."""
    return []


@pytest.fixture
def open_file(browser: Browser, tabs: list[Tab]) -> Iterator[Open]:
    """Opens a file as a person does, at a fragment, in a window of a size; fails on any complaint or request."""
    used: list[Tab] = []

    def opened(path: Path, *arguments: object, **options: object) -> Page:
        used.append(tabs.pop() if tabs else Tab(browser))
        return used[-1].open(path, *arguments, **options)

    yield opened
    complaints = [each for tab in used for each in tab.clear()]
    tabs.extend(used)
    assert complaints == []


@pytest.fixture
def open_rows(open_file: Open, tmp_path: Path) -> Open:
    """Opens a page of some rows and their samples; then as ``open_file``."""

    def opened(rows: Sequence[Row], found: Samples | None = None, *arguments: object, **how: object) -> Page:
        return open_file(_written(tmp_path, rows, found), *arguments, **how)

    return opened


def _written(folder: Path, rows: Sequence[Row], found: Samples | None = None) -> Path:
    path = folder / "page.html"
    path.write_text(made.html(rows, found), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def rows() -> Rows:
    """Two datasets, 60 rows each: ok, noisy, invalid and failed ones; and their samples."""
    return made.rows(120, datasets=("scifact", "nfcorpus"))


@pytest.fixture(scope="session")
def results(rows: Rows) -> PageSource:
    return made.page_of(*rows)


@pytest.fixture(scope="session")
def file(rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _written(tmp_path_factory.mktemp("page"), *rows)


@pytest.fixture(scope="session")
def hostile_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a stranger's rows."""
    return _written(tmp_path_factory.mktemp("hostile"), made.hostile())


@pytest.fixture(scope="session")
def shared(browser: Browser, file: Path) -> Iterator[Page]:
    """Return a shared page for tests that only compute; each sets everything its answer depends on."""
    tab = Tab(browser)
    yield tab.open(file)
    assert tab.clear() == []


@pytest.fixture
def page(open_file: Open, file: Path) -> Page:
    """The made-up results, as they open."""
    return open_file(file)
