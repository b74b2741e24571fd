"""Find the cheapest row whose mean of a measure reaches a goal, and the next cheaper one, which misses it.

The goal is a number, or a distance to another system's mean.  Whether the lower end reaches the goal too is decided by
the row's own interval for a number, and by the interval of the paired test for a distance, because both systems
answered the same queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.analysis import axes, comparison
from harness.analysis.axes import ComparisonGroup
from harness.analysis.pareto_front import reason_not_ranked, sort_out
from harness.analysis.table import Row, Table
from harness.errors import UnknownName, UsageError
from harness.estimate import Estimate, best_of
from harness.evaluation import measure_names
from harness.evaluation.per_query import PerQuery

FORM = "write MEASURE=VALUE or MEASURE=SYSTEM-VALUE, e.g. nDCG@10=0.68 or nDCG@10=bm25-0.002"
# Sums of the same numbers in another order differ in their last digits.
_SAME = 1e-9


@dataclass(frozen=True)
class QualityGoal:
    """Least mean of a measure: ``value``, or a system's mean plus ``value``; ``target`` is its text."""

    measure: str
    target: str
    value: float | None = None

    @property
    def text(self) -> str:
        """The goal as the user wrote it."""
        return f"{self.measure}={self.target}"

    def base(self, systems: Sequence[str]) -> tuple[str | None, float]:
        """Return the system that the goal is relative to, or None, and the number.

        Raises:
            UnknownName: it is relative to a system that is not one of these.
        """
        if self.value is not None:
            return None, self.value
        if self.target in systems:  # before any split: names may end like a number
            return self.target, 0.0
        splits = [split for place in range(1, len(self.target)) if (split := _split(self.target, place))]
        for name, offset in splits:
            if name in systems:
                return name, offset
        raise UnknownName("system", splits[-1][0] if splits else self.target, systems, FORM)


def _split(text: str, place: int) -> tuple[str, float] | None:
    """Return the name and the number on the two sides of a sign; None: the sign or the number is missing."""
    try:
        offset = float(text[place:]) if text[place] in "+-" and text[-1].isdigit() else math.nan
    except ValueError:
        return None
    return (text[:place], offset) if math.isfinite(offset) else None


def parse_goal(text: str) -> QualityGoal:
    """Parse ``MEASURE=VALUE`` or ``MEASURE=SYSTEM-VALUE``.

    Raises:
        UsageError: it is neither, or no mean of the measure can have this value.
    """
    name, equals, target = (word.strip() for word in text.rpartition("="))
    if not equals or not name or not target:
        raise UsageError(f"--at-least {text}: {FORM}")
    if measure_names.parse_distance(name):
        raise UsageError(f"--at-least {text}: less is better in a distance; name a measure, e.g. nDCG@10=0.68")
    (measure,) = measure_names.parse([name])
    try:
        value = float(target)
    except ValueError:
        return QualityGoal(str(measure), target)
    if not math.isfinite(value):
        raise UsageError(f"--at-least {text}: {target} is not a finite number; {FORM}")
    if measure.NAME in measure_names.AT_MOST_ONE and not 0 <= value <= 1:
        raise UsageError(f"--at-least {text}: {name} is between 0 and 1; write 0.68 for 68 points")
    return QualityGoal(str(measure), target, value)


@dataclass(frozen=True)
class OperatingPoint:
    """A row with its mean of the measure; ``gap`` is the mean less the goal, with the deciding interval."""

    row: Row
    mean: Estimate
    gap: Estimate

    @property
    def reaches(self) -> bool:
        """Return whether the mean reaches the goal."""
        return self.gap.value is not None and self.gap.value >= -_SAME

    @property
    def surely(self) -> bool | None:
        """Return whether the interval's lower end reaches the goal; None: the interval is missing."""
        return None if self.gap.low is None else self.gap.low >= -_SAME


