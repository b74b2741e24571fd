"""The table of results: a row for each cell with all that is known of it."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.analysis.table import Row, Table, Validity
from harness.driver.records import Outcome
from harness.errors import counted
from harness.report.columns import Kind
from harness.report.document import (
    MISSING,
    Escape,
    Footnotes,
    GridColumn,
    ReportDocument,
    Section,
    grid_of,
    lines_of,
    stand_ins,
    system_name,
)
from harness.report.figures import Figure, Place
from harness.report.hardware import hardware
from harness.report.row_figures import LATENCY, table_columns, table_figures

# Version of the JSON.
REPORT_VERSION = 1


def table_document(table: Table) -> ReportDocument:
    """Return the document of a priced table; LaTeX has a table for each dataset, suite and scenario."""
    return ReportDocument(
        sections=lambda escape: (table_section(table, escape),),
        lines=lambda: lines_of(table.rows, [(column.name, column.get) for column in table_columns(table)]),
        # JSON has the field names of `harness.analysis.table`; units as in the names.
        content=lambda: {"report_version": REPORT_VERSION, **table_content(table)},
        printed=lambda escape: _by_scenario(table, escape),
        padded=False,
    )


def table_content(table: Table) -> dict[str, Any]:
    """Return all of a table; of an isolation the name, as results store it."""
    content = dataclasses.asdict(table)
    for written, row in zip(content["rows"], table.rows, strict=True):
        written["isolation"] = row.isolation.name
        del written["carbon"]["cases"]  # up to 64 numbers, whose ends are the range
        if row.isolation.attached:
            written |= {"cpus": None, "gpus": None, "memory_limit_bytes": None}
    for written, null in zip(content["overhead"], table.overhead, strict=True):
        written["isolation"] = null.isolation.name
    return content


def _by_scenario(table: Table, escape: Escape) -> Iterator[Section]:
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in table.rows:
        groups[row.dataset, row.suite, row.scenario].append(row)
    if not groups:
        yield table_section(table, escape)
        return
    for rows in groups.values():
        yield table_section(dataclasses.replace(table, rows=tuple(rows), notes=()), escape)
    yield Section(notes=tuple(escape(note) for note in table.notes))


def table_section(table: Table, escape: Escape) -> Section:
    """Return the grid of rows, with its footnotes and notes."""
    if not table.rows:
        return Section(lead=("No stored results.",))
    footnotes = Footnotes(escape)
    caption, keys = name_columns(table.rows, escape)
    shared, machine_of = shared_notes(table.rows)
    grid = grid_of(
        table.rows,
        [*keys, *_columns(table, _RowCells(footnotes, machine_of))],
        caption=caption or "All stored results",
        keys=len(keys) + 1,  # the first of the other columns is the hardware profile
    )
    return Section(
        grids=(grid,),
        footnotes=footnotes.texts,
        notes=tuple(escape(note) for note in (*stand_ins(table.rows), *shared, *table.notes)),
    )


def name_columns(rows: Sequence[Row], escape: Escape) -> tuple[str, list[GridColumn[Row]]]:
    """Return the caption and the naming columns: suite, dataset and scenario are columns where they differ."""
    columns = [system_column(escape)]
    parts: list[str] = []
    for name in ("dataset", "suite", "scenario"):
        values = {getattr(row, name) for row in rows}
        if len(values) == 1:
            parts.append(f"{name} {escape(values.pop())}")
        elif values:
            columns.append(named_column(name, escape))
    if any(row.origin is not None for row in rows):
        columns.append(named_column("origin", escape))
    return ", ".join(parts), columns


@dataclasses.dataclass(frozen=True)
class _RowCells:
    """Cells of a row; a job that ended well gives the reason for a missing figure."""

    notes: Footnotes
    machine_of: Callable[[Row], str | None]

    def figure(self, figure: Figure) -> GridColumn[Row]:
        """Return the column of a figure."""

        def cell(row: Row) -> str:
            item = figure.estimate(row)
            if item.value is None:
                return self.notes.missing(item.reason if row.outcome is Outcome.OK else None)
            marks = [item.reason] if figure.noted and (figure.bounds or figure.name in row.foreign) else []
            marks += [self.machine_of(row)] if figure.alias == LATENCY else []
            remark = figure.remark(row, self.notes.escape) if figure.remark else ""
            return figure.written(item) + remark + self.notes.mark(*marks)

        written = cell if figure.cell is None else lambda row: figure.cell(row, self.notes)
        return figure.wide_header, figure.kind is not Kind.TEXT, written

    def outcome(self, row: Row) -> str:
        ended = row.outcome is not Outcome.OK or row.detail
        detail = f"{row.outcome.value}: {row.detail or 'no detail was stored'}" if ended else None
        return self.notes.escape(row.outcome.value) + self.notes.mark(detail)

    def validity(self, row: Row) -> str:
        """Return the validity, missing for a row without figures, with the row's notes."""
        text = row.validity.value if row.outcome is Outcome.OK or row.validity is not Validity.CLEAN else MISSING
        return text + self.notes.mark(*row.notes)


