"""Plots of a leaderboard: ranks with their intervals, and the winner under each choice of weights.

The map of winners is Figure 2 of Santhanam et al. 2023: all weights of accuracy, cost and latency in a triangle, each
point in the colour of the row with the highest Dynascore there.  A Dynascore is linear in the weights, so a row wins
a convex polygon, which is cut out exactly and not sampled.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.analysis import axes as analysis_axes
from harness.analysis import leaderboard
from harness.analysis.axes import Axis
from harness.analysis.dynascore import RateStatus
from harness.analysis.leaderboard import Leaderboard, RankedRow
from harness.commands import option
from harness.report.plots import style
from harness.report.plots.select import Drawing, NoPlot, PlotRows
from harness.report.plots.style import Frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_RANKED = 40
# The rank intervals: what each is, how thick its line is, how far below the dot, and its dash.
_RANK_INTERVALS: dict[str, tuple[str, float, float, str]] = {
    "by_queries": ("rank with other queries", 4.0, 0.0, "-"),
    "by_systems": ("without each system", 1.6, 0.22, "-"),
    "by_weights": ("with other weights", 1.6, 0.38, ":"),
}


def make_ranks(rows: PlotRows) -> Drawing:
    """Return the drawing of ranks with their intervals.

    Raises:
        NoPlot: no row has a score.
    """
    board, left_out = rows.board("ranks")
    query = board.query
    scored = [ranked for ranked in board.ranked_rows if ranked.score is not None]
    if not scored:
        lacking = {name: rate.status for name, rate in board.rates.items() if rate.value is None}
        reasons = " and ".join(dict.fromkeys(status.why(name) for name, status in lacking.items()))
        given = ",".join(f"{name}=NUMBER" for name in lacking)
        raise NoPlot(f"ranks: no row has a score: {reasons}; give exchange rates with {option('amrs', given)}")
    axis = analysis_axes.axis(query.rank_by, query.measure) if query.rank_by else None
    weights = ", ".join(f"{name} {weight:g}" for name, weight in query.weights.items())
    notes = [] if axis else [f"Dynascore ({_rates(board)}; {rows.measure}; weights {weights})."]
    if len(scored) > MAX_RANKED:
        notes.append(f"The best {MAX_RANKED} of {len(scored):,} rows.")
    by_queries = board.ranked_rows[0].by_queries
    if by_queries.best is None:
        notes.append(f"Ranks with other queries are not known ({by_queries.reason}).")
    frame = rows.frame("ranks and how far they hold", notes, left_out)
    return lambda: draw_ranks(scored[:MAX_RANKED], frame, axis)


def _rates(board: Leaderboard) -> str:
    """Return the source of the exchange rates."""
    if board.rates_source is not None:
        return f"rates of {board.rates_source}"
    given = all(rate.status is RateStatus.GIVEN for rate in board.rates.values())
    return "rates given" if given else f"mode {board.mode}"


def draw_ranks(rows: Sequence[RankedRow], frame: Frame, axis: Axis | None) -> Figure:
    """Draw ranked rows, at most ``MAX_RANKED``, the best on top.

    Args:
        rows: with scores.
        frame: title and small print.
        axis: ranks the rows; ``None``: the Dynascore does.
    """
    intervals = [name for name in _RANK_INTERVALS if any(getattr(ranked, name).best is not None for ranked in rows)]
    dot = style.handle(color=style.GREY, marker="o", markeredgecolor="black", linestyle="none")
    entries = [(dot, "rank")]
    for name in intervals:
        words, width, _, dash = _RANK_INTERVALS[name]
        entries.append((style.handle(color=style.GREY, linewidth=width, linestyle=dash, alpha=0.6), words))
    figure = style.framed_figure(frame, 0.9 + 0.3 * len(rows), entries, 4)
    axes = figure.add_subplot()
    last = 1
    for place, ranked in enumerate(rows):
        look, rank = frame.styles[ranked.row.system], ranked.rank or 0
        last = max(last, rank)
        for number, name in enumerate(_RANK_INTERVALS):
            interval = getattr(ranked, name)
            if interval.best is not None:
                _, width, down, dash = _RANK_INTERVALS[name]
                drawn: dict[str, Any] = {"color": look.colour, "linewidth": width, "linestyle": dash, "alpha": 0.6}
                ends, level = (interval.best, interval.worst), place + down
                axes.plot(ends, [level, level], solid_capstyle="butt", gid=f"span {number}", **drawn)
                last = max(last, *ends)
        mark = {**look.mark, "markersize": 7, "markeredgecolor": "black", "gid": style.plain_text(ranked.row.system)}
        axes.plot([rank], [place], **mark)
        beside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "xytext": (6, 0), "va": "center"}
        score = ranked.score or 0.0
        text = f"{abs(score):.4g}" if axis else f"{score:.2f}"
        axes.annotate(text, (1, place), textcoords="offset points", fontsize=8, annotation_clip=False, **beside)
    names = [f"{style.plain_text(ranked.row.system, 24)}, {ranked.row.profile}" for ranked in rows]
    axes.set_yticks(range(len(rows)), [style.plain_text(name, 44) for name in names], fontsize=8)
    axes.set_ylim(len(rows) - 0.3, -0.8)
    axes.set_xlim(0.4, last + 0.6)
    step = -(-last // 10)
    axes.set_xticks(sorted({1, *range(step, last + 1, step)}))
    axes.set_xlabel("rank (1 is best)")
    above: dict[str, Any] = {"xycoords": "axes fraction", "xytext": (6, 2), "textcoords": "offset points"}
    score_label = f"{axis.label}, {axis.unit}" if axis else "Dynascore"
    axes.annotate(style.plain_text(score_label), (1, 1), fontsize=8, va="bottom", **above)
    style.add_grid(axes, "x")
    return figure


# Weights of accuracy, cost and latency; they sum to 1.
Weights = tuple[float, float, float]
CORNERS: tuple[Weights, ...] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
WEIGHED = ("accuracy", "cost", "latency")
# Where the corners are drawn: accuracy on top, cost to the left, latency to the right.
_PALE = 0.7
_CORNER_POSITIONS = np.asarray(((0.5, 3**0.5 / 2), (0.0, 0.0), (1.0, 0.0)))
# Shares of the triangle below which a region is not drawn, is named in the small print alone, has no number.
_MIN_SHARE, _MIN_LISTED, _MIN_NUMBERED = 1e-9, 0.01, 0.02


def make_winners(rows: PlotRows) -> Drawing:
    """Return the drawing of the winner under each choice of weights.

    Raises:
        NoPlot: no row can be ranked, or a metric has no exchange rate.
    """
    plot = "winners over the weights"
    board, left_out = rows.board(plot, weights=leaderboard.PRESETS[0].weights, bounds=(), rank_by=None)
    rates = {}
    for name, rate in board.rates.items():
        if rate.value is None:
            given = option("amrs", f"{name}=NUMBER")
            raise NoPlot(
                f"{plot}: {rate.status.why(name)}, so no exchange rate of {name} (AMRS) follows; give one with {given}"
            )
        rates[name] = rate.value
    candidates = candidates_of(board, rates)
    presets = {
        preset.name: (preset.weights["accuracy"], preset.weights["cost"], preset.weights["latency"])
        for preset in leaderboard.PRESETS
    }
    units = {name: analysis_axes.axis(name, rows.measure).unit for name in rates}
    exchange = " and ".join(f"{rate:.4g} {units[name]}" for name, rate in rates.items())
    note = (
        f"The highest Dynascore ({_rates(board)}, {rows.measure}; a point of accuracy is worth {exchange})"
        f" of {len(candidates)} rows. Numbers on the sides: accuracy left, cost below, latency right."
    )
    frame = rows.frame(f"who wins under which weights ({rows.measure})", [note], left_out)
    return lambda: draw_winners(candidates, presets, frame)


def candidates_of(board: Leaderboard, rates: Mapping[str, float]) -> list[Candidate]:
    """Return what each ranked row gains from a full weight of each metric, at these exchange rates."""
    candidates = []
    for ranked in sorted(board.ranked_rows, key=lambda ranked: (ranked.row.system, ranked.row.profile, ranked.row.key)):
        accuracy, cost, latency = (ranked.figures[name].value or 0.0 for name in WEIGHED)
        gains = (accuracy, -cost / rates["cost"], -latency / rates["latency"])
        candidates.append(Candidate(ranked.row.system, ranked.row.profile, gains))
    return candidates


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
    """Weights under which a row wins: the corners of a polygon, its share of the triangle, and how many rows tie."""

    winner: Candidate
    corners: tuple[Weights, ...]
    share: float
    equal: int = 0

    def named(self, longest: int = 500) -> str:
        """Return the winner's name, cut to this length in its two parts, and the number of rows that tie with it."""
        names = (style.plain_text(name, longest) for name in (self.winner.system, self.winner.label))
        return ", ".join(names) + (f" and {self.equal} equal" if self.equal else "")


