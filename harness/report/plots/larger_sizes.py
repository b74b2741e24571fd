"""Picture of cost and memory against the number of documents: measured sizes, laws, and the predicted size."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.analysis.larger_sizes import LATENCY, MEMORY, SizeFigure, SystemAtSize, outgrown
from harness.report.larger_sizes import GroupAtSize, SizeReport
from harness.report.plots import style
from harness.report.plots.style import Frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn

# Points of a line between two sizes.
_POINTS = 30


def write_pictures(report: SizeReport, folder: Path, form: str) -> Iterator[Path]:
    """Draw a picture for each dataset, scenario and profile, into files of one of ``style.FORMATS``.

    Raises:
        FileError: one cannot be written.
    """
    pictures = (
        (
            style.file_name("-".join((of.group.dataset, of.group.scenario, of.group.profile, "sizes"))),
            functools.partial(draw, of, report.documents),
        )
        for of in report.groups
    )
    return style.save_each(pictures, folder, form)


def draw(of: GroupAtSize, documents: int) -> Drawn:
    """Draw latency and memory of the systems of one group."""
    names = [each.of.system for each in of.systems]
    looks = style.system_styles(names)
    notes = (
        "Points: measured, with their means. Lines: the law that fits best, as far as it has passed its exam.",
        f"At {documents:,} documents: predicted, with 95 % intervals. Dotted: the profile's memory, and where a law"
        " leaves it.",
    )
    frame = Frame(f"Size: {of.group.dataset} {of.group.scenario} {of.group.profile}", notes, looks)
    entries = style.system_entries(names, frame, dashed=set(names))
    figure = style.framed_figure(frame, 3.4, entries, columns=3)
    for place, drawn in enumerate((LATENCY, MEMORY), 1):
        axes = figure.add_subplot(1, 2, place)
        for each in of.systems:
            _draw_system(axes, each, drawn, looks, documents)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("documents")
        axes.set_ylabel(f"{drawn.title}, {drawn.unit}")
        style.add_grid(axes)
        if drawn is MEMORY:
            _draw_limit(axes, of.systems, looks, documents)
    return figure


def _draw_system(
    axes: Axes, each: SystemAtSize, figure: SizeFigure, looks: dict[str, style.SystemStyle], documents: int
) -> None:
    look, law = looks[each.of.system], each.of.laws[figure]
    mark = {**look.mark, "markersize": 5, "linestyle": "none", "gid": style.plain_text(each.of.system)}
    axes.plot([size.documents for size in law.sizes], [size.mean * figure.scale for size in law.sizes], **mark)
    predicted = each.figures[figure]
    if law.law is None or law.reason is not None:
        return
    end = documents if predicted.value is not None else law.sizes[-1].documents
    line = np.geomspace(law.sizes[0].documents, max(end, law.sizes[-1].documents), _POINTS)
    axes.plot(line, [law.law.at(size) * figure.scale for size in line], **look.line, linewidth=1.2)
    if predicted.value is not None:
        scaled = predicted.map(lambda value: value * figure.scale)
        bars = {**look.mark, "markersize": 5, "capsize": 3, "elinewidth": 0.9, "mfc": "white"}
        axes.errorbar([documents], [style.known(scaled)], yerr=style.bars_of([scaled]), **bars)


def _draw_limit(
    axes: Axes, systems: Sequence[SystemAtSize], looks: dict[str, style.SystemStyle], documents: int
) -> None:
    memory_bytes = systems[0].of.rows[-1].memory_bytes
    axes.axhline(memory_bytes * MEMORY.scale, color="0.5", linestyle=":", linewidth=1.2, zorder=1)
    for each in systems:
        if (size := outgrown(each.of, memory_bytes, documents)) is not None:
            axes.axvline(size, color=looks[each.of.system].colour, linestyle=":", linewidth=1.2, zorder=1)