def _columns(table: Table, cells: _RowCells) -> list[GridColumn[Row]]:
    return [
        profile_column(cells.notes.escape),
        instance_column(table, cells.notes),
        *map(cells.figure, table_figures(table, Place.WIDE)),
        ("outcome", False, cells.outcome),
        ("validity", False, cells.validity),
    ]


def profile_column(escape: Escape) -> GridColumn[Row]:
    """Return the column of the hardware profile, marked by the isolation."""
    return "hardware profile", False, lambda row: row.isolation.marked(escape(row.profile))


def instance_column(table: Table, footnotes: Footnotes) -> GridColumn[Row]:
    """Return the column of the instance type that prices a row."""
    header = f"instance type (US$/h, {table.price_date})"
    return header, False, lambda row: footnotes.price(row, row.price, row.price_note)


def named_column(name: str, escape: Escape) -> GridColumn[Row]:
    """Return the column of one of a row's names."""
    return name, False, lambda row: escape(getattr(row, name) or MISSING)


def system_column(escape: Escape) -> GridColumn[Row]:
    """Return the column of the system with its marks."""
    return "system", False, lambda row: system_name(row, escape)


def shared_notes(rows: Sequence[Row]) -> tuple[list[str], Callable[[Row], str | None]]:
    """Return notes on all measured rows, and a function for the notes in which rows differ."""
    measured = [row for row in rows if row.outcome is Outcome.OK]
    shared, differing = [], []
    for describe in (_timed, _machine):
        texts = {describe(row) for row in measured}
        if len(texts) == 1:
            shared.append(f"{texts.pop()}.")
        elif texts:
            differing.append(describe)

    def of_row(row: Row) -> str | None:
        return ". ".join(describe(row) for describe in differing) or None

    return shared, of_row


def _timed(row: Row) -> str:
    if row.queries is None:
        return "No samples could be read"
    judged = "" if row.judged.queries is None else f"; measures over {row.judged.queries:,} judged queries"
    samples = f"{counted(row.queries, 'query')} in {counted(row.trials or 0, 'trial')}"
    return f"Timed: {samples} ({counted(row.jobs, 'process')}), {counted(row.k, 'hit')} asked for{judged}"


def _machine(row: Row) -> str:
    machine = row.machine
    if machine is None:
        if row.isolation.attached:
            return f"Measured on: {hardware(row)}"
        return f"Measured on: not here ({row.isolation.name})"
    parts = [f"{machine.cpu_model} ({machine.architecture})"]
    parts += map(str, (*machine.gpu_models, *filter(None, [machine.instance_type])))
    parts.append(f"kernel {machine.kernel}")
    parts.append("cgroup version unknown" if machine.cgroup_version is None else f"cgroup v{machine.cgroup_version}")
    if version := str(machine.docker_version or ""):  # of Podman it begins with the name
        parts.append(f"{row.isolation.engine or 'Docker'} {version}" if version[0].isdigit() else version)
    head, _, changed = str(machine.harness_commit or "").partition("-")
    commit = f" ({head[:12]}{' with changes' if changed else ''})" if head else ""
    parts.append(f"harness {machine.harness_version}{commit}")
    return "Measured on: " + ", ".join(parts)
