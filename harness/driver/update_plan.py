"""The plan of the ``mixed`` scenario's updates, without a clock; the host computes the same one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from harness.driver.rate_search import arrivals_ns
from harness.driver.records import ScenarioParams, Updates

INSERT, DELETE, CHECK = "insert", "delete", "check"
# Passes over the queries: as built, during updates, after them.
TRIALS = 3
# Arrivals of updates are drawn like those of a trial of this number and below.
_STREAM = -1000


@dataclass(frozen=True)
class PlannedUpdate:
    """An insert or a delete of the document with this place among the updates, at this time of its trial."""

    kind: str
    place: int
    scheduled_ns: int


def moved_documents(params: ScenarioParams, queries: int, corpus_size: int) -> int:
    """Return how many documents are deleted and inserted again while the queries arrive."""
    expected = (params.update_qps or 0.0) * queries / (params.query_qps or 1.0)
    share = round((params.deleted_share or 0.0) * corpus_size)
    return max(1, min(share, math.ceil(expected / 2), corpus_size))


def query_arrivals(seed: int, first_trial: int, updates: Updates, queries: int) -> list[int]:
    """Return when the queries during the updates arrive."""
    return arrivals_ns(seed, first_trial + 1, queries, updates.query_qps)


def planned_updates(seed: int, first_trial: int, updates: Updates, queries: int) -> list[PlannedUpdate]:
    """Return the updates that arrive before the last query does."""
    until_ns = query_arrivals(seed, first_trial, updates, queries)[-1] if queries else 0
    count = math.ceil(2 * updates.update_qps * until_ns / 1e9) + 20
    times = arrivals_ns(seed, _STREAM - first_trial, count, updates.update_qps)
    return [
        PlannedUpdate(kind, place, at_ns)
        for at_ns, (kind, place) in zip(times, turns(len(updates.documents)), strict=False)
        if at_ns <= until_ns
    ]


def turns(documents: int) -> Iterator[tuple[str, int]]:
    """Yield updates without end: delete half of the documents, then insert the oldest and delete the next in turn,
    insert the rest, and begin again.
    """
    half = (documents + 1) // 2
    while True:
        yield from ((DELETE, place) for place in range(half))
        for place in range(half, documents):
            yield INSERT, place - half
            yield DELETE, place
        yield from ((INSERT, place) for place in range(documents - half, documents))
