"""Plot how often two systems change places: a matrix for each condition, systems in the leaderboard's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.analysis import robustness
from harness.analysis.robustness import Condition, QueryScores, Robustness
from harness.analysis.table import Row
from harness.evaluation import evaluate, measure_names
from harness.evaluation.per_query import PerQuery
from harness.report.plots import style
from harness.report.plots.select import Drawing, NoPlot, PlotRows, no_row_reason, row_name
from harness.report.plots.style import Frame, file_name
from harness.report.robustness import condition_name, percent

if TYPE_CHECKING:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure


# Beyond so many no number is read; the best ones are drawn.
MAX_SYSTEMS = 30
# Up to so many systems two panels stand side by side and cells are numbered; up to so few they are large.
_NUMBERED, _FEW = 15, 6


def write_flips(found: Sequence[Robustness], folder: Path, form: str) -> Iterator[Path]:
    """Draw a plot for each leaderboard that has a matrix, into files of one of ``style.FORMATS``.

    Raises:
        FileError: one cannot be written.
    """
    taken: dict[str, int] = {}
    for each in found:
        if not any(condition.flips for condition in each.conditions):
            continue
        stem = f"{file_name(each.dataset)}-flips"
        taken[stem] = number = taken.get(stem, 0) + 1
        with style.settings(9):
            yield style.save(draw_flips(each), folder / f"{stem}{f'-{number}' if number > 1 else ''}.{form}")


def draw_flips(found: Robustness, around: Frame | None = None) -> Figure:
    """Draw all conditions that were asked, in columns where systems are few.

    Args:
        found: with a matrix at least.
        around: what stands around them; else its dataset, ``title`` and ``notes``.
    """
    shown = [each for each in found.conditions if each.flips]
    systems = found.systems[:MAX_SYSTEMS]
    columns = 2 if len(systems) <= _NUMBERED and len(shown) > 1 else 1
    lines = -(-len(shown) // columns)
    height = lines * (0.62 + (0.36 if len(systems) <= _FEW else 0.21) * len(systems)) + 0.45
    around = around or Frame(f"{found.dataset}: {title(found)}", notes(found), {})
    canvas = style.new_canvas(around, height)
    # Small letters are as wide as their pixels: room is made for them as they will be drawn.
    canvas.figure.set_dpi(style.DPI)
    drawn = canvas.figure.subplots(lines, columns, squeeze=False)
    labels = list(style.short_names(systems).values())
    for place, axes in enumerate(drawn.flat):
        if place >= len(shown):
            axes.set_axis_off()
            continue
        _panel(axes, shown[place], labels, first=place % columns == 0)
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scale = ScalarMappable(Normalize(0, 1), _colours())
    bar = canvas.figure.colorbar(scale, ax=list(drawn.flat), orientation="horizontal", aspect=60, shrink=0.7, pad=0.01)
    bar.set_ticks([0, 0.25, 0.5, 0.75, 1], labels=["0 %", "25 %", "50 %", "75 %", "100 %"])
    bar.ax.tick_params(labelsize=7.5, length=2)
    bar.outline.set_visible(False)
    # Matplotlib would make pixels of so many colours, in SVG and PDF as well.
    assert bar.solids is not None
    bar.solids.set(rasterized=False, edgecolor="face")
    return canvas.figure


def _panel(axes: Any, condition: Condition, labels: Sequence[str], *, first: bool) -> None:
    """Draw one matrix; systems are named in the first of a line and numbered in the others."""
    import numpy as np

    count = len(labels)
    shares = np.full((count, count), np.nan)
    for one in range(count):
        for other in range(one):
            found = condition.flips[one][other]
            shares[one, other] = np.nan if found is None else found
    colours = _colours()
    edges = np.arange(count + 1) - 0.5
    axes.pcolormesh(
        edges, edges, shares, cmap=colours, vmin=0, vmax=1, edgecolors="white", linewidth=1, rasterized=False
    )
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_ylim(count - 0.5, -0.5)
    size = 8 if count <= _FEW else 6
    for one in range(count if count <= _NUMBERED else 0):
        for other in range(one):
            share = condition.flips[one][other]
            if share is None:
                axes.text(other, one, "=", ha="center", va="center", fontsize=size, color=style.GREY)
                continue
            dark = 0.3 < share <= 0.5 or share > 0.75
            ink = "white" if dark else style.INK
            axes.text(other, one, percent(share), ha="center", va="center", fontsize=size, color=ink)
    numbers = [str(number) for number in range(1, count + 1)]
    named = [f"{label}  {number}" for label, number in zip(labels, numbers, strict=True)]
    axes.set_yticks(range(count), named if first else numbers, fontsize=size)
    axes.set_xticks(range(count - 1), numbers[:-1], fontsize=size)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    tau = condition.tau_whole if condition.tau_whole is not None else condition.tau.value
    said = condition.cause.value if tau is None else f"{condition.cause.value} (tau {tau:.2f})"
    axes.set_title(f"{said}:\n{style.plain_text(condition.name, 34)}", fontsize=8, loc="left")


def _colours() -> LinearSegmentedColormap:
    """Return colours from pale to blue up to a half, and from light to dark orange above it."""
    from matplotlib.colors import LinearSegmentedColormap

    steps = [(0.0, "#eef2f6"), (0.5, "#1f6fb0"), (0.5, "#fbd0a2"), (1.0, "#a63603")]
    return LinearSegmentedColormap.from_list("flips", steps, N=512)


def title(found: Robustness) -> str:
    """Return the title."""
    return f"share of draws in which two systems change places, by {found.measure}"


def notes(found: Robustness) -> tuple[str, ...]:
    """Return notes on how to read the matrices, and on the missing ones."""
    more = len(found.systems) - MAX_SYSTEMS
    return (
        f"Systems in the order of {found.measure} over {found.queries:,} queries, 1 the best. Each cell: in how many "
        "per cent of draws its row stands above its column; a tie counts half, 50 is a toss of a coin. = : equal, no "
        "order to lose. tau: Kendall's, with the order shown (mean over draws; of another measure over all queries).",
        *(f"no picture of {condition_name(each)}: {each.reason}." for each in found.conditions if not each.flips),
        *([f"The {MAX_SYSTEMS} best; {more} more are in the table."] if more > 0 else []),
    )


Floats = NDArray[np.float64]

_WHAT = "how often two systems change places"
_NOT_HERE = "Fewer judgements, which turn an order round as well, are drawn by harness robustness."


@dataclass(frozen=True)
class _JudgedRow:
    """Row with values by query."""

    row: Row
    found: PerQuery


def make_flips(rows: PlotRows) -> Drawing:
    """Return the drawing for the ranking's measure, against other queries and the table's other measures.

    Raises:
        NoPlot: there is no order that could change.
    """
    known, others = _judged_rows(rows)
    if not known:
        raise NoPlot(f"{_WHAT}: {no_row_reason(others)}")
    if not _is_mean(rows.measure):
        raise NoPlot(f"{_WHAT}: {rows.measure} makes no order of them: {robustness.NO_MEAN}")
    judgements = {each.row.qrels_sha256 for each in known}
    if len(judgements) > 1:
        raise NoPlot(f"{_WHAT}: rows were judged by {len(judgements)} different sets of judgements")
    ids = tuple(sorted(set().union(*(each.found.query_ids for each in known))))
    known = [replace(each, found=each.found.on(ids)) for each in known]
    merged = _merged(known)
    if len(merged) < 2:
        raise NoPlot(f"{_WHAT}: an order needs two systems, there is {merged[0].row.system} alone")
    values, left_out = _values(rows, merged)
    asked = robustness.RobustnessOptions(
        rows.measure, tuple(each for each in rows.table.measures if each != rows.measure)
    )
    found = robustness.of_values(rows.called, values, asked)
    if not any(condition.flips for condition in found.conditions):
        raise NoPlot(f"{_WHAT}: {found.conditions[0].reason}")
    return _drawing(rows, found, others, [*_one(known, merged), *left_out])


def _drawing(rows: PlotRows, found: Robustness, others: list[tuple[Row, str]], said: Sequence[str]) -> Drawing:
    around = rows.frame(title(found), (), others)
    around = replace(around, notes=(*notes(found), " ".join((*said, _NOT_HERE)), *around.notes))
    return lambda: draw_flips(found, around)


def _judged_rows(rows: PlotRows) -> tuple[list[_JudgedRow], list[tuple[Row, str]]]:
    """Return the rows with values of the measure by query, and the others with a reason."""
    kept, others = rows.usable()
    known = []
    for row in kept:
        found = rows.found.get(row.per_query_key)
        if found is None or not np.isfinite(found.measures.get(rows.measure, np.zeros(0))).any():
            others.append((row, f"no {rows.measure} by query"))
        else:
            known.append(_JudgedRow(row, found))
    return known, others


def _is_mean(measure: str) -> bool:
    (parsed,) = measure_names.parse([measure])
    return evaluate.is_mean(parsed)


def _merged(known: Sequence[_JudgedRow]) -> list[_JudgedRow]:
    """Return the table's first row for each system, and for each other ranking of a system."""
    distinct: dict[tuple[object, ...], _JudgedRow] = {}
    for each in known:
        values = each.found.measures
        same = (each.row.system, *((name, values[name].tobytes()) for name in sorted(values)))
        distinct.setdefault(same, each)
    return list(distinct.values())


