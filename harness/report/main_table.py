"""The table of results: a row for each cell with all that is known of it, and what the indexes cost."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.analysis.notes import build_place
from harness.analysis.table import Row, Table, Validity
from harness.driver.records import Outcome
from harness.errors import counted
from harness.report.columns import COUNTS, table_columns
from harness.report.document import (
    MIB,
    MISSING,
    Escape,
    Footnotes,
    Grid,
    GridColumn,
    ReportDocument,
    Section,
    bounded,
    digits,
    grid_of,
    lines_of,
    number,
    stand_ins,
    system_name,
)
from harness.stats import Estimate

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
    isolations = [row.isolation.name for row in table.rows] + [null.isolation.name for null in table.overhead]
    for written, name in zip((*content["rows"], *content["overhead"]), isolations, strict=True):
        written["isolation"] = name
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
    """Return the grid of rows, that of the index costs, and their footnotes and notes."""
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
    costs = _index_costs(table, footnotes)
    return Section(
        grids=(grid, costs) if costs else (grid,),
        footnotes=footnotes.texts,
        notes=tuple(escape(note) for note in (*stand_ins(table.rows), *shared, *table.notes)),
    )


def name_columns(rows: Sequence[Row], escape: Escape) -> tuple[str, list[GridColumn[Row]]]:
    """Return the caption and the naming columns: suite, dataset and scenario are columns where they differ."""

    def named(name: str) -> GridColumn[Row]:
        return name, False, lambda row: escape(getattr(row, name) or MISSING)

    columns: list[GridColumn[Row]] = [("system", False, lambda row: system_name(row, escape))]
    parts: list[str] = []
    for name in ("dataset", "suite", "scenario"):
        values = {getattr(row, name) for row in rows}
        if len(values) == 1:
            parts.append(f"{name} {escape(values.pop())}")
        elif values:
            columns.append(named(name))
    if any(row.origin is not None for row in rows):
        columns.append(named("origin"))
    return ", ".join(parts), columns


@dataclasses.dataclass(frozen=True)
class _RowCells:
    """Cells of a row; a job that ended well gives the reason for a missing figure."""

    notes: Footnotes
    machine_of: Callable[[Row], str | None]

    def missing(self, row: Row, item: Estimate) -> str:
        """Return nothing for a known figure."""
        if item.value is not None:
            return ""
        return self.notes.missing(item.reason if row.outcome is Outcome.OK else None)

    def figure(self, row: Row, item: Estimate, scale: float = 1.0) -> str:
        return self.missing(row, item) or number(item.value, scale)

    def plain(self, row: Row, value: float | None, scale: float = 1.0) -> str:
        return self.figure(row, Estimate(value, reason="not measured"), scale)

    def measure(self, name: str) -> GridColumn[Row]:
        def cell(row: Row) -> str:
            item = row.measures.get(name, Estimate(None))
            return self.missing(row, item) or digits(item.value, ".3f")

        return name, True, cell

    def mean(self, row: Row) -> str:
        item = row.latency_mean_s
        warmup = "" if row.one_pass_warmup is None else f" after {row.one_pass_warmup} warm-up queries"
        marks = (item.reason, self.machine_of(row))
        return self.missing(row, item) or bounded(item, 1e3) + warmup + self.notes.mark(*marks)

    def throughput(self, row: Row) -> str:
        item = row.throughput_qps
        if row.scenario == "single_stream":
            return MISSING
        return self.missing(row, item) or bounded(item) + self.notes.mark(item.reason)

    def cost(self, row: Row, item: Estimate) -> str:
        # Notes on a latency's interval are at the latency.
        reason = None if row.scenario == "single_stream" else item.reason
        return self.missing(row, item) or bounded(item) + self.notes.mark(reason)

    def first_stage(self, row: Row) -> str:
        stage = row.first_stage
        if stage is None:
            return MISSING
        note = None if stage.measured else f"first stage not measured: {stage.system} is a stored ranking"
        return f"{self.notes.escape(stage.system)}, depth {stage.depth}{self.notes.mark(note)}"

    def ceiling(self, row: Row) -> str:
        stage = row.first_stage
        if stage is None:
            return MISSING
        return self.missing(row, stage.ceiling) or bounded(stage.ceiling, decimals=3) + self.notes.mark(
            stage.ceiling.reason
        )

    def count(self, name: str) -> GridColumn[Row]:
        known = COUNTS.get(name)
        header, scale = (known.name.replace("_", " "), known.scale or 1.0) if known else (f"count {name}", 1.0)
        return header, True, lambda row: number(row.counts.get(name), scale)

    def tokens_cost(self, row: Row) -> str:
        item, price = row.usd_tokens_per_million, row.token_price
        if row.token_model is None:
            return MISSING
        where = self.notes.escape(f"({price.model}, {price.date})") if price else ""
        return self.missing(row, item) or f"{number(item.value)} {where}"

    def gpu(self, row: Row) -> str:
        used = row.gpus or row.peak_gpu_bytes is not None
        return self.plain(row, row.peak_gpu_bytes, 1 / MIB) if used else MISSING

    def profile(self, row: Row) -> str:
        return row.isolation.marked(self.notes.escape(row.profile))

    def outcome(self, row: Row) -> str:
        ended = row.outcome is not Outcome.OK or row.detail
        detail = f"{row.outcome.value}: {row.detail or 'no detail was stored'}" if ended else None
        return self.notes.escape(row.outcome.value) + self.notes.mark(detail)

    def validity(self, row: Row) -> str:
        """Return the validity, missing for a row without figures, with the row's notes."""
        text = row.validity.value if row.outcome is Outcome.OK or row.validity is not Validity.CLEAN else MISSING
        return text + self.notes.mark(*row.notes)


