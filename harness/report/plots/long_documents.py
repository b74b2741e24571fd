"""Plots of reading on: the gain over FirstP against ratios of time, FLOP and tokens."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.analysis.axes import Axis
from harness.analysis.long_documents import RATIOS, LongDocuments, LongGroup, ReadingOn
from harness.analysis.pareto_front import FrontState
from harness.analysis.published_measures import PublishedMeasures
from harness.report.hardware import hardware
from harness.report.plots import style
from harness.report.plots.style import Frame, SystemStyle, file_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STATED = "as stated in the paper"


def write_pictures(made: LongDocuments, paper: PublishedMeasures, folder: Path, form: str) -> Iterator[Path]:
    """Draw a plot for each group with a gain and a ratio, into files of one of ``style.FORMATS``.

    Raises:
        FileError: one cannot be written.
    """
    rows = [row for group in made.groups for row in (*group.firsts, *(each.row for each in group.systems))]
    styles = style.system_styles(row.system for row in rows)
    pictures = (
        (
            f"{file_name(group.place.dataset)}-long-documents",
            functools.partial(draw, group, _frame(group, made.measure, paper, styles), paper, made.measure),
        )
        for group in made.groups
        if any(_points(group, axis) for axis in RATIOS)
    )
    return style.save_each(pictures, folder, form)


def _points(group: LongGroup, axis: Axis) -> list[ReadingOn]:
    """Return the systems with a gain and this ratio."""
    return [
        each
        for each in group.systems
        if each.relative.value is not None and axis.name in each.ratios and each.ratios[axis.name].value is not None
    ]


def _frame(group: LongGroup, measure: str, paper: PublishedMeasures, styles: dict[str, SystemStyle]) -> Frame:
    rows = [*group.firsts, *(each.row for each in group.systems)]
    where = next(hardware(row) for row in rows if row.profile == group.profile)
    absent = [f"{each.row.system} ({each.reason or each.relative.reason})" for each in group.systems if _missing(each)]
    figure3 = paper.about.figure3
    notes = [
        "Cross: FirstP. Bars: 95 % intervals of the paired test. Line and black edges: the front.",
        *style.listed("Not drawn", absent),
    ]
    if figure3 is not None:
        notes.append(
            f"Star and dotted line: all that the text of {paper.about.cited} states of its Figure 3 ({figure3.system}: "
            f"{figure3.slower:g}x, {figure3.gain_percent:g} %; every long model at least {figure3.least_slower:g}x), "
            "of other models, data and machines."
        )
    return Frame(f"{group.place.dataset}, {where}: gain in {measure} over FirstP", (" ".join(notes),), styles)


def _missing(each: ReadingOn) -> bool:
    return each.reason is not None or each.relative.value is None


def draw(group: LongGroup, frame: Frame, paper: PublishedMeasures, measure: str) -> Figure:
    """Draw a panel for each ratio that some system has; all share the axis of the gain."""
    shown = [axis for axis in RATIOS if _points(group, axis)]
    systems = list(dict.fromkeys(each.row.system for axis in shown for each in _points(group, axis)))
    entries = style.system_entries(systems, frame)
    entries.append((style.handle(marker="x", linestyle="none", color=style.INK), "FirstP"))
    if paper.about.figure3 is not None and shown[0].name == "latency":
        mark: dict[str, Any] = {"marker": "*", "markersize": 9, "color": style.GREY, "markerfacecolor": "white"}
        entries.append((style.handle(linestyle=":", **mark), f"{paper.about.figure3.system}, {_STATED}"))
    figure = style.framed_figure(frame, 2.5 * -(-len(shown) // 2) + 0.2, entries)
    panels = style.panels_of(figure, len(shown), sharey=True)
    for number, (axis, panel) in enumerate(zip(shown, panels, strict=True)):
        _draw_panel(panel, _points(group, axis), axis, frame)
        if axis.name == "latency":
            _draw_stated(panel, paper)
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


def _draw_stated(panel: Axes, paper: PublishedMeasures) -> None:
    """Mark the point and the least factor that the text of the study states."""
    figure3 = paper.about.figure3
    if figure3 is None:
        return
    look: dict[str, Any] = {"color": style.GREY, "markerfacecolor": "white", "linestyle": "none"}
    panel.plot([figure3.slower], [figure3.gain_percent], marker="*", markersize=10, **look, zorder=3, gid=_STATED)
    panel.axvline(figure3.least_slower, color=style.GREY, linestyle=":", linewidth=0.9, zorder=1)
