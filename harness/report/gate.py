"""A gate: its conditions, as a person writes them, and one line for each answer."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.analysis.gate import Answer, ChangeLimit, Checked
from harness.analysis.paired_differences import LATENCY
from harness.analysis.table import Row, Table
from harness.errors import UsageError, counted, nearest_or_known
from harness.evaluation import measure_names
from harness.report import row_figures
from harness.report.columns import Kind
from harness.report.document import (
    MISSING,
    Escape,
    GridColumn,
    ReportDocument,
    Section,
    few_lines,
    grid_of,
    lines_of_records,
    number,
    with_ends,
)
from harness.report.figures import Figure

# Version of the JSON.
GATE_VERSION = 1
# Lines below the table, besides the two that always are there.
_MOST_NOTES = 3
_CONDITION = re.compile(
    r"(?P<figure>.*?\S)\s*(?P<sign>[<>])\s*(?P<change>[+-]\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*(?P<unit>\S*)"
)
_FORM = "write it as FIGURE > +5% or FIGURE < -0.01: the change of a figure that is too much, always with its sign"
METHOD = (
    "worse: the whole interval of the change is beyond the limit. not worse: all of it is within. cannot tell: the"
    " limit is inside it. The interval has 95 %: of latency for other such queries in fresh processes (Hall 1992,"
    " Welch 1947), of a measure the means that its randomisation test does not reject, of other figures for fresh"
    " processes; of a ratio by Fieller (1954). For worse it has 1 - 0.05 / n at n conditions (Bonferroni), so at most"
    " one run in 20 fails without a change.",
    "Times are compared where one kind of CPU measured both sides. A noisy latency decides nothing. A and B of a"
    " figure that each process has (memory, p95) are means over the processes.",
)


@dataclasses.dataclass(frozen=True)
class WrittenCondition:
    """A condition as it is written, before it is known which figures the rows have."""

    text: str
    figure: str
    more: bool
    change: float
    unit: str


def is_measure(name: str) -> bool:
    """Return whether a figure's name is a measure, which rows have only if they are asked for it."""
    if any(name in names_of(figure) for figure in row_figures.every_fixed()):
        return False
    try:
        measure_names.check([name])
    except UsageError:
        return False
    return True


def canonical(name: str) -> str:
    """Return a figure's name, a measure's as rows have it: ``RR@10`` for ``MRR@10``."""
    return str(measure_names.parse([name])[0]) if is_measure(name) and not name.startswith("FD") else name


def figure_named(name: str, table: Table) -> Figure:
    """Return the number of a table's rows that has a name, as ``cpu``, ``cpu_ms`` or ``cpu_per_query_ms``.

    Raises:
        UsageError: rows have no such figure.
    """
    figures = [each for each in row_figures.all_figures(table) if each.kind in (Kind.NUMBER, Kind.COUNT)]
    found = next((each for each in figures if name in names_of(each)), None)
    if found is None:
        raise UsageError(f"no figure {name!r}{nearest_or_known(name, (each.alias for each in figures))}")
    return found


def names_of(figure: Figure) -> tuple[str, ...]:
    """Return the names by which a condition may call a figure: ``cpu``, ``cpu_ms``, ``cpu_per_query_ms``."""
    unit = figure.unit.lower().replace("/", "_per_")
    return figure.name, figure.alias, figure.title, *((f"{figure.alias}_{unit}",) if unit else ())


def parse(text: str) -> WrittenCondition:
    """Read a condition.

    Raises:
        UsageError: it has another form.
    """
    found = _CONDITION.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--fail-if {text!r} is not a condition; {_FORM}")
    return WrittenCondition(
        text, canonical(found["figure"]), found["sign"] == ">", float(found["change"]), found["unit"]
    )


def conditions(written: Sequence[WrittenCondition], table: Table) -> tuple[ChangeLimit, ...]:
    """Return the conditions with the figures that they name.

    Raises:
        UsageError: rows have no such figure, or it has another unit.
    """
    return tuple(_condition(each, table) for each in written)


def _condition(each: WrittenCondition, table: Table) -> ChangeLimit:
    try:
        figure = figure_named(each.figure, table)
    except UsageError as error:
        raise UsageError(f"--fail-if {each.text!r}: {error}") from error
    relative = each.unit == "%"
    if each.unit not in ("", "%", figure.unit):
        has = f"is in {figure.unit}" if figure.unit else "has no unit"
        raise UsageError(f"--fail-if {each.text!r}: {figure.alias} {has}; write the change in it, or in %")
    by_query = LATENCY if figure.alias == LATENCY else figure.name if figure.name in table.measures else None
    scale = 1e3 if by_query == LATENCY else 1.0  # values by query are in seconds
    return ChangeLimit(
        figure.alias,
        figure.unit,
        each.change / (100 if relative else scale),
        relative,
        each.more,
        figure.number,
        figure.varies,
        by_query,
        _WITH_DRIVER.get(figure.alias),
    )