def _columns(table: Table, cells: _RowCells) -> list[GridColumn[Row] | None]:
    notes, figure, plain = cells.notes, cells.figure, cells.plain
    served = any(row.scenario != "single_stream" for row in table.rows)
    mapped = any(row.peak_mapped_bytes is not None for row in table.rows)
    on_gpu = any(row.peak_gpu_bytes is not None or (row.gpus and row.outcome is Outcome.OK) for row in table.rows)
    saturated = "US$ per million queries (interval), saturated"
    present = {name for row in table.rows for name in row.counts}
    counts = [*(name for name in COUNTS if name in present), *sorted(present - COUNTS.keys())]
    padded = any(row.padding_share is not None for row in table.rows)
    by_tokens = any(row.token_model is not None for row in table.rows)
    return [
        ("hardware profile", False, cells.profile),
        (_instance_header(table), False, lambda row: notes.price(row, row.price, row.price_note)),
        *(cells.measure(name) for name in table.measures),
        *_second_stage(table, cells),
        ("latency mean (95 %), ms", True, cells.mean),
        ("p50, ms", True, lambda row: figure(row, row.p50_s, 1e3)),
        ("p95, ms", True, lambda row: figure(row, row.p95_s, 1e3)),
        ("p99, ms", True, lambda row: figure(row, row.p99_s, 1e3)),
        ("throughput (interval), queries/s", True, cells.throughput) if served else None,
        *(cells.count(name) for name in counts),
        ("padding, %", True, lambda row: number(row.padding_share, 100)) if padded else None,
        ("peak anonymous, MiB", True, lambda row: plain(row, row.peak_anon_bytes, 1 / MIB)),
        ("peak mapped, MiB", True, lambda row: plain(row, row.peak_mapped_bytes, 1 / MIB)) if mapped else None,
        ("peak cgroup, MiB", True, lambda row: plain(row, row.peak_cgroup_bytes, 1 / MIB)),
        ("peak GPU, MiB", True, cells.gpu) if on_gpu else None,
        ("index, MiB", True, lambda row: plain(row, row.index_bytes, 1 / MIB)),
        ("load, s", True, lambda row: plain(row, row.load_s)),
        ("US$ per million queries (interval), sequential", True, lambda row: cells.cost(row, row.usd_per_million)),
        (saturated, True, lambda row: cells.cost(row, row.usd_per_million_saturated)) if served else None,
        ("US$ per million queries, tokens", True, cells.tokens_cost) if by_tokens else None,
        ("outcome", False, cells.outcome),
        ("validity", False, cells.validity),
    ]


