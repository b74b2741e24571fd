"""A table for a terminal of any width: one panel of columns below the other, as many as it takes; no cell is cut."""

from __future__ import annotations

import io
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from harness.analysis.table import Table
from harness.report.layout import lay_out
from harness.report.sheet import Grid as Cells
from harness.untrusted import MAX_TEXT, one_line

NARROWEST = 40
_GAP = 2


def render(table: Table, width: int = 80) -> str:
    """Plain text without colours.  Columns that do not fit follow in further panels that repeat the row's name.

    Args:
        table: what to show.
        width: of the terminal, characters; below ``NARROWEST`` lines may be longer than it.
    """
    sheet = lay_out(table, lambda text: one_line(text, MAX_TEXT))
    if not sheet.cells:
        return "No stored results.\n"
    width = max(width, NARROWEST)
    # A fixed, colourless console: the text must not depend on the environment it is made in.
    stream = io.StringIO()
    console = Console(
        file=stream, width=width, color_system=None, force_terminal=False, legacy_windows=False, _environ={}
    )
    for cells in (sheet, sheet.below):
        if cells is not None:
            _show(console, cells, width)
    for number, text in enumerate(sheet.footnotes, start=1):
        console.print(_hanging(f"[{number}]", text))
    for note in sheet.notes:
        console.print(_hanging("-", note))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _show(console: Console, cells: Cells, width: int) -> None:
    console.print(Text(cells.caption or "all stored results"))
    for columns in _panels(cells, width):
        console.print()
        console.print(_grid(cells, columns, width))
    console.print()


def _panels(sheet: Cells, width: int) -> list[list[int]]:
    """Column numbers of each panel: the naming columns, then as many others as fit."""
    keys = list(range(sheet.keys))
    widths = [_width(sheet, column, width) for column in range(len(sheet.headers))]
    room = width - sum(widths[column] + _GAP for column in keys)
    panels: list[list[int]] = []
    left = 0
    for column in range(sheet.keys, len(sheet.headers)):
        if widths[column] + _GAP > left or not panels:
            panels.append(list(keys))
            left = room
        panels[-1].append(column)
        left -= widths[column] + _GAP
    return panels


def _width(sheet: Cells, column: int, width: int) -> int:
    """The widest cell or header word.  Headers wrap; cells do not, but for names longer than a quarter of a line."""
    cells = max(cell_len(row[column]) for row in sheet.cells)
    if column < sheet.keys:
        cells = min(cells, width // 4)
    return max(cells, *(cell_len(word) for word in sheet.headers[column].split()))


def _grid(sheet: Cells, columns: list[int], width: int) -> Grid:
    # The box puts one space between columns; the padding makes it two.
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, _GAP - 1, 0, 0), show_edge=False)
    for column in columns:
        justify: Literal["left", "right"] = "right" if sheet.numeric[column] else "left"
        wide = _width(sheet, column, width)
        grid.add_column(
            Text(sheet.headers[column], justify=justify),
            justify=justify,
            width=wide,
            vertical="bottom",
            overflow="fold",
        )
    for row in sheet.cells:
        grid.add_row(*(Text(row[column]) for column in columns))
    return grid


def _hanging(mark: str, text: str) -> Grid:
    """A paragraph whose further lines stand under the first word."""
    grid = Grid.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark), Text(text))
    return grid
