"""Measure size and speed of the page: made-up results of 500 and 5,000 rows, in a headless Chromium.

``python -m benchmarks.html_page`` makes the pages in a temporary folder and prints for each its size, how long
it takes until the first table stands, and how long a choice takes until the table is there and the pictures are drawn
(two animation frames later), the median and the slowest of many.  Allowed: 5 MB for 500 rows, 100 ms for a filter or a
slider at any size.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.report.page import made

ALLOWED_MS = 100.0
ALLOWED_BYTES = {500: 5_000_000}
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
# Each makes one choice as a person does, and returns when the screen shows all of it.
_TIMED = """async ({ id, values }) => {
  const taken = [];
  const box = document.getElementById(id);
  const event = box.tagName === "SELECT" ? "change" : "input";
  for (const value of values) {
    await new Promise((done) => setTimeout(done, 50));
    const started = performance.now();
    box.value = value;
    box.dispatchEvent(new Event(event, { bubbles: true }));
    const table = performance.now() - started;
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    taken.push([table, performance.now() - started]);
  }
  return taken;
}"""
_CHOICES = {
    "slider": ("weight-accuracy", [str(value) for value in range(10, 90, 4)]),
    "filter": ("query", ["bm25", "b", "", "cpu1", "cpu1 mem4", "splade", "zzz", "", "oom", "ok"]),
    "mode": ("mode", ["robust", "reference"] * 3),
}


def main() -> int:
    """Print sizes and times; exit code 1 if one is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 5000])
    arguments = parser.parse_args()
    over = 0
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        for rows in arguments.rows:
            path = Path(name) / f"{rows}.html"
            started = time.perf_counter()
            path.write_text(made.html(*made.rows(rows)), encoding="utf-8")
            took, size = time.perf_counter() - started, path.stat().st_size
            large = size > ALLOWED_BYTES.get(rows, sys.maxsize)
            print(f"\n{rows:,} rows: {size / 1e6:.2f} MB{'  OVER' if large else ''}, made in {took:.1f} s")
            context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
            over += large + _time(context.new_page(), path)
            context.close()
        browser.close()
    return 1 if over else 0


def _time(page: Page, path: Path) -> int:
    """Print the times; how many kinds of choices were too slow."""
    started = time.perf_counter()
    page.goto(path.as_uri())
    page.wait_for_selector("#body tr")
    print(f"  opened {1e3 * (time.perf_counter() - started):26.0f} ms")
    slow = 0
    for kind, (box, values) in _CHOICES.items():
        page.evaluate(_TIMED, {"id": box, "values": values[:2]})  # once without a clock: code is compiled
        taken = page.evaluate(_TIMED, {"id": box, "values": values})
        tables, whole = ([seconds[part] for seconds in taken] for part in (0, 1))
        late = statistics.median(whole) > ALLOWED_MS
        slow += late
        print(
            f"  {kind:8} table {statistics.median(tables):5.0f} ms (slowest {max(tables):4.0f}), with pictures "
            f"{statistics.median(whole):5.0f} ms (slowest {max(whole):4.0f}){'  OVER' if late else '  ok'}"
        )
    return slow


if __name__ == "__main__":
    sys.exit(main())
