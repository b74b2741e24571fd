"""Draw the front before and after: ``python -m scripts.docs.engines_front results/engines``.

Above, cost against nDCG@10: one line joins the best of the engines of 2022, the other the best of all.  Below, the cost
of each engine next to the cost of its kind in 2022.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness import api
from harness.analysis.table import Row
from harness.report.plots import style
from scripts.docs.make_pictures import FOLDER, shrink

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "engines-cost"
MEASURE = "nDCG@10"
_KINDS = ("bm25", "splade", "minilm")
_OLD, _NEW = "#000000", "#0072B2"
# A row that ranks much worse than the best would flatten all others; it is named instead.
_SHOWN = 0.85


def is_old(row: Row) -> bool:
    """Return whether an engine was there in 2022: Lucene's BM25, or an encoder under float32 PyTorch."""
    return row.system == "bm25" or row.system.endswith("-torch")


def front(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """Return cost and measure of the rows that no other beats in both, the cheapest first."""
    best = -1.0
    found = []
    for cost, worth in sorted((place(row) for row in rows), key=lambda at: (at[0], -at[1])):
        if worth > best:
            best = worth
            found.append((cost, worth))
    return found


def place(row: Row) -> tuple[float, float]:
    """Return a row's US$ per million queries, and its measure."""
    cost, worth = row.cost.sequential.value, row.measured(MEASURE)
    assert cost is not None and worth is not None, f"{row.system} has no figures"
    return cost, worth


def named(row: Row) -> str:
    """Return a row's system; of a point of a sweep its values too."""
    return row.system if row.sweep is None else f"{row.sweep.system}: {row.sweep.label}"


def draw(folder: Path) -> Figure:
    """Draw the results of ``suites/engines.toml``."""
    from matplotlib.ticker import FuncFormatter

    rows = list(api.table(folder).rows)
    figure = style.new_figure(8.4, 6.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 3))
    _draw_fronts(above, rows)
    _draw_costs(below, rows)
    below.set_xscale("log")
    below.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    below.set_xlabel("US$ per million queries (bars: 95 %)")
    return figure


def _draw_fronts(axes: Axes, rows: Sequence[Row]) -> None:
    least = _SHOWN * max(place(row)[1] for row in rows)
    right = 1.3 * max(place(row)[0] for row in rows)
    for name, of, colour, line in (
        ("front of 2022", [row for row in rows if is_old(row)], _OLD, "--"),
        ("front today", rows, _NEW, "-"),
    ):
        costs, worths = zip(*front(of), strict=True)
        axes.plot((*costs, right), (*worths, worths[-1]), line, drawstyle="steps-post", color=colour, label=name)
    hidden = []
    for row in rows:
        cost, worth = place(row)
        if worth < least:
            hidden.append(f"{named(row)}: {worth:.3f} at US$ {cost:.2g}, below the picture")
            continue
        axes.plot(cost, worth, "s" if is_old(row) else "o", color=_OLD if is_old(row) else _NEW, markersize=5)
    for cost, worth in {*front(rows), *front([row for row in rows if is_old(row)])}:
        name = next(named(row) for row in rows if place(row) == (cost, worth))
        axes.annotate(name, (cost, worth), xytext=(5, -11), textcoords="offset points", fontsize=7)
    axes.text(0.01, 0.06, "\n".join(hidden), transform=axes.transAxes, fontsize=7, color=style.GREY)
    axes.set_ylabel(MEASURE)
    style.add_grid(axes)
    axes.legend(loc="center left", fontsize=8)


def _draw_costs(axes: Axes, rows: Sequence[Row]) -> None:
    ordered = sorted(rows, key=lambda row: (_kind(row), -place(row)[0]), reverse=True)
    labels = []
    for level, row in enumerate(ordered):
        (cost, worth), estimate = place(row), row.cost.sequential
        colour = _OLD if is_old(row) else _NEW
        if estimate.low is not None and estimate.high is not None:
            axes.plot((max(estimate.low, cost / 10), estimate.high), (level, level), color=colour, linewidth=1)
        axes.plot(cost, level, "s" if is_old(row) else "o", color=colour, markersize=5)
        labels.append(f"   {named(row)}  {worth:.3f}")  # blanks: room that the layout leaves out
    for kind in range(1, len(_KINDS)):
        axes.axhline(sum(_kind(row) >= kind for row in rows) - 0.5, color=style.GREY, linewidth=0.6)
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.set_ylim(-0.6, len(labels) - 0.4)
    style.add_grid(axes, "x")


def _kind(row: Row) -> int:
    """Return the place of a row's kind: vectors, then learned sparse weights; BM25 has neither in its name."""
    return next((number for number, part in enumerate(_KINDS) if number and part in row.system), 0)


def main(folder: str) -> None:
    """Write the picture."""
    with style.settings(9):
        path = style.save(draw(Path(folder)), FOLDER / f"{NAME}.png")
    shrink(path)
    print(path.name)


if __name__ == "__main__":
    main(sys.argv[1])
