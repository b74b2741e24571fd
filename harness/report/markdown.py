"""A table as Markdown (GitHub's dialect)."""

from __future__ import annotations

import functools
import re

from harness.report.layout import lay_out
from harness.report.sheet import Grid
from harness.report.text import one_line
from harness.table import Table


def render(table: Table) -> str:
    """Markdown: a caption, the table, its footnotes and notes.  Deterministic; ends with a newline."""
    sheet = lay_out(table, escape)
    if not sheet.cells:
        return "No stored results.\n"
    lines = [f"**{sheet.caption}**" if sheet.caption else "**All stored results**", "", *grid(sheet), ""]
    if sheet.below is not None:
        lines += [f"**{sheet.below.caption}**", "", *grid(sheet.below), ""]
    lines += [f"- [{number}] {text}" for number, text in enumerate(sheet.footnotes, start=1)]
    lines += [f"- {note}" for note in sheet.notes]
    return "\n".join(lines) + "\n"


@functools.lru_cache(maxsize=1 << 14)
def escape(text: str) -> str:
    """A stranger's text as inert Markdown on one line: no table bars, HTML, links, code or emphasis."""
    text = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*|~\[\]])", r"\\\1", text)
    # An underscore inside a word is no emphasis in this dialect; escaped, it would only be hard to read.
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)


def grid(sheet: Grid) -> list[str]:
    """The table's own lines."""
    rules = ["---:" if numeric else "---" for numeric in sheet.numeric]
    headers = [escape(header) for header in sheet.headers]
    return [f"| {' | '.join(cells)} |" for cells in (headers, rules, *sheet.cells)]
