"""The site of docs/: it builds without a dead link, and its search finds a page without any other server."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

ROOT = Path(__file__).parents[2]
COMMAND = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(COMMAND, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of what the site is made of."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    return tmp_path


@pytest.fixture
def address(source: Path) -> Iterator[str]:
    """The address of the built site on this machine."""
    done = build(source)
    assert done.returncode == 0, done.stdout + done.stderr
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=source / "build" / "site")) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_dead_link_stops_the_build(source: Path) -> None:
    page = source / "docs" / "index.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n[gone](guides/gone.md)\n", encoding="utf-8")
    done = build(source)
    assert done.returncode != 0 and "page does not exist" in done.stdout + done.stderr


def test_first_page_leads_to_every_folder() -> None:
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert all(f"]({folder}/" in text for folder in ("guides", "method", "reference"))


def test_navigation_lists_every_page_once() -> None:
    listed = re.findall(r"^ +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
    assert sorted(listed) == sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))


@pytest.mark.browser
def test_search_finds_a_page(address: str, browser: Browser) -> None:
    foreign: list[str] = []
    page = browser.new_page()
    page.on("request", lambda each: None if each.url.startswith(address) else foreign.append(each.url))
    page.goto(f"{address}index.html", wait_until="networkidle")
    page.get_by_role("button", name="Search").click()
    page.get_by_label("Search", exact=True).and_(page.locator("input[type=text]")).fill("Pareto")
    expect(page.locator('a[role="option"][href$="leaderboards.html#the-pareto-front"]')).to_be_visible(timeout=30_000)
    page.close()
    assert foreign == []
