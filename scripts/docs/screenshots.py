"""Draw the pictures of ``docs/guides/page.md``: the published results' page as a headless Chromium shows it.

Run ``python -m scripts.docs.screenshots`` after a change of the page's looks; it writes ``docs/assets/page*.png``.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

from click.testing import CliRunner
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from harness.cli import main as harness
from harness.config import data_root

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "assets"
MOST_BYTES = 150_000
COLOURS = 64
_ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_PAPER = "#p=aws,us-east-1,on-demand,2022-10-31"


def main() -> int:
    """Write the pictures; return 1 if one is too large."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        path = Path(name) / "page.html"
        published = data_root() / "results" / "published" / "santhanam2023"
        done = CliRunner().invoke(harness, ["report", str(published), "--format", "html", "-o", str(path)])
        if done.exit_code:
            sys.exit(done.output)
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=_ARGUMENTS)
        _window(browser, path, "page", 1280, 1000)
        _window(browser, path, "page-dark", 1280, 720, dark=True)
        _window(browser, path, "page-narrow", 390, 844)
        _part(browser, path, "page-table", "#leaderboard")
        _part(browser, path, "page-pictures", "#pictures-more")
        _evidence(browser, path)
        browser.close()
    large = [each for each in sorted(PICTURES.glob("page*.png")) if each.stat().st_size >= MOST_BYTES]
    for each in sorted(PICTURES.glob("page*.png")):
        print(f"{each.name}: {each.stat().st_size / 1e3:.0f} kB{'  TOO LARGE' if each in large else ''}")
    return 1 if large else 0


def _open(browser: Browser, path: Path, width: int, height: int, fragment: str, dark: bool = False) -> Page:
    context = browser.new_context(
        offline=True, viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
    )
    page = context.new_page()
    page.goto(path.as_uri() + fragment)
    # The page draws one picture a frame.
    page.wait_for_timeout(1500)
    return page


def _window(browser: Browser, path: Path, name: str, width: int, height: int, *, dark: bool = False) -> None:
    _shot(_open(browser, path, width, height, _PAPER, dark), name)


def _part(browser: Browser, path: Path, name: str, part: str) -> None:
    page = _open(browser, path, 1280, 3300, _PAPER)
    _save(page.locator(part).screenshot(), name)
    page.context.close()


def _evidence(browser: Browser, path: Path) -> None:
    page = _open(browser, path, 1280, 1000, _PAPER)
    page.locator('#body tr:first-child button[data-column="score"]').click()
    page.wait_for_timeout(500)
    _shot(page, "page-evidence")


def _shot(page: Page, name: str) -> None:
    _save(page.screenshot(), name)
    page.context.close()


def _save(picture: bytes, name: str) -> None:
    """Write a picture with few colours, which halves its file."""
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").quantize(COLOURS).save(PICTURES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    sys.exit(main())
