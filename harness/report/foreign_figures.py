"""The figure of a row that others report: its model's quality, marked in every place where people see it."""

from __future__ import annotations

from harness.estimate import Estimate, Varies
from harness.report.document import MISSING
from harness.report.figures import FOREMOST, Figure, FirstScreen
from harness.results.foreign import MARK, parts_of

# A note of the table says what a dash means.
_NONE = Estimate(None)


def figure_of_column(name: str) -> Figure:
    """Return the figure of a column (``mteb SciFact nDCG@10``)."""
    source, task, measure = parts_of(name)
    heading = f"{measure} {task} ({source}){MARK}"
    return Figure(
        name=name,
        meaning=f"{measure} that {source} reports of the row's model (a fraction): not measured here",
        read=lambda row: row.foreign.get(name, _NONE),
        label=heading,
        decimals=3,
        higher=True,
        optional=True,
        varies=Varies.NOTHING,
        remark=lambda row, _: MARK if name in row.foreign else "",
        told="Quality by others",
        screen=FirstScreen(heading, lambda row: marked(row.foreign.get(name, _NONE)), dropped=8),
        places=FOREMOST,
    )


def marked(item: Estimate) -> str:
    """Return a figure of others with its mark."""
    return MISSING if item.value is None else f"{item.value:.3f}{MARK}"
