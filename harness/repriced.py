"""What repricing says: the records between :mod:`harness.reprice` and the writers in ``harness/report/``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from harness.records import Isolation
from harness.table import Figure, Price, Row

# The three ways in which each row is priced.
BEFORE, SAME, CHEAPEST = "before", "same instance", "cheapest now"


class Place(NamedTuple):
    """What rows must have in common to be compared; rows of other places are never ranked together.

    ``suite`` is told of published rows alone: a paper's tables are not of one measurement, suites of one dataset are.
    """

    dataset: str
    scenario: str
    isolation: str
    suite: str | None
    k: int
    latency_target_s: float | None
    latency_percentile: float | None
    sample_sha256: str | None
    corpus_sha256: str | None


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
        row = self.row
        return Place(
            row.dataset,
            row.scenario,
            row.isolation.value,
            row.suite if row.isolation is Isolation.PUBLISHED else None,
            row.k,
            row.latency_target_s,
            row.latency_percentile,
            row.sample_sha256,
            row.corpus_sha256,
        )


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
