"""Curves of swept systems: points of one sweep share a look and a legend entry, and are joined in order of cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.analysis.table import Row
from harness.report.plots import style
from harness.report.plots.style import Frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A point: its row, and its place on the two axes.
CurvePoint = tuple[Row, tuple[float, float]]


def family(row: Row) -> str:
    """Return the curve that a row belongs to: the swept system's name, or the system's own."""
    return row.system if row.sweep is None else row.sweep.system


def families(rows: Iterable[Row]) -> list[str]:
    """Return the swept systems of some rows, once for each point."""
    return [row.sweep.system for row in rows if row.sweep is not None]


def legend_names(rows: Iterable[Row]) -> dict[str, str]:
    """Return the legend's text of each family: of a swept system with its parameters."""
    swept: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        swept[family(row)].update(dict.fromkeys(row.sweep.params if row.sweep else ()))
    return {name: f"{name} ({', '.join(params)})" if params else name for name, params in swept.items()}


def curve_key(row: Row) -> tuple[object, ...] | None:
    """Return the name of the curve that a row is on; None: it is not a point of a sweep.

    A sweep has a curve on each hardware profile.  Of a grid with numbers and texts (backends ...) each text has its
    own, as no value is between two texts.
    """
    point = row.sweep
    if point is None:
        return None
    texts = {name: value for name, value in point.params.items() if isinstance(value, str | bool)}
    own = tuple(texts.items()) if len(texts) < len(point.params) else ()
    return row.suite, row.origin, row.profile, point.system, tuple(point.params), own


def curves(points: Iterable[CurvePoint]) -> list[list[CurvePoint]]:
    """Return the points of each curve, two or more, in order of cost."""
    held: dict[tuple[object, ...], list[CurvePoint]] = defaultdict(list)
    for row, place in points:
        if (key := curve_key(row)) is not None:
            held[key].append((row, place))
    return [sorted(each, key=lambda point: point[1]) for each in held.values() if len(each) > 1]


def draw_curves(axes: Axes, points: Sequence[CurvePoint], looks: Mapping[str, style.SystemStyle]) -> None:
    """Join the points of each sweep by a thin line in its colour."""
    for curve in curves(points):
        name = family(curve[0][0])
        across, up = zip(*(place for _, place in curve), strict=True)
        axes.plot(
            across, up, **looks[name].line, linewidth=1.1, alpha=0.8, zorder=2.5, gid=f"sweep {style.plain_text(name)}"
        )


def legend_entries(rows: Sequence[Row], frame: Frame) -> list[tuple[Any, str]]:
    """Return an entry for each family; a sweep's entry has its line."""
    lined = set(families(rows))
    return style.system_entries(legend_names(rows), frame, dashed=lined)
