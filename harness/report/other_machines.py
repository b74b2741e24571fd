"""Results of several machines, joined into one table: figures on another machine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.analysis import other_machines
from harness.analysis.other_machines import MIN_MACHINES, AcrossMachines, CellOfMachines
from harness.analysis.paired_differences import LATENCY
from harness.analysis.table import Table
from harness.errors import UsageError, counted, nearest_or_known
from harness.estimate import CONFIDENCE, Varies
from harness.report import row_figures
from harness.report.columns import Kind
from harness.report.document import (
    MISSING,
    Escape,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    bounded,
    few_lines,
    grid_of,
    joined_by_and,
    lines_of_records,
    number,
    price_facts,
    with_ends,
)
from harness.report.figures import Figure, Place, Prices
from harness.results.schema import NULL_SYSTEMS

# Version of the JSON.
POOLED_VERSION = 1
# A note names at most this many machines.
_NAMED = 3
# A cell's figure across machines.
_Found = tuple[CellOfMachines, Figure, AcrossMachines]
METHOD = (
    "on another machine: the median of the machines, and an interval that holds what this suite would measure on"
    " another machine of their kind in 95 of 100 cases. A figure's logarithm has a random effect of its machine"
    " (normal); the interval is a prediction, by Student's t.",
    "fixed work: the same for a machine whose fixed processor work (the canary) takes that long. times a reference: a"
    " multiple of that system's figure on the same machine. Both assume that a machine twice as slow there is twice as"
    " slow here. explained: the share of the variance between machines that the covariate explains; none: it only adds"
    " noise.",
    "share of machines: of the variance of one process's value, the share that is between machines (intraclass"
    " correlation; interval by F).",
)


@dataclass(frozen=True)
class PooledGroup:
    """Cells that may be compared; ``found`` has each figure of each, ``reference`` is the cell that is a covariate."""

    dataset: str
    scenario: str
    profile: str
    reference: CellOfMachines | None
    found: Mapping[tuple[CellOfMachines, Figure], AcrossMachines]

    @property
    def cells(self) -> list[CellOfMachines]:
        """The cells."""
        return list(dict.fromkeys(cell for cell, _ in self.found))


@dataclass(frozen=True)
class PooledResults:
    """Merged results, joined across machines; ``prices``: the facts behind their costs."""

    prices: Mapping[str, str]
    cells: Sequence[CellOfMachines]
    figures: tuple[Figure, ...]
    groups: tuple[PooledGroup, ...]


def pool(table: Table, cells: Sequence[CellOfMachines], named_reference: str = "") -> PooledResults:
    """Join the cells of merged results across machines.

    Args:
        table: the priced table of the cells' rows.
        cells: the cells of its rows.
        named_reference: the covariate for all cells; empty: the quickest system of each group.

    Raises:
        UsageError: no cell has enough machines, or none has the named reference.
    """
    check(cells, named_reference)
    rows = [each.row for cell in cells for each in cell.rows.values()]
    figures = tuple(
        figure
        for figure in row_figures.all_figures(table)
        if figure.kind in (Kind.NUMBER, Kind.COUNT)
        and (figure.varies.of_machine or figure.varies.of_process)
        and not figure.ends_alone
        # Of the costs by the hour, the one by the model of the row's scenario.
        and (figure.alias == row_figures.COST or (Place.WIDE in figure.places and figure.prices is not Prices.HOUR))
        and any(map(figure.number, rows))
    )
    groups = defaultdict(list)
    for cell in cells:
        groups[cell.group, cell.profile].append(cell)
    return PooledResults(
        price_facts(table),
        cells,
        figures,
        tuple(
            _group(group.dataset, group.scenario, profile, peers, figures, named_reference)
            for (group, profile), peers in groups.items()
        ),
    )


def _group(
    dataset: str,
    scenario: str,
    profile: str,
    peers: Sequence[CellOfMachines],
    figures: Sequence[Figure],
    named_reference: str,
) -> PooledGroup:
    if named_reference:
        reference = next((each for each in peers if each.system == named_reference), None)
    else:
        systems = [each for each in peers if each.system not in NULL_SYSTEMS]
        reference = other_machines.quickest(systems, lambda row: row.latency.mean_s.value)
    found = {
        (cell, figure): other_machines.across(
            cell,
            figure.number,
            reference=reference if figure.varies.of_machine else None,
            # The canary ran around the trials, not around the build.
            by_work=figure.varies in (Varies.CLOCK, Varies.CPU) and figure.unit in ("s", "ms"),
        )
        for cell in peers
        for figure in figures
    }
    return PooledGroup(dataset, scenario, profile, reference, found)


def check(cells: Sequence[CellOfMachines], named_reference: str) -> None:
    """Raise UsageError if no cell has enough machines, or none has the named reference."""
    most = max((len(cell.rows) for cell in cells), default=0)
    if most == 0:
        raise UsageError(
            "no row has an origin, so nothing tells machines apart; join the folders of several machines with"
            " `harness merge NAME=RESULTS ... -o merged`"
        )
    if most < MIN_MACHINES:
        raise UsageError(
            f"an interval for another machine needs {MIN_MACHINES} machines, and at most {most} measured one cell;"
            " measure the suite on more machines and merge their folders"
        )
    systems = dict.fromkeys(cell.system for cell in cells)
    if named_reference and named_reference not in systems:
        raise UsageError(f"--reference {named_reference!r}: no such system{nearest_or_known(named_reference, systems)}")


def pooled_document(pooled: PooledResults) -> ReportDocument:
    """Return the document of results joined across machines."""
    records = [_record(group, *key) for group in pooled.groups for key in group.found]
    return ReportDocument(
        sections=lambda escape: _whole(pooled, escape),
        lines=lambda: lines_of_records(records, [*records[0]]),
        content=lambda: {
            "pooled_version": POOLED_VERSION,
            "confidence": CONFIDENCE,
            "prices": dict(pooled.prices),
            "notes": list(_notes(pooled)),
            "method": list(METHOD),
            "figures": records,
        },
        answer=lambda escape: _answer(pooled, escape),
        plain=True,
    )


def _answer(pooled: PooledResults, escape: Escape) -> Iterator[Section]:
    """Yield the latency and the cost of each group of cells."""
    shown = {figure.alias: figure for figure in pooled.figures}
    latency, cost = shown.get(LATENCY), shown.get(row_figures.COST)
    notes = [*map(escape, _notes(pooled)), "every figure, and what the speed of a machine explains: --wide"]
    for group in pooled.groups:
        columns = [
            ("system", False, lambda cell: escape(cell.system)),
            ("machines", True, lambda cell: str(len(cell.rows))),
            *_columns(group, latency, "latency, ms", lambda found: bounded(found.elsewhere)),
            *_columns(group, cost, "US$ per million", lambda found: bounded(found.elsewhere)),
        ]
        if group.reference:
            name = f"times {group.reference.system}"
            columns += _columns(group, latency, name, lambda found: bounded(found.times_reference))
        columns += _columns(group, latency, "share of machines", lambda found: _percent(found.share.value))
        yield Section(
            lead=(escape(f"{group.dataset} {group.scenario} {group.profile}, on another machine (95 %)"),),
            grids=(grid_of(group.cells, columns),),
            notes=few_lines(notes) if group is pooled.groups[-1] else (),
        )


def _columns(
    group: PooledGroup, figure: Figure | None, header: str, cell: Callable[[AcrossMachines], str]
) -> list[GridColumn[CellOfMachines]]:
    """Return the column of a figure, if some row has the figure."""
    return [] if figure is None else [(header, True, lambda of: cell(group.found[of, figure]))]


def _whole(pooled: PooledResults, escape: Escape) -> Iterator[Section]:
    """Yield every figure of each group of cells."""
    for group in pooled.groups:
        reference = escape(group.reference.system) if group.reference else "the reference"
        columns: list[GridColumn[_Found]] = [
            ("system", False, lambda each: escape(each[0].system)),
            ("figure", False, lambda each: _named(each[1])),
            ("machines", True, lambda each: str(each[2].machines)),
            ("on another machine (95 %)", True, lambda each: bounded(each[2].elsewhere)),
            ("ms of fixed work", True, lambda each: number(each[2].work_s, 1e3)),
            ("there (95 %)", True, lambda each: bounded(each[2].at_work)),
            ("explained", True, lambda each: _percent(each[2].explained_by_work)),
            (f"times {reference}", True, lambda each: bounded(each[2].times_reference)),
            ("explained", True, lambda each: _percent(each[2].explained_by_reference)),
            ("share of machines, %", True, lambda each: bounded(each[2].share, 100, 0)),
        ]
        rows = [(cell, figure, found) for (cell, figure), found in group.found.items()]
        yield Section(
            lead=(escape(f"{group.dataset} {group.scenario} {group.profile}"),), grids=(grid_of(rows, columns, keys=2),)
        )
    yield Section(notes=(*map(escape, _notes(pooled)), *METHOD))


def _named(figure: Figure) -> str:
    return f"{figure.title}, {figure.unit}" if figure.unit and figure.unit not in figure.title else figure.title


def _percent(share: float | None) -> str:
    return MISSING if share is None else "none" if share < 0 else f"{share * 100:.0f} %"


def _notes(pooled: PooledResults) -> Iterator[str]:
    """Yield what a person must know of the machines, the worst first."""
    for cell in pooled.cells:
        name, left = f"{cell.system} {cell.profile}", len(cell.rows)
        ends = joined_by_and([f"{end} on {count}" for end, count in Counter(cell.failed.values()).items()])
        parts = [f"{ends} of {counted(left + len(cell.failed), 'machine')}"] if cell.failed else []
        if left < MIN_MACHINES:
            parts.append(other_machines.too_few(left))
        elif cell.failed:
            parts.append(f"its figures are of the other {left}")
        if parts:
            yield f"{name}: {'; '.join(parts)}"
        jobs = Counter(tuple(sorted(each.row.keys)) for each in cell.rows.values())
        if len(jobs) > 1:
            yield (
                f"{name}: {left - jobs.most_common(1)[0][1]} of {counted(left, 'machine')} measured another job (other"
                " parameters, packages or harness), and count as well"
            )
    for group in pooled.groups:
        if group.reference is not None and len(group.reference.rows) < MIN_MACHINES:
            reference = group.reference
            yield f"{reference.system} {group.profile} is no reference: {other_machines.too_few(len(reference.rows))}"
    doubted = Counter(f"{word} on {origin}" for cell in pooled.cells for origin, word in cell.doubted.items())
    if doubted:
        named = [f"{text} ({counted(count, 'row')})" for text, count in doubted.most_common(_NAMED)]
        more = len(doubted) - len(named)
        yield f"these rows are in doubt, and they count: {', '.join(named)}{f', and {more} more' if more else ''}"
    machines = {origin: each.row.machine for cell in pooled.cells for origin, each in cell.rows.items()}
    processors = Counter(machine.processor for machine in machines.values() if machine is not None)
    if processors:
        processor, count = processors.most_common(1)[0]
        if count > 1:
            yield (
                f"{count} of {counted(len(machines), 'machine')} have the processor {processor}; an interval is right"
                " for a machine from the same mix, and harness cannot see whether two origins are one machine"
            )
    types = dict.fromkeys(
        each.row.price.instance_type for cell in pooled.cells for each in cell.rows.values() if each.row.price
    )
    if types:
        place = f"{pooled.prices['region']}, {pooled.prices['term']}, {pooled.prices['date']}"
        yield f"US$: priced on {', '.join(types)} in {place}"


def _record(group: PooledGroup, cell: CellOfMachines, figure: Figure) -> dict[str, Value]:
    found = group.found[cell, figure]
    return {
        "system": cell.system,
        "dataset": group.dataset,
        "scenario": group.scenario,
        "hardware_profile": group.profile,
        "figure": figure.name,
        "unit": figure.unit,
        "machines": found.machines,
        "failed": len(cell.failed),
        "doubted": len(cell.doubted),
        **with_ends("value", found.elsewhere),
        "reason": found.elsewhere.reason,
        "fixed_work_ms": None if found.work_s is None else found.work_s * 1e3,
        **with_ends("at_fixed_work", found.at_work),
        "explained_by_fixed_work": found.explained_by_work,
        "reference": group.reference.system if group.reference else None,
        **with_ends("times_reference", found.times_reference),
        "explained_by_reference": found.explained_by_reference,
        **with_ends("machine_share", found.share),
    }
