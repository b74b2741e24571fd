"""Plots with a mark or a line for each row: cost and accuracy, latencies, instance types, memory limits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.analysis.pareto_front import FrontState
from harness.evaluation.per_query import SHARES
from harness.report.plots import style
from harness.report.plots.style import Frame
from harness.stats import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_DISTRIBUTION_PANELS = 12
MAX_TYPES = 40
_MIB = 2**20
MAX_MEMORY_PANELS = 6
# Failed limits stand in a band on top of the panel, systems one below the other in steps of its height.
_FAILED_STEP = 0.07
_MAX_LABELS = 40
# Where a label may stand, the best first: offset in points, and which of its sides is at the point.
_LABEL_OFFSETS = (
    (6, -6, "left", "top"),
    (-6, 6, "right", "bottom"),
    (6, 6, "left", "bottom"),
    (-6, -6, "right", "top"),
    (0, 9, "center", "bottom"),
    (0, -9, "center", "top"),
    (6, -16, "left", "top"),
    (-6, 16, "right", "bottom"),
    (6, 16, "left", "bottom"),
    (-6, -16, "right", "top"),
)


@dataclass(frozen=True)
class CostPoint:
    """Row with its cost and accuracy, their intervals, and its state; ``label`` is its hardware."""

    system: str
    label: str
    cost: Estimate
    accuracy: Estimate
    state: FrontState


def draw_cost(points: Sequence[CostPoint], around: Frame, cost_label: str, accuracy_label: str) -> Figure:
    """Draw it; points whose cost or accuracy is missing are an error of the caller's."""
    names = {point.system for point in points}
    entries = [*style.system_entries(names, around.styles), *_state_entries(points)]
    canvas = style.new_canvas(around, 3.6, len(entries))
    axes = canvas.figure.add_subplot()
    _front_line(axes, points)
    alike = defaultdict(list)
    for point in points:
        alike[point.system, point.state].append(point)
    for group in alike.values():
        _cost_points(axes, group, around)
    style.set_number_axis(axes.xaxis, [_known(point.cost) for point in points])
    style.set_number_axis(axes.yaxis, [_known(point.accuracy) for point in points], from_zero=False)
    axes.margins(x=0.08, y=0.12)
    axes.set_xlabel(style.plain_text(cost_label))
    axes.set_ylabel(style.plain_text(accuracy_label))
    style.add_grid(axes)
    style.add_legend(canvas, entries)
    _front_labels(canvas.figure, axes, points)
    return canvas.figure


def _known(number: Estimate) -> float:
    assert number.value is not None, "a point without a figure"
    return number.value


def _bar_lengths(numbers: Sequence[Estimate]) -> tuple[list[float], list[float]] | None:
    """Return the lengths of error bars down and up; ``None``: there are none."""
    below = [0.0 if number.low is None else max(0.0, _known(number) - number.low) for number in numbers]
    above = [0.0 if number.high is None else max(0.0, number.high - _known(number)) for number in numbers]
    return (below, above) if any((*below, *above)) else None


def _cost_points(axes: Axes, points: Sequence[CostPoint], around: Frame) -> None:
    """Draw the points of one system and one state."""
    look = around.styles[points[0].system]
    hollow, front = points[0].state is FrontState.CONTESTED, points[0].state is FrontState.FRONT
    bars = axes.errorbar(
        [_known(point.cost) for point in points],
        [_known(point.accuracy) for point in points],
        xerr=_bar_lengths([point.cost for point in points]),
        yerr=_bar_lengths([point.accuracy for point in points]),
        fmt=look.marker,
        color=look.colour,
        markerfacecolor="white" if hollow else look.colour,
        markeredgecolor="black" if front else look.colour,
        markersize=8 if front else 6,
        alpha=1 if front or hollow else 0.55,
        elinewidth=0.8,
        capsize=2,
        zorder=4 if front else 3,
        gid=points[0].state.value,
    )
    for artist in bars.get_children():
        artist.set_in_layout(False)  # they lie within the axes, and there may be thousands


def _front_line(axes: Axes, points: Sequence[CostPoint]) -> None:
    front = sorted((_known(point.cost), _known(point.accuracy)) for point in points if point.state is FrontState.FRONT)
    if front:
        costs, accuracies = zip(*front, strict=True)
        axes.plot(costs, accuracies, drawstyle="steps-post", color=style.GREY, linewidth=1.2, zorder=2, gid="the front")


