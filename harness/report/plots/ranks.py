"""A leaderboard: each row's rank as a dot, and how far it moves under other queries, systems and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.report.plots import frame, theme
from harness.report.plots.frame import Frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 40
# The spans, in the order of the record: what each is, how thick it is drawn and how far below the dot.
_SPANS: tuple[tuple[str, float, float, Any], ...] = (
    ("rank with other queries", 4.0, 0.0, "-"),
    ("without each system", 1.6, 0.22, "-"),
    ("with other weights", 1.6, 0.38, ":"),
)


@dataclass(frozen=True)
class Ranked:
    """A row: its rank, its score as it is written, and the best and worst rank of each span (``None``: not known)."""

    system: str
    label: str
    rank: int
    score: str
    spans: tuple[tuple[int, int] | None, ...]


def draw(rows: Sequence[Ranked], around: Frame, score_label: str) -> Figure:
    """Draw at most ``MOST_ROWS`` rows, the best one on top."""
    known = [number for number in range(len(_SPANS)) if any(row.spans[number] for row in rows)]
    sheet = frame.begin(around, 0.9 + 0.3 * len(rows), 1 + len(known), 4)
    axes = sheet.figure.add_subplot()
    for place, row in enumerate(rows):
        style = around.looks[row.system]
        for number in known:
            span = row.spans[number]
            if span is not None:
                _, width, down, dash = _SPANS[number]
                axes.plot(
                    span,
                    [place + down] * 2,
                    color=style.colour,
                    linewidth=width,
                    linestyle=dash,
                    alpha=0.6,
                    solid_capstyle="butt",
                    gid=f"span {number}",
                )
        axes.plot(
            [row.rank],
            [place],
            marker=style.marker,
            color=style.colour,
            markersize=7,
            linestyle="none",
            markeredgecolor="black",
            gid=theme.text(row.system),
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
    axes.set_yticks(range(len(rows)), [theme.text(row.label, 44) for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.3, -0.8)
    _ranks(axes, rows)
    axes.annotate(
        theme.text(score_label),
        (1, 1),
        xycoords="axes fraction",
        xytext=(6, 2),
        textcoords="offset points",
        fontsize=8,
        va="bottom",
    )
    frame.grid(axes, "x")
    frame.legend(sheet, _entries(known), columns=4)
    return sheet.figure


def _ranks(axes: Any, rows: Sequence[Ranked]) -> None:
    last = max(rank for row in rows for rank in (row.rank, *(end for span in row.spans if span for end in span)))
    axes.set_xlim(0.4, last + 0.6)
    step = -(-last // 10)
    axes.set_xticks(sorted({1, *range(step, last + 1, step)}))
    axes.set_xlabel("rank (1 is best)")


def _entries(known: Sequence[int]) -> list[tuple[Any, str]]:
    from matplotlib.lines import Line2D

    dot = Line2D([], [], color=theme.GREY, marker="o", markeredgecolor="black", linestyle="none")
    spans = [
        (
            Line2D([], [], color=theme.GREY, linewidth=_SPANS[number][1], linestyle=_SPANS[number][3], alpha=0.6),
            _SPANS[number][0],
        )
        for number in known
    ]
    return [(dot, "rank"), *spans]
