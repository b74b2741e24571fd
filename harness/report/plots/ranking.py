"""Plots of a leaderboard: ranks with their intervals, and the winner under each choice of weights.

The map of winners is Figure 2 of Santhanam et al. 2023: all weights of accuracy, cost and latency in a triangle, each
point in the colour of the row with the highest Dynascore there.  A Dynascore is linear in the weights, so a row wins
a convex polygon, which is cut out exactly and not sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.report.plots import style
from harness.report.plots.style import Frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_RANKED = 40
# The spans, in the order of the record: what each is, how thick it is drawn and how far below the dot.
_RANK_INTERVALS: tuple[tuple[str, float, float, Any], ...] = (
    ("rank with other queries", 4.0, 0.0, "-"),
    ("without each system", 1.6, 0.22, "-"),
    ("with other weights", 1.6, 0.38, ":"),
)


@dataclass(frozen=True)
class PlottedRank:
    """Row with its rank, its written score, and the best and worst rank of each interval (``None``: unknown)."""

    system: str
    label: str
    rank: int
    score: str
    spans: tuple[tuple[int, int] | None, ...]


def draw_ranks(rows: Sequence[PlottedRank], around: Frame, score_label: str) -> Figure:
    """Draw at most ``MAX_RANKED`` rows, the best on top."""
    known = [number for number in range(len(_RANK_INTERVALS)) if any(row.spans[number] for row in rows)]
    canvas = style.new_canvas(around, 0.9 + 0.3 * len(rows), 1 + len(known), 4)
    axes = canvas.figure.add_subplot()
    for place, row in enumerate(rows):
        look = around.styles[row.system]
        for number in known:
            span = row.spans[number]
            if span is not None:
                _, width, down, dash = _RANK_INTERVALS[number]
                axes.plot(
                    span,
                    [place + down] * 2,
                    color=look.colour,
                    linewidth=width,
                    linestyle=dash,
                    alpha=0.6,
                    solid_capstyle="butt",
                    gid=f"span {number}",
                )
        axes.plot(
            [row.rank],
            [place],
            marker=look.marker,
            color=look.colour,
            markersize=7,
            linestyle="none",
            markeredgecolor="black",
            gid=style.plain_text(row.system),
        )
        axes.annotate(
            row.score,
            (1, place),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            annotation_clip=False,
        )
    axes.set_yticks(range(len(rows)), [style.plain_text(row.label, 44) for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.3, -0.8)
    _rank_axis(axes, rows)
    axes.annotate(
        style.plain_text(score_label),
        (1, 1),
        xycoords="axes fraction",
        xytext=(6, 2),
        textcoords="offset points",
        fontsize=8,
        va="bottom",
    )
    style.add_grid(axes, "x")
    style.add_legend(canvas, _rank_entries(known), columns=4)
    return canvas.figure


def _rank_axis(axes: Any, rows: Sequence[PlottedRank]) -> None:
    last = max(rank for row in rows for rank in (row.rank, *(end for span in row.spans if span for end in span)))
    axes.set_xlim(0.4, last + 0.6)
    step = -(-last // 10)
    axes.set_xticks(sorted({1, *range(step, last + 1, step)}))
    axes.set_xlabel("rank (1 is best)")


def _rank_entries(known: Sequence[int]) -> list[tuple[Any, str]]:
    from matplotlib.lines import Line2D

    dot = Line2D([], [], color=style.GREY, marker="o", markeredgecolor="black", linestyle="none")
    spans = [
        (
            Line2D(
                [],
                [],
                color=style.GREY,
                linewidth=_RANK_INTERVALS[number][1],
                linestyle=_RANK_INTERVALS[number][3],
                alpha=0.6,
            ),
            _RANK_INTERVALS[number][0],
        )
        for number in known
    ]
    return [(dot, "rank"), *spans]


# Weights of accuracy, cost and latency; they sum to 1.
Weights = tuple[float, float, float]
CORNERS: tuple[Weights, ...] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
WEIGHED = ("accuracy", "cost", "latency")
# Where the corners are drawn: accuracy on top, cost to the left, latency to the right.
_PALE = 0.7
_CORNER_POSITIONS = np.asarray(((0.5, 3**0.5 / 2), (0.0, 0.0), (1.0, 0.0)))
# Shares of the triangle: what is smaller is not there, is in the small print alone, has no room for a number.
_MIN_SHARE, _MIN_LISTED, _MIN_NUMBERED = 1e-9, 0.01, 0.02


@dataclass(frozen=True)
class Candidate:
    """Row with ``gains``: the points from a full weight of accuracy, cost and latency (the latter two are
    negative: -value / AMRS).
    """

    system: str
    label: str
    gains: Weights


@dataclass(frozen=True)
class WinnerRegion:
    """Weights under which a row wins: the corners of a polygon, and its share of the triangle."""

    winner: Candidate
    corners: tuple[Weights, ...]
    share: float


def regions(candidates: Sequence[Candidate]) -> tuple[WinnerRegion, ...]:
    """Return each winner's region, the largest first; the first of rows with equal scores represents them."""
    every = list({candidate.gains: candidate for candidate in reversed(candidates)}.values())[::-1]
    rivals = _strongest_first(every)
    found = []
    for candidate in every:
        corners: list[Weights] = list(CORNERS)
        for rival in rivals:
            if rival is not candidate and corners:
                ahead = [mine - theirs for mine, theirs in zip(candidate.gains, rival.gains, strict=True)]
                corners = _clip(corners, ahead)
        share = _share(corners)
        if share > _MIN_SHARE:
            found.append(WinnerRegion(candidate, tuple(corners), share))
    return tuple(sorted(found, key=lambda region: -region.share))


