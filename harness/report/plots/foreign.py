"""Plots with figures of others: their quality against own cost, and their recall against queries a second."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.estimate import Estimate
from harness.report.plots import rows as row_plots
from harness.report.plots import style
from harness.report.plots.select import Drawing, PlotRows
from harness.report.plots.style import Frame, Picture, SystemStyle
from harness.results.foreign import MARK, ForeignPoint, parts_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Nothing measured here has this colour.
_COLOUR = "#7B2D8B"
# A legend of more systems hides the plot.
_MOST_SYSTEMS = 20


def make_foreign(rows: PlotRows) -> Drawing:
    """Return the drawing of own cost against the quality that others report of most rows' models, with its front.

    Raises:
        NoPlot: no row has both.
    """
    column = max(rows.table.foreign, key=lambda name: sum(name in row.foreign for row in rows.table.rows))
    source, about, measure = parts_of(column)
    with_theirs = tuple(
        replace(
            row, measures={column: row.foreign.get(column, Estimate(None, reason="none was imported of its model"))}
        )
        for row in rows.table.rows
    )
    looks = {name: replace(look, colour=_COLOUR) for name, look in rows.styles.items()}
    theirs = PlotRows(
        replace(rows.table, rows=with_theirs, measures=(column,)),
        {},
        replace(rows.query, measure=column),
        looks,
        rows.name,
    )
    board, left_out = theirs.board("quality of others and cost", bounds=(), rank_by="cost", front=("accuracy", "cost"))
    points = [ranked for ranked in board.ranked_rows if ranked.state is not None]
    more = [parts_of(name)[1] for name in rows.table.foreign if name != column]
    notes = [
        f"Quality{MARK}: {measure} on {about}, which {source} reports of each system's model, by its own search: not"
        " measured here. Cost: measured here.",
        *style.listed("Imported too", more),
    ]
    frame = theirs.frame(f"own cost, {about} {measure} by {source} (not measured here)", notes, left_out)
    label = f"{measure} on {about} by {source}{MARK}, points"
    return lambda: row_plots.draw_accuracy(points, frame, theirs.cost_label, label)


def recall_plots(points: Sequence[ForeignPoint]) -> Iterator[Picture]:
    """Yield the name and the drawing of each source's dataset: recall against queries a second, one line a system."""
    found: dict[tuple[str, str], list[ForeignPoint]] = defaultdict(list)
    for point in points:
        found[point.source, point.dataset].append(point)
    for (source, dataset), of in sorted(found.items()):
        yield style.file_name(f"{source} {dataset} recall"), functools.partial(draw_recall, source, dataset, of)


def draw_recall(source: str, dataset: str, points: Sequence[ForeignPoint]) -> Figure:
    """Draw points of one dataset; the best of each system are joined."""
    systems = list(dict.fromkeys(point.system for point in points))
    styles = style.system_styles(systems)
    notes = [f"{source} reports these figures, of its own machine and vectors: nothing was measured here."]
    notes += style.listed("Not in the legend", systems[_MOST_SYSTEMS:])
    frame = Frame(f"{dataset}: recall and queries a second by {source}{MARK}", (" ".join(notes),), styles)
    named = systems[:_MOST_SYSTEMS]
    figure = style.framed_figure(frame, 3.6, style.system_entries(named, frame, dashed=frame.styles))
    axes = figure.add_subplot()
    for system in systems:
        of_system = [point for point in points if point.system == system]
        look: SystemStyle = styles[system]
        axes.plot(
            [each.recall for each in of_system],
            [each.queries_per_s for each in of_system],
            markersize=4,
            alpha=0.6,
            **look.mark,
        )
        best = _best(of_system)
        axes.plot([each.recall for each in best], [each.queries_per_s for each in best], linewidth=1.2, **look.line)
    style.set_number_axis(axes.yaxis, [point.queries_per_s for point in points])
    style.label_axes(axes, "recall", "queries a second")
    return figure


def _best(points: Sequence[ForeignPoint]) -> list[ForeignPoint]:
    """Return the points that no other exceeds in both, by recall."""
    best: list[ForeignPoint] = []
    for point in sorted(points, key=lambda each: (-each.recall, -each.queries_per_s)):
        if not best or point.queries_per_s > best[-1].queries_per_s:
            best.append(point)
    return best[::-1]
