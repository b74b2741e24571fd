"""A plan as a report: systems and datasets with the time that they take, then how many jobs are left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.progress import duration
from harness.report.document import MISSING, Escape, GridColumn, ReportDocument, Section, Value, grid_of, lines_of
from harness.results.schema import Cell

# Rows of the answer; further ones are counted.
_MOST_ROWS = 14


@dataclass(frozen=True)
class CellPlan:
    """A cell with its jobs and the seconds that are left, and what they cost; ``None``: unknown.

    ``build_s`` is the index build, with the first cell that needs it.  ``measured``: none of the time is assumed.
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
        notes: one line each, at most three.
        command: runs the suite.
        absent: number of cells without their data.
        priced: show costs.
    """
    groups: dict[tuple[str, ...], list[CellPlan]] = {}
    for plan in plans:
        groups.setdefault((plan.cell.system, plan.cell.dataset, plan.cell.scenario), []).append(plan)
    several = len({name for _, _, name in groups}) > 1
    money: GridColumn[Sequence[CellPlan]] | None = ("US$", True, _usd) if priced else None

    def answer(escape: Escape) -> tuple[Section]:
        scenario: GridColumn[Sequence[CellPlan]] | None = (
            ("scenario", False, lambda each: each[0].cell.scenario) if several else None
        )
        columns: tuple[GridColumn[Sequence[CellPlan]] | None, ...] = (
            ("system", False, lambda each: escape(each[0].cell.system)),
            ("dataset", False, lambda each: escape(each[0].cell.dataset)),
            scenario,
            ("cells", True, lambda each: str(len(each))),
            ("jobs", True, lambda each: f"{_sum(each, 'done'):,.0f} of {_sum(each, 'jobs'):,.0f}"),
            ("index build", True, lambda each: _time(_sum(each, "build_s"), each)),
            ("timing", True, lambda each: _time(_sum(each, "timing_s"), each)),
            money,
        )
        shown = list(groups.values())
        further = f"{len(shown) - _MOST_ROWS} more rows: --wide" if len(shown) > _MOST_ROWS else ""
        told = (_total(plans, priced), *map(escape, notes), further, f"next: {command}   all cells: --wide")
        return (Section(grids=(grid_of(shown[:_MOST_ROWS], columns, keys=2),), notes=tuple(filter(None, told))),)

    def sections(escape: Escape) -> tuple[Section]:
        columns: tuple[GridColumn[CellPlan] | None, ...] = (
            *((name, False, _named(name, escape)) for name in ("system", "dataset", "scenario", "profile")),
            ("state", False, lambda plan: escape(plan.state)),
            ("index build", True, lambda plan: _time(plan.build_s, [plan])),
            ("timing", True, lambda plan: _time(plan.timing_s, [plan])),
            ("US$", True, lambda plan: _usd([plan])) if priced else None,
        )
        return (Section(grids=(grid_of(plans, columns, keys=4),), notes=(_total(plans, priced), *map(escape, notes))),)

    return ReportDocument(
        sections=sections,
        lines=lambda: lines_of(plans, _COLUMNS),
        content=lambda: {
            "cells": [{name: get(plan) for name, get in _COLUMNS} for plan in plans],
            "cells_without_data": absent,
            "notes": list(notes),
        },
        answer=answer,
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
    text += f"; the rest takes {'at least' if unknown else 'about'} {duration(known_s)}"
    if priced:
        text += f" and US$ {sum((plan.timing_usd or 0) + (plan.build_usd or 0) for plan in plans):.2f}"
    if unknown:
        text += f", without {unknown} index builds of unknown time"
    return text + ("" if all(plan.measured for plan in plans) else " (~: assumed, not from stored results)")


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
)
