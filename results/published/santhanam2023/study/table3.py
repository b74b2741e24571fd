"""Write measured rows in the shape of Table 3: latency and cost by hardware, then accuracy.

One table for each dataset (of each suite), in which the first system of a hardware names it; below them, a line for
each system with its accuracy and the size of its index.  Figures that the paper has no column for follow its columns.
A cell without a number gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.analysis.notes import MEMORY_METHOD, PERCENTILE_METHOD
from harness.analysis.table import Row, Table, Validity
from harness.driver.records import Outcome
from harness.errors import UnknownName
from harness.estimate import Estimate
from harness.pricing.cost import BUILD_FORMULA, GIB, STORAGE_FORMULA
from harness.report.document import (
    MIB,
    MISSING,
    Escape,
    Footnotes,
    Section,
    decimals_of,
    number,
    stand_ins,
    system_name,
)
from harness.report.latex import HEAD
from harness.report.main_table import shared_notes

from . import table3_records
from .dialects import LATEX, MARKDOWN, Dialect, grid_section
from .table3_records import Block, blocks, left_out, ordered, scale

FORMATS = ("md", "csv", "json", "latex")

# Notes on figures that this table does not show.
_NOT_SHOWN = (PERCENTILE_METHOD, MEMORY_METHOD, f"Index build: {BUILD_FORMULA}", f"Index storage: {STORAGE_FORMULA}")


def render(table: Table, format: str) -> str:
    """Write a table in the paper's shape.

    Args:
        table: priced rows.
        format: one of ``FORMATS``.

    Raises:
        UnknownName: there is no such format.
    """
    writers = {"md": _markdown, "csv": table3_records.as_csv, "json": table3_records.as_json, "latex": _latex}
    if format not in writers:
        raise UnknownName("format", format, FORMATS)
    return writers[format](table)


def _markdown(table: Table) -> str:
    return _written(table, MARKDOWN)


def _latex(table: Table) -> str:
    return HEAD + _written(table, LATEX)


def _written(table: Table, dialect: Dialect) -> str:
    found, escape = blocks(table), dialect.escape
    if not found:
        return "".join(f"{escape(note)}\n" for note in ("No stored results.", *left_out(table)))
    rows = [row for block in found for row in block.rows]
    footnotes = Footnotes(escape)
    parts = [
        *(_latencies(block, footnotes, escape) for block in found),
        _accuracy(found, table.measures, footnotes, escape),
    ]
    kept = (note for note in table.notes if not note.startswith(_NOT_SHOWN))
    marked = (f"[{place}] {text}" for place, text in enumerate(footnotes.texts, start=1))
    below = Section(notes=(*marked, *(escape(note) for note in (*stand_ins(rows), *left_out(table), *kept))))
    return "\n\n".join(dialect.write(part, 2) for part in (*parts, below)) + "\n"


def _common(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the notes that all of several rows share, to be printed once below them."""
    if len(rows) < 2:
        return ()
    return tuple(note for note in rows[0].notes if all(note in row.notes for row in rows))


def _latencies(block: Block, notes: Footnotes, escape: Escape) -> Section:
    """Show Table 3a or 3b, with the notes that all of its rows share."""
    said, machine_of = shared_notes(block.rows)
    common = _common(block.rows)
    bounds = any(_has_bounds(row) for row in block.rows)
    cells: list[tuple[str, ...]] = []
    hardware: tuple[str, ...] = ()
    for row in block.rows:
        here = _hardware(row, notes)
        if row.outcome is not Outcome.OK and hardware[:3] == here[:3]:
            here = hardware  # a job that failed does not say how much GPU memory it needs, which the price hangs on
        where, hardware = ("",) * 4 if here == hardware else here, here
        told = [note for note in row.notes if note not in common]
        line = (_system(row, escape), _latency(row, notes, (*told, machine_of(row)), escape), _cost(row, notes, escape))
        cells.append((*where, *line, _interval(row, escape)) if bounds else (*where, *line))
    headers = ["GPU", "CPU", "RAM, GiB", "instance type (US$/h)", "system", "latency, ms", "US$ per million queries"]
    numeric = [True, True, True, False, False, True, True]
    if bounds:
        headers.append("latency 95 %, ms")
        numeric.append(True)
    title = f"{escape(block.label)}: latency and cost"
    after = " ".join(escape(note if note.endswith(".") else f"{note}.") for note in (*common, *said))
    return grid_section(
        title, (), tuple(headers), tuple(numeric), tuple(cells), after=(after,) if after else (), keys=5
    )


def _hardware(row: Row, notes: Footnotes) -> tuple[str, ...]:
    held = (str(row.gpus), str(row.cpus), f"{row.memory_limit_bytes / GIB:g}")
    return (*held, notes.price(row, row.price, row.price_note))


