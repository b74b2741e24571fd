"""Hardware and instance types in words: what a row had, what prices it, and the marks of both."""

from __future__ import annotations

from collections.abc import Iterable

from harness.analysis import row_pricing
from harness.analysis.table import Price, Row, processors
from harness.report.document import MIB, Escape, number

_GIB = 2**30
# The mark of a machine that prices a row and did not measure it.
NOT_MEASURED = "*"
# Types that a heading names.
_MOST_TYPES = 3


def hardware(row: Row) -> str:
    """Return the hardware in words: ``1 CPU, 256 MiB``; of a published row its instance type."""
    if row.published_type:
        return row.published_type
    if row.isolation.attached:
        told = row.told and (row.told.instance or f"US$ {row.told.usd_per_hour:g} an hour")
        return row.isolation.marked(f"{told} as told" if told else "a machine that nobody named")
    if not row.cpus:
        return "hardware that is not printed"
    return row.isolation.marked(f"{processors(row.cpus, row.gpus)}, {memory(row.memory_bytes, row.memory_limit_bytes)}")


def memory(asked_bytes: int, limit_bytes: int) -> str:
    """Return a profile's memory, and the job's limit where that is less: ``32 GiB (limit 29.9)``."""
    if limit_bytes == asked_bytes:
        return size(asked_bytes)
    limit = f"{limit_bytes / _GIB:.1f}" if limit_bytes >= _GIB else size(limit_bytes)
    return f"{size(asked_bytes)} (limit {limit})"


def size(size_bytes: float) -> str:
    """Return a size in whole MiB, or in GiB where that is as exact."""
    if size_bytes >= _GIB:
        return f"{number(size_bytes / _GIB)} GiB" if size_bytes % _GIB else f"{size_bytes // _GIB:.0f} GiB"
    return f"{size_bytes / MIB:.0f} MiB" if size_bytes >= MIB else f"{size_bytes / 1024:.0f} KiB"


def machine(row: Row) -> str:
    """Return the type that prices a row, marked where it did not measure it; nothing where its hardware names it."""
    if row.price is None or row.price.instance_type in (row.published_type, row_pricing.TOLD_TYPE):
        return ""
    return row.price.instance_type + ("" if row_pricing.is_own_machine(row, row.price) else NOT_MEASURED)


def priced_on(rows: Iterable[Row]) -> str:
    """Return the types that price rows, where a grid has no column for them."""
    types = sorted({machine(row) for row in rows if row.usd_per_million.value is not None} - {""})
    others = " and others" if len(types) > _MOST_TYPES else ""
    return f"priced on {', '.join(types[:_MOST_TYPES])}{others}" if types else ""


def other_machine_mark(row: Row, price: Price | None) -> str:
    """Return `` (arm64)`` or `` (t4)`` for a price on another architecture or GPU than the measured one, or nothing."""
    other = row_pricing.other_machine(row, price)
    return "" if other is None else f" ({other})"


def explain_marks(rows: Iterable[Row], escape: Escape) -> str:
    """Return what the marks behind costs mean, such as ``(t4): priced there, measured elsewhere``, or nothing."""
    priced = [row for row in rows if row.usd_per_million.value is not None]
    marks = {escape(other_machine_mark(row, row.price).strip()) for row in priced} - {""}
    marks |= {NOT_MEASURED for row in priced if machine(row).endswith(NOT_MEASURED)}
    return f"{', '.join(sorted(marks))}: priced there, measured elsewhere" if marks else ""
