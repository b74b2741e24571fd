"""Everything that shows results: tables and reports, plots, the HTML page, data frames and exports."""

from __future__ import annotations

from harness.analysis.table import Table
from harness.errors import UnknownName
from harness.report import main_table, study, writers
from harness.report.writers import FORMATS

__all__ = ["FORMATS", "LAYOUTS", "render"]

# A row for each cell with all that is known of it, or the shape of a paper's tables.
LAYOUTS = ("rows", *study.names(), "long-documents")


def render(table: Table, format: str, *, layout: str = "rows") -> str:
    """Write a table.

    Args:
        table: what to write.
        format: one of ``FORMATS``.
        layout: one of ``LAYOUTS``.

    Returns:
        Text that ends with a newline.

    Raises:
        UnknownName: there is no such format or layout.
    """
    if layout not in LAYOUTS:
        raise UnknownName("layout", layout, LAYOUTS)
    if layout in study.names():
        return study.load(layout).render_rows(table, format)
    return writers.write(main_table.table_document(table), format)
