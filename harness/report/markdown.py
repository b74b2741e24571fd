"""A table as Markdown (GitHub's dialect)."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from harness.analysis.table import Table
from harness.report.layout import lay_out
from harness.report.sheet import Sheet
from harness.untrusted import MAX_TEXT, one_line


def render(table: Table) -> str:
    """Markdown: a caption, the table, its footnotes and notes.  Deterministic; ends with a newline."""
    return written(lay_out(table, escape))


def written(sheet: Sheet) -> str:
    """A sheet whose texts :func:`escape` has made harmless, as Markdown."""
    if not sheet.cells:
        return "No stored results.\n"
    caption = f"**{sheet.caption}**" if sheet.caption else "**All stored results**"
    lines = [caption, "", *grid(sheet.headers, sheet.numeric, sheet.cells), ""]
    if sheet.below is not None:
        below = sheet.below
        lines += [f"**{below.caption}**", "", *grid(below.headers, below.numeric, below.cells), ""]
    lines += [f"- [{number}] {text}" for number, text in enumerate(sheet.footnotes, start=1)]
    lines += [f"- {note}" for note in sheet.notes]
    return "\n".join(lines) + "\n"


@functools.lru_cache(maxsize=1 << 14)
def escape(text: str) -> str:
    """A stranger's text as inert Markdown on one line: no table bars, HTML, links, code or emphasis."""
    text = one_line(text, MAX_TEXT).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*|~\[\]])", r"\\\1", text)
    # An underscore inside a word is no emphasis in this dialect; escaped, it would only be hard to read.
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)


def grid(
    headers: Sequence[str], numeric: Sequence[bool], cells: Sequence[Sequence[str]], *, padded: bool = False
) -> list[str]:
    """A table's own lines.

    Args:
        headers: any texts.
        numeric: the columns that stand to the right.
        cells: rows of finished texts, already escaped.
        padded: columns line up, so that it reads as a table where nothing renders it.
    """
    rows = [[escape(header) for header in headers], *cells]
    if not padded:
        rules = ["---:" if right else "---" for right in numeric]
        return [f"| {' | '.join(row)} |" for row in (rows[0], rules, *rows[1:])]
    widths = [max(3, *(len(row[column]) for row in rows)) for column in range(len(headers))]
    rules = ["-" * (width - 1) + ":" if right else "-" * width for width, right in zip(widths, numeric, strict=True)]
    lined = [
        [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        for row in rows
    ]
    return [f"| {' | '.join(row)} |" for row in (lined[0], rules, *lined[1:])]
