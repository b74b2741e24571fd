"""The Pareto front: rows that no other row beats on every axis, as far as the intervals show.

A row is ``dominated`` if another row is surely at least as good on every axis and surely better on one.  It is
``contested`` if that holds for the figures, but the intervals leave it open.  Every other row is on the front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from harness.analysis import axes, resampling
from harness.analysis.axes import ACCURACY, Axis
from harness.analysis.resampling import BETTER, EQUAL, UNDECIDED, WORSE, PairedSigns, Resampled, Signs
from harness.analysis.table import Row, Table, Validity, ended
from harness.driver.records import Outcome
from harness.estimate import Estimate
from harness.evaluation.per_query import PerQuery
from harness.results.schema import Cell

# Axes of a front, by default.
AXES = ("accuracy", "cost", "latency")
_SEED = 2023


class FrontState(str, Enum):
    """Position of a row with respect to the front."""

    FRONT = "front"
    CONTESTED = "contested"
    DOMINATED = "dominated"


@dataclass(frozen=True)
class FrontPoint:
    """A row's key, its system, and a figure for every axis."""

    key: str
    system: str
    figures: Mapping[str, Estimate]


@dataclass(frozen=True)
class Uncertainty:
    """Cut-off (points), paired comparisons and resampled means, from the values by query."""

    cutoff: float
    relations: PairedSigns | None = None
    resampled: Resampled | None = None


def uncertainty(
    rows: Sequence[Row], by_query: Mapping[str, PerQuery], measure: str, rounded_to: Mapping[str, float]
) -> Uncertainty:
    """Estimate the uncertainty of comparable rows; for published rows, from their rounding."""
    columns = resampling.aligned([by_query.get(row.per_query_key) for row in rows], measure)
    if columns is None:
        return Uncertainty(100 * rounded_to.get(measure, 0.0))
    accuracy, latency_s = columns
    resampled = resampling.resample(accuracy, latency_s, _SEED)
    keys = [row.per_query_key for row in rows]
    return Uncertainty(resampling.cutoff(accuracy), resampling.paired_signs(keys, accuracy, resampled), resampled)


def reason_not_ranked(row: Row, needed: Sequence[Axis]) -> str | None:
    """Return the reason why a row cannot be ranked by these axes; ``None``: it can be ranked."""
    if row.outcome is not Outcome.OK:
        return ended(row.outcome, row.detail)
    if row.validity is Validity.INVALID:
        texts = (finding.text for finding in row.findings if finding.validity is Validity.INVALID)
        return f"invalid: {next(texts, 'see its notes')}"
    for axis in needed:
        figure = axis.read(row)
        if figure.value is None:
            return f"no {axis.label}: {figure.reason or 'not measured'}"
    return None


def sort_out(rows: Iterable[Row], reason: Callable[[Row], str | None]) -> tuple[list[Row], list[tuple[Row, str]]]:
    """Return the rows without a reason to leave them out, and the other rows with the reason."""
    reasons = [(row, reason(row)) for row in rows]
    return [row for row, why in reasons if why is None], [(row, why) for row, why in reasons if why is not None]


def contested_cells(table: Table, by_query: Mapping[str, PerQuery], measure: str) -> frozenset[Cell]:
    """Return the cells that are contested on the default front of their group.

    Args:
        table: priced rows.
        by_query: their values by query, by :attr:`harness.analysis.table.Row.per_query_key`.
        measure: the measure of accuracy.
    """
    front_axes = [axes.axis(name, measure) for name in AXES]
    ranked, _ = sort_out(table.rows, lambda row: reason_not_ranked(row, front_axes))
    cells = set()
    for rows in axes.group_rows(ranked).values():
        states = front_states(rows, front_axes, uncertainty(rows, by_query, measure, table.rounded_to).relations)
        cells |= {axes.cell_of(row) for row in rows if states[row.per_query_key] is FrontState.CONTESTED}
    return frozenset(cells)


def front_states(
    rows: Sequence[Row], front_axes: Sequence[Axis], relations: PairedSigns | None
) -> dict[str, FrontState]:
    """Place rows with respect to the front, by :attr:`harness.analysis.table.Row.per_query_key`.

    Rows without a figure on some axis are left out.
    """
    points = []
    for row in rows:
        figures = {axis.name: axis.read(row) for axis in front_axes}
        if all(figure.value is not None for figure in figures.values()):
            points.append(FrontPoint(row.per_query_key, row.system, figures))
    return states_of_points(points, front_axes, relations) if points else {}


def states_of_points(
    points: Sequence[FrontPoint], front_axes: Sequence[Axis], relations: PairedSigns | None = None
) -> dict[str, FrontState]:
    """Place points with respect to the front, by key.

    Args:
        points: rows that may be compared.
        front_axes: two or three.
        relations: paired comparisons of accuracy; without them its intervals decide, as on the other axes.
    """
    columns = [_AxisColumn(points, axis, relations if axis.name == ACCURACY else None) for axis in front_axes]
    return {point.key: _state(index, columns) for index, point in enumerate(points)}


def _state(index: int, columns: Sequence[_AxisColumn]) -> FrontState:
    signs = np.stack([column.signs_against(index) for column in columns])
    surely = np.all((signs == BETTER) | (signs == EQUAL), axis=0) & np.any(signs == BETTER, axis=0)
    if surely.any():
        return FrontState.DOMINATED
    gains = np.stack([column.values - column.values[index] for column in columns])
    by_figures = np.all(gains >= 0, axis=0) & np.any(gains > 0, axis=0)
    return FrontState.CONTESTED if by_figures.any() else FrontState.FRONT


class _AxisColumn:
    """One axis of all rows, with signs such that larger is better."""

    def __init__(self, points: Sequence[FrontPoint], axis: Axis, relations: PairedSigns | None) -> None:
        figures = [point.figures[axis.name] for point in points]
        sign = 1.0 if axis.higher else -1.0
        self.values = sign * np.asarray([figure.value for figure in figures], dtype=np.float64)
        low, high = ([_end(figure, side) for figure in figures] for side in ("low", "high"))
        worst, best = (low, high) if axis.higher else (high, low)
        self.worst, self.best = sign * np.asarray(worst), sign * np.asarray(best)
        self.bounded = np.asarray([figure.low is not None or figure.high is not None for figure in figures])
        self.systems = np.unique([point.system for point in points], return_inverse=True)[1]
        self.paired = None if relations is None else relations.signs
        groups = {} if relations is None else relations.group
        self.group = np.asarray([groups.get(point.key, -1) for point in points], dtype=np.int64)

    def signs_against(self, index: int) -> Signs:
        """Compare every row with this row."""
        signs = np.full(len(self.values), UNDECIDED, dtype=np.int8)
        signs[self.worst > self.best[index]] = BETTER
        signs[self.best < self.worst[index]] = WORSE
        plain = ~self.bounded & ~self.bounded[index]
        same = (self.values == self.values[index]) & (plain | (self.systems == self.systems[index]))
        signs[same] = EQUAL
        if self.paired is not None and self.group[index] >= 0:
            members = self.group >= 0
            signs[members] = self.paired[self.group[members], self.group[index]]
        return signs


def _end(figure: Estimate, side: str) -> float:
    end = getattr(figure, side)
    value = figure.value if end is None else end
    assert value is not None  # rows without a figure are not compared
    return float(value)
