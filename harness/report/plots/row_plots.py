"""Rows that may be compared, as every picture of them takes them: which can be drawn, and what stands around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from harness.analysis import leaderboard, pareto_front
from harness.analysis.leaderboard import Leaderboard, LeaderboardQuery
from harness.analysis.table import Row, Table, Validity
from harness.evaluation.per_query import SHARES, PerQuery
from harness.records import Isolation, Outcome
from harness.report.plots import frame, theme
from harness.report.plots.frame import Frame
from harness.report.plots.theme import Look

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Drawing = Callable[[], "Figure"]


class Missing(Exception):
    """There is no such picture; the text says of what, and why not."""


@dataclass(frozen=True)
class Rows:
    """A table of rows that may be compared, what each is made of by query, and what they are called.

    ``asked`` says how they are ranked.
    """

    table: Table
    found: Mapping[str, PerQuery]
    asked: LeaderboardQuery
    looks: Mapping[str, Look]
    called: str

    @property
    def measure(self) -> str:
        """What accuracy is."""
        return self.asked.measure

    @cached_property
    def ranked(self) -> Leaderboard:
        """As was asked."""
        return leaderboard.build(self.table, self.found, self.asked)

    @cached_property
    def weighed(self) -> Leaderboard:
        """By Dynascore of accuracy, cost and latency, whatever their weights: all rows, with the rates as asked."""
        weights = leaderboard.PRESETS[0].weights
        asked = replace(self.asked, weights=weights, bounds=(), rank_by=None)
        return leaderboard.build(self.table, self.found, asked)

    @cached_property
    def by_cost(self) -> Leaderboard:
        """With the front over accuracy and cost."""
        asked = replace(self.asked, bounds=(), rank_by="cost", front=("accuracy", "cost"))
        return leaderboard.build(self.table, self.found, asked)

    def frame(self, title: str, notes: Iterable[str], left_out: Iterable[tuple[Row, str]]) -> Frame:
        """Title and small print: of what, at which prices, which rows are in doubt and which are not there."""
        table, rows = self.table, self.table.rows
        said = [f"Prices: {table.price_provider} {table.price_region}, {table.price_term}, {table.price_date}."]
        if rows[0].isolation is Isolation.PUBLISHED:
            said.append("Published figures, not measured here: no intervals are known.")
        elif rows[0].isolation is not Isolation.CONTAINER:
            said.append(f"Isolation: {rows[0].isolation.value}; no limits were enforced.")
        doubted = [named(row) for row in rows if row.validity is Validity.NOISY and row.outcome is Outcome.OK]
        said += [f"Noisy: {theme.listed(doubted)}."] if doubted else []
        absent = [f"{named(row)} ({theme.text(why, 60)})" for row, why in left_out]
        said += [f"Not drawn: {theme.listed(absent)}."] if absent else []
        return Frame(f"{self.called}: {title}", (" ".join((*notes, *said)),), self.looks)

    @property
    def cost_label(self) -> str:
        """The cost axis: which of the two models it is."""
        model = "sequential" if self.table.rows[0].scenario == "single_stream" else "saturated"
        return f"cost, US$ per million queries ({model})"

    def usable(self) -> tuple[list[Row], list[tuple[Row, str]]]:
        """Rows that ran and are not invalid; and the others with why."""
        kept, others = [], []
        for row in self.table.rows:
            why = pareto_front.reason_not_ranked(row, ())
            if why is None:
                kept.append(row)
            else:
                others.append((row, short(row, why)))
        return kept, others


def named(row: Row) -> str:
    """What a row is called."""
    return f"{row.system} on {row.profile}"


def short(row: Row, why: str) -> str:
    """Why a row is not drawn, in few words."""
    return why if row.outcome is Outcome.OK else row.outcome.value


def why_none(others: list[tuple[Row, str]]) -> str:
    """Why no row could be drawn, by the first."""
    row, why = others[0]
    return f"no row has what it takes ({named(row)}: {why}{f'; {len(others) - 1} more' if len(others) > 1 else ''})"


# MERGED harness.report.plots.row_plots: Latency distributions: the share of timed samples up to each latency, a line
# for each system, a panel for each hardware.


MOST_PANELS = 12


@dataclass(frozen=True)
class Distribution:
    """A row: the quantiles of its latencies, seconds, at :data:`harness.evaluation.per_query.SHARES`."""

    system: str
    hardware: str
    quantiles_s: tuple[float, ...]


def draw(rows: Sequence[Distribution], around: Frame) -> Figure:
    """Draw them; at most ``MOST_PANELS`` kinds of hardware."""
    kinds = list(dict.fromkeys(row.hardware for row in rows))
    names = {row.system for row in rows}
    across = min(2, len(kinds))
    down = -(-len(kinds) // across)
    sheet = frame.begin(around, 0.5 + (2.0 if down > 1 else 3.0) * down, len(names))
    grid = sheet.figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    every = [second * 1e3 for row in rows for second in (row.quantiles_s[0], row.quantiles_s[-1])]
    called = theme.short(kinds)
    for place, kind in enumerate(kinds):
        axes = grid.flat[place]
        for row in rows:
            if row.hardware == kind:
                style = around.looks[row.system]
                values = [second * 1e3 for second in row.quantiles_s]
                axes.plot(
                    values, SHARES, color=style.colour, linestyle=style.dash, linewidth=1.6, gid=theme.text(row.system)
                )
        if len(kinds) > 1:
            axes.set_title(called[kind], fontsize=8)
        frame.grid(axes)
    frame.number_axis(grid[0][0].xaxis, every, narrow=across > 1)
    grid[0][0].set_ylim(0, 1.02)
    for axes in grid.flat[len(kinds) :]:
        axes.set_visible(False)
    for column in range(across):
        lowest = grid.flat[max(place for place in range(len(kinds)) if place % across == column)]
        lowest.tick_params(labelbottom=True)
        lowest.set_xlabel("latency, ms")
    for line in grid:
        line[0].set_ylabel("share of samples")
    frame.legend(sheet, frame.systems(names, around.looks, linestyle="dash", marker="none", linewidth=1.6))
    return sheet.figure
