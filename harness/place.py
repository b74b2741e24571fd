"""Which rows may be compared: those that answered the same questions over the same documents in the same way."""

from __future__ import annotations

from typing import NamedTuple

from harness.records import Isolation
from harness.table import Row


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


def of(row: Row) -> Place:
    """Where a row is compared."""
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
