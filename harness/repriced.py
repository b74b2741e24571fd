"""What repricing says: the records between :mod:`harness.reprice` and the writers in ``harness/report/``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from harness import place
from harness.place import Place
from harness.table import Figure, Price, Row

# The three ways in which each row is priced.
BEFORE, SAME, CHEAPEST = "before", "same instance", "cheapest now"


@dataclass(frozen=True)
class Priced:
    """A row's machine, cost and rank (from 1, cheapest first; ``None``: no cost, or its numbers are invalid)."""

    price: Price | None
    note: str | None
    cost: Figure
    rank: int | None = None


@dataclass(frozen=True)
class Change:
    """A row at the other date's prices, and in both ways at the new ones."""

    row: Row
    before: Priced
    same: Priced
    cheapest: Priced

    @cached_property
    def place(self) -> Place:
        """Where it is ranked."""
        return place.of(self.row)


@dataclass(frozen=True)
class Flip:
    """Two systems, of which one was cheaper (at its cheapest row), and now the other is.

    ``way`` is ``same instance`` or ``cheapest now``.  ``overlap``: at one of the dates their intervals overlap, so that
    the measurements do not tell which is cheaper.
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
    """All that changes between two price lists.  ``summary`` is one sentence with all counts."""

    before: Side
    now: Side
    measures: tuple[str, ...]
    changes: tuple[Change, ...]
    flips: tuple[Flip, ...]
    best: tuple[Best, ...]
    gone: tuple[Gone, ...]
    no_longer_provided: tuple[str, ...]
    newly_provided: tuple[str, ...]
    summary: str
    notes: tuple[str, ...]
