"""Plot how often two systems change places: a matrix for each condition, systems in the leaderboard's order."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.analysis import robustness
from harness.analysis.robustness import Condition, QueryScores, Robustness
from harness.analysis.table import Row
from harness.evaluation import evaluate, measure_names
from harness.evaluation.per_query import PerQuery
from harness.report.plots import style
from harness.report.plots.select import Drawing, LeftOut, NoPlot, PlotRows, no_row_reason, row_name
from harness.report.plots.style import Frame, Picture, file_name
from harness.report.robustness import condition_name, percent
from harness.stats import Floats

if TYPE_CHECKING:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure


# More systems are illegible: only the best are drawn.
MAX_SYSTEMS = 30
# Up to this many systems, two panels share a line and cells show numbers; up to the second, cells are large.
_NUMBERED, _FEW = 15, 6


def pictures(boards: Sequence[Robustness]) -> Iterator[Picture]:
    """Yield a picture for each leaderboard that has a matrix."""
    for board in boards:
        if any(condition.flips for condition in board.conditions):
            yield f"{file_name(board.dataset)}-flips", functools.partial(draw_flips, board)


def draw_flips(board: Robustness, frame: Frame | None = None) -> Figure:
    """Draw all conditions that were asked, in columns where systems are few.

    Args:
        board: with a matrix at least.
        frame: title and small print; else the dataset, ``title`` and ``notes``.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    shown = [condition for condition in board.conditions if condition.flips]
    systems = board.systems[:MAX_SYSTEMS]
    columns = 2 if len(systems) <= _NUMBERED and len(shown) > 1 else 1
    lines = -(-len(shown) // columns)
    height = lines * (0.62 + (0.36 if len(systems) <= _FEW else 0.21) * len(systems)) + 0.45
    figure = style.framed_figure(frame or Frame(f"{board.dataset}: {title(board)}", notes(board), {}), height)
    # Small letters are as wide as their pixels: room is made for them as they will be drawn.
    figure.set_dpi(style.DPI)
    panels = figure.subplots(lines, columns, squeeze=False)
    labels = list(style.short_names(systems).values())
    for place, axes in enumerate(panels.flat):
        if place < len(shown):
            _panel(axes, shown[place], labels, first=place % columns == 0)
        else:
            axes.set_axis_off()
    scale = ScalarMappable(Normalize(0, 1), _colours())
    style.add_share_bar(figure, scale, list(panels.flat), ["0 %", "25 %", "50 %", "75 %", "100 %"])
    return figure


def _panel(axes: Any, condition: Condition, labels: Sequence[str], *, first: bool) -> None:
    """Draw one matrix; systems are named in the first of a line and numbered in the others."""
    count = len(labels)
    below = np.tri(count, k=-1, dtype=np.bool_)
    shares = np.asarray(condition.flips, dtype=np.float64)[:count, :count]
    edges = np.arange(count + 1) - 0.5
    drawn: dict[str, Any] = {"cmap": _colours(), "vmin": 0, "vmax": 1, "edgecolors": "white", "linewidth": 1}
    axes.pcolormesh(edges, edges, np.where(below, shares, np.nan), rasterized=False, **drawn)
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_ylim(count - 0.5, -0.5)
    size = 8 if count <= _FEW else 6
    for one, other in np.argwhere(below) if count <= _NUMBERED else ():
        share = shares[one, other]
        dark = 0.3 < share <= 0.5 or share > 0.75
        ink = style.GREY if np.isnan(share) else "white" if dark else style.INK
        text = "=" if np.isnan(share) else percent(share)
        axes.text(other, one, text, ha="center", va="center", fontsize=size, color=ink)
    numbers = [str(number) for number in range(1, count + 1)]
    named = [f"{label}  {number}" for label, number in zip(labels, numbers, strict=True)]
    axes.set_yticks(range(count), named if first else numbers, fontsize=size)
    axes.set_xticks(range(count - 1), numbers[:-1], fontsize=size)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    tau = condition.tau_whole if condition.tau_whole is not None else condition.tau.value
    cause = condition.cause.value if tau is None else f"{condition.cause.value} (tau {tau:.2f})"
    axes.set_title(f"{cause}:\n{style.plain_text(condition.name, 34)}", fontsize=8, loc="left")


def _colours() -> LinearSegmentedColormap:
    """Return colours from pale to blue up to a half, and from light to dark orange above it."""
    from matplotlib.colors import LinearSegmentedColormap

    steps = [(0.0, "#eef2f6"), (0.5, "#1f6fb0"), (0.5, "#fbd0a2"), (1.0, "#a63603")]
    return LinearSegmentedColormap.from_list("flips", steps, N=512)


def title(board: Robustness) -> str:
    """Return the title."""
    return f"share of draws in which two systems change places, by {board.measure}"


def notes(board: Robustness) -> tuple[str, ...]:
    """Return notes on how to read the matrices, and on the missing ones."""
    more = len(board.systems) - MAX_SYSTEMS
    missing = [condition for condition in board.conditions if not condition.flips]
    return (
        f"Systems in the order of {board.measure} over {board.queries:,} queries, 1 the best. Each cell: in how many "
        "per cent of draws its row ranks above its column; a tie counts half, 50 is a toss of a coin. = : equal, no "
        "order to lose. tau: Kendall's, with the order shown (mean over draws; of another measure over all queries).",
        *(f"no picture of {condition_name(condition)}: {condition.reason}." for condition in missing),
        *([f"The {MAX_SYSTEMS} best; {more} more are in the table."] if more > 0 else []),
    )


# Rows with their values by query.
JudgedRows = list[tuple[Row, PerQuery]]

_WHAT = "how often two systems change places"
_NOT_HERE = "Fewer judgements, which also change orders: see harness robustness."


def make_flips(rows: PlotRows) -> Drawing:
    """Return the drawing for the ranking's measure, against other queries and the table's other measures.

    Raises:
        NoPlot: there is no order that could change.
    """
    judged, others = _judged_rows(rows)
    if not judged:
        raise NoPlot(f"{_WHAT}: {no_row_reason(others)}")
    if not _is_mean(rows.measure):
        raise NoPlot(f"{_WHAT}: {rows.measure} makes no order of them: {robustness.NO_MEAN}")
    judgements = {row.qrels_sha256 for row, _ in judged}
    if len(judgements) > 1:
        raise NoPlot(f"{_WHAT}: rows were judged by {len(judgements)} different sets of judgements")
    distinct = _distinct_rankings(judged)
    if len(distinct) < 2:
        raise NoPlot(f"{_WHAT}: an order needs two systems, there is {distinct[0][0].system} alone")
    scores, left_out = _scores(rows, distinct)
    against = tuple(measure for measure in rows.table.measures if measure != rows.measure)
    board = robustness.of_values(rows.name, scores, robustness.RobustnessOptions(rows.measure, against))
    if not any(condition.flips for condition in board.conditions):
        raise NoPlot(f"{_WHAT}: {board.conditions[0].reason}")
    merged = (
        ["Rows of a system that are worth the same for every query are one."] if len(distinct) < len(judged) else []
    )
    frame = rows.frame(title(board), (), others)
    frame = replace(frame, notes=(*notes(board), " ".join((*merged, *left_out, _NOT_HERE)), *frame.notes))
    return lambda: draw_flips(board, frame)


def _judged_rows(rows: PlotRows) -> tuple[JudgedRows, LeftOut]:
    """Return the rows with values of the measure, all over the same queries, and the others with a reason."""
    usable, others = rows.usable()
    judged: JudgedRows = []
    for row in usable:
        values = rows.per_query.get(row.per_query_key)
        if values is None or not np.isfinite(values.measures.get(rows.measure, np.zeros(0))).any():
            others.append((row, f"no {rows.measure} by query"))
        else:
            judged.append((row, values))
    ids = tuple(sorted(set().union(*(values.query_ids for _, values in judged))))
    return [(row, values.on(ids)) for row, values in judged], others


def _is_mean(measure: str) -> bool:
    (parsed,) = measure_names.parse([measure])
    return evaluate.is_mean(parsed)


def _distinct_rankings(judged: JudgedRows) -> JudgedRows:
    """Return the table's first row for each system, and for each other ranking of a system."""
    distinct: dict[tuple[object, ...], tuple[Row, PerQuery]] = {}
    for row, values in judged:
        ranking = ((name, values.measures[name].tobytes()) for name in sorted(values.measures))
        distinct.setdefault((row.system, *ranking), (row, values))
    return list(distinct.values())


def _scores(rows: PlotRows, judged: JudgedRows) -> tuple[QueryScores, list[str]]:
    """Return the scores by all measures over the queries judged for every system, and a note on the rest."""

    def column(measure: str) -> Floats:
        return np.stack([values.measures[measure] for _, values in judged], axis=1)

    main = column(rows.measure)
    is_judged = np.isfinite(main)
    all_judged = is_judged.all(axis=1)
    if not all_judged.any():
        raise NoPlot(f"{_WHAT}: no query is judged for every system")
    columns, unfit = {rows.measure: main[all_judged]}, {}
    for measure in rows.table.measures:
        lacking = next((row for row, values in judged if measure not in values.measures), None)
        if lacking is not None:
            unfit[measure] = f"{row_name(lacking)} has none by query"
        elif not _is_mean(measure):
            unfit[measure] = robustness.NO_MEAN
        elif not np.isfinite(scores := column(measure)[all_judged]).all():
            unfit[measure] = "some of these queries have none"
        else:
            columns[measure] = scores
    apart = int((is_judged.any(axis=1) & ~all_judged).sum())
    left_out = [f"Not judged for every system, left out: {apart:,} queries."] if apart else []
    return QueryScores(_unique_names([row for row, _ in judged]), columns, unfit), left_out


def _unique_names(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return a unique name for each row: its system where that is enough, else with hardware, suite or key."""
    names: list[str] = []
    candidates = [
        [row.system, row_name(row), f"{row_name(row)}, {row.suite}", f"{row_name(row)}, {row.per_query_key}"]
        for row in rows
    ]
    times = [Counter(level) for level in zip(*candidates, strict=True)]
    for of_row in candidates:
        unique = [name for name, level in zip(of_row, times, strict=True) if level[name] == 1 and name not in names]
        names.append(unique[0] if unique else f"{of_row[-1]} ({len(names) + 1})")
    return tuple(names)