def regions(candidates: Sequence[Candidate]) -> tuple[WinnerRegion, ...]:
    """Return each winner's region, the largest first; the first of equal rows represents all."""
    equal = Counter(candidate.gains for candidate in candidates)
    every = list({candidate.gains: candidate for candidate in reversed(candidates)}.values())[::-1]
    # The strongest at equal weights rule out most others at once.
    rivals = sorted(every, key=lambda candidate: -sum(candidate.gains))
    found = []
    for candidate in every:
        corners: list[Weights] = list(CORNERS)
        for rival in rivals:
            if rival is not candidate and corners:
                ahead = [mine - theirs for mine, theirs in zip(candidate.gains, rival.gains, strict=True)]
                corners = _clip(corners, ahead)
        share = _share(corners)
        if share > _MIN_SHARE:
            found.append(WinnerRegion(candidate, tuple(corners), share, equal[candidate.gains] - 1))
    return tuple(sorted(found, key=lambda region: -region.share))


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


def draw_winners(candidates: Sequence[Candidate], presets: Mapping[str, Weights], frame: Frame) -> Figure:
    """Draw the map, with named weights marked in it."""
    won = regions(candidates)
    drawn = [_region_settings(frame, region) for region in won]
    entries = [
        *(
            _region_entry(region, number, drawn[number - 1])
            for number, region in enumerate(won, start=1)
            if region.share >= _MIN_LISTED
        ),
        *(_preset_entry(name, weights, place) for place, (name, weights) in enumerate(presets.items())),
    ]
    small = [region.named() for region in won if region.share < _MIN_LISTED]
    notes = style.listed(f"Also, each on less than {_MIN_LISTED:.0%}", small)
    figure = style.framed_figure(replace(frame, notes=(*frame.notes, *notes)), 4.6, entries, 2)
    axes = figure.add_subplot()
    axes.set_aspect("equal")
    axes.set_axis_off()
    marked = [_position(weights) for weights in presets.values()]
    for number, region in enumerate(won, start=1):
        _draw_region(axes, region, number, marked, drawn[number - 1])
    _weight_grid(axes)
    for place, (name, weights) in enumerate(presets.items()):
        x, y = _position(weights)
        axes.plot([x], [y], zorder=5, gid=style.plain_text(f"preset {name}"), **_PRESET_MARK, markersize=13)
        middle: dict[str, Any] = {"ha": "center", "va": "center_baseline"}
        axes.text(x, y, _letter(place), fontsize=8, weight="bold", zorder=6, **middle)
    axes.set_xlim(-0.16, 1.16)
    axes.set_ylim(-0.1, 0.95)
    return figure


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


