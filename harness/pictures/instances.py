"""Cost by instance type: a line for each type, the cheapest an hour first; a dot for each system on it, log cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.pictures import frame, look
from harness.pictures.frame import Frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_TYPES = 40


@dataclass(frozen=True)
class Rented:
    """A row: what a million queries cost on an instance type."""

    system: str
    instance_type: str
    usd_per_hour: float
    usd_per_million: float


def draw(rows: Sequence[Rented], around: Frame, cost_label: str) -> Figure:
    """Draw them; at most ``MOST_TYPES`` types."""
    types = sorted({(row.usd_per_hour, row.instance_type) for row in rows})
    place = {name: number for number, (_, name) in enumerate(types)}
    names = {row.system for row in rows}
    sheet = frame.begin(around, max(2.4, 0.9 + 0.3 * len(types)), len(names))
    axes = sheet.figure.add_subplot()
    for system in sorted(names):
        style = around.looks[system]
        of_it = [row for row in rows if row.system == system]
        (dots,) = axes.plot(
            [row.usd_per_million for row in of_it],
            [place[row.instance_type] for row in of_it],
            marker=style.marker,
            color=style.colour,
            markersize=7,
            alpha=0.85,
            linestyle="none",
            gid=look.text(system),
        )
        dots.set_in_layout(False)
    called = look.short(name for _, name in types)
    axes.set_yticks(range(len(types)), [f"{called[name]} ({usd:g})" for usd, name in types])
    axes.set_ylim(len(types) - 0.4, -0.6)
    axes.set_ylabel("instance type (US$ per hour)")
    frame.number_axis(axes.xaxis, [row.usd_per_million for row in rows])
    axes.set_xlabel(look.text(cost_label))
    frame.grid(axes)
    frame.legend(sheet, frame.systems(names, around.looks))
    return sheet.figure
