"""Plot of throughput against latency: each rate or number of connections that a row's jobs tried."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.analysis.table import LoadPoint, Row
from harness.report.plots import style
from harness.report.plots.select import Drawing, NoPlot, PlotRows, no_row_reason
from harness.report.plots.style import Frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_ROWS = 12


def make_load(rows: PlotRows) -> Drawing:
    """Return the drawing of throughput against latency.

    Raises:
        NoPlot: no row tried several rates or numbers of connections.
    """
    usable, others = rows.usable()
    drawn = [row for row in usable if len(row.load) > 1][:_MOST_ROWS]
    if not drawn:
        without = [(row, f"scenario {row.scenario} tries one load only") for row in usable]
        raise NoPlot(f"throughput against latency: {no_row_reason(without or others)}")
    lead = drawn[0]
    if lead.scenario == "server":
        notes = [
            f"Each point is a rate that a job tried, with the latency that {lead.latency_percentile:g} % of the queries"
            " kept, from their scheduled arrival. Hollow: the rate did not keep the target."
        ]
        label = f"p{lead.latency_percentile:g} latency, ms"
    else:
        notes = ["Each point is a number of connections, each with a query at all times; the number is next to it."]
        label = "median latency, ms"
    frame = rows.frame("throughput against latency", notes, others)
    return lambda: draw_load(drawn, frame, label)


def draw_load(rows: Sequence[Row], frame: Frame, label: str) -> Figure:
    """Draw the points of each row, at most ``_MOST_ROWS``; numbers of connections are joined in their order.

    Rates are not: jobs try different ones, and near the highest rate chance decides how long the queue grows.
    """
    joined = {row.system for row in rows if _connections(row.load)}
    figure = style.framed_figure(frame, 3.6, style.system_entries([row.system for row in rows], frame, dashed=joined))
    axes = figure.add_subplot()
    points = [point for row in rows for point in row.load]
    for row in rows:
        look = frame.styles[row.system]
        connections = _connections(row.load)
        if connections:
            axes.plot(*zip(*connections.values(), strict=True), **look.line, linewidth=1.2, gid="connections")
        for kept in (True, False):
            at = [(point.queries_per_s, point.latency_s * 1e3) for point in row.load if point.kept is kept]
            if at:
                hollow: dict[str, Any] = {} if kept else {"markerfacecolor": "white"}
                drawn = {**look.mark, "markersize": 5, **hollow, "gid": style.plain_text(row.system)}
                (dots,) = axes.plot(*zip(*at, strict=True), **drawn)
                dots.set_in_layout(False)
        for number, (rate, latency) in connections.items():
            axes.annotate(str(number), (rate, latency), (4, 4), textcoords="offset points", fontsize=7)
    target_s = rows[0].latency_target_s
    if target_s:
        axes.axhline(target_s * 1e3, color=style.GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1, gid="the target")
    style.set_number_axis(axes.xaxis, [point.queries_per_s for point in points])
    style.set_number_axis(axes.yaxis, [point.latency_s * 1e3 for point in points])
    style.label_axes(axes, "queries a second", label)
    return figure


def _connections(load: Sequence[LoadPoint]) -> dict[int, tuple[float, float]]:
    """Return mean throughput and latency (ms) of each number of connections, in its order."""
    found: dict[int, list[LoadPoint]] = defaultdict(list)
    for point in load:
        if point.connections is not None:
            found[point.connections].append(point)
    return {
        number: (
            sum(point.queries_per_s for point in points) / len(points),
            1e3 * sum(point.latency_s for point in points) / len(points),
        )
        for number, points in sorted(found.items())
    }
