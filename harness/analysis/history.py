"""One figure over results of several commits or dates: a series for each cell and each kind of machine.

What another processor measured is another series, unless the times are scaled: then each is divided by the time that
fixed processor work (the canary) took around its trials, and multiplied by the first point's.  A scaled point says so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.analysis.axes import ComparisonGroup, comparison_group
from harness.analysis.table import Row
from harness.analysis.validity import machine_speed
from harness.driver.records import Outcome
from harness.estimate import Estimate, Varies
from harness.results.reader import StoredJob


@dataclass(frozen=True)
class DatedResults:
    """Results of one commit or date.

    ``work_s`` has the seconds that fixed processor work took around the trials of a row, by its ``per_query_key``.
    """

    label: str
    rows: Sequence[Row]
    work_s: Mapping[str, float]

    @property
    def started_at(self) -> str:
        """Time at which the first of the shown jobs started."""
        return min((row.started_at or "" for row in self.rows), default="")


@dataclass(frozen=True)
class Point:
    """The figure in one snapshot; ``scale`` was applied to it (``None``: it is as measured)."""

    label: str
    started_at: str
    value: Estimate
    validity: str
    machine: str
    scale: float | None = None


@dataclass(frozen=True)
class Series:
    """The figure of one cell over the snapshots, in the order of their dates.

    ``machine``: empty where any counts.  Rows of other queries, documents or limits of hits are another series.
    """

    system: str
    dataset: str
    scenario: str
    profile: str
    machine: str
    points: tuple[Point, ...]

    def change(self, number: int) -> float | None:
        """Return the change of a point against the one before it, as a share; ``None``: it is not known."""
        if number == 0:
            return None
        before, now = (self.points[at].value.value for at in (number - 1, number))
        return now / before - 1 if before and now is not None else None


def work_s(jobs: Iterable[StoredJob], rows: Iterable[Row]) -> dict[str, float]:
    """Return the seconds that fixed processor work took around the trials of each row."""
    observed = {(job.origin, job.result.key): job.result.observed for job in jobs}
    found = {}
    for row in rows:
        seen = [each for key in row.keys if (each := observed.get((row.origin, key))) is not None and each.canary]
        if seen:
            found[row.per_query_key] = math.exp(machine_speed.level(seen))
    return found


def series(
    snapshots: Iterable[DatedResults], read: Callable[[Row], Estimate], varies: Varies, *, scaled: bool = False
) -> tuple[Series, ...]:
    """Return the series of a figure: by cell, by rows that may be compared, and by processor if it depends on one.

    Args:
        snapshots: in any order.
        read: returns the figure of a row.
        varies: what gives it another value.
        scaled: scale times to the speed that the machine of a series' first point had.
    """
    found: dict[tuple[str, str, str, ComparisonGroup], list[tuple[Point, float | None]]] = defaultdict(list)
    apart = varies.of_machine and not scaled
    for snapshot in sorted(snapshots, key=lambda each: (each.started_at, each.label)):
        for row in snapshot.rows:
            value = read(row) if row.outcome is Outcome.OK else Estimate(None, reason=row.outcome.value)
            measured_by = row.index.machine if varies is Varies.BUILD else row.machine
            machine = measured_by.processor if measured_by else ""
            point = Point(snapshot.label, row.started_at or "", value, row.validity.value, machine)
            key = row.system, row.profile, machine if apart else "", comparison_group(row)
            found[key].append((point, snapshot.work_s.get(row.per_query_key)))
    return tuple(
        Series(
            system,
            group.dataset,
            group.scenario,
            profile,
            machine,
            _scaled(points) if scaled and varies.of_machine else tuple(point for point, _ in points),
        )
        for (system, profile, machine, group), points in sorted(found.items(), key=lambda item: item[0][:3])
    )


def _scaled(points: Sequence[tuple[Point, float | None]]) -> tuple[Point, ...]:
    """Scale the times; a point whose machine's speed is unknown has no value."""
    first_s = next((work for _, work in points if work), None)
    found = []
    for point, work in points:
        if work is None or first_s is None:
            missing = Estimate(None, reason="the speed of its machine was not measured")
            found.append(replace(point, value=missing))
            continue
        scale = first_s / work
        found.append(replace(point, value=point.value.map(scale.__mul__), scale=scale))
    return tuple(found)
