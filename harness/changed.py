"""The queries on which two systems differ most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.per_query import PerQuery


@dataclass(frozen=True)
class Changed:
    """A query: its text (``""`` where nothing says it), its value in A and in B, and B less A."""

    query_id: str
    text: str
    a: float
    b: float
    difference: float


@dataclass(frozen=True)
class Asked:
    """Which to name: by which measure, how many each way, and the texts of queries, by id."""

    by: str
    count: int
    texts: Mapping[str, str]


def most(a: PerQuery, b: PerQuery, asked: Asked) -> tuple[Changed, ...]:
    """At most ``asked.count`` queries that B does better and as many that it does worse, each the furthest apart first.

    Those equally far apart stand in the order of their ids; those that are equal are none.  Where either has no values
    of the measure, there are none.
    """
    measure, count = asked.by, asked.count
    if measure not in a.measures or measure not in b.measures:
        return ()
    theirs = b.on(a.query_ids).measures[measure]
    every = [
        Changed(query, asked.texts.get(query, ""), float(ours), float(its), float(its - ours))
        for query, ours, its in zip(a.query_ids, a.measures[measure], theirs, strict=True)
    ]
    # A query that either has not is nan, which is neither above 0 nor below.
    better = sorted((each for each in every if each.difference > 0), key=lambda each: -each.difference)
    worse = sorted((each for each in every if each.difference < 0), key=lambda each: each.difference)
    return (*better[:count], *worse[:count])
