"""Everything that shows results: tables and reports, plots, the HTML page, data frames and exports."""

from __future__ import annotations

from harness.analysis.table import Table
from harness.errors import UnknownName
from harness.report import main_table, writers
from harness.report.writers import FORMATS

__all__ = ["FORMATS", "LAYOUTS", "render"]

# A row for each cell with all that is known of it, or the shape of a paper's tables.
LAYOUTS = ("rows", "santhanam2023")


def render(table: Table, format: str, *, width: int = 80, layout: str = "rows") -> str:
    """Write a table.

    Args:
        table: what to write.
        format: one of ``FORMATS``; there is no ``terminal`` in the layout ``santhanam2023``.
        width: columns of the terminal; of use to ``terminal`` only.
        layout: one of ``LAYOUTS``.

    Returns:
        Text that ends with a newline.

    Raises:
        UnknownName: there is no such format or layout.
    """
    if layout not in LAYOUTS:
        raise UnknownName("layout", layout, LAYOUTS)
    if layout == "santhanam2023":
        from harness.report import table3  # the notes that it leaves out are written where statistics are made

        return table3.render(table, format)
    return writers.write(main_table.table_document(table), format, width=width)
