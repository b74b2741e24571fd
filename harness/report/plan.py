"""Plans and quotes as reports: cells with the time that they take, and the machines that they are launched on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from harness.analysis.table import processors
from harness.driver.records import Envelope
from harness.errors import counted
from harness.pricing.offers import ChosenMachine
from harness.progress import duration, duration_range
from harness.report.document import MISSING, Escape, GridColumn, ReportDocument, Section, Value, grid_of, lines_of
from harness.report.hardware import memory
from harness.results.schema import Cell, system_words

# Rows of the answer; further ones are counted.
_MOST_ROWS = 14
# The shipped machine has no AVX-512 (docs/reference/benchmarks.md); an older or busier one takes up to twice as long.
SLOWER = 2.0
# The mark of a machine that stands in for the suite's own.
SUBSTITUTE = "*"


@dataclass(frozen=True)
class CellPlan:
    """A cell with its jobs and the seconds that are left, and what they cost; ``None``: unknown.

    ``build_s`` is the index build, with the first cell that needs it.  ``measured``: none of the time is assumed;
    ``published``: some of it follows from latencies that a paper prints; ``shipped``: some of it was measured on the
    machine of the results that ship with harness, and none is assumed.  ``envelope`` holds the limits of a job,
    ``memory_bytes`` is the memory that its profile asks for, ``peak_bytes`` the foreseen peak of anonymous memory.
    ``refused``: why no machine takes it.
    """

    cell: Cell
    state: str
    jobs: int
    done: int
    timing_s: float
    build_s: float | None
    measured: bool
    timing_usd: float | None = None
    build_usd: float | None = None
    published: bool = False
    shipped: bool = False
    envelope: Envelope | None = None
    memory_bytes: int | None = None
    peak_bytes: float | None = None
    machine: ChosenMachine | None = None
    refused: str | None = None

    @property
    def limit_bytes(self) -> int | None:
        """The memory limit of a job, on its machine where that is chosen."""
        if self.machine is not None:
            return self.machine.limit_bytes
        if self.refused:
            return self.memory_bytes
        return self.envelope.memory_bytes if self.envelope else None

    @property
    def hardware(self) -> str:
        """The hardware in words, with the limit of memory where that is less than the profile asks for."""
        if self.envelope is None or self.memory_bytes is None or self.limit_bytes is None:
            return self.cell.profile
        processors_ = processors(self.envelope.cpus, self.envelope.gpus)
        return f"{processors_}, {memory(self.memory_bytes, self.limit_bytes)}"

    @property
    def usd(self) -> float | None:
        """The cost of both."""
        return None if self.timing_usd is None or self.build_usd is None else self.timing_usd + self.build_usd


def plan_document(
    plans: Sequence[CellPlan], notes: Sequence[str], command: str, *, absent: int, priced: bool
) -> ReportDocument:
    """Return the report on a plan.

    Args:
        plans: all cells.
        notes: one line each.
        command: runs the suite.
        absent: number of cells without their data.
        priced: show costs.
    """
    groups: dict[tuple[str, ...], list[CellPlan]] = {}
    for plan in plans:
        cell = plan.cell
        groups.setdefault((cell.suite, cell.system, cell.dataset, cell.scenario), []).append(plan)
    several = len({scenario for *_, scenario in groups}) > 1
    suites = len({suite for suite, *_ in groups}) > 1

    def answer(escape: Escape) -> tuple[Section]:
        columns: tuple[GridColumn[Sequence[CellPlan]] | None, ...] = (
            ("system", False, lambda each: escape(system_words(each[0].cell.system))),
            ("dataset", False, lambda each: escape(each[0].cell.dataset)),
            ("scenario", False, lambda each: each[0].cell.scenario) if several else None,
            ("cells", True, lambda each: str(len(each))),
            ("jobs", True, lambda each: f"{_sum(each, 'done'):,.0f} of {_sum(each, 'jobs'):,.0f}"),
            ("index build", True, lambda each: _time(_sum(each, "build_s"), each)),
            ("timing", True, lambda each: _time(_sum(each, "timing_s"), each)),
            ("US$", True, _usd) if priced else None,
        )
        shown = list(groups.values())
        further = f"{len(shown) - _MOST_ROWS} more rows: --wide" if len(shown) > _MOST_ROWS else ""
        told = (_total(plans, priced), *map(escape, notes), further, f"next: {command}   all cells: --wide")
        return (Section(grids=(grid_of(shown[:_MOST_ROWS], columns, keys=2),), notes=tuple(filter(None, told))),)

    names = (*(("suite",) if suites else ()), "system", "dataset", "scenario", "profile")

    def sections(escape: Escape) -> tuple[Section]:
        grid = grid_of(plans, _cell_columns(names, escape, priced=priced), keys=len(names))
        return (Section(grids=(grid,), notes=(_total(plans, priced), *map(escape, notes))),)

    return ReportDocument(
        sections=sections,
        lines=lambda: lines_of(plans, _COLUMNS),
        content=lambda: {**_content(plans, notes), "cells_without_data": absent},
        answer=answer,
    )


def _content(plans: Sequence[CellPlan], notes: Sequence[str]) -> dict[str, object]:
    return {"cells": [{name: get(plan) for name, get in _COLUMNS} for plan in plans], "notes": list(notes)}


def _cell_columns(names: Sequence[str], escape: Escape, *, priced: bool) -> tuple[GridColumn[CellPlan] | None, ...]:
    """Return the columns of a table with a line for each cell."""
    return (
        *((name, False, _named(name, escape)) for name in names),
        ("machine", False, lambda plan: escape(_machine(plan))) if priced else None,
        ("state", False, lambda plan: escape(plan.state)),
        ("index build", True, lambda plan: _time(plan.build_s, [plan])),
        ("timing", True, lambda plan: _time(plan.timing_s, [plan])),
        ("US$", True, lambda plan: _usd([plan])) if priced else None,
    )


def _named(name: str, escape: Escape) -> Callable[[CellPlan], str]:
    return lambda plan: escape(str(getattr(plan.cell, name)))


def _sum(plans: Sequence[CellPlan], name: str) -> float | None:
    """Return the sum of a figure; ``None`` if one is unknown."""
    values = [getattr(plan, name) for plan in plans]
    return None if None in values else sum(values)


def _time(seconds: float | None, plans: Sequence[CellPlan]) -> str:
    """Return a rounded time, marked where it is assumed."""
    if seconds is None:
        return "unknown"
    if not seconds:
        return MISSING
    return ("" if all(plan.measured for plan in plans) else "~") + duration(seconds)


def _usd(plans: Sequence[CellPlan]) -> str:
    usd = _sum(plans, "usd")
    return "unknown" if usd is None else f"{usd:.2f}" if usd else MISSING


def _total(plans: Sequence[CellPlan], priced: bool) -> str:
    jobs, done = sum(plan.jobs for plan in plans), sum(plan.done for plan in plans)
    text = f"{done:,} of {jobs:,} jobs done"
    if done == jobs:
        return text
    unknown = sum(plan.build_s is None for plan in plans)
    known_s = sum(plan.timing_s + (plan.build_s or 0) for plan in plans)
    shipped_s = sum(plan.timing_s + (plan.build_s or 0) for plan in plans if plan.shipped)
    about = duration_range(known_s, known_s + (SLOWER - 1) * shipped_s) if shipped_s else duration(known_s)
    text += f"; the rest takes {'at least' if unknown else 'about'} {about}"
    if priced:
        text += f" and US$ {sum((plan.timing_usd or 0) + (plan.build_usd or 0) for plan in plans):.2f}"
        if refused := sum(plan.refused is not None for plan in plans):
            text += f" for {len(plans) - refused:,} of {len(plans):,} cells"
    if unknown:
        text += f", without {counted(unknown, 'index build')} of unknown time"
    return text + ("" if all(plan.measured for plan in plans) else f" (~: {_basis(plans)}, not from stored results)")


def _basis(plans: Sequence[CellPlan]) -> str:
    """Return what times rest on that are not measured here."""
    printed, shipped = sum(plan.published for plan in plans), sum(plan.shipped for plan in plans)
    known = [f"{counted(shipped, 'cell')} by shipped results"] if shipped else []
    known += [f"{counted(printed, 'cell')} by published latencies"] if printed else []
    others = [] if all(plan.published or plan.shipped or plan.measured for plan in plans) else ["the others assumed"]
    return ", ".join([*known, *others]) if known else "assumed"


def _machine(plan: CellPlan) -> str:
    """Return the machine of a cell, marked where it is not the suite's own."""
    if plan.machine is None:
        return "none" if plan.refused else MISSING
    return plan.machine.name + (f" {SUBSTITUTE}" if plan.machine.substitutes else "")


