"""Plots with a mark or a line for each row: cost and accuracy, latencies, instance types, memory limits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.analysis import axes as analysis_axes
from harness.analysis.leaderboard import RankedRow
from harness.analysis.pareto_front import FrontState, reason_not_ranked
from harness.analysis.table import Row, Validity, processors
from harness.driver.records import Outcome
from harness.estimate import LATENCY_MIN_QUERIES, MIN_PROCESSES, Estimate
from harness.evaluation.per_query import SHARES
from harness.report.plots import curves, style
from harness.report.plots.select import Drawing, NoPlot, PlotRows, no_row_reason
from harness.report.plots.style import Frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COST, LATENCY = analysis_axes.OTHERS["cost"], analysis_axes.OTHERS["latency"]
MAX_DISTRIBUTION_PANELS = 12
MAX_TYPES = 40
MAX_MEMORY_PANELS = 6
_MIB = 2**20
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
# How the points of each state are drawn, and their names in the legend.
_STATES: dict[FrontState, tuple[str, dict[str, Any]]] = {
    FrontState.FRONT: ("front (black edge)", {"markeredgecolor": "black", "markersize": 8}),
    FrontState.CONTESTED: ("contested (hollow)", {"markerfacecolor": "white"}),
    FrontState.DOMINATED: ("dominated (pale)", {"alpha": 0.55}),
}


def make_accuracy(rows: PlotRows, across: str) -> Drawing:
    """Return the drawing of cost or latency against accuracy, with the Pareto front and the curves of sweeps.

    Raises:
        NoPlot: no row has both.
    """
    label = rows.cost_label if across == "cost" else "mean latency, ms"
    board, left_out = rows.board(f"{across} and accuracy", bounds=(), rank_by=across, front=("accuracy", across))
    points = [ranked for ranked in board.ranked_rows if ranked.state is not None]
    notes = _bar_notes([point.figures[across] for point in points])
    if curves.families(point.row for point in points):
        notes.append("Lines join the points of a sweep; labels are its values.")
    frame = rows.frame(f"{across} and {rows.measure}", notes, left_out)
    return lambda: draw_accuracy(points, frame, label, f"{rows.measure}, points", across)


def draw_accuracy(
    points: Sequence[RankedRow], frame: Frame, label: str, accuracy_label: str, across: str = "cost"
) -> Figure:
    """Draw accuracy against cost or latency; every point has both, and a state."""
    entries = curves.legend_entries([point.row for point in points], frame)
    for shown, (name, drawn) in _STATES.items():
        if any(point.state is shown for point in points):
            line = "-" if shown is FrontState.FRONT else "none"
            entries.append((style.handle(linestyle=line, color=style.GREY, marker="o", **drawn), name))
    figure = style.framed_figure(frame, 3.6, entries)
    axes = figure.add_subplot()
    middles = [(style.known(point.figures[across]), style.known(point.figures["accuracy"])) for point in points]
    front = sorted(at for point, at in zip(points, middles, strict=True) if point.state is FrontState.FRONT)
    if front:
        costs, accuracies = zip(*front, strict=True)
        axes.plot(costs, accuracies, drawstyle="steps-post", color=style.GREY, linewidth=1.2, zorder=2, gid="the front")
    curves.draw_curves(axes, [(point.row, at) for point, at in zip(points, middles, strict=True)], frame.styles)
    alike = defaultdict(list)
    for point in points:
        alike[curves.family(point.row), point.state].append(point)
    for (system, state), group in alike.items():
        if state is not None:
            _points(axes, group, frame.styles[system], state, across)
    style.set_number_axis(axes.xaxis, [at[0] for at in middles])
    style.set_number_axis(axes.yaxis, [at[1] for at in middles], from_zero=False)
    axes.margins(x=0.08, y=0.12)
    style.label_axes(axes, label, accuracy_label)
    _label_points(figure, axes, points, middles)
    return figure


def _bar_notes(numbers: Sequence[Estimate]) -> list[str]:
    """Say what bars are, and why a number has none."""
    known = [number.low is not None or number.high is not None for number in numbers if number.value is not None]
    if not any(known):
        return []
    few = f" No bar: fewer than {MIN_PROCESSES} processes or {LATENCY_MIN_QUERIES} queries." if not all(known) else ""
    return [f"Bars: 95 % intervals.{few}"]


def _points(axes: Axes, points: Sequence[RankedRow], look: style.SystemStyle, state: FrontState, across: str) -> None:
    """Draw the points of one system or sweep and one state."""
    costs, accuracies = ([point.figures[name] for point in points] for name in (across, "accuracy"))
    bars = axes.errorbar(
        [style.known(cost) for cost in costs],
        [style.known(accuracy) for accuracy in accuracies],
        xerr=style.bars_of(costs),
        yerr=style.bars_of(accuracies),
        elinewidth=0.8,
        capsize=2,
        zorder=4 if state is FrontState.FRONT else 3,
        gid=state.value,
        **{**look.mark, "markersize": 6, **_STATES[state][1]},
    )
    for artist in bars.get_children():
        artist.set_in_layout(False)  # they lie within the axes, and there may be thousands


def _label_points(
    figure: Figure, axes: Axes, points: Sequence[RankedRow], middles: Sequence[tuple[float, float]]
) -> None:
    """Label the points of sweeps with their values and the front with its hardware, where there is room."""
    from matplotlib.transforms import Bbox

    style.settle(figure)  # the places of things are known only then
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined] # Agg has it
    taken = [Bbox.from_extents(x - 6, y - 6, x + 6, y + 6) for x, y in axes.transData.transform(middles)]
    inside = axes.get_window_extent(renderer)
    for name, at in _labels(points, middles)[:_MAX_LABELS]:
        for dx, dy, side, level in _LABEL_OFFSETS:
            away: dict[str, Any] = {"xytext": (dx, dy), "textcoords": "offset points", "ha": side, "va": level}
            label = axes.annotate(name, at, fontsize=7, zorder=5, **away)
            box = label.get_window_extent(renderer)
            if inside.containsx(box.x0) and inside.containsx(box.x1) and not any(map(box.overlaps, taken)):
                taken.append(box)
                break
            label.remove()


def _labels(
    points: Sequence[RankedRow], middles: Sequence[tuple[float, float]]
) -> list[tuple[str, tuple[float, float]]]:
    """Return label and place of each labelled point: the points of sweeps, then the others of the front."""
    swept, front = [], []
    profiles: dict[str, set[str]] = defaultdict(set)
    for point in points:
        profiles[curves.family(point.row)].add(point.row.profile)
    for point, at in zip(points, middles, strict=True):
        row = point.row
        on_front = point.state is FrontState.FRONT
        if row.sweep is not None:
            where = f", {row.profile}" if on_front and len(profiles[row.sweep.system]) > 1 else ""
            swept.append((style.plain_text(f"{row.sweep.label}{where}", 30), at))
        elif on_front:
            hardware = row.profile if row.price is None else f"{row.profile}, {row.price.instance_type}"
            front.append((style.plain_text(hardware, 30), at))
    return [*swept, *front]


def make_distributions(rows: PlotRows) -> Drawing:
    """Return the drawing of latency distributions, a panel for each hardware profile.

    Raises:
        NoPlot: no row has samples.
    """
    usable, others = rows.usable()
    quantiles = {
        row.per_query_key: values.quantiles_s
        for row in usable
        if (values := rows.per_query.get(row.per_query_key)) is not None and values.quantiles_s
    }
    drawn = [row for row in usable if row.per_query_key in quantiles]
    without = [(row, "no samples of latency") for row in usable if row.per_query_key not in quantiles]
    if not drawn:
        raise NoPlot(f"latency distributions: {no_row_reason(without or others)}")
    profiles = list(dict.fromkeys(row.profile for row in drawn))[:MAX_DISTRIBUTION_PANELS]
    hidden = sorted({row.profile for row in drawn} - set(profiles))
    notes = [
        "All timed samples of all trials; 51 quantiles joined by lines.",
        *style.listed("Hardware not drawn", hidden),
    ]
    frame = rows.frame("latency distributions", notes, [*others, *without])
    shown = [(row, quantiles[row.per_query_key]) for row in drawn if row.profile in profiles]
    return lambda: draw_distributions(shown, frame)


def draw_distributions(rows: Sequence[tuple[Row, tuple[float, ...]]], frame: Frame) -> Figure:
    """Draw each row's quantiles (seconds, at ``SHARES``), at most ``MAX_DISTRIBUTION_PANELS`` profiles."""
    profiles = style.short_names(row.profile for row, _ in rows)
    across = min(2, len(profiles))
    down = -(-len(profiles) // across)
    systems = (row.system for row, _ in rows)
    entries = style.system_entries(systems, frame, dashed=frame.styles, marker="none", linewidth=1.6)
    figure = style.framed_figure(frame, 0.5 + (2.0 if down > 1 else 3.0) * down, entries)
    panels = style.panels_of(figure, len(profiles), sharex=True, sharey=True)
    for axes, (profile, title) in zip(panels, profiles.items(), strict=True):
        for row, quantiles_s in rows:
            if row.profile == profile:
                drawn = {**frame.styles[row.system].line, "linewidth": 1.6, "gid": style.plain_text(row.system)}
                axes.plot([second * 1e3 for second in quantiles_s], SHARES, **drawn)
        if len(profiles) > 1:
            axes.set_title(title, fontsize=8)
        style.add_grid(axes)
    ends = [second * 1e3 for _, quantiles_s in rows for second in (quantiles_s[0], quantiles_s[-1])]
    style.set_number_axis(panels[0].xaxis, ends, narrow=across > 1)
    panels[0].set_ylim(0, 1.02)
    for lowest in panels[-across:]:
        lowest.tick_params(labelbottom=True)
        lowest.set_xlabel("latency, ms")
    for left in panels[::across]:
        left.set_ylabel("share of samples")
    return figure


def make_instances(rows: PlotRows) -> Drawing:
    """Return the drawing of cost by instance type.

    Raises:
        NoPlot: no row has a cost, or all are priced on one type.
    """
    usable, others = rows.usable()
    drawn = []
    for row in usable:
        cost = COST.read(row)
        if row.price is None or cost.value is None:
            others.append((row, cost.reason or "no price"))
        else:
            drawn.append(row)
    if not drawn:
        raise NoPlot(f"cost by instance type: {no_row_reason(others)}")
    types = instance_types(drawn)
    if len(types) < 2:
        raise NoPlot(f"cost by instance type: all rows are priced on one type, {types[0][1]}")
    shown = types[:MAX_TYPES]
    notes = [f"The cheapest {len(shown)} of {len(types)} types."] if len(shown) < len(types) else []
    frame = rows.frame("cost by instance type", notes, others)
    cheapest = [row for row in drawn if _type(row) in shown]
    return lambda: draw_instances(cheapest, frame, rows.cost_label)


def _type(row: Row) -> tuple[float, str]:
    assert row.price is not None, "a row without a price"
    return row.price.usd_per_hour, row.price.instance_type


def instance_types(rows: Sequence[Row]) -> list[tuple[float, str]]:
    """Return the instance types of priced rows by their US$ per hour."""
    return sorted({_type(row) for row in rows})


def draw_instances(rows: Sequence[Row], frame: Frame, cost_label: str) -> Figure:
    """Draw the cost of priced rows, at most ``MAX_TYPES`` instance types."""
    types = instance_types(rows)
    systems = sorted({row.system for row in rows})
    height = max(2.4, 0.9 + 0.3 * len(types))
    figure = style.framed_figure(frame, height, style.system_entries(systems, frame))
    axes = figure.add_subplot()
    for system in systems:
        points = [(style.known(COST.read(row)), types.index(_type(row))) for row in rows if row.system == system]
        drawn = {**frame.styles[system].mark, "markersize": 7, "alpha": 0.85, "gid": style.plain_text(system)}
        (dots,) = axes.plot(*zip(*points, strict=True), **drawn)
        dots.set_in_layout(False)
    labels = style.short_names(name for _, name in types)
    axes.set_yticks(range(len(types)), [f"{labels[name]} ({usd:g})" for usd, name in types])
    axes.set_ylim(len(types) - 0.4, -0.6)
    style.set_number_axis(axes.xaxis, [style.known(COST.read(row)) for row in rows])
    style.label_axes(axes, cost_label, "instance type (US$ per hour)")
    return figure


def make_memory(rows: PlotRows) -> Drawing:
    """Return the drawing of latency under memory limits, for systems with several.

    Raises:
        NoPlot: each system was measured at one limit, or none ran at any.
    """
    limits: dict[tuple[int, int, str], list[Row]] = defaultdict(list)
    others = []
    for row in rows.table.rows:
        unusable = row.validity is Validity.INVALID or LATENCY.read(row).value is None
        if row.isolation.attached:
            others.append((row, "harness does not know the limits of a service that ran already"))
        elif row.outcome in (Outcome.NOT_APPLICABLE, Outcome.INTERRUPTED) or (row.outcome is Outcome.OK and unusable):
            others.append((row, reason_not_ranked(row, ()) or "no latency"))
        else:
            limits[row.cpus, row.gpus, row.system].append(row)
    drawn, single = [], set()
    for _, of_system in sorted(limits.items()):
        if len({row.memory_limit_bytes for row in of_system}) > 1:
            drawn += of_system
        else:
            single.add(f"{of_system[0].system}, {processors(of_system[0].cpus, of_system[0].gpus)}")
    if not any(LATENCY.read(row).value is not None for row in drawn):
        reason = "no system ran at any of several limits" if drawn else "each system was measured at one limit only"
        raise NoPlot(f"memory limits: {no_row_reason(others) if others and not limits else reason}")
    hardware = list(dict.fromkeys(processors(row.cpus, row.gpus) for row in drawn))[:MAX_MEMORY_PANELS]
    notes = _bar_notes([LATENCY.read(row) for row in drawn])
    notes += style.listed("Measured at one limit only, not drawn", sorted(single))
    frame = rows.frame("latency under memory limits", notes, others)
    return lambda: draw_memory([row for row in drawn if processors(row.cpus, row.gpus) in hardware], frame)


def draw_memory(rows: Sequence[Row], frame: Frame) -> Figure:
    """Draw latency by memory limit, at most ``MAX_MEMORY_PANELS`` numbers of CPUs and GPUs; failures are crosses."""
    hardware = list(dict.fromkeys(processors(row.cpus, row.gpus) for row in rows))
    entries = style.system_entries((row.system for row in rows), frame, dashed=frame.styles)
    failed = sorted({row.outcome.value for row in rows if LATENCY.read(row).value is None})
    if failed:
        cross = style.handle(color=style.GREY, marker="x", markersize=7, markeredgewidth=2, linestyle="none")
        entries.append((cross, style.plain_text(f"no answer ({', '.join(failed)})")))
    figure = style.framed_figure(frame, 0.5 + (2.2 if len(hardware) > 1 else 3.2) * len(hardware), entries)
    panels = figure.subplots(len(hardware), 1, squeeze=False, sharex=True)[:, 0]
    for name, axes in zip(hardware, panels, strict=True):
        _memory_panel(axes, [row for row in rows if processors(row.cpus, row.gpus) == name], frame)
        axes.set_title(style.plain_text(name, 60), fontsize=9)
    _limit_axis(panels[-1], sorted({row.memory_limit_bytes for row in rows}))
    return figure


def _memory_panel(axes: Axes, rows: Sequence[Row], frame: Frame) -> None:
    latencies: list[float] = []
    for system in sorted({row.system for row in rows}):
        measured = [row for row in rows if row.system == system and LATENCY.read(row).value is not None]
        measured.sort(key=lambda row: row.memory_limit_bytes)
        if measured:
            limits = [row.memory_limit_bytes / _MIB for row in measured]
            figures = [LATENCY.read(row) for row in measured]
            values = [style.known(figure) for figure in figures]
            bars = style.bars_of(figures)
            drawn = {**frame.styles[system].mark, **frame.styles[system].line, "gid": style.plain_text(system)}
            axes.errorbar(limits, values, yerr=bars, markersize=5, capsize=2, elinewidth=0.8, **drawn)
            latencies += values
    style.set_number_axis(axes.yaxis, latencies)
    _make_room(axes, _crosses(axes, rows, frame) * _FAILED_STEP)
    axes.set_ylabel("mean latency, ms")
    style.add_grid(axes)


def _crosses(axes: Axes, rows: Sequence[Row], frame: Frame) -> int:
    """Draw failed limits in a band above the lines, as they have no latency; return the number of systems."""
    failed = sorted((row for row in rows if LATENCY.read(row).value is None), key=lambda row: row.system)
    systems = sorted({row.system for row in failed})
    for row in failed:
        axes.plot(
            [row.memory_limit_bytes / _MIB],
            [1 - _FAILED_STEP * (systems.index(row.system) + 0.5)],
            transform=axes.get_xaxis_transform(),
            markersize=7,
            markeredgewidth=2,
            gid=style.plain_text(f"{row.system}: {row.outcome.value}"),
            **{**frame.styles[row.system].mark, "marker": "x"},
        )
    return len(systems)


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


def _limit_axis(axes: Axes, limits: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.minorticks_off()
    shown = limits if len(limits) <= 12 else limits[:: -(-len(limits) // 12)]
    axes.set_xticks([limit / _MIB for limit in shown], [f"{limit / _MIB:,.10g}" for limit in shown])
    if len(shown) > 6:
        axes.tick_params(axis="x", rotation=45)
    axes.set_xlabel("memory limit, MiB")