# Figures that a row has without harness's own part, and a process with it.
_WITH_DRIVER: Mapping[str, Callable[[Row], float | None]] = {
    "cpu": lambda row: row.cpu.per_query_s.map(lambda seconds: seconds * 1e3).value,
    "instructions": lambda row: row.cpu.instructions.value,
}


def gate_document(checked: Sequence[Checked], code: int, notes: Sequence[str] = ()) -> ReportDocument:
    """Return the document of answers, the worst first.

    Args:
        checked: the answers, at least one.
        code: the exit code that follows from them.
        notes: on all of them.
    """
    order = list(Answer)
    ranked = sorted(checked, key=lambda item: order.index(item.answer))
    records = [_content(item) for item in ranked]
    return ReportDocument(
        sections=lambda escape: (_section(ranked, code, (*map(escape, notes), *METHOD), escape),),
        lines=lambda: lines_of_records(records, [*records[0]]),
        content=lambda: {
            "gate_version": GATE_VERSION,
            "exit_code": code,
            "notes": list(notes),
            "checked": records,
        },
        answer=lambda escape: (_section(ranked, code, few_lines(map(escape, notes), most=_MOST_NOTES), escape),),
        plain=True,
    )


def _section(checked: Sequence[Checked], code: int, notes: Sequence[str], escape: Escape) -> Section:
    parts = [name.split("/") for item in checked for name in (item.a_name, item.b_name)]
    # Of system/dataset/scenario/profile, what all rows share is said once.
    shared = [each[0] if len(set(each)) == 1 else None for each in list(zip(*parts, strict=False))[1:]]

    def own(name: str) -> str:
        system, *others = name.split("/")
        return " ".join([system, *(part for part, same in zip(others, shared, strict=False) if part != same)])

    def rows(item: Checked) -> str:
        names = dict.fromkeys((own(item.b_name), own(item.a_name)))
        return " against ".join(names)

    lead = " ".join(filter(None, shared))
    columns: list[GridColumn[Checked]] = [
        ("B is", False, lambda item: item.answer.value),
        ("row", False, lambda item: escape(rows(item))),
        ("figure", False, lambda item: escape(", ".join(filter(None, (item.condition.figure, item.condition.unit))))),
        ("A", True, lambda item: number(item.a)),
        ("B", True, lambda item: number(item.b)),
        ("change (95 %)", True, change),
        ("limit", True, lambda item: limit(item.condition)),
        ("", False, lambda item: escape(remark(item) or "")),
    ]
    counts = Counter(item.answer for item in checked)
    said = ", ".join(f"{counts[answer]} {answer.value}" for answer in Answer if counts[answer])
    end = f"{said}, of {counted(len(checked), 'condition')}: exit code {code}"
    return Section(
        lead=(escape(lead),) if lead else (), grids=(grid_of(checked, columns, keys=2),), notes=(end, *notes)
    )


def _signed(value: float, condition: ChangeLimit) -> str:
    """Return a change with its sign: ``+5 %``, ``-0.01``."""
    if condition.relative:
        return f"{value * 100:+.3g} %"
    return f"{_in_unit(value, condition):+.3g}"


def _in_unit(value: float, condition: ChangeLimit) -> float:
    """Return an absolute change in the unit of the figure."""
    return value * 1e3 if condition.by_query == LATENCY else value


def change(item: Checked) -> str:
    """Return the change with its interval, for people."""
    found, condition = item.change, item.condition
    if found.value is None:
        return MISSING
    ends = ""
    if found.low is not None and found.high is not None and found.low != found.high:
        ends = f" ({_signed(found.low, condition)} to {_signed(found.high, condition)})"
    return _signed(found.value, condition) + ends


def limit(condition: ChangeLimit) -> str:
    """Return the limit, for people."""
    return f"at {'most' if condition.more else 'least'} {_signed(condition.change, condition)}"


def remark(item: Checked) -> str | None:
    """Return what a person needs to know besides the numbers: a reason, or how many trials would decide."""
    more = [
        counted(count, noun)
        for count, noun in ((item.processes, "trial"), (item.queries, "query"))
        if count is not None
    ]
    needed = f"{' and '.join(more)} would decide it" if more else None
    return "; ".join(filter(None, (item.reason, needed))) or None


def _content(item: Checked) -> dict[str, Any]:
    condition, scale = item.condition, 1.0 if item.condition.relative else _in_unit(1.0, item.condition)
    found = item.change.map(lambda value: value * scale)
    return {
        "answer": item.answer.value,
        "row_a": item.a_name,
        "row_b": item.b_name,
        "figure": condition.figure,
        "unit": condition.unit,
        "a": item.a,
        "b": item.b,
        **with_ends("change", found),
        "limit": condition.change * scale,
        "relative": condition.relative,
        "fails_if": "more" if condition.more else "less",
        "reason": item.reason,
        "trials_needed": item.processes,
        "queries_needed": item.queries,
    }