def _strongest_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that win on a coarse grid first, because they rule out most others at once."""
    gains = np.asarray([candidate.gains for candidate in candidates])
    steps = [(a / 12, b / 12, (12 - a - b) / 12) for a in range(13) for b in range(13 - a)]
    ahead = set(np.argmax(gains @ np.asarray(steps).T, axis=0).tolist())
    return sorted(candidates, key=lambda candidate: candidates.index(candidate) not in ahead)


def _clip(corners: Sequence[Weights], ahead: Sequence[float]) -> list[Weights]:
    """Return the part of a convex polygon where ``ahead`` . weights is not negative (Sutherland and Hodgman)."""
    values = [sum(each * weight for each, weight in zip(ahead, corner, strict=True)) for corner in corners]
    kept: list[Weights] = []
    for place, corner in enumerate(corners):
        before, value, last = corners[place - 1], values[place], values[place - 1]
        if (value < 0 < last) or (last < 0 < value):
            share = last / (last - value)
            a, b, c = (one + share * (other - one) for one, other in zip(before, corner, strict=True))
            kept.append((a, b, c))
        if value >= 0:
            kept.append(corner)
    return kept


def _share(corners: Sequence[Weights]) -> float:
    """Return a polygon's share of the triangle."""
    total = 0.0
    for one, other in zip(corners, [*corners[1:], *corners[:1]], strict=True):
        total += one[1] * other[2] - other[1] * one[2]
    return abs(total)


def draw_winners(candidates: Sequence[Candidate], presets: Mapping[str, Weights], around: Frame) -> Figure:
    """Draw the map, with named weights marked in it."""
    won = regions(candidates)
    canvas = style.new_canvas(
        _with_small_regions(around, won), 4.6, sum(each.share >= _MIN_LISTED for each in won) + len(presets), 2
    )
    axes = canvas.figure.add_subplot()
    axes.set_aspect("equal")
    axes.set_axis_off()
    marked = [_position(weights) for weights in presets.values()]
    entries = [_draw_region(axes, region, around, number, marked) for number, region in enumerate(won, start=1)]
    _weight_grid(axes)
    entries += [_draw_preset(axes, name, weights, place) for place, (name, weights) in enumerate(presets.items())]
    axes.set_xlim(-0.16, 1.16)
    axes.set_ylim(-0.1, 0.95)
    style.add_legend(canvas, [entry for entry in entries if entry is not None], columns=2)
    return canvas.figure


def _position(weights: Sequence[float]) -> tuple[float, float]:
    x, y = np.asarray(weights) @ _CORNER_POSITIONS
    return float(x), float(y)


