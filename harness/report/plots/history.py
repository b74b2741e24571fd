"""Plot of a figure over commits or dates, a line for each series."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from harness.analysis.history import Series
from harness.report.history import History
from harness.report.plots import style
from harness.report.plots.style import Frame, Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn

# More labels below the axis would touch.
_MOST_LABELS = 20


def pictures(found: History) -> Iterator[Picture]:
    """Yield a picture for each dataset, scenario and profile."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for number, each in enumerate(found.series):
        if any(point.value.value is not None for point in each.points):
            groups.setdefault((each.dataset, each.scenario, each.profile), []).append(number)
    for group, own in groups.items():
        name = style.file_name("-".join((*group, found.figure.alias, "history")))
        yield name, functools.partial(draw, found, group, own)


def draw(found: History, group: tuple[str, str, str], numbers: Sequence[int]) -> Drawn:
    """Draw the series of one dataset, scenario and profile."""
    series = [found.series[number] for number in numbers]
    names = {number: _legend(found.series[number], series) for number in numbers}
    looks = style.system_styles(names.values())
    notes = ["Results in the order of their dates, with 95 % intervals where the figure has them."]
    if found.changes is not None:
        notes.append("Dotted: the mean changed there, by Apache Otava.")
    if any(point.scale is not None for each in series for point in each.points):
        notes.append("Scaled by the speed of fixed processor work, to the machine of the first point.")
    frame = Frame(f"{found.figure.title} over time: {' '.join(group)}", tuple(notes), looks)
    entries = style.system_entries(list(names.values()), frame, dashed=set(names.values()))
    figure = style.framed_figure(frame, 3.2, entries, columns=1 if max(map(len, names.values())) > 30 else 3)
    axes = figure.add_subplot()
    dates = sorted({(point.started_at, point.label) for each in series for point in each.points})
    labels = list(dict.fromkeys(label for _, label in dates))
    place = {label: at for at, label in enumerate(labels)}
    values = []
    for number in numbers:
        look, points = looks[names[number]], found.series[number].points
        known = [(at, point) for at, point in enumerate(points) if point.value.value is not None]
        places, estimates = [place[point.label] for _, point in known], [point.value for _, point in known]
        heights = [style.known(each) for each in estimates]
        values += heights
        axes.plot(places, heights, **look.line, linewidth=1.2)
        bars = {**look.mark, "markersize": 5, "capsize": 2, "elinewidth": 0.8, "gid": style.plain_text(names[number])}
        axes.errorbar(places, heights, yerr=style.bars_of(estimates), **bars)
        for at in found.changes_of(number):
            axes.axvline(place[points[at].label], color=look.colour, linestyle=":", linewidth=1.2, zorder=1)
    style.set_number_axis(axes.yaxis, values)
    step = max(1, -(-len(labels) // _MOST_LABELS))
    shown = [style.plain_text(label, 16) for label in labels]
    axes.set_xticks(range(0, len(labels), step), shown[::step], rotation=45, ha="right", fontsize=7)
    axes.set_ylabel(style.plain_text(found.figure.title + (f", {found.figure.unit}" if found.figure.unit else "")))
    style.add_grid(axes)
    return figure


def _legend(each: Series, series: Sequence[Series]) -> str:
    """Name a series by its system, and by its machine if several measured it."""
    several = len({other.machine for other in series}) > 1
    return f"{each.system}, {each.machine}" if several and each.machine else each.system