def _system(row: Row, escape: Escape) -> str:
    said = [row.isolation.mark] if row.isolation.mark else []
    said += [f"of {escape(row.origin)}"] if row.origin else []
    return system_name(row, escape) + (f" ({', '.join(said)})" if said else "")


def _latency(row: Row, notes: Footnotes, told: Sequence[str | None], escape: Escape) -> str:
    """Write the mean or the outcome, with the verdict and its notes."""
    doubt = f" {row.validity.doubt}" if row.validity.doubt else ""
    if row.outcome is not Outcome.OK:
        detail = f"{row.outcome.value}: {row.detail or 'no detail was stored'}"
        return f"{escape(row.outcome.value)}{doubt}{notes.mark(detail, *told)}"
    mean = row.latency.mean_s
    shown = MISSING if mean.value is None else number(mean.value * 1e3)
    if row.one_pass_warmup is not None:
        shown += f" after {row.one_pass_warmup} warm-up queries"
    return f"{shown}{doubt}{notes.mark(mean.reason, *told)}"


def _cost(row: Row, notes: Footnotes, escape: Escape) -> str:
    if row.outcome is not Outcome.OK:
        return escape(row.outcome.value)
    usd = row.cost.sequential
    return MISSING + notes.mark(usd.reason) if usd.value is None else number(usd.value)


def _has_bounds(row: Row) -> bool:
    return row.latency.mean_s.low is not None and row.latency.mean_s.high is not None


def _interval(row: Row, escape: Escape) -> str:
    """Write the ends of the mean's interval, in the mean's decimals."""
    mean = row.latency.mean_s
    if mean.value is None or mean.low is None or mean.high is None:
        return MISSING if row.outcome is Outcome.OK else escape(row.outcome.value)
    decimals = decimals_of(mean.value * 1e3)
    return f"{mean.low * 1e3:.{decimals}f}–{mean.high * 1e3:.{decimals}f}"


def _accuracy(found: Sequence[Block], measures: Sequence[str], notes: Footnotes, escape: Escape) -> Section:
    """Show Table 3c with the sizes of the indexes."""
    several = len(found) > 1
    headers, readers = ["system"], []
    for block in found:
        label = f"{block.label} " if several else ""
        for name in measures:
            headers.append(f"{label}{name}, %" if scale(name) == 100 else f"{label}{name}")
            readers.append((block, _measure(name), "the rankings differ between the rows of the table above"))
        if any(row.index.size_bytes is not None for row in block.rows):
            headers.append(f"{label}index, MiB")
            readers.append((block, _index, "the index was built more than once"))
    cells = []
    for first in ordered({row.system: row for block in found for row in block.rows}.values()):
        line = [system_name(first, escape)]
        for block, read, why in readers:
            of_it = tuple(row for row in block.rows if row.system == first.system)
            line.append(_one(of_it, read, why, notes, escape))
        cells.append(tuple(line))
    title = "Accuracy" + ("" if several else f" on {escape(found[0].label)}")
    return grid_section(title, (), tuple(headers), (False, *(True for _ in readers)), tuple(cells))


# A row's number in a column, as shown, or the reason why it is missing.
_Read = Callable[[Row], tuple[float | None, str | None]]


def _measure(name: str) -> _Read:
    def read(row: Row) -> tuple[float | None, str | None]:
        figure = row.measures.get(name, Estimate(None, reason="not judged by it"))
        return (None if figure.value is None else figure.value * scale(name)), figure.reason

    return read


def _index(row: Row) -> tuple[float | None, str | None]:
    return (None, "not measured") if row.index.size_bytes is None else (row.index.size_bytes / MIB, None)


def _one(rows: Sequence[Row], read: _Read, why: str, notes: Footnotes, escape: Escape) -> str:
    """Write the value that a system's rows share, or their range; invalid rows count only if all are."""
    ended = [row for row in rows if row.outcome is Outcome.OK]
    if not rows:
        return MISSING + notes.mark("not measured on this dataset")
    if not ended:
        return ", ".join(dict.fromkeys(escape(row.outcome.value) for row in rows))
    valid = [row for row in ended if row.validity is not Validity.INVALID]
    values = [read(row) for row in valid or ended]
    known = [value for value, _ in values if value is not None]
    if not known:
        return MISSING + notes.mark(*(reason for _, reason in values))
    decimals = 1 if read is not _index else decimals_of(max(known))
    least, most = (f"{end(known):.{decimals}f}" for end in (min, max))
    # Invalid latencies do not make an index size doubtful.
    doubt = "" if valid or read is _index else f" {Validity.INVALID.value}"
    return least + doubt if least == most else f"{least}–{most}{doubt}{notes.mark(why)}"