def _free_position(corners: Sequence[Weights], marked: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return a position in a polygon without a mark: its middle, or on the way to a corner."""
    middle = np.mean(np.asarray(corners), axis=0)
    places = [_position(middle), *(_position(0.55 * middle + 0.45 * np.asarray(corner)) for corner in corners)]

    def room(place: tuple[float, float]) -> float:
        return min((float(np.hypot(place[0] - x, place[1] - y)) for x, y in marked), default=1.0)

    return next((place for place in places if room(place) > 0.07), max(places, key=room))


def _draw_region(
    axes: Axes, region: WinnerRegion, around: Frame, number: int, marked: Sequence[tuple[float, float]]
) -> tuple[Any, str] | None:
    from matplotlib.patches import Patch, Polygon
    from matplotlib.patheffects import withStroke

    look = around.styles[region.winner.system]
    # Regions of one system on other hardware are told apart by their edges and numbers.
    drawn: dict[str, Any] = {"facecolor": look.colour, "edgecolor": "white", "hatch": look.hatch, "linewidth": 1.4}
    axes.add_patch(
        Polygon([_position(corner) for corner in region.corners], alpha=_PALE, gid=f"region {number}", **drawn)
    )
    if region.share >= _MIN_NUMBERED:
        x, y = _free_position(region.corners, marked)
        halo = [withStroke(linewidth=2.5, foreground="white")]
        axes.text(x, y, f"{number}", ha="center", va="center", fontsize=11, weight="bold", path_effects=halo, zorder=4)
    if region.share < _MIN_LISTED:
        return None
    system, label = style.plain_text(region.winner.system, 18), style.plain_text(region.winner.label, 18)
    return Patch(alpha=_PALE, **drawn), f"{number}  {system}, {label} ({region.share:.0%})"


def _with_small_regions(around: Frame, won: Sequence[WinnerRegion]) -> Frame:
    """Add small print that names the winners missing in the legend."""
    rest = [f"{each.winner.system}, {each.winner.label}" for each in won if each.share < _MIN_LISTED]
    if not rest:
        return around
    return replace(around, notes=(*around.notes, f"Also, each on less than {_MIN_LISTED:.0%}: {style.first_of(rest)}."))


def _weight_grid(axes: Axes) -> None:
    """Draw lines of equal weight and the names of the corners."""
    shares = (0.2, 0.4, 0.6, 0.8)
    for share in shares:
        for corner in range(3):
            one, other = (_between(corner, toward, share) for toward in range(3) if toward != corner)
            (x, y), (across, up) = _position(one), _position(other)
            axes.plot((x, across), (y, up), color="white", linewidth=0.5, alpha=0.7, zorder=2)
        # Each side is read at one of its two corners' weights.
        for corner, away in enumerate(((-8, 0), (0, -9), (9, 0))):
            _annotate(axes, f"{share:g}", _between(corner, (corner + 1) % 3, share), away, fontsize=7, color=style.GREY)
    round_it = [_position(corner) for corner in (*CORNERS, CORNERS[0])]
    axes.plot([x for x, _ in round_it], [y for _, y in round_it], color=style.INK, linewidth=1)
    for name, weights, beyond in zip(WEIGHED, CORNERS, ((0.0, 12.0), (-4.0, -18.0), (4.0, -18.0)), strict=True):
        _annotate(axes, f"{name} alone", weights, beyond, fontsize=9, weight="bold")


def _between(corner: int, toward: int, share: float) -> list[float]:
    """Return the weights on a side with ``share`` for one corner and the rest for another."""
    return [share * (place == corner) + (1 - share) * (place == toward) for place in range(3)]


def _annotate(axes: Axes, text: str, weights: Sequence[float], away: tuple[float, float], **style: Any) -> None:
    axes.annotate(text, _position(weights), away, textcoords="offset points", ha="center", va="center", **style)


def _draw_preset(axes: Axes, name: str, weights: Weights, place: int) -> tuple[Any, str]:
    letter = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[place % 26]
    x, y = _position(weights)
    drawn: dict[str, Any] = {"marker": "o", "markersize": 13, "markerfacecolor": "white", "markeredgecolor": "black"}
    axes.plot([x], [y], linestyle="none", zorder=5, gid=style.plain_text(f"preset {name}"), **drawn)
    axes.text(x, y, letter, ha="center", va="center_baseline", fontsize=8, weight="bold", zorder=6)
    from matplotlib.lines import Line2D

    parts = " / ".join(f"{weight:g}" for weight in weights)
    mark = Line2D([], [], linestyle="none", **{**drawn, "markersize": 8})
    return mark, f"{letter}  {style.plain_text(name, 24)}: {parts}"
