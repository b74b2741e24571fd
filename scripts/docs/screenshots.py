"""Pictures of outputs, made by hand after a change of their looks.

``python -m scripts.docs.screenshots`` writes the pictures of ``docs/guides/page.md``, ``docs/assets/page*.png``: the
published results' page as a headless Chromium shows it.

``python -m scripts.docs.screenshots RESULTS`` writes what commands print of stored results on terminals of 80, 100 and
160 columns: ``build/terminal/<command>-<width>.txt`` and ``.svg``.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from click.testing import CliRunner
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console
from rich.text import Text

from harness.cli import main as harness
from harness.config import data_root

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "assets"
MOST_BYTES = 150_000
COLOURS = 64
TERMINALS = PICTURES.parents[1] / "build" / "terminal"
WIDTHS = (80, 100, 160)
_ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_PAPER = "#p=aws,us-east-1,on-demand,2022-10-31"


def main() -> int:
    """Write the outputs of results that the command line names, else the page's pictures."""
    return terminals(Path(sys.argv[1])) if len(sys.argv) > 1 else page_pictures()


def terminals(results: Path) -> int:
    """Record commands on stored results at each width; exit code 1 where a line is wider than its terminal."""
    commands = {
        "report": ["report", str(results)],
        "leaderboard": ["leaderboard", str(results)],
        "compare": ["compare", "*", "--results", str(results)],
        "explain": ["explain", "--results", str(results)],
    }
    TERMINALS.mkdir(parents=True, exist_ok=True)
    wide = 0
    for name, arguments in commands.items():
        for width in WIDTHS:
            text = Text.from_ansi(terminal_output(arguments, width))
            console = Console(record=True, width=width, file=io.StringIO(), color_system="truecolor")
            console.print(text, soft_wrap=True)
            path = TERMINALS / f"{name}-{width}"
            path.with_suffix(".txt").write_text(text.plain + "\n", encoding="utf-8")
            path.with_suffix(".svg").write_text(console.export_svg(title=f"harness {name}"), encoding="utf-8")
            most = max(map(len, text.plain.splitlines()), default=0)
            wide += most > width
            print(f"{path.name}: {most} columns{'  TOO WIDE' if most > width else ''}")
    return 1 if wide else 0


def terminal_output(arguments: list[str], width: int) -> str:
    """Return what a command prints on a terminal of so many columns, with its colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", *arguments],
        stdout=theirs,
        stderr=subprocess.DEVNULL,  # progress
        env={**environment, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    pieces = []
    # Linux ends the reading of a terminal that no process holds any more with an error.
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 65536):
            pieces.append(piece)
    os.close(ours)
    process.wait()
    return b"".join(pieces).decode().replace("\r\n", "\n")


def page_pictures() -> int:
    """Write the page's pictures; exit code 1 where one is too large."""
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
    # Pictures are drawn one a frame, those that are seen.
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
