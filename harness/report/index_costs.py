"""The smaller table below the rows: what the indexes cost to build and to keep, once for each."""

from __future__ import annotations

from collections.abc import Sequence

from harness.report.sheet import MIB, MISSING, Column, Escape, Footnotes, Grid, named, number
from harness.table import Figure, Row, Table


def lay_out(table: Table, notes: Footnotes, escape: Escape) -> Grid | None:
    """What the indexes cost, once for each; ``None`` where no build is known."""
    rows = indexes(table.rows)
    if not rows:
        return None

    def figure(item: Figure) -> str:
        return MISSING + notes.mark(item.reason) if item.value is None else number(item.value)

    def built_on(row: Row) -> str:
        price = row.build_price
        return MISSING if price is None else f"{escape(price.instance_type)} ({price.usd_per_hour:g})"

    columns: list[Column] = [
        ("index of system", False, lambda row: named(row, escape)),
        ("dataset", False, lambda row: escape(row.dataset)),
        ("documents", True, lambda row: MISSING if row.corpus_documents is None else f"{row.corpus_documents}"),
        ("build, s", True, lambda row: MISSING if row.index_build_s is None else number(row.index_build_s)),
        ("built with", False, lambda row: escape(row.build_envelope.name) if row.build_envelope else MISSING),
        (f"instance type (US$/h, {table.price_date})", False, built_on),
        ("US$ per million documents", True, lambda row: figure(row.usd_build_per_million_documents)),
        ("index, MiB", True, lambda row: MISSING if row.index_bytes is None else number(row.index_bytes / MIB)),
        ("storage, US$ per month", True, lambda row: figure(row.usd_storage_per_month)),
    ]
    return Grid(
        caption="What the indexes cost",
        headers=tuple(header for header, _, _ in columns),
        numeric=tuple(numeric for _, numeric, _ in columns),
        cells=tuple(tuple(cell(row) for _, _, cell in columns) for row in rows),
        keys=2,
    )


def indexes(rows: Sequence[Row]) -> tuple[Row, ...]:
    """One row for each index whose build is known; the same index stands in many rows."""
    known = [row for row in rows if row.index_bytes is not None and row.build_envelope is not None]
    found = {(row.system, row.dataset, row.corpus_sha256, row.index_bytes, row.index_build_s): row for row in known}
    return tuple(found.values())