def _state_entries(points: Sequence[CostPoint]) -> list[tuple[Any, str]]:
    from matplotlib.lines import Line2D

    said: dict[FrontState, str] = {
        FrontState.FRONT: "front (black edge)",
        FrontState.CONTESTED: "contested (hollow)",
        FrontState.DOMINATED: "dominated (pale)",
    }
    drawn: dict[FrontState, dict[str, Any]] = {
        FrontState.FRONT: {"markerfacecolor": style.GREY, "markeredgecolor": "black", "markersize": 8},
        FrontState.CONTESTED: {"markerfacecolor": "white", "markeredgecolor": style.GREY},
        FrontState.DOMINATED: {"markerfacecolor": style.GREY, "markeredgecolor": style.GREY, "alpha": 0.55},
    }
    there = {point.state for point in points}
    return [
        (
            Line2D(
                [],
                [],
                linestyle="-" if state is FrontState.FRONT else "none",
                color=style.GREY,
                marker="o",
                **drawn[state],
            ),
            said[state],
        )
        for state in FrontState
        if state in there
    ]


def _front_labels(figure: Figure, axes: Axes, points: Sequence[CostPoint]) -> None:
    """Name the front's hardware beside its points, where nothing is in the way."""
    from matplotlib.transforms import Bbox

    style.settle(figure)  # the places of things are known only then
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    middles = axes.transData.transform([(_known(point.cost), _known(point.accuracy)) for point in points])
    taken = [Bbox.from_extents(x - 6, y - 6, x + 6, y + 6) for x, y in middles]
    inside = axes.get_window_extent(renderer)
    for point in [point for point in points if point.state is FrontState.FRONT][:_MAX_LABELS]:
        at = (_known(point.cost), _known(point.accuracy))
        for dx, dy, side, level in _LABEL_OFFSETS:
            label = axes.annotate(
                style.plain_text(point.label, 30),
                at,
                (dx, dy),
                textcoords="offset points",
                ha=side,
                va=level,
                fontsize=7,
                zorder=5,
            )
            box = label.get_window_extent(renderer)
            if inside.containsx(box.x0) and inside.containsx(box.x1) and not any(box.overlaps(each) for each in taken):
                taken.append(box)
                break
            label.remove()


@dataclass(frozen=True)
class LatencyDistribution:
    """Row with the quantiles of its latencies, seconds, at :data:`harness.evaluation.per_query.SHARES`."""

    system: str
    hardware: str
    quantiles_s: tuple[float, ...]


