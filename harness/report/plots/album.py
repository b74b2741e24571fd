"""A priced table -> its plots, and why others are missing.

Rows of one group (:mod:`harness.analysis.axes`) share a plot; its file is named by the dataset and the kind.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.analysis.axes import ComparisonGroup, group_rows
from harness.analysis.leaderboard import LeaderboardQuery
from harness.analysis.table import Table
from harness.driver.records import digest
from harness.errors import UnknownName
from harness.evaluation.per_query import PerQuery
from harness.report.plots import KINDS, curves, order_flips, ranking, style
from harness.report.plots import rows as row_plots
from harness.report.plots.select import Drawing, NoPlot, PlotRows
from harness.report.plots.style import file_name

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
    "flips": order_flips.make_flips,
}


@dataclass(frozen=True)
class Plot:
    """Plot of a comparison group: the stem of its file, and the function that draws it."""

    name: str
    kind: str
    place: ComparisonGroup
    draw: Callable[[], Figure]


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

    Raises:
        UnknownName: the table has no such measure, or there is no such mode.
    """
    if asked.measure not in table.measures:
        raise UnknownName("measure", asked.measure, table.measures)
    groups = group_rows(table.rows)
    styles = style.system_styles([*(row.system for row in table.rows), *curves.families(table.rows)])
    names = _group_names(list(groups))
    pictures, missing = [], []
    for group, of_group in groups.items():
        stem, name = names[group]
        query = replace(asked, dataset=group.dataset, suite=None, scenario=None)
        rows = PlotRows(replace(table, rows=tuple(of_group)), found, query, styles, name)
        for kind in kinds:
            try:
                pictures.append(Plot(f"{stem}-{kind}", kind, group, _MAKERS[kind](rows)))
            except NoPlot as error:
                missing.append(f"{name}: no picture of {error}")
    return PlotSet(tuple(pictures), tuple(missing))


def write_plots(pictures: Sequence[Plot], folder: Path, form: str) -> Iterator[Path]:
    """Draw pictures into files of one of :data:`harness.report.plots.style.FORMATS`, one after the other.

    Raises:
        FileError: one cannot be written.
    """
    return style.save_each(((picture.name, picture.draw) for picture in pictures), folder, form)


def _group_names(groups: Sequence[ComparisonGroup]) -> dict[ComparisonGroup, tuple[str, str]]:
    """Return the stem of each group's files, and its name: the dataset and what sets it apart."""
    words = {group: _group_words(group, groups) for group in groups}
    stems = {group: file_name("-".join(of_group)) for group, of_group in words.items()}
    times = Counter(stems.values())
    return {
        group: (f"{stem}-{digest(list(group))[:8]}" if times[stem] > 1 else stem, ", ".join(words[group]))
        for group, stem in stems.items()
    }


def _group_words(group: ComparisonGroup, groups: Sequence[ComparisonGroup]) -> tuple[str, ...]:
    """Return a group's dataset, and the words that tell it from the dataset's other groups."""
    same = [_group_facts(other) for other in groups if other.dataset == group.dataset]
    facts = zip(_group_facts(group), zip(*same, strict=True), strict=True)
    return (group.dataset, *(fact for fact, all_facts in facts if len(set(all_facts)) > 1))


def _group_facts(group: ComparisonGroup) -> tuple[str, str, str]:
    return group.suite or "measured", group.scenario, group.isolation
