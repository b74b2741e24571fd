"""Picture of cost and memory against the number of documents: measured sizes, laws, and the predicted size."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.analysis.larger_sizes import MEMORY, between, costs_by_law, outgrown
from harness.estimate import Estimate
from harness.report.bill import brief
from harness.report.larger_sizes import GroupAtSize, SizeReport, unit_of
from harness.report.plots import style
from harness.report.plots.style import Frame, Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn


def pictures(report: SizeReport) -> Iterator[Picture]:
    """Yield a picture for each dataset, scenario and profile."""
    for of in report.groups:
        name = style.file_name("-".join((of.group.dataset, of.group.scenario, of.group.profile, "sizes")))
        yield name, functools.partial(draw, of, report)


def draw(of: GroupAtSize, report: SizeReport) -> Drawn:
    """Draw cost and memory of the systems of one group."""
    names = [each.of.system for each in of.systems]
    looks = style.system_styles(names)
    notes = (
        "Filled: measured. Lines: the laws that fit best, where their exams were passed; a cost steps where a larger"
        " machine is needed.",
        f"Open: predicted at {report.documents:,} documents, with 95 % intervals. Dotted: the memory of the profile,"
        " and the size at which a system outgrows it.",
    )
    frame = Frame(f"Size: {of.name}", notes, looks)
    entries = style.system_entries(names, frame, dashed=set(names))
    figure = style.framed_figure(frame, 3.0, entries, columns=3)
    costs, memories = figure.subplots(1, 2)
    panels = (
        (costs, _costs(of, report), "US$ per million queries"),
        (memories, _memories(of), f"{MEMORY.title}, {unit_of(of, MEMORY)[0]}"),
    )
    for axes, curves, label in panels:
        sizes, heights = [], []
        for each, curve in zip(of.systems, curves, strict=True):
            look, name = looks[each.of.system], style.plain_text(each.of.system)
            mark = {**look.mark, "markersize": 5, "gid": name}
            axes.plot(*zip(*curve.measured, strict=True), **{**mark, "linestyle": "none"})
            axes.plot(*zip(*curve.line, strict=True), **look.line, linewidth=1.2)
            sizes += [size for size, _ in (*curve.measured, *curve.line)]
            heights += [height for _, height in (*curve.measured, *curve.line)]
            if curve.predicted.value is not None:
                bars = {**mark, "capsize": 3, "elinewidth": 0.9, "markerfacecolor": "white"}
                known = style.known(curve.predicted)
                axes.errorbar([report.documents], [known], yerr=style.bars_of([curve.predicted]), **bars)
                heights += [known, curve.predicted.low or known, curve.predicted.high or known]
        style.set_number_axis(axes.xaxis, [*sizes, report.documents], narrow=True)
        axes.xaxis.set_major_formatter(lambda size, _: brief(size))
        style.set_number_axis(axes.yaxis, heights)
        axes.tick_params(axis="x", labelsize=7)
        style.label_axes(axes, "documents", label)
    _draw_limit(memories, of, looks, report.documents)
    return figure


@dataclass(frozen=True)
class _Curve:
    """Measured sizes with their heights, the line of the law, and the predicted height."""

    measured: list[tuple[float, float]]
    line: list[tuple[float, float]]
    predicted: Estimate


def _costs(of: GroupAtSize, report: SizeReport) -> Iterator[_Curve]:
    for each in of.systems:
        known = [(row.index.documents or 0, row.usd_per_million.value) for row in each.of.rows]
        sizes = between(each.of.rows[0].index.documents or 1, report.documents)
        line = zip(sizes, costs_by_law(each.of, sizes, report.priced), strict=True)
        predicted = each.row.usd_per_million
        yield _Curve(
            [(size, cost) for size, cost in known if cost is not None],
            [(size, cost) for size, cost in line if predicted.value is not None and math.isfinite(cost)],
            predicted,
        )


def _memories(of: GroupAtSize) -> Iterator[_Curve]:
    _, scale = unit_of(of, MEMORY)
    for each in of.systems:
        law, predicted = each.of.laws[MEMORY], each.figures[MEMORY]
        start = each.of.rows[0].index.documents or 1
        line = between(start, each.documents) if predicted.value is not None else []
        yield _Curve(
            [(size.documents, size.mean * scale) for size in law.sizes],
            [(size, law.law.at(size) * scale) for size in line if law.law is not None],
            predicted.map(lambda value: value * scale),
        )


def _draw_limit(axes: Axes, of: GroupAtSize, looks: dict[str, style.SystemStyle], documents: int) -> None:
    memory_bytes = of.systems[0].of.rows[-1].memory_bytes
    axes.axhline(memory_bytes * unit_of(of, MEMORY)[1], color=style.INK, linestyle=":", linewidth=1, zorder=1)
    for each in of.systems:
        if (size := outgrown(each.of, memory_bytes, documents)) is not None:
            axes.axvline(size, color=looks[each.of.system].colour, linestyle=":", linewidth=1.2, zorder=1)
