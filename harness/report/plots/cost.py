"""Cost v accuracy with the Pareto front (Figure 1 of Santhanam et al. 2023): log cost, one symbol a system."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.analysis.pareto_front import FrontState
from harness.report.plots import frame, theme
from harness.report.plots.frame import Frame
from harness.stats import Estimate as Number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Point:
    """A row: its cost and accuracy with what bounds them, and where it stands; ``label`` is its hardware."""

    system: str
    label: str
    cost: Number
    accuracy: Number
    state: FrontState


def draw(points: Sequence[Point], around: Frame, cost_label: str, accuracy_label: str) -> Figure:
    """Draw it; points whose cost or accuracy is missing are an error of the caller's."""
    names = {point.system for point in points}
    entries = [*frame.systems(names, around.looks), *_states(points)]
    sheet = frame.begin(around, 3.6, len(entries))
    axes = sheet.figure.add_subplot()
    _front(axes, points)
    alike = defaultdict(list)
    for point in points:
        alike[point.system, point.state].append(point)
    for group in alike.values():
        _points(axes, group, around)
    frame.number_axis(axes.xaxis, [_value(point.cost) for point in points])
    frame.number_axis(axes.yaxis, [_value(point.accuracy) for point in points], from_zero=False)
    axes.margins(x=0.08, y=0.12)
    axes.set_xlabel(theme.text(cost_label))
    axes.set_ylabel(theme.text(accuracy_label))
    frame.grid(axes)
    frame.legend(sheet, entries)
    _labels(sheet.figure, axes, points)
    return sheet.figure


def _value(number: Number) -> float:
    assert number.value is not None, "a point without a figure"
    return number.value


def _reach(numbers: Sequence[Number]) -> tuple[list[float], list[float]] | None:
    """How far error bars go down and up; ``None``: there are none."""
    below = [0.0 if number.low is None else max(0.0, _value(number) - number.low) for number in numbers]
    above = [0.0 if number.high is None else max(0.0, number.high - _value(number)) for number in numbers]
    return (below, above) if any((*below, *above)) else None


def _points(axes: Axes, points: Sequence[Point], around: Frame) -> None:
    """Those of one system that stand alike."""
    style = around.looks[points[0].system]
    hollow, front = points[0].state is FrontState.CONTESTED, points[0].state is FrontState.FRONT
    bars = axes.errorbar(
        [_value(point.cost) for point in points],
        [_value(point.accuracy) for point in points],
        xerr=_reach([point.cost for point in points]),
        yerr=_reach([point.accuracy for point in points]),
        fmt=style.marker,
        color=style.colour,
        markerfacecolor="white" if hollow else style.colour,
        markeredgecolor="black" if front else style.colour,
        markersize=8 if front else 6,
        alpha=1 if front or hollow else 0.55,
        elinewidth=0.8,
        capsize=2,
        zorder=4 if front else 3,
        gid=points[0].state.value,
    )
    for artist in bars.get_children():
        artist.set_in_layout(False)  # they lie within the axes, and there may be thousands


def _front(axes: Axes, points: Sequence[Point]) -> None:
    front = sorted((_value(point.cost), _value(point.accuracy)) for point in points if point.state is FrontState.FRONT)
    if front:
        costs, accuracies = zip(*front, strict=True)
        axes.plot(costs, accuracies, drawstyle="steps-post", color=theme.GREY, linewidth=1.2, zorder=2, gid="the front")


def _states(points: Sequence[Point]) -> list[tuple[Any, str]]:
    from matplotlib.lines import Line2D

    said: dict[FrontState, str] = {
        FrontState.FRONT: "front (black edge)",
        FrontState.CONTESTED: "contested (hollow)",
        FrontState.DOMINATED: "dominated (pale)",
    }
    drawn: dict[FrontState, dict[str, Any]] = {
        FrontState.FRONT: {"markerfacecolor": theme.GREY, "markeredgecolor": "black", "markersize": 8},
        FrontState.CONTESTED: {"markerfacecolor": "white", "markeredgecolor": theme.GREY},
        FrontState.DOMINATED: {"markerfacecolor": theme.GREY, "markeredgecolor": theme.GREY, "alpha": 0.55},
    }
    there = {point.state for point in points}
    return [
        (
            Line2D(
                [],
                [],
                linestyle="-" if state is FrontState.FRONT else "none",
                color=theme.GREY,
                marker="o",
                **drawn[state],
            ),
            said[state],
        )
        for state in FrontState
        if state in there
    ]


def _labels(figure: Figure, axes: Axes, points: Sequence[Point]) -> None:
    """Name the front's hardware beside its points, where nothing is in the way."""
    from matplotlib.transforms import Bbox

    theme.settle(figure)  # the places of things are known only then
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    middles = axes.transData.transform([(_value(point.cost), _value(point.accuracy)) for point in points])
    taken = [Bbox.from_extents(x - 6, y - 6, x + 6, y + 6) for x, y in middles]
    inside = axes.get_window_extent(renderer)
    for point in [point for point in points if point.state is FrontState.FRONT][:_MOST_LABELS]:
        at = (_value(point.cost), _value(point.accuracy))
        for dx, dy, side, level in _PLACES:
            label = axes.annotate(
                theme.text(point.label, 30),
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


_MOST_LABELS = 40
# Where a label may stand, the best first: offset in points, and which of its sides is at the point.
_PLACES = (
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
