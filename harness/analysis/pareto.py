"""Which systems are worth having: those that no other one beats in all that counts, as far as the intervals tell.

A row is ``dominated`` when another one is surely at least as good on every axis and surely better on one.  Where
another one is so by the figures alone, but their intervals leave it open, it is ``contested``.  Everything else is the
front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from harness.analysis.axes import ACCURACY, Axis
from harness.stats import Estimate

Signs = NDArray[np.int8]
# How one row stands to another on an axis.
BETTER, EQUAL, WORSE, UNDECIDED = 1, 0, -1, 2


class State(str, Enum):
    """Where a row stands."""

    FRONT = "front"
    CONTESTED = "contested"
    DOMINATED = "dominated"


@dataclass(frozen=True)
class Point:
    """A row: its key, its system, and its figure on each axis by name, none of them missing."""

    key: str
    system: str
    figures: Mapping[str, Estimate]


@dataclass(frozen=True)
class Relations:
    """Paired comparisons of rankings: ``group`` is the one that a row's key belongs to, rows with equal values of every
    query sharing one; ``signs[a, b]`` says how ``a`` stands to ``b`` (better, equal, worse or undecided).
    """

    group: Mapping[str, int]
    signs: Signs


def states(points: Sequence[Point], axes: Sequence[Axis], relations: Relations | None = None) -> dict[str, State]:
    """Where each row stands, by its key.

    Args:
        points: rows that may be compared.
        axes: two or three.
        relations: of accuracy, from the same queries; without them its intervals decide, as on the other axes.
    """
    columns = [_Column(points, axis, relations if axis.name == ACCURACY else None) for axis in axes]
    return {point.key: _state(place, columns) for place, point in enumerate(points)}


def _state(place: int, columns: Sequence[_Column]) -> State:
    surely = np.stack([column.others_to(place) for column in columns])
    sure = np.all((surely == BETTER) | (surely == EQUAL), axis=0) & np.any(surely == BETTER, axis=0)
    if sure.any():
        return State.DOMINATED
    gains = np.stack([column.gains_on(place) for column in columns])
    return State.CONTESTED if (np.all(gains >= 0, axis=0) & np.any(gains > 0, axis=0)).any() else State.FRONT


class _Column:
    """One axis of all rows, turned so that larger is better."""

    def __init__(self, points: Sequence[Point], axis: Axis, relations: Relations | None) -> None:
        figures = [point.figures[axis.name] for point in points]
        sign = 1.0 if axis.higher else -1.0
        self.values = sign * np.asarray([figure.value for figure in figures], dtype=np.float64)
        low, high = ([_end(figure, side) for figure in figures] for side in ("low", "high"))
        worst, best = (low, high) if axis.higher else (high, low)
        self.worst, self.best = sign * np.asarray(worst), sign * np.asarray(best)
        self.bounded = np.asarray([figure.low is not None or figure.high is not None for figure in figures])
        self.systems = np.unique([point.system for point in points], return_inverse=True)[1]
        self.signs = None if relations is None else relations.signs
        groups = {} if relations is None else relations.group
        self.group = np.asarray([groups.get(point.key, -1) for point in points], dtype=np.int64)

    def gains_on(self, place: int) -> NDArray[np.float64]:
        """How much better every row is than this one, by value."""
        return np.asarray(self.values - self.values[place], dtype=np.float64)

    def others_to(self, place: int) -> Signs:
        """How every row stands to this one."""
        found = np.full(len(self.values), UNDECIDED, dtype=np.int8)
        found[self.worst > self.best[place]] = BETTER
        found[self.best < self.worst[place]] = WORSE
        plain = ~self.bounded & ~self.bounded[place]
        same = (self.values == self.values[place]) & (plain | (self.systems == self.systems[place]))
        found[same] = EQUAL
        if self.signs is not None and self.group[place] >= 0:
            paired = self.group >= 0
            found[paired] = self.signs[self.group[paired], self.group[place]]
        return found


def _end(figure: Estimate, side: str) -> float:
    end = getattr(figure, side)
    value = figure.value if end is None else end
    assert value is not None  # rows without a figure are not compared
    return float(value)