@dataclass(frozen=True)
class CheapestPoint:
    """The answer of one comparison group.

    ``goal``: the least mean.  ``points``: rows with a cost and a mean, the cheapest first.  ``left_out``: all other
    rows, with the reason.  ``reason``: why this group has no goal.
    """

    place: ComparisonGroup
    goal: float | None
    points: tuple[OperatingPoint, ...] = ()
    left_out: tuple[tuple[Row, str], ...] = ()
    reason: str | None = None

    @property
    def cheapest(self) -> OperatingPoint | None:
        """The cheapest point whose mean reaches the goal."""
        return next((point for point in self.points if point.reaches), None)

    @property
    def cheaper(self) -> OperatingPoint | None:
        """The next cheaper point than the cheapest, which misses the goal; one of equal cost is not cheaper."""
        held = self.cheapest
        below = (point for point in reversed(self.points) if held and _cost(point) < (1 - _SAME) * _cost(held))
        return next(below, None)

    @property
    def sure(self) -> OperatingPoint | None:
        """The cheapest point whose lower end reaches the goal too."""
        return next((point for point in self.points if point.reaches and point.surely), None)

    @property
    def best(self) -> OperatingPoint | None:
        """The point with the highest mean; the cheapest of several."""
        return next(iter(self.equally_good), None)

    @property
    def equally_good(self) -> Sequence[OperatingPoint]:
        """All points with the highest mean, the cheapest first."""
        return best_of(self.points, lambda point: point.mean.value)

    @property
    def equally_cheap(self) -> Sequence[OperatingPoint]:
        """All points that reach the goal at the cost of the cheapest."""
        return best_of((point for point in self.points if point.reaches), _cost, least=True)

    def role(self, point: OperatingPoint) -> str:
        """Return a point's role in the answer; empty for most points."""
        if self.cheapest is None:
            return "best" if point is self.best else ""
        parts = {"cheapest": self.cheapest, "cheaper": self.cheaper, "sure": self.sure}
        return next((name for name, held in parts.items() if held is point), "")


def _cost(point: OperatingPoint) -> float:
    assert point.row.usd_per_million.value is not None, "rows without a cost are left out"
    return point.row.usd_per_million.value


def find(table: Table, per_query: Mapping[str, PerQuery], goal: QualityGoal) -> tuple[CheapestPoint, ...]:
    """Return the answer of each comparison group.

    Args:
        table: priced rows.
        per_query: their values by query, by :attr:`Row.per_query_key`; published rows have none.
        goal: of a measure that the table has.

    Raises:
        UnknownName: the goal is relative to a system without a row.
    """
    base, offset = goal.base(tuple(dict.fromkeys(row.system for row in table.rows)))
    return tuple(
        _of_group(place, rows, per_query, goal, base, offset) for place, rows in axes.group_rows(table.rows).items()
    )


def _of_group(
    place: ComparisonGroup,
    rows: Sequence[Row],
    per_query: Mapping[str, PerQuery],
    goal: QualityGoal,
    base: str | None,
    offset: float,
) -> CheapestPoint:
    cost, accuracy = axes.axis("cost", goal.measure), axes.accuracy(goal.measure)
    ranked, others = sort_out(rows, lambda row: reason_not_ranked(row, (accuracy, cost)))
    left_out = tuple(others)
    ranked.sort(key=lambda row: (row.usd_per_million.value or 0.0, row.latency.mean_s.value or 0.0, row.per_query_key))
    least, first = offset, None
    if base is not None:
        known = [row for row in rows if row.system == base and reason_not_ranked(row, (accuracy,)) is None]
        if not known:
            return CheapestPoint(place, None, (), left_out, f"{base} has no {goal.measure} here")
        first = max(known, key=lambda row: row.measured(goal.measure) or 0.0)
        least += first.measured(goal.measure) or 0.0
    points = tuple(_point(row, first, per_query, goal.measure, offset) for row in ranked)
    return CheapestPoint(place, least, points, left_out)


def _point(
    row: Row, base: Row | None, per_query: Mapping[str, PerQuery], measure: str, offset: float
) -> OperatingPoint:
    """Return a row's gap to a number, or to another row's mean and a number; differences are paired by query."""
    mean = gap = row.measures[measure]
    if base is not None:
        (difference,) = comparison.paired([(base, row)], per_query, measure)  # each row by itself
        gap = replace(difference.interval, value=(mean.value or 0.0) - (base.measured(measure) or 0.0))
    return OperatingPoint(row, mean, gap.map(lambda value: value - offset))
