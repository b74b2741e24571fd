"""Rows that may be compared, as every picture of them takes them: which can be drawn, and what stands around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from harness import fronts, leaderboard
from harness.leaderboard import Asked, Leaderboard
from harness.per_query import PerQuery
from harness.pictures import look
from harness.pictures.frame import Frame
from harness.pictures.look import Look
from harness.records import Isolation, Outcome
from harness.table import Row, Table, Validity

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
    asked: Asked
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
        said += [f"Noisy: {look.listed(doubted)}."] if doubted else []
        absent = [f"{named(row)} ({look.text(why, 60)})" for row, why in left_out]
        said += [f"Not drawn: {look.listed(absent)}."] if absent else []
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
            why = fronts.rankable(row, ())
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
