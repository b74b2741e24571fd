"""The table of results: a row for each cell with all that is known of it, and what the indexes cost."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from harness.analysis.table import Row, Table, Validity
from harness.records import Isolation, Outcome
from harness.report import columns
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
    grid_of,
    number,
    stand_ins,
    system_name,
)
from harness.stats import Estimate

# Version of the JSON.
REPORT_VERSION = 1


def table_document(table: Table) -> ReportDocument:
    """Return the document of a priced table; LaTeX has a table for each dataset, suite and scenario."""
    shown = columns.table_columns(table)
    return ReportDocument(
        sections=lambda escape: (table_section(table, escape),),
        lines=lambda: (
            [column.name for column in shown],
            *([column.get(row) for column in shown] for row in table.rows),
        ),
        # JSON has the field names of `harness.analysis.table`; units as in the names.
        content=lambda: {"report_version": REPORT_VERSION, **dataclasses.asdict(table)},
        printed=lambda escape: _by_scenario(table, escape),
        padded=False,
    )


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
        [*keys, *_columns(table, footnotes, escape, machine_of)],
        caption=caption or "All stored results",
        keys=len(keys) + 1,  # the first of the other columns is the hardware profile
    )
    costs = _index_costs(table, footnotes, escape)
    return Section(
        grids=(grid, costs) if costs else (grid,),
        footnotes=footnotes.texts,
        notes=tuple(escape(note) for note in (*stand_ins(table.rows), *shared, *table.notes)),
    )


def name_columns(rows: Sequence[Row], escape: Escape) -> tuple[str, list[GridColumn[Row]]]:
    """Return the caption and the naming columns: suite, dataset and scenario are columns where they differ."""
    keys: list[GridColumn[Row]] = [("system", False, lambda row: system_name(row, escape))]
    parts: list[str] = []
    getters: dict[str, Callable[[Row], str]] = {
        "dataset": lambda row: row.dataset,
        "suite": lambda row: row.suite,
        "scenario": lambda row: row.scenario,
    }
    for name, get in getters.items():
        values = sorted({get(row) for row in rows})
        if len(values) == 1:
            parts.append(f"{name} {escape(values[0])}")
        elif values:
            keys.append(_name_column(name, get, escape))
    if any(row.origin is not None for row in rows):
        keys.append(_name_column("origin", lambda row: row.origin or MISSING, escape))
    return ", ".join(parts), keys


def _name_column(header: str, get: Callable[[Row], str], escape: Escape) -> GridColumn[Row]:
    return header, False, lambda row: escape(get(row))


def _columns(
    table: Table, notes: Footnotes, escape: Escape, machine_of: Callable[[Row], str | None]
) -> list[GridColumn[Row]]:
    def figure(row: Row, item: Estimate, scale: float = 1.0, decimals: int | None = None) -> str:
        if item.value is None:
            return MISSING + (notes.mark(item.reason) if row.outcome is Outcome.OK else "")
        return number(item.value * scale) if decimals is None else f"{item.value * scale:.{decimals}f}"

    def plain(row: Row, value: float | None, scale: float = 1.0) -> str:
        return figure(row, Estimate(value, reason="not measured"), scale)

    def measure(name: str) -> GridColumn[Row]:
        return name, True, lambda row: figure(row, row.measures.get(name, Estimate(None)), decimals=3)

    columns: list[GridColumn[Row]] = [
        ("hardware profile", False, lambda row: _profile(row, escape)),
        (f"instance type (US$/h, {table.price_date})", False, lambda row: _instance(row, notes, escape)),
    ]
    columns += [measure(name) for name in table.measures]
    columns += [
        ("latency mean (95 %), ms", True, lambda row: _mean(row, notes, machine_of)),
        ("p50, ms", True, lambda row: figure(row, row.p50_s, 1e3)),
        ("p95, ms", True, lambda row: figure(row, row.p95_s, 1e3)),
        ("p99, ms", True, lambda row: figure(row, row.p99_s, 1e3)),
    ]
    if any(row.scenario != "single_stream" for row in table.rows):
        columns.append(("throughput (interval), queries/s", True, lambda row: _throughput(row, notes)))
    columns.append(("peak anonymous, MiB", True, lambda row: plain(row, row.peak_anon_bytes, 1 / MIB)))
    if any(row.peak_mapped_bytes is not None for row in table.rows):
        columns.append(("peak mapped, MiB", True, lambda row: plain(row, row.peak_mapped_bytes, 1 / MIB)))
    columns.append(("peak cgroup, MiB", True, lambda row: plain(row, row.peak_cgroup_bytes, 1 / MIB)))
    if any(row.peak_gpu_bytes is not None or (row.gpus and row.outcome is Outcome.OK) for row in table.rows):
        columns.append(("peak GPU, MiB", True, lambda row: _gpu(row, notes)))
    columns += [
        ("index, MiB", True, lambda row: plain(row, row.index_bytes, 1 / MIB)),
        ("load, s", True, lambda row: plain(row, row.load_s)),
        ("US$ per million queries (interval), sequential", True, lambda row: _cost(row, row.usd_per_million, notes)),
    ]
    if any(row.scenario != "single_stream" for row in table.rows):
        saturated = "US$ per million queries (interval), saturated"
        columns.append((saturated, True, lambda row: _cost(row, row.usd_per_million_saturated, notes)))
    columns += [
        ("outcome", False, lambda row: _outcome(row, notes, escape)),
        ("validity", False, lambda row: _validity(row, notes)),
    ]
    return columns


def _profile(row: Row, escape: Escape) -> str:
    isolation = "" if row.isolation is Isolation.CONTAINER else f" ({row.isolation.value})"
    return escape(row.profile) + isolation


def _instance(row: Row, notes: Footnotes, escape: Escape) -> str:
    name = MISSING if row.price is None else f"{escape(row.price.instance_type)} ({row.price.usd_per_hour:g})"
    return name + notes.mark(row.price_note)


def _mean(row: Row, notes: Footnotes, machine_of: Callable[[Row], str | None]) -> str:
    mean = row.latency_mean_s
    if mean.value is None:
        return MISSING + (notes.mark(mean.reason) if row.outcome is Outcome.OK else "")
    shown = bounded(mean, 1e3)
    if row.one_pass_warmup is not None:
        shown += f" after {row.one_pass_warmup} warm-up queries"
    return shown + notes.mark(mean.reason, machine_of(row))


def _throughput(row: Row, notes: Footnotes) -> str:
    item = row.throughput_qps
    if row.scenario == "single_stream":
        return MISSING
    if item.value is None:
        return MISSING + (notes.mark(item.reason) if row.outcome is Outcome.OK else "")
    return bounded(item) + notes.mark(item.reason)


def _cost(row: Row, item: Estimate, notes: Footnotes) -> str:
    """Return a cost with its interval; the notes on a latency's interval are at the latency."""
    if item.value is None:
        return MISSING + (notes.mark(item.reason) if row.outcome is Outcome.OK else "")
    return bounded(item) + (notes.mark(item.reason) if row.scenario != "single_stream" else "")


