"""The answer at the top of a page, as HTML that needs no JavaScript."""

from __future__ import annotations

import html
from collections.abc import Sequence

from harness.report.document import Grid, Section, message_at


def answer_html(section: Section) -> str:
    """Return a summary as HTML, which is readable without JavaScript."""
    sentences = [f"<p>{html_text(line)}</p>" for line in section.after]
    about = [f'<p class="quiet">{html_text(line)}</p>' for line in (*section.notes, *section.lead)]
    return "\n".join([*sentences, '<div class="grids">', *map(_table, section.grids), "</div>", *about])


def _table(grid: Grid) -> str:
    head = "".join(_cell("th", text, right) for text, right in zip(grid.headers, grid.numeric, strict=True))
    caption = f"<caption>{html_text(grid.caption)}</caption>" if grid.caption else ""
    # Columns that name a row need no label on a narrow screen, where a wide table's rows become cards.
    labels = [header if place >= grid.keys else "" for place, header in enumerate(grid.headers)]
    wide = ' class="wide"' if len(grid.headers) > 4 else ""
    body = "".join(
        f'<tr class="{tone}">{_row(cells, grid.numeric, labels)}</tr>'
        for cells, tone in zip(grid.cells, grid.tones or [""] * len(grid.cells), strict=True)
    )
    table = f"<table{wide}>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{table}</div>'


def _row(cells: Sequence[str], numeric: Sequence[bool], labels: Sequence[str]) -> str:
    """Return a row's cells; a message spans the empty cells behind it."""
    if (last := message_at(cells)) is None:
        return "".join(_cell("td", *each) for each in zip(cells, numeric, labels, strict=True))
    shown = "".join(_cell("td", cell, right) for cell, right in zip(cells[:last], numeric, strict=False))
    return f'{shown}<td colspan="{len(cells) - last}">{html_text(cells[last])}</td>'


def _cell(tag: str, text: str, right: bool, label: str = "") -> str:
    number = ' class="number"' if right else ""
    said = f' data-label="{html_text(label)}"' if label and text else ""
    return f"<{tag}{number}{said}>{html_text(text)}</{tag}>"


def html_text(text: str) -> str:
    """Return a text that is inert in HTML, in elements and in attributes."""
    return encodable(html.escape(text, quote=False).replace('"', "&quot;"))


def encodable(text: str) -> str:
    """Escape halves of surrogate pairs, which are not characters: UTF-8 has no bytes for them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
