"""A table -> text: for people (Markdown, LaTeX, terminal) and for programs (CSV, JSON).

The same table always gives the same bytes: nothing here looks at the clock, the machine or the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from harness.analysis.table import Table
from harness.errors import UnknownName
from harness.report import csv_json, latex, markdown, study, terminal

FORMATS = ("md", "csv", "json", "latex", "terminal")
# A row for each cell with all that is known of it, or the shape of a paper's tables.
LAYOUTS = ("rows", *study.NAMES)


def render(table: Table, format: str, *, width: int = 80, layout: str = "rows") -> str:
    """Write a table.

    Args:
        table: what to write.
        format: one of ``FORMATS``; a study's layout has no ``terminal``.
        width: columns of the terminal; of use to ``terminal`` only.
        layout: one of ``LAYOUTS``.

    Returns:
        Text that ends with a newline.

    Raises:
        UnknownName: there is no such format or layout.
    """
    if layout not in LAYOUTS:
        raise UnknownName("layout", layout, LAYOUTS)
    if layout != "rows":
        return study.load(layout).render_rows(table, format)
    if format == "terminal":
        return terminal.render(table, width)
    writers = {"md": markdown.render, "csv": csv_json.render_csv, "json": csv_json.render_json, "latex": latex.render}
    if format not in writers:
        raise UnknownName("format", format, FORMATS)
    return writers[format](table)


# MERGED harness.report: What writes each format.


Writer = TypeVar("Writer")


def writer(writers: Mapping[str, Writer], format: str) -> Writer:
    """The one of that format.

    Raises:
        UnknownName: there is none.
    """
    if format not in writers:
        raise UnknownName("format", format, tuple(writers))
    return writers[format]
