"""Plots of Frechet distances: each distance against the first measure, as in Arabzadeh and Clarke (2024), Figure 2."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.errors import counted
from harness.evaluation.frechet import Distance, Distances
from harness.report.frechet import Sample, Values, distance_name, taus
from harness.report.plots import style
from harness.report.plots.style import Frame, Picture, SystemStyle, file_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NO_MEASURE = "no measure of two systems to hold the distances against"


def missing(samples: Sequence[Sample]) -> list[str]:
    """Return a line for each sample without a picture."""
    return [f"{sample.dataset}: no picture: {_NO_MEASURE}" for sample, values in samples if _measure(values) is None]


def pictures(samples: Sequence[Sample]) -> Iterator[Picture]:
    """Yield a picture for each sample and encoder."""
    styles = style.system_styles(system for sample, _ in samples for system in sample.systems)
    for sample, values in samples:
        if (measure := _measure(values)) is not None:
            name = f"{file_name(sample.dataset)}-frechet-{file_name(sample.encoder)}"
            yield name, functools.partial(draw, sample, values, measure, styles)


def _measure(values: Values) -> str | None:
    """Return the first measure that two systems have."""
    names = dict.fromkeys(name for of_system in values.values() for name in of_system)
    return next((name for name in names if sum(each.get(name) is not None for each in values.values()) > 1), None)


def draw(sample: Distances, values: Values, measure: str, styles: Mapping[str, SystemStyle]) -> Figure:
    """Draw a panel for each distance: systems by a measure and the distance with its interval."""
    kinds = [*zip(*sample.systems.values(), strict=True)]
    shown = [name for name in sample.systems if values[name].get(measure) is not None]
    absent = [f"{name} (no {measure})" for name in sample.systems if name not in shown]
    frame = Frame(f"{sample.dataset}: Frechet distance and {measure}", _notes(sample, absent), styles)
    entries = style.system_entries(shown, frame)
    figure = style.framed_figure(frame, 2.4 * -(-len(kinds) // 2) + 0.2, entries)
    agreed = taus(sample, values)
    for kind, panel in zip(kinds, style.panels_of(figure, len(kinds)), strict=True):
        of_system = dict(zip(sample.systems, kind, strict=True))
        tau = agreed[distance_name(kind[0])].get(measure)
        _draw_panel(panel, {name: of_system[name] for name in shown}, values, measure, frame)
        panel.set_title(f"{distance_name(kind[0])}{'' if tau is None else f', tau {tau:.2f}'}", fontsize=8, loc="left")
    return figure


def _notes(sample: Distances, absent: Sequence[str]) -> tuple[str, ...]:
    most = sample.settings.most_judged
    judged = "all judged documents" if most is None else f"at most {counted(most, 'judged document')}"
    text = (
        f"Lower is nearer to the judged documents ({judged} of each of {sample.queries:,} queries), further right is"
        f" better. Vectors by {sample.encoder}. Bars: at least 95 %. tau: 1 where both order the systems alike."
    )
    return (" ".join([text, *style.listed("Not drawn", absent)]),)


def _draw_panel(panel: Axes, distances: Mapping[str, Distance], values: Values, measure: str, frame: Frame) -> None:
    for name, distance in distances.items():
        figure, x = distance.figure, values[name][measure]
        if figure.value is None or x is None:
            continue
        look: dict[str, Any] = {**frame.styles[name].mark, "markersize": 6, "elinewidth": 0.9, "capsize": 2}
        panel.errorbar([x], [figure.value], yerr=style.bars_of([figure]), **look)
    style.set_number_axis(panel.yaxis, [each.figure.value for each in distances.values() if each.figure.value])
    panel.margins(x=0.1, y=0.12)
    style.label_axes(panel, measure, "distance")
