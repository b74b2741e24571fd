"""Plots of reading on: the gain over FirstP against ratios of time, FLOP and tokens."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from harness.analysis.axes import Axis
from harness.analysis.long_documents import RATIOS, LongDocuments, LongGroup, ReadingOn
from harness.analysis.pareto_front import FrontState
from harness.report.long_documents import hardware_of, rows_of
from harness.report.plots import style
from harness.report.plots.style import Frame, Picture, SystemStyle, file_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def pictures(made: LongDocuments) -> Iterator[Picture]:
    """Yield a picture for each group with a gain and a ratio."""
    styles = style.system_styles(row.system for group in made.groups for row in rows_of(group))
    for group in made.groups:
        if any(_points(group, axis) for axis in RATIOS):
            frame = _frame(group, made.measure, styles)
            yield (
                f"{file_name(group.place.dataset)}-long-documents",
                functools.partial(draw, group, frame, made.measure),
            )


def _points(group: LongGroup, axis: Axis) -> list[ReadingOn]:
    """Return the systems with a gain and this ratio."""
    return [
        each
        for each in group.systems
        if each.relative.value is not None and axis.name in each.ratios and each.ratios[axis.name].value is not None
    ]


def _frame(group: LongGroup, measure: str, styles: dict[str, SystemStyle]) -> Frame:
    absent = [
        f"{each.row.system} ({each.reason or each.relative.reason})"
        for each in group.systems
        if each.reason is not None or each.relative.value is None
    ]
    notes = [
        "Cross: FirstP. Bars: 95 % intervals of the paired test. Line and black edges: the front.",
        *style.listed("Not drawn", absent),
    ]
    return Frame(
        f"{group.place.dataset}, {hardware_of(group)}: gain in {measure} over FirstP", (" ".join(notes),), styles
    )


def draw(group: LongGroup, frame: Frame, measure: str) -> Figure:
    """Draw a panel for each ratio that some system has; all share the axis of the gain."""
    shown = [axis for axis in RATIOS if _points(group, axis)]
    systems = list(dict.fromkeys(each.row.system for axis in shown for each in _points(group, axis)))
    entries = style.system_entries(systems, frame)
    entries.append((style.handle(marker="x", linestyle="none", color=style.INK), "FirstP"))
    figure = style.framed_figure(frame, 2.5 * -(-len(shown) // 2) + 0.2, entries)
    panels = style.panels_of(figure, len(shown), sharey=True)
    for number, (axis, panel) in enumerate(zip(shown, panels, strict=True)):
        _draw_panel(panel, _points(group, axis), axis, frame)
        if number % 2 == 0:
            panel.set_ylabel(style.plain_text(f"gain in {measure}, %"))
    return figure


def _draw_panel(panel: Axes, points: Sequence[ReadingOn], axis: Axis, frame: Frame) -> None:
    panel.plot([1], [0], marker="x", color=style.INK, linestyle="none", zorder=3, gid="FirstP")
    front = sorted(_at(each, axis) for each in points if each.front.get(axis.name) is FrontState.FRONT)
    places = [(1.0, 0.0), *front] if all(x >= 1 for x, _ in front) else front
    panel.plot(*zip(*places, strict=True), drawstyle="steps-post", color=style.GREY, linewidth=1.1, zorder=2)
    for each in points:
        x, y = _at(each, axis)
        look = frame.styles[each.row.system]
        bar = style.bars_of([each.relative])
        on_front = each.front.get(axis.name) is FrontState.FRONT
        edge: dict[str, Any] = {"markeredgecolor": "black"} if on_front else {"alpha": 0.7}
        panel.errorbar([x], [y], yerr=bar, **look.mark, **edge, markersize=7, elinewidth=0.9, capsize=2, zorder=4)
    panel.axhline(0, color=style.GREY, linewidth=0.6, zorder=1)
    style.set_number_axis(panel.xaxis, [1.0, *(_at(each, axis)[0] for each in points)])
    panel.set_xlabel(style.plain_text(f"{axis.label}, x FirstP"))
    panel.margins(x=0.1, y=0.12)
    style.add_grid(panel)


def _at(each: ReadingOn, axis: Axis) -> tuple[float, float]:
    return style.known(each.ratios[axis.name]), style.known(each.relative)
