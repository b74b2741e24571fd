"""Plots of a month's bill: US$ a month of each system over the queries of a month, and where the cheapest changes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.analysis.bills import BillGroup, paid_by_query, system_costs
from harness.analysis.table import Table
from harness.pricing import bill_curve
from harness.pricing.bill import Traffic
from harness.pricing.bill_curve import MonthlyCost
from harness.report.bill import brief, group_name, why_no_bill
from harness.report.plots import style
from harness.report.plots.select import row_name
from harness.report.plots.style import Frame, Picture, file_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# More lines cannot be told apart; the names at their ends have this distance, in heights of the axes.
_MOST_LINES, _NAME_STEP = 12, 0.05
# Height below the lines that circles' texts need, over that of the lines.
_ROOM = 0.15
# How far a circle's text may move to the right of another, in its own widths.
_MOST_MOVED = 0.8
# The line of the cheapest serverless offer or API, whose system depends on the traffic.
_SERVERLESS = "serverless"
_PAID = (
    " Grey (below the picture at little traffic): the cheapest system that is paid by the query; a circle marks from"
    " where on machines cost less."
)


def missing(groups: Sequence[BillGroup]) -> list[str]:
    """Return a line for each group without a picture."""
    return [f"{group_name(group, groups)}: no picture: {why_no_bill(group)}" for group in groups if not group.bills]


def pictures(groups: Sequence[BillGroup], traffic: Traffic, table: Table) -> Iterator[Picture]:
    """Yield a picture for each group that has bills."""
    styles = style.system_styles(row.system for row in table.rows)
    for group in groups:
        if group.bills:
            frame = _frame(group, groups, traffic, table, styles)
            yield f"{file_name(group_name(group, groups))}-bill", functools.partial(draw, group, traffic, frame)


def _frame(
    group: BillGroup,
    groups: Sequence[BillGroup],
    traffic: Traffic,
    table: Table,
    styles: Mapping[str, style.SystemStyle],
) -> Frame:
    systems = dict.fromkeys(one.row.system for one in group.bills)
    several = " each on the cheapest of its machines;" if len(group.bills) > len(systems) else ""
    single = "" if all(one.loaded for one in group.bills) else " A machine answers one query after the other."
    paid = "" if paid_by_query(group, traffic) is None else _PAID
    text = (
        f"Machines rented all month;{several} the busiest hour has {traffic.peak:g} times the mean rate.{single}"
        f" Circles: from there on the machines of other systems are the cheapest, or within 1 % of it.{paid} Prices:"
        f" {table.price_provider} {table.price_region}, {table.price_term}, {table.price_date}."
    )
    hidden = style.listed("Not drawn, because others are cheaper", list(systems)[_MOST_LINES:])
    absent = style.listed("Without a bill", [row_name(row) for row, _ in group.left_out])
    return Frame(f"{group_name(group, groups)}: US$ a month", (" ".join((text, *hidden, *absent)),), styles)


def draw(group: BillGroup, traffic: Traffic, frame: Frame) -> Figure:
    """Draw each system's US$ a month, at most ``_MOST_LINES`` systems, the cheapest at the traffic first."""
    costs = system_costs(group, traffic)
    drawn = dict(list(costs.items())[:_MOST_LINES])
    figure = style.framed_figure(frame, 3.6)
    axes = figure.add_subplot()
    ends = {}
    for system, cost in drawn.items():
        points = bill_curve.curve(cost)
        axes.plot(*zip(*points, strict=True), **frame.styles[system].line, linewidth=1.5, gid=style.plain_text(system))
        ends[system] = points[-1][1]
    ends_of_axis = (bill_curve.LEAST_QUERIES, bill_curve.MOST_QUERIES)
    axes.set_xscale("log")
    axes.set_xlim(ends_of_axis)
    axes.xaxis.set_major_formatter(lambda value, _: brief(value))
    style.set_number_axis(axes.yaxis, [cost.monthly(queries) for cost in drawn.values() for queries in ends_of_axis])
    style.label_axes(axes, "queries a month", "US$ a month")
    low, high = axes.get_ylim()
    if low > 0:  # else a bill is 0, and the axis is linear
        axes.set_ylim(low / (high / low) ** _ROOM, high)
    paid = paid_by_query(group, traffic)
    if paid is not None:  # at little traffic it costs next to nothing, and is below the picture
        axes.autoscale(enable=False)
        points = bill_curve.curve(paid)
        axes.plot(*zip(*points, strict=True), color=style.GREY, linewidth=1.2, linestyle=(0, (2, 2)), gid=_SERVERLESS)
        ends[_SERVERLESS] = points[-1][1]
    _name_lines(axes, ends, frame)
    _mark_traffic(axes, traffic)
    until = [] if paid is None or group.until is None else [(group.until, paid.monthly(group.until))]
    _mark_changes(figure, axes, costs, until)
    return figure


def _name_lines(axes: Axes, ends: Mapping[str, float], frame: Frame) -> None:
    """Write each line's name to the right of its end, moved where names would overlap or leave the picture."""
    labels = style.short_names(ends)
    colours = {system: frame.styles[system].colour for system in ends if system in frame.styles}
    ordered = sorted(ends.items(), key=lambda item: item[1])
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = [float(to_axes.transform((1.0, usd))[1]) for _, usd in ordered]
    for place in range(1, len(heights)):
        heights[place] = max(heights[place], heights[place - 1] + _NAME_STEP)
    top = 1.0
    for place in reversed(range(len(heights))):
        heights[place] = min(heights[place], top)
        top = heights[place] - _NAME_STEP
    for (system, _), height in zip(ordered, heights, strict=True):
        look: dict[str, Any] = {"fontsize": 7.5, "color": colours.get(system, style.GREY)}
        axes.text(1.02, height, labels[system], transform=axes.transAxes, va="center", **look)


def _mark_traffic(axes: Axes, traffic: Traffic) -> None:
    queries = traffic.queries_per_month
    if bill_curve.LEAST_QUERIES <= queries <= bill_curve.MOST_QUERIES:
        axes.axvline(queries, color=style.GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1, gid="the traffic")
        where: dict[str, Any] = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
        axes.annotate(brief(queries), (queries, 1.0), (0, 2), ha="center", va="bottom", fontsize=7, **where)


def _mark_changes(
    figure: Figure, axes: Axes, costs: Mapping[str, MonthlyCost], others: Sequence[tuple[float, float]]
) -> None:
    """Draw a circle where the cheapest changes, and at others, with its queries below the lines where there is room."""
    found = [
        (change.queries_per_month, min(cost.monthly(change.queries_per_month) for cost in costs.values()))
        for change in bill_curve.changes(costs)
    ]
    found = sorted([*found, *others])
    if not found:
        return
    axes.plot(
        *zip(*found, strict=True), linestyle="none", marker="o", markersize=6, zorder=5, gid="changes",
        markerfacecolor="white", markeredgecolor=style.INK,
    )  # fmt: skip
    style.settle(figure)  # the places of things are known only then
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined] # Agg has it
    right = 0.0
    for queries, _ in found:
        place: dict[str, Any] = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points", "va": "bottom"}
        label = axes.annotate(brief(queries), (queries, 0), (0, 3), ha="center", rotation=90, fontsize=7, **place)
        box = label.get_window_extent(renderer)
        moved = max(0.0, right - box.x0)
        if moved > _MOST_MOVED * box.width:
            label.remove()
        else:
            label.set_position((moved * 72 / figure.dpi, 3))
            right = box.x1 + moved + 1