def _one(known: Sequence[_JudgedRow], merged: Sequence[_JudgedRow]) -> list[str]:
    if len(known) == len(merged):
        return []
    return ["Rows of a system that are worth the same for every query are one."]


def _values(rows: PlotRows, merged: Sequence[_JudgedRow]) -> tuple[QueryScores, list[str]]:
    """Return the scores by all measures over the queries judged for every system, and a note on the rest."""
    main = _columns(merged, rows.measure)
    judged = np.isfinite(main)
    all_judged = judged.all(axis=1)
    if not all_judged.any():
        raise NoPlot(f"{_WHAT}: no query is judged for every system")
    columns, unfit = {rows.measure: main[all_judged]}, {}
    for measure in rows.table.measures:
        lacking = [each.row for each in merged if measure not in each.found.measures]
        if lacking:
            unfit[measure] = f"{row_name(lacking[0])} has none by query"
        elif not _is_mean(measure):
            unfit[measure] = robustness.NO_MEAN
        elif not np.isfinite(found := _columns(merged, measure)[all_judged]).all():
            unfit[measure] = "some of these queries have none"
        else:
            columns[measure] = found
    apart = int((judged.any(axis=1) & ~all_judged).sum())
    said = [f"Not judged for every system, left out: {apart:,} queries."] if apart else []
    return QueryScores(_names([each.row for each in merged]), columns, unfit), said


def _columns(merged: Sequence[_JudgedRow], measure: str) -> Floats:
    return np.stack([each.found.measures[measure] for each in merged], axis=1)


# What a row is called where the names before it are those of others too.
_WAYS: tuple[Callable[[Row], str], ...] = (
    lambda row: row.system,
    row_name,
    lambda row: f"{row_name(row)}, {row.suite}",
    lambda row: f"{row_name(row)}, {row.per_query_key}",
)


def _names(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return a unique name for each row: its system where that is enough."""
    found: list[str] = []
    for row in rows:
        ways = [
            way(row) for way in _WAYS if sum(way(row) == way(other) for other in rows) == 1 and way(row) not in found
        ]
        found.append(ways[0] if ways else f"{_WAYS[-1](row)} ({len(found) + 1})")
    return tuple(found)