def quote_document(plans: Sequence[CellPlan], notes: Sequence[str], command: str) -> ReportDocument:
    """Return the quote of cells from a price list: each with its machine, or why none takes it.

    Args:
        plans: all cells, each with its machine or refusal.
        notes: one line each.
        command: launches them.
    """
    places = list(dict.fromkeys((plan.cell.suite, plan.cell.dataset) for plan in plans))

    def sections(escape: Escape) -> Iterator[Section]:
        columns: tuple[GridColumn[CellPlan] | None, ...] = (
            ("system", False, _named("system", escape)),
            ("hardware", False, lambda plan: escape(plan.hardware)),
            ("machine", False, lambda plan: escape(_machine(plan))),
            ("US$/h", True, lambda plan: f"{plan.machine.usd_per_hour:g}" if plan.machine else MISSING),
            ("time", True, lambda plan: _time(plan.timing_s, [plan])),
            ("US$", True, lambda plan: "unknown" if plan.timing_usd is None else f"{plan.timing_usd:.4f}"),
            ("", False, lambda plan: escape(_reason(plan))),
        )
        for suite, dataset in places:
            cells = [plan for plan in plans if (plan.cell.suite, plan.cell.dataset) == (suite, dataset)]
            title = f"{suite}, {dataset}: {counted(len(cells), 'cell')}"
            yield Section(title=escape(title), grids=(grid_of(cells, columns, keys=2),))
        counts = map(escape, _accepted(plans))
        yield Section(notes=(*counts, _total(plans, priced=True), *map(escape, notes), f"next: {command}"))

    return ReportDocument(
        sections=sections,
        lines=lambda: lines_of(plans, _COLUMNS),
        content=lambda: _content(plans, notes),
        answer=sections,
    )


