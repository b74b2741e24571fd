"""What repricing says: the records between :mod:`harness.analysis.reprice` and the writers in ``harness/report/``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from harness.analysis import axes
from harness.analysis.axes import Place
from harness.analysis.table import Price, Row
from harness.stats import Estimate

# The two ways in which two dates are compared: like with like.
SAME, CHEAPEST = "same instance", "cheapest type"


@dataclass(frozen=True)
class Priced:
    """A row's machine, cost and rank (from 1, cheapest first; ``None``: no cost, or its numbers are invalid)."""

    price: Price | None
    note: str | None
    cost: Estimate
    rank: int | None = None


@dataclass(frozen=True)
class Change:
    """A row at both dates: ``before`` and ``same`` on its own instance, and on the cheapest type of each date.

    Its own instance is its published one, else the cheapest of the earlier date.
    """

    row: Row
    before: Priced
    same: Priced
    cheapest_before: Priced
    cheapest: Priced

    @property
    def pairs(self) -> dict[str, tuple[Priced, Priced]]:
        """By way: the row at the other date, and now."""
        return {SAME: (self.before, self.same), CHEAPEST: (self.cheapest_before, self.cheapest)}

    @cached_property
    def place(self) -> Place:
        """Where it is ranked."""
        return axes.of(self.row)


@dataclass(frozen=True)
class Flip:
    """Two systems, of which one was cheaper (at its cheapest row), and now the other is.

    ``way`` is ``same instance`` or ``cheapest type``.  ``overlap``: at one of the dates their intervals overlap, so
    that the measurements do not tell which is cheaper.
    """

    place: Place
    way: str
    was_cheaper: str
    is_cheaper: str
    before_usd: tuple[float, float]
    now_usd: tuple[float, float]
    overlap: bool


@dataclass(frozen=True)
class Best:
    """The cheapest row of a place, as system and hardware profile, is another now."""

    place: Place
    way: str
    was: tuple[str, str]
    now: tuple[str, str]


@dataclass(frozen=True)
class Gone:
    """An instance type that priced rows at the other date and has no price now; what takes its place."""

    instance_type: str
    rows: int
    successor: str | None
    note: str | None


@dataclass(frozen=True)
class Side:
    """One of the two price lists."""

    provider: str
    region: str
    term: str
    date: str
    source: str


@dataclass(frozen=True)
class Repricing:
    """All that changes between two price lists.  ``summary`` is four sentences with all counts."""

    before: Side
    now: Side
    measures: tuple[str, ...]
    changes: tuple[Change, ...]
    flips: tuple[Flip, ...]
    best: tuple[Best, ...]
    gone: tuple[Gone, ...]
    no_longer_provided: tuple[str, ...]
    newly_provided: tuple[str, ...]
    summary: tuple[str, ...]
    notes: tuple[str, ...]