def _gpu(row: Row, notes: Footnotes) -> str:
    if row.peak_gpu_bytes is not None:
        return number(row.peak_gpu_bytes / MIB)
    asked = row.gpus and row.outcome is Outcome.OK
    return MISSING + (notes.mark("not measured") if asked else "")


def _outcome(row: Row, notes: Footnotes, escape: Escape) -> str:
    ended = row.outcome is not Outcome.OK or row.detail
    detail = f"{row.outcome.value}: {row.detail or 'no detail was stored'}" if ended else None
    return escape(row.outcome.value) + notes.mark(detail)


def _validity(row: Row, notes: Footnotes) -> str:
    """Return the validity, missing for a row without figures, with the row's notes."""
    text = row.validity.value if row.outcome is Outcome.OK or row.validity is not Validity.CLEAN else MISSING
    return text + notes.mark(*row.notes)


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
    alone = "one process: the intervals do not know how processes differ"
    fresh = f" ({f'{row.jobs} processes' if row.jobs > 1 else alone})"
    return f"Timed: {row.queries:,} queries in {row.trials} trials{fresh}, {row.k} hits asked for{judged}"


def _machine(row: Row) -> str:
    machine = row.machine
    if machine is None:
        return f"Measured on: not here ({row.isolation.value})"
    parts = [f"{machine.cpu_model} ({machine.architecture})"]
    parts += list(machine.gpu_models)
    parts += [machine.instance_type] if machine.instance_type else []
    parts.append(f"kernel {machine.kernel}")
    parts.append("cgroup version unknown" if machine.cgroup_version is None else f"cgroup v{machine.cgroup_version}")
    parts += [f"Docker {machine.docker_version}"] if machine.docker_version else []
    head, _, changed = (machine.harness_commit or "").partition("-")
    commit = f" ({head[:12]}{' with changes' if changed else ''})" if head else ""
    parts.append(f"harness {machine.harness_version}{commit}")
    return "Measured on: " + ", ".join(parts)


def _index_costs(table: Table, notes: Footnotes, escape: Escape) -> Grid | None:
    """Return what each index costs to build and to keep; ``None`` where no build is known."""
    rows = _indexes(table.rows)
    if not rows:
        return None

    def figure(item: Estimate) -> str:
        return MISSING + notes.mark(item.reason) if item.value is None else number(item.value)

    def built_on(row: Row) -> str:
        price = row.build_price
        return MISSING if price is None else f"{escape(price.instance_type)} ({price.usd_per_hour:g})"

    shown: list[GridColumn[Row]] = [
        ("index of system", False, lambda row: system_name(row, escape)),
        ("dataset", False, lambda row: escape(row.dataset)),
        ("documents", True, lambda row: MISSING if row.corpus_documents is None else f"{row.corpus_documents}"),
        ("build, s", True, lambda row: MISSING if row.index_build_s is None else number(row.index_build_s)),
        ("built with", False, lambda row: escape(row.build_envelope.name) if row.build_envelope else MISSING),
        (f"instance type (US$/h, {table.price_date})", False, built_on),
        ("US$ per million documents", True, lambda row: figure(row.usd_build_per_million_documents)),
        ("index, MiB", True, lambda row: MISSING if row.index_bytes is None else number(row.index_bytes / MIB)),
        ("storage, US$ per month", True, lambda row: figure(row.usd_storage_per_month)),
    ]
    return grid_of(rows, shown, caption="What the indexes cost", keys=2)


def _indexes(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return one row for each index whose build is known; many rows share an index."""
    known = [row for row in rows if row.index_bytes is not None and row.build_envelope is not None]
    unique = {(row.system, row.dataset, row.corpus_sha256, row.index_bytes, row.index_build_s): row for row in known}
    return tuple(unique.values())
