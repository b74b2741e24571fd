"""Which rows can be ranked at all, and where they stand to the Pareto front, as far as their queries tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.analysis import axes, pareto, resampling
from harness.analysis.axes import Axis, Place
from harness.analysis.pareto import Relations, State
from harness.analysis.resampling import Resampled
from harness.analysis.table import Row, Table, Validity, per_query_key
from harness.evaluation.per_query import PerQuery
from harness.records import Outcome
from harness.results.schema import Cell

# The axes of a front, unless others are asked for.
AXES = ("accuracy", "cost", "latency")
_SEED = 2023


@dataclass(frozen=True)
class Uncertainty:
    """What the queries say of the rows: the cut-off (points), paired comparisons, and means over resampled queries."""

    cutoff: float
    relations: Relations | None = None
    resampled: Resampled | None = None


def uncertainty(
    rows: Sequence[Row], found: Mapping[str, PerQuery], measure: str, rounded_to: Mapping[str, float]
) -> Uncertainty:
    """What the queries say of rows that may be compared; of published rows, how they are rounded."""
    known = resampling.aligned([found.get(per_query_key(row)) for row in rows], measure)
    if known is None:
        return Uncertainty(100 * rounded_to.get(measure, 0.0))
    accuracy, latency_s = known
    resampled = resampling.resample(accuracy, latency_s, _SEED)
    keys = [per_query_key(row) for row in rows]
    return Uncertainty(resampling.cutoff(accuracy), resampling.relations(keys, accuracy, resampled), resampled)


def states(rows: Sequence[Row], on: Sequence[Axis], relations: Relations | None) -> dict[str, State]:
    """Where rows stand to the Pareto front, by :func:`harness.evaluation.per_query.per_query_key`; those without a figure are left out."""
    points = []
    for row in rows:
        figures = {axis.name: axis.read(row) for axis in on}
        if all(figure.value is not None for figure in figures.values()):
            points.append(pareto.Point(per_query_key(row), row.system, figures))
    return pareto.states(points, on, relations) if points else {}


def contested(table: Table, found: Mapping[str, PerQuery], measure: str) -> frozenset[Cell]:
    """The cells whose place on the front of accuracy, cost and latency is contested, each among those of its place.

    Args:
        table: priced rows.
        found: what they are made of, by :func:`harness.evaluation.per_query.per_query_key`.
        measure: what accuracy is.
    """
    on = [axes.axis(name, measure) for name in AXES]
    by_place: dict[Place, list[Row]] = defaultdict(list)
    for row in table.rows:
        if rankable(row, on) is None:
            by_place[axes.of(row)].append(row)
    cells = set()
    for rows in by_place.values():
        stand = states(rows, on, uncertainty(rows, found, measure, table.rounded_to).relations)
        cells |= {
            Cell(row.suite, row.system, row.dataset, row.scenario, row.profile)
            for row in rows
            if stand[per_query_key(row)] is State.CONTESTED
        }
    return frozenset(cells)


def rankable(row: Row, needed: Sequence[Axis]) -> str | None:
    """Why a row is not ranked; ``None``: it is."""
    if row.outcome is not Outcome.OK:
        return f"{row.outcome.value}: {row.detail or 'no detail was stored'}"
    if row.validity is Validity.INVALID:
        why = next((each.text for each in row.findings if each.validity is Validity.INVALID), "see its notes")
        return f"invalid: {why}"
    for axis in needed:
        figure = axis.read(row)
        if figure.value is None:
            return f"no {axis.label}: {figure.reason or 'not measured'}"
    return None
