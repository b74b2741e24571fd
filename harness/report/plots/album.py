"""A priced table -> its plots, and why others are missing.

Rows of one group (:mod:`harness.analysis.axes`) share a plot; its file is named by the dataset and the kind.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.analysis.axes import group_rows
from harness.analysis.leaderboard import LeaderboardQuery
from harness.analysis.table import Table
from harness.evaluation.per_query import PerQuery
from harness.report.groups import group_words
from harness.report.plots import KINDS, curves, foreign, load, order_flips, ranking, style
from harness.report.plots import rows as row_plots
from harness.report.plots.select import Drawing, NoPlot, PlotRows
from harness.report.plots.style import Picture, file_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAKERS: dict[str, Callable[[PlotRows], Drawing]] = {
    "cost": functools.partial(row_plots.make_accuracy, across="cost"),
    "latency": functools.partial(row_plots.make_accuracy, across="latency"),
    "winners": ranking.make_winners,
    "ranks": ranking.make_ranks,
    "distributions": row_plots.make_distributions,
    "memory": row_plots.make_memory,
    "instances": row_plots.make_instances,
    "load": load.make_load,
    "flips": order_flips.make_flips,
    "foreign": foreign.make_foreign,
}

# Beside the picture of cost, where a table has quality of others.
_THEIRS = ("foreign",)


@dataclass(frozen=True)
class Plot:
    """Plot of a comparison group: the stem of its file, and the function that draws it."""

    name: str
    kind: str
    draw: Callable[[], Figure]

    @property
    def picture(self) -> Picture:
        """The file's stem and the drawing."""
        return self.name, self.draw


@dataclass(frozen=True)
class PlotSet:
    """Plots of a table, and a sentence on each missing one."""

    pictures: tuple[Plot, ...]
    missing: tuple[str, ...]


def plots_of(
    table: Table,
    found: Mapping[str, PerQuery],
    asked: LeaderboardQuery,
    kinds: Sequence[str] = KINDS,
) -> PlotSet:
    """Return the plots of a table.

    Args:
        table: priced rows.
        found: what rows are made of, by :attr:`harness.analysis.table.Row.per_query_key`; published rows have none.
        asked: how rows of any dataset are ranked.
        kinds: of :data:`harness.report.plots.KINDS`.
    """
    groups = group_rows(table.rows)
    styles = style.system_styles([*(row.system for row in table.rows), *curves.families(table.rows)])
    words = group_words(groups)
    pictures, missing = [], []
    for group, of_group in groups.items():
        stem, name = file_name("-".join(words[group])), ", ".join(words[group])
        query = replace(asked, dataset=group.dataset, suite=None, scenario=None)
        rows = PlotRows(replace(table, rows=tuple(of_group)), found, query, styles, name)
        for kind in (*kinds, *(_THEIRS if table.foreign and "cost" in kinds else ())):
            try:
                pictures.append(Plot(f"{stem}-{kind}", kind, _MAKERS[kind](rows)))
            except NoPlot as error:
                missing.append(f"{name}: no picture of {error}")
    return PlotSet(tuple(pictures), tuple(missing))
