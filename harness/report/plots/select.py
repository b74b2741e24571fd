"""Rows that may be compared, with what all plots of them share: leaderboards, small print, reasons for no plot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.analysis import leaderboard, pareto_front
from harness.analysis.leaderboard import Leaderboard, LeaderboardQuery
from harness.analysis.table import Row, Table, Validity
from harness.driver.records import Outcome
from harness.errors import UsageError
from harness.evaluation.per_query import PerQuery
from harness.report.plots import style
from harness.report.plots.style import Frame, SystemStyle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawing = Callable[[], "Figure"]
# Rows that a plot leaves out, each with the reason.
LeftOut = list[tuple[Row, str]]


class NoPlot(Exception):
    """Plot that cannot be drawn; the text names it and the reason."""


@dataclass(frozen=True)
class PlotRows:
    """Table of comparable rows, their per-query values, and the group's name.

    ``query`` says how they are ranked.
    """

    table: Table
    per_query: Mapping[str, PerQuery]
    query: LeaderboardQuery
    styles: Mapping[str, SystemStyle]
    name: str

    @property
    def measure(self) -> str:
        """Return the measure of accuracy."""
        return self.query.measure

    def board(self, plot: str, **changes: Any) -> tuple[Leaderboard, LeftOut]:
        """Return the leaderboard as queried, but for some changes, and the rows that it leaves out.

        Raises:
            NoPlot: no row can be ranked.
        """
        try:
            board = leaderboard.build(self.table, self.per_query, replace(self.query, **changes))
        except UsageError as error:
            raise NoPlot(f"{plot}: {error}") from error
        return board, [(row, _short_reason(row, reason)) for row, reason in board.left_out]

    def usable(self) -> tuple[list[Row], LeftOut]:
        """Return the rows that ran and are valid, and the others."""
        reasons = [(row, pareto_front.reason_not_ranked(row, ())) for row in self.table.rows]
        others = [(row, _short_reason(row, reason)) for row, reason in reasons if reason is not None]
        return [row for row, reason in reasons if reason is None], others

    def frame(self, title: str, notes: Iterable[str], left_out: LeftOut) -> Frame:
        """Return title and small print: prices, rows in doubt, and missing rows."""
        table, rows = self.table, self.table.rows
        sentences = [
            *notes,
            f"Prices: {table.price_provider} {table.price_region}, {table.price_term}, {table.price_date}.",
        ]
        sentences += [note] if (note := rows[0].isolation.note) else []
        doubted = [row_name(row) for row in rows if row.validity is Validity.NOISY and row.outcome is Outcome.OK]
        absent = [f"{row_name(row)} ({style.plain_text(reason, 60)})" for row, reason in left_out]
        sentences += style.listed("Noisy", doubted) + style.listed("Not drawn", absent)
        return Frame(f"{self.name}: {title}", (" ".join(sentences),), self.styles)

    @property
    def cost_label(self) -> str:
        """Return the label of the cost axis, with the cost model."""
        model = "sequential" if self.table.rows[0].scenario == "single_stream" else "saturated"
        return f"cost, US$ per million queries ({model})"


def row_name(row: Row) -> str:
    """Return a row's name."""
    return f"{row.system} on {row.profile}"


def _short_reason(row: Row, reason: str) -> str:
    return reason if row.outcome is Outcome.OK else row.outcome.value


def no_row_reason(others: LeftOut) -> str:
    """Return why no row could be drawn, with the first as an example."""
    row, reason = others[0]
    more = f"; {len(others) - 1} more" if len(others) > 1 else ""
    return f"no row has what it takes ({row_name(row)}: {reason}{more})"
