"""Latency distributions: the share of timed samples up to each latency, a line for each system, a panel for each
hardware.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.per_query import SHARES
from harness.pictures import frame, look
from harness.pictures.frame import Frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PANELS = 12


@dataclass(frozen=True)
class Distribution:
    """A row: the quantiles of its latencies, seconds, at :data:`harness.per_query.SHARES`."""

    system: str
    hardware: str
    quantiles_s: tuple[float, ...]


def draw(rows: Sequence[Distribution], around: Frame) -> Figure:
    """Draw them; at most ``MOST_PANELS`` kinds of hardware."""
    kinds = list(dict.fromkeys(row.hardware for row in rows))
    names = {row.system for row in rows}
    across = min(2, len(kinds))
    down = -(-len(kinds) // across)
    sheet = frame.begin(around, 0.5 + (2.0 if down > 1 else 3.0) * down, len(names))
    grid = sheet.figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    every = [second * 1e3 for row in rows for second in (row.quantiles_s[0], row.quantiles_s[-1])]
    called = look.short(kinds)
    for place, kind in enumerate(kinds):
        axes = grid.flat[place]
        for row in rows:
            if row.hardware == kind:
                style = around.looks[row.system]
                values = [second * 1e3 for second in row.quantiles_s]
                axes.plot(
                    values, SHARES, color=style.colour, linestyle=style.dash, linewidth=1.6, gid=look.text(row.system)
                )
        if len(kinds) > 1:
            axes.set_title(called[kind], fontsize=8)
        frame.grid(axes)
    frame.number_axis(grid[0][0].xaxis, every, narrow=across > 1)
    grid[0][0].set_ylim(0, 1.02)
    for axes in grid.flat[len(kinds) :]:
        axes.set_visible(False)
    for column in range(across):
        lowest = grid.flat[max(place for place in range(len(kinds)) if place % across == column)]
        lowest.tick_params(labelbottom=True)
        lowest.set_xlabel("latency, ms")
    for line in grid:
        line[0].set_ylabel("share of samples")
    frame.legend(sheet, frame.systems(names, around.looks, linestyle="dash", marker="none", linewidth=1.6))
    return sheet.figure