def _region_settings(frame: Frame, region: WinnerRegion) -> dict[str, Any]:
    # Regions of one system on other hardware are told apart by their edges and numbers.
    look = frame.styles[region.winner.system]
    return {"facecolor": look.colour, "edgecolor": "white", "hatch": look.hatch, "linewidth": 1.4, "alpha": _PALE}


def _draw_region(
    axes: Axes, region: WinnerRegion, number: int, marked: Sequence[tuple[float, float]], drawn: dict[str, Any]
) -> None:
    from matplotlib.patches import Polygon
    from matplotlib.patheffects import withStroke

    axes.add_patch(Polygon([_position(corner) for corner in region.corners], gid=f"region {number}", **drawn))
    if region.share >= _MIN_NUMBERED:
        x, y = _free_position(region.corners, marked)
        halo = [withStroke(linewidth=2.5, foreground="white")]
        axes.text(x, y, f"{number}", ha="center", va="center", fontsize=11, weight="bold", path_effects=halo, zorder=4)


def _region_entry(region: WinnerRegion, number: int, drawn: dict[str, Any]) -> tuple[Any, str]:
    from matplotlib.patches import Patch

    return Patch(**drawn), f"{number}  {region.named(18)} ({region.share:.0%})"


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


_PRESET_MARK: dict[str, Any] = {
    "linestyle": "none",
    "marker": "o",
    "markerfacecolor": "white",
    "markeredgecolor": "black",
}


def _letter(place: int) -> str:
    return string.ascii_uppercase[place % 26]


def _preset_entry(name: str, weights: Weights, place: int) -> tuple[Any, str]:
    parts = " / ".join(f"{weight:g}" for weight in weights)
    label = f"{_letter(place)}  {style.plain_text(name, 36)}: {parts}"
    return style.handle(**_PRESET_MARK, markersize=8), label
