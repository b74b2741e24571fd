"""What all pictures share: a title, small print below, a legend of systems, axes that people read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.report.plots import theme
from harness.report.plots.theme import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 6.0
_SMALL = 7


@dataclass(frozen=True)
class Frame:
    """What stands around a picture: ``title``, and sentences of small print below it.

    ``looks`` are of all systems of the table, by name: a system looks the same in every picture.
    """

    title: str
    notes: tuple[str, ...]
    looks: Mapping[str, Look]


@dataclass(frozen=True)
class Sheet:
    """A figure with a title on top and small print below; ``legend_top``: where a legend begins (0 below, 1 on top)."""

    figure: Figure
    legend_top: float


def begin(frame: Frame, height: float, entries: int = 0, columns: int = 3) -> Sheet:
    """A figure with title and small print; its axes are laid out between them.

    Args:
        frame: what stands there.
        height: inches of what is drawn, with its axes' labels.
        entries: how many a legend below will have, in so many ``columns``.
        columns: see there.
    """
    lines = theme.small_print(frame.notes)
    title, named = 0.3, 0.18 * math.ceil(entries / columns) + 0.06 * bool(entries)
    below = 0.13 * len(lines) + 0.1
    whole = title + height + named + below
    figure = theme.blank(WIDTH, whole)
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=0.08, rect=(0, (below + named) / whole, 1, height / whole))
    figure.text(0.5, 1 - 0.08 / whole, theme.text(frame.title, 90), ha="center", va="top", fontsize=10)
    small: dict[str, Any] = {"ha": "left", "va": "top", "fontsize": _SMALL, "color": theme.INK}
    figure.text(0.012, (below - 0.04) / whole, "\n".join(lines), **small)
    return Sheet(figure, (below + named) / whole)


def legend(sheet: Sheet, entries: Sequence[tuple[Any, str]], columns: int = 3) -> None:
    """Handles and their names, between picture and small print."""
    handles, names = zip(*entries, strict=True)
    drawn = sheet.figure.legend(
        handles,
        names,
        loc="upper center",
        bbox_to_anchor=(0.5, sheet.legend_top),
        borderaxespad=0,
        ncols=columns,
        fontsize=7.5,
        frameon=False,
        handlelength=2.6,
    )
    drawn.set_in_layout(False)  # its room is kept free already


def systems(names: Iterable[str], looks: Mapping[str, Look], **drawn: Any) -> list[tuple[Any, str]]:
    """A legend's entries: each system's marker, or its line where ``linestyle`` is asked for."""
    from matplotlib.lines import Line2D

    called = theme.short(sorted(set(names)))
    found = []
    for name, label in called.items():
        style = looks[name]
        settings = {"marker": style.marker, "linestyle": "none", "markersize": 6, **drawn}
        if drawn.get("linestyle") == "dash":
            settings["linestyle"] = style.dash
        found.append((Line2D([], [], color=style.colour, **settings), label))
    return found


def number_axis(axis: Any, values: Iterable[float], *, from_zero: bool = True, narrow: bool = False) -> bool:
    """Set an axis up for numbers: logarithmic where they span more than a decade.  True if it is.

    ``narrow``: there is room for few of them.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    known = [value for value in values if value is not None]
    wide = bool(known) and min(known) > 0 and max(known) > 10 * min(known)
    name = axis.axis_name
    axes = axis.axes
    if wide:
        getattr(axes, f"set_{name}scale")("log")
        decades = math.log10(max(known) / min(known))
        axis.set_major_locator(LogLocator(subs=(1.0,) if decades > (1.3 if narrow else 3) else (1.0, 2.0, 5.0)))
        axis.set_minor_formatter(NullFormatter())
    elif from_zero and known and min(known) >= 0:
        getattr(axes, f"set_{name}lim")(**{"left" if name == "x" else "bottom": 0})
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    return wide


def grid(axes: Axes, which: Any = "both") -> None:
    """Faint lines, and no box."""
    axes.grid(axis=which, color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