def _second_stage(table: Table, cells: _RowCells) -> list[GridColumn[Row]]:
    """Return the columns of the first stage and of what the second one adds; none where no row has two stages."""
    if not any(row.first_stage for row in table.rows):
        return []
    measure = next((found[0] for row in table.rows if (found := row.gain(table.measures))), "")

    def gain(place: int) -> Callable[[Row], str]:
        def cell(row: Row) -> str:
            found = row.gain(table.measures)
            if found is None:
                return MISSING
            item = (found[1], found[2])[place]
            return bounded(item, 100, decimals=1) + cells.notes.mark(item.reason)

        return cell

    return [
        ("first stage", False, cells.first_stage),
        ("ceiling: R@depth (95 %)", True, cells.ceiling),
        (f"gain, points {measure} (95 %)", True, gain(0)),
        ("queries made worse (95 %), %", True, gain(1)),
    ]


def _instance_header(table: Table) -> str:
    return f"instance type (US$/h, {table.price_date})"


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
    judged = "" if row.queries_judged is None else f"; measures over {row.queries_judged:,} judged queries"
    samples = f"{counted(row.queries, 'query')} in {counted(row.trials or 0, 'trial')}"
    return f"Timed: {samples} ({counted(row.jobs, 'process')}), {counted(row.k, 'hit')} asked for{judged}"


def _machine(row: Row) -> str:
    machine = row.machine
    if machine is None:
        return f"Measured on: not here ({row.isolation.name})"
    parts = [f"{machine.cpu_model} ({machine.architecture})"]
    parts += map(str, (*machine.gpu_models, *filter(None, [machine.instance_type])))
    parts.append(f"kernel {machine.kernel}")
    parts.append("cgroup version unknown" if machine.cgroup_version is None else f"cgroup v{machine.cgroup_version}")
    parts += [f"{row.isolation.engine or 'Docker'} {machine.docker_version}"] if machine.docker_version else []
    head, _, changed = str(machine.harness_commit or "").partition("-")
    commit = f" ({head[:12]}{' with changes' if changed else ''})" if head else ""
    parts.append(f"harness {machine.harness_version}{commit}")
    return "Measured on: " + ", ".join(parts)


def _index_costs(table: Table, notes: Footnotes) -> Grid | None:
    """Return what each index costs to build and to keep; ``None`` where no build is known."""
    rows, escape = _indexes(table.rows), notes.escape
    if not rows:
        return None

    places = {build_place(row) for row in rows}

    def figure(item: Estimate) -> str:
        return notes.missing(item.reason) if item.value is None else number(item.value)

    def built_with(row: Row) -> str:
        name = row.build_envelope.name if row.build_envelope else MISSING
        # One kind of machine is among the notes on all rows.
        return escape(name) + notes.mark(build_place(row) if len(places) > 1 else None)

    def price(row: Row) -> str:
        builder = dataclasses.replace(row, machine=row.build_machine or row.machine)
        return notes.price(builder, row.build_price)

    def validity(row: Row) -> str:
        return row.build_validity.value + notes.mark(*(finding.text for finding in row.build_findings))

    columns: list[GridColumn[Row]] = [
        ("index of system", False, lambda row: system_name(row, escape)),
        ("dataset", False, lambda row: escape(row.dataset)),
        ("documents", True, lambda row: digits(row.corpus_documents, "d")),
        ("build, s", True, lambda row: number(row.index_build_s)),
        ("built with", False, built_with),
        (_instance_header(table), False, price),
        ("US$ per million documents", True, lambda row: figure(row.usd_build_per_million_documents)),
        ("index, MiB", True, lambda row: number(row.index_bytes, 1 / MIB)),
        ("storage, US$ per month", True, lambda row: figure(row.usd_storage_per_month)),
        ("validity of the build", False, validity),
    ]
    return grid_of(rows, columns, caption="What the indexes cost", keys=2)


def _indexes(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return one row for each index whose build is known; many rows share an index."""
    known = [row for row in rows if row.index_bytes is not None and row.index_build_s is not None]
    unique = {(row.system, row.dataset, row.corpus_sha256, row.index_bytes, row.index_build_s): row for row in known}
    return tuple(unique.values())