def _reason(plan: CellPlan) -> str:
    """Return why a cell has another machine than the suite's, or none."""
    if plan.refused:
        return f"refused: {plan.refused}"
    if plan.machine is not None and plan.machine.substitutes:
        return f"for {plan.machine.substitutes}, no longer rented"
    return ""


def _accepted(plans: Sequence[CellPlan]) -> Iterator[str]:
    """Count the cells by what becomes of them, and say each substitution once."""
    refused = sum(plan.refused is not None for plan in plans)
    taken = [plan.machine for plan in plans if plan.machine is not None]
    replaced = sum(machine.substitutes is not None for machine in taken)
    elsewhere = f", {replaced} of them on a substitute ({SUBSTITUTE})" if replaced else ""
    yield f"{counted(len(plans), 'cell')}: {len(taken)} accepted{elsewhere}, {refused} refused"
    yield from dict.fromkeys(
        f"{SUBSTITUTE} {machine.remark}" for machine in taken if machine.substitutes is not None and machine.remark
    )


_COLUMNS: tuple[tuple[str, Callable[[CellPlan], Value]], ...] = (
    ("system", lambda plan: plan.cell.system),
    ("dataset", lambda plan: plan.cell.dataset),
    ("scenario", lambda plan: plan.cell.scenario),
    ("hardware_profile", lambda plan: plan.cell.profile),
    ("state", lambda plan: plan.state),
    ("jobs", lambda plan: plan.jobs),
    ("jobs_done", lambda plan: plan.done),
    ("build_s", lambda plan: plan.build_s),
    ("timing_s", lambda plan: plan.timing_s),
    ("time_is_measured", lambda plan: plan.measured),
    ("usd", lambda plan: plan.usd),
    ("suite", lambda plan: plan.cell.suite),
    ("time_is_published", lambda plan: plan.published),
    ("time_is_shipped", lambda plan: plan.shipped),
    ("memory_bytes", lambda plan: plan.memory_bytes),
    ("memory_limit_bytes", lambda plan: plan.limit_bytes),
    ("memory_foreseen_bytes", lambda plan: None if plan.peak_bytes is None else round(plan.peak_bytes)),
    ("instance_type", lambda plan: None if plan.machine is None else plan.machine.name),
    ("usd_per_hour", lambda plan: None if plan.machine is None else plan.machine.usd_per_hour),
    ("substitutes", lambda plan: None if plan.machine is None else plan.machine.substitutes),
    ("refused", lambda plan: plan.refused),
)
