"""Latency v memory limit: a line for each system, a panel for each number of CPUs and GPUs; limits that failed as x."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.report.plots import frame, theme
from harness.report.plots.frame import Frame
from harness.stats import Estimate as Number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIB = 2**20
MOST_PANELS = 6
# Failed limits stand in a band on top of the panel, systems one below the other in steps of its height.
_STEP = 0.07


@dataclass(frozen=True)
class Limit:
    """A row: what a system did under a memory limit; ``latency`` (ms) is missing where it ended as ``outcome`` says."""

    system: str
    hardware: str
    limit_bytes: int
    latency: Number
    outcome: str


def draw(rows: Sequence[Limit], around: Frame) -> Figure:
    """Draw them; at most ``MOST_PANELS`` kinds of hardware."""
    kinds = list(dict.fromkeys(row.hardware for row in rows))
    names = {row.system for row in rows}
    failed = sorted({row.outcome for row in rows if row.latency.value is None})
    height = 0.5 + (2.2 if len(kinds) > 1 else 3.2) * len(kinds)
    sheet = frame.begin(around, height, len(names) + bool(failed))
    panels = sheet.figure.subplots(len(kinds), 1, squeeze=False, sharex=True)[:, 0]
    for kind, axes in zip(kinds, panels, strict=True):
        _panel(axes, [row for row in rows if row.hardware == kind], around)
        axes.set_title(theme.text(kind, 60), fontsize=9)
    _limits(panels[-1], rows)
    entries = frame.systems(names, around.looks, linestyle="dash")
    if failed:
        entries.append(_failed(failed))
    frame.legend(sheet, entries)
    return sheet.figure


def _panel(axes: Axes, rows: Sequence[Limit], around: Frame) -> None:
    drawn: list[float] = []
    for system in sorted({row.system for row in rows}):
        ran = _ran(rows, system)
        style = around.looks[system]
        if ran:
            limits, values, below, above = zip(*ran, strict=True)
            axes.errorbar(
                limits,
                values,
                yerr=(below, above),
                color=style.colour,
                marker=style.marker,
                linestyle=style.dash,
                markersize=5,
                capsize=2,
                elinewidth=0.8,
                gid=theme.text(system),
            )
            drawn += values
    frame.number_axis(axes.yaxis, drawn)
    failed = _crosses(axes, rows, around)
    _make_room(axes, failed * _STEP)
    axes.set_ylabel("mean latency, ms")
    frame.grid(axes)


def _ran(rows: Sequence[Limit], system: str) -> list[tuple[float, float, float, float]]:
    """Limits that a system ran under: MiB, latency, and how far its interval goes down and up."""
    found = []
    for row in rows:
        value, low, high = row.latency.value, row.latency.low, row.latency.high
        if row.system == system and value is not None:
            below, above = (0.0 if low is None else value - low), (0.0 if high is None else high - value)
            found.append((row.limit_bytes / MIB, value, below, above))
    return sorted(found)


def _crosses(axes: Axes, rows: Sequence[Limit], around: Frame) -> int:
    """Failed limits, in a band above the lines: they have no latency, so they stand at none.  How many systems."""
    failed = [row for row in rows if row.latency.value is None]
    for level, system in enumerate(sorted({row.system for row in failed})):
        style = around.looks[system]
        for row in failed:
            if row.system == system:
                axes.plot(
                    [row.limit_bytes / MIB],
                    [1 - _STEP * (level + 0.5)],
                    transform=axes.get_xaxis_transform(),
                    marker="x",
                    markersize=7,
                    markeredgewidth=2,
                    color=style.colour,
                    linestyle="none",
                    gid=theme.text(f"{system}: {row.outcome}"),
                )
    return len({row.system for row in failed})


def _make_room(axes: Axes, share: float) -> None:
    """Leave the top of a panel free, and a little more."""
    from matplotlib.patches import Rectangle

    low, high = axes.get_ylim()
    if share:
        axes.add_patch(Rectangle((0, 1 - share), 1, share, transform=axes.transAxes, color="#eeeeee", zorder=0))
    share += 0.03
    if axes.get_yscale() == "log":
        axes.set_ylim(low, low * (high / low) ** (1 / (1 - share)))
    else:
        axes.set_ylim(low, low + (high - low) / (1 - share))


def _limits(axes: Axes, rows: Sequence[Limit]) -> None:
    limits = sorted({row.limit_bytes for row in rows})
    axes.set_xscale("log", base=2)
    axes.minorticks_off()
    shown = limits if len(limits) <= 12 else limits[:: -(-len(limits) // 12)]
    axes.set_xticks([limit / MIB for limit in shown], [f"{limit / MIB:,.10g}" for limit in shown])
    if len(shown) > 6:
        axes.tick_params(axis="x", rotation=45)
    axes.set_xlabel("memory limit, MiB")


def _failed(outcomes: Sequence[str]) -> tuple[Any, str]:
    from matplotlib.lines import Line2D

    cross = Line2D([], [], color=theme.GREY, marker="x", markersize=7, markeredgewidth=2, linestyle="none")
    return cross, theme.text(f"no answer ({', '.join(outcomes)})")
