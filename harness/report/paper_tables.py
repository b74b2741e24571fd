"""Tables 1 to 3 in the shape in which the paper prints them, and the list of what is wrong with them."""

from __future__ import annotations

from collections import defaultdict

from harness.analysis.published import errata
from harness.analysis.published.rounding import Printed
from harness.analysis.published.sources import Dataset
from harness.analysis.published.tables import Accuracy, Hardware, Published, Timed
from harness.report.document import MISSING, Escape
from harness.report.sections import Section


def tables(published: Published, wrong: tuple[errata.Erratum, ...], escape: Escape) -> tuple[Section, ...]:
    """Tables 1, 2 and 3 as the paper has them, with a mark at each row that an erratum is about."""
    marks: dict[tuple[str, int], str] = defaultdict(str)
    for number, each in enumerate(wrong, start=1):
        marks[each.table, each.number] += f" [E{number}]"
    third = [_table3(published, dataset, marks, escape) for dataset in published.about.datasets]
    return (_table1(published, escape), _table2(published, marks, escape), *third, _table3c(published, escape))


def listed(wrong: tuple[errata.Erratum, ...], escape: Escape) -> Section:
    """The errata, numbered as the marks in the tables."""
    if not wrong:
        return Section("Errata", ("None: every figure agrees with the others.",))
    lines = (
        f"[E{number}] ({each.kind.value}) Table {escape(each.table)}, row {each.number}, {escape(each.row)}."
        f" Printed: {escape(each.printed)}. What follows: {escape(each.follows)}. Evidence: {escape(each.evidence)}."
        for number, each in enumerate(wrong, start=1)
    )
    return Section("Errata", items=tuple(lines))


def _table1(published: Published, escape: Escape) -> Section:
    return Section(
        "Table 1: what other papers report, each on its own machine",
        (),
        ("system", "reported by", "GPU", "CPU", "RAM, GiB", "RR@10, %", "latency, ms", "index, GiB"),
        (False, False, True, True, True, True, True, True),
        tuple(
            (
                escape(line.system),
                escape(line.reference),
                *(_cell(each) for each in (line.gpu, line.cpu, line.ram_gib, line.mrr_at_10)),
                *(_cell(each) for each in (line.latency_ms, line.index_gib)),
            )
            for line in published.table1
        ),
    )


def _table2(published: Published, marks: dict[tuple[str, int], str], escape: Escape) -> Section:
    cells = []
    for number, line in enumerate(published.table2, start=1):
        latency, taken = published.latency_of(line)
        origin = f"{latency} ms, {taken.reference}" if taken else str(latency)
        cells.append(
            (
                escape(line.system),
                *_hardware(line.hardware),
                escape(line.instance_type),
                f"{line.cost_usd_per_million}{marks['2', number]}",
                escape(origin),
            )
        )
    return Section(
        "Table 2: the least hardware that each is said to need",
        ("The last column is not the paper's: it says whose latency of Table 1 the cost follows from.",),
        ("system", "GPU", "CPU", "RAM, GiB", "instance type", "US$ per million queries", "latency taken from"),
        (False, True, True, True, False, True, False),
        tuple(cells),
    )


def _table3(published: Published, dataset: Dataset, marks: dict[tuple[str, int], str], escape: Escape) -> Section:
    cells: list[tuple[str, ...]] = []
    before: Timed | None = None
    for number, line in enumerate(published.table3[dataset.name], start=1):
        # As in the paper, a hardware stands once, at the first of its systems.
        again = before is not None and (before.hardware, before.instance_type) == (line.hardware, line.instance_type)
        where = ("",) * 4 if again else (*_hardware(line.hardware), escape(line.instance_type))
        cost = f"{line.cost_usd_per_million}{marks[dataset.table3, number]}"
        cells.append((*where, escape(line.system), str(line.latency_ms), cost))
        before = line
    return Section(
        f"Table {escape(dataset.table3)}: {escape(dataset.label)}, measured in one protocol",
        (),
        ("GPU", "CPU", "RAM, GiB", "instance type", "system", "latency, ms", "US$ per million queries"),
        (True, True, True, False, False, True, True),
        tuple(cells),
        keys=5,
    )


def _table3c(published: Published, escape: Escape) -> Section:
    datasets = published.about.datasets
    cells = []
    for system in dict.fromkeys(line.system for line in published.table3c):
        found = [published.accuracy(system, dataset) for dataset in datasets]
        figures = [_cell(each) for line in found for each in _both(line)]
        cells.append((escape(system), *figures))
    headers = [f"{each.label} {name}, %" for each in datasets for name in ("RR@10", "Success@10")]
    return Section("Table 3c: accuracy", (), ("system", *headers), (False, *(True for _ in headers)), tuple(cells))


def _both(line: Accuracy | None) -> tuple[Printed | None, Printed | None]:
    return (line.mrr_at_10, line.success_at_10) if line else (None, None)


def _hardware(hardware: Hardware) -> tuple[str, str, str]:
    return str(hardware.gpus), str(hardware.cpus), str(hardware.memory_gib)


def _cell(value: Printed | int | None) -> str:
    return MISSING if value is None else str(value)
