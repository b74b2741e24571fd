"""The worked example of docs/method/measures.md: three rankings of six documents, as harness judges them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.evaluation import evaluate, measure_names
from harness.evaluation.trec import Run
from harness.report.writers import markdown_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# At which ranks the three relevant documents stand.
RANKS = {"A": (1, 2, 6), "B": (2, 5, 6), "C": (3, 4, 5)}
DEPTH = 6
MEASURES = (
    *("RR", "RR@2", "Success@1", "Success@2"),
    *("P@2", "P@3", "P@5", "R@2", "R@5", "F1@2", "F1@5"),
    *("AP", "nDCG"),
)
DRAWN = ("RR", "P@3", "nDCG", "AP", "P@5")
NAME = "measures-example"
_COLOURS = {"A": "#0072B2", "B": "#D55E00", "C": "#009E73"}


def values(names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Ranking -> measure -> value.  All relevant documents are retrieved, and everything is judged."""
    measures = measure_names.parse(names)
    scores = {}
    for name, ranks in RANKS.items():
        run = Run({"q": tuple(f"d{rank}" for rank in range(1, DEPTH + 1))}, ())
        qrels = {"q": {f"d{rank}": int(rank in ranks) for rank in range(1, DEPTH + 1)}}
        judged = evaluate.evaluate(run, qrels, ["q"], measures).values
        scores[name] = {measure: value for measure, value in judged.items() if value is not None}
    return scores


def table() -> str:
    """Return the values of each measure for each ranking, and the preferred one."""
    scores = values(MEASURES)
    cells = []
    for name in MEASURES:
        of = {ranking: scores[ranking][name] for ranking in RANKS}
        cells.append((f"`{name}`", *(f"{value:.3f}" for value in of.values()), order(of)))
    heads = ("measure", *(f"{name}: {', '.join(map(str, ranks))}" for name, ranks in RANKS.items()), "order")
    return "\n".join(markdown_grid(heads, (False, True, True, True, False), cells)) + "\n"


def order(of: dict[str, float]) -> str:
    """``A > B = C``."""
    ranked = sorted(of, key=lambda name: (-round(of[name], 9), name))
    text = ranked[0]
    for better, worse in itertools.pairwise(ranked):
        text += f" {'=' if round(of[better], 9) == round(of[worse], 9) else '>'} {worse}"
    return text


def draw() -> Figure:
    """Draw the rankings as strips of six documents, and their values by five measures."""
    from harness.report.plots import style

    figure = style.new_figure(6.0, 2.6)
    strips, lines = figure.subplots(1, 2, width_ratios=(1, 1.5))
    _strips(strips)
    _lines(lines, values(DRAWN))
    return figure


def _strips(axes: Axes) -> None:
    from matplotlib.patches import Rectangle

    for row, (name, ranks) in enumerate(RANKS.items()):
        for rank in range(1, DEPTH + 1):
            filled: Any = _COLOURS[name] if rank in ranks else "white"
            axes.add_patch(Rectangle((rank - 0.42, row - 0.32), 0.84, 0.64, facecolor=filled, edgecolor="#666666"))
    axes.set(xlim=(0.4, DEPTH + 0.6), ylim=(2.6, -0.6), xlabel="rank (filled: relevant)", yticks=range(3))
    axes.set_xticks(range(1, DEPTH + 1))
    axes.set_yticklabels(list(RANKS))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _lines(axes: Axes, scores: dict[str, dict[str, float]]) -> None:
    for (name, of), marker in zip(scores.items(), "osD", strict=True):
        axes.plot(
            range(len(DRAWN)), [of[measure] for measure in DRAWN], marker=marker, color=_COLOURS[name], label=name
        )
    axes.set(ylim=(0, 1.05), xticks=range(len(DRAWN)), ylabel="value")
    axes.set_xticklabels(DRAWN)
    axes.legend(frameon=False, ncols=3, fontsize=8)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
