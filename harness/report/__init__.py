"""A table -> text: for people (Markdown, terminal) and for programs (CSV, JSON).

The same table always gives the same bytes: nothing here looks at the clock, the machine or the environment.
"""

from __future__ import annotations

from harness.errors import UnknownName
from harness.report import as_csv, as_json, markdown, terminal
from harness.table import Table

FORMATS = ("md", "csv", "json", "terminal")


def render(table: Table, format: str, *, width: int = 80) -> str:
    """Write a table.

    Args:
        table: what to write.
        format: one of ``FORMATS``.
        width: columns of the terminal; of use to ``terminal`` only.

    Returns:
        Text that ends with a newline.

    Raises:
        UnknownName: there is no such format.
    """
    if format == "terminal":
        return terminal.render(table, width)
    writers = {"md": markdown.render, "csv": as_csv.render, "json": as_json.render}
    if format not in writers:
        raise UnknownName("format", format, FORMATS)
    return writers[format](table)