def draw_distributions(rows: Sequence[LatencyDistribution], around: Frame) -> Figure:
    """Draw them; at most ``MOST_PANELS`` kinds of hardware."""
    kinds = list(dict.fromkeys(row.hardware for row in rows))
    names = {row.system for row in rows}
    across = min(2, len(kinds))
    down = -(-len(kinds) // across)
    canvas = style.new_canvas(around, 0.5 + (2.0 if down > 1 else 3.0) * down, len(names))
    grid = canvas.figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    every = [second * 1e3 for row in rows for second in (row.quantiles_s[0], row.quantiles_s[-1])]
    called = style.short_names(kinds)
    for place, kind in enumerate(kinds):
        axes = grid.flat[place]
        for row in rows:
            if row.hardware == kind:
                look = around.styles[row.system]
                values = [second * 1e3 for second in row.quantiles_s]
                axes.plot(
                    values,
                    SHARES,
                    color=look.colour,
                    linestyle=look.dash,
                    linewidth=1.6,
                    gid=style.plain_text(row.system),
                )
        if len(kinds) > 1:
            axes.set_title(called[kind], fontsize=8)
        style.add_grid(axes)
    style.set_number_axis(grid[0][0].xaxis, every, narrow=across > 1)
    grid[0][0].set_ylim(0, 1.02)
    for axes in grid.flat[len(kinds) :]:
        axes.set_visible(False)
    for column in range(across):
        lowest = grid.flat[max(place for place in range(len(kinds)) if place % across == column)]
        lowest.tick_params(labelbottom=True)
        lowest.set_xlabel("latency, ms")
    for line in grid:
        line[0].set_ylabel("share of samples")
    style.add_legend(canvas, style.system_entries(names, around.styles, linestyle="dash", marker="none", linewidth=1.6))
    return canvas.figure


@dataclass(frozen=True)
class InstanceCost:
    """Row with the cost of a million queries on an instance type."""

    system: str
    instance_type: str
    usd_per_hour: float
    usd_per_million: float


def draw_instances(rows: Sequence[InstanceCost], around: Frame, cost_label: str) -> Figure:
    """Draw them; at most ``MOST_TYPES`` types."""
    types = sorted({(row.usd_per_hour, row.instance_type) for row in rows})
    place = {name: number for number, (_, name) in enumerate(types)}
    names = {row.system for row in rows}
    canvas = style.new_canvas(around, max(2.4, 0.9 + 0.3 * len(types)), len(names))
    axes = canvas.figure.add_subplot()
    for system in sorted(names):
        look = around.styles[system]
        of_it = [row for row in rows if row.system == system]
        (dots,) = axes.plot(
            [row.usd_per_million for row in of_it],
            [place[row.instance_type] for row in of_it],
            marker=look.marker,
            color=look.colour,
            markersize=7,
            alpha=0.85,
            linestyle="none",
            gid=style.plain_text(system),
        )
        dots.set_in_layout(False)
    called = style.short_names(name for _, name in types)
    axes.set_yticks(range(len(types)), [f"{called[name]} ({usd:g})" for usd, name in types])
    axes.set_ylim(len(types) - 0.4, -0.6)
    axes.set_ylabel("instance type (US$ per hour)")
    style.set_number_axis(axes.xaxis, [row.usd_per_million for row in rows])
    axes.set_xlabel(style.plain_text(cost_label))
    style.add_grid(axes)
    style.add_legend(canvas, style.system_entries(names, around.styles))
    return canvas.figure


@dataclass(frozen=True)
class MemoryPoint:
    """Row under a memory limit; ``latency`` (ms) is missing where ``outcome`` is a failure."""

    system: str
    hardware: str
    limit_bytes: int
    latency: Estimate
    outcome: str


def draw_memory(rows: Sequence[MemoryPoint], around: Frame) -> Figure:
    """Draw them; at most ``MOST_PANELS`` kinds of hardware."""
    kinds = list(dict.fromkeys(row.hardware for row in rows))
    names = {row.system for row in rows}
    failed = sorted({row.outcome for row in rows if row.latency.value is None})
    height = 0.5 + (2.2 if len(kinds) > 1 else 3.2) * len(kinds)
    canvas = style.new_canvas(around, height, len(names) + bool(failed))
    panels = canvas.figure.subplots(len(kinds), 1, squeeze=False, sharex=True)[:, 0]
    for kind, axes in zip(kinds, panels, strict=True):
        _memory_panel(axes, [row for row in rows if row.hardware == kind], around)
        axes.set_title(style.plain_text(kind, 60), fontsize=9)
    _limit_axis(panels[-1], rows)
    entries = style.system_entries(names, around.styles, linestyle="dash")
    if failed:
        entries.append(_failed_entry(failed))
    style.add_legend(canvas, entries)
    return canvas.figure


def _memory_panel(axes: Axes, rows: Sequence[MemoryPoint], around: Frame) -> None:
    drawn: list[float] = []
    for system in sorted({row.system for row in rows}):
        ran = _latencies(rows, system)
        look = around.styles[system]
        if ran:
            limits, values, below, above = zip(*ran, strict=True)
            axes.errorbar(
                limits,
                values,
                yerr=(below, above),
                color=look.colour,
                marker=look.marker,
                linestyle=look.dash,
                markersize=5,
                capsize=2,
                elinewidth=0.8,
                gid=style.plain_text(system),
            )
            drawn += values
    style.set_number_axis(axes.yaxis, drawn)
    failed = _crosses(axes, rows, around)
    _make_room(axes, failed * _FAILED_STEP)
    axes.set_ylabel("mean latency, ms")
    style.add_grid(axes)


def _latencies(rows: Sequence[MemoryPoint], system: str) -> list[tuple[float, float, float, float]]:
    """Return the limits that a system ran under: MiB, latency, and the lengths of its error bars."""
    found = []
    for row in rows:
        value, low, high = row.latency.value, row.latency.low, row.latency.high
        if row.system == system and value is not None:
            below, above = (0.0 if low is None else value - low), (0.0 if high is None else high - value)
            found.append((row.limit_bytes / _MIB, value, below, above))
    return sorted(found)


def _crosses(axes: Axes, rows: Sequence[MemoryPoint], around: Frame) -> int:
    """Draw failed limits in a band above the lines, as they have no latency; return the number of systems."""
    failed = [row for row in rows if row.latency.value is None]
    for level, system in enumerate(sorted({row.system for row in failed})):
        look = around.styles[system]
        for row in failed:
            if row.system == system:
                axes.plot(
                    [row.limit_bytes / _MIB],
                    [1 - _FAILED_STEP * (level + 0.5)],
                    transform=axes.get_xaxis_transform(),
                    marker="x",
                    markersize=7,
                    markeredgewidth=2,
                    color=look.colour,
                    linestyle="none",
                    gid=style.plain_text(f"{system}: {row.outcome}"),
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


def _limit_axis(axes: Axes, rows: Sequence[MemoryPoint]) -> None:
    limits = sorted({row.limit_bytes for row in rows})
    axes.set_xscale("log", base=2)
    axes.minorticks_off()
    shown = limits if len(limits) <= 12 else limits[:: -(-len(limits) // 12)]
    axes.set_xticks([limit / _MIB for limit in shown], [f"{limit / _MIB:,.10g}" for limit in shown])
    if len(shown) > 6:
        axes.tick_params(axis="x", rotation=45)
    axes.set_xlabel("memory limit, MiB")


def _failed_entry(outcomes: Sequence[str]) -> tuple[Any, str]:
    from matplotlib.lines import Line2D

    cross = Line2D([], [], color=style.GREY, marker="x", markersize=7, markeredgewidth=2, linestyle="none")
    return cross, style.plain_text(f"no answer ({', '.join(outcomes)})")
