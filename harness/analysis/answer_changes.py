"""Changes in the answers between two runs over the same queries: how many queries, and how far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class AnswerChange:
    """Changes from A's run to B's over their common queries, in the first ``depth`` hits.

    Args:
        queries: number of common queries.
        depth: hits of each query that count.
        reordered: queries with the same hits in another order.
        other_hits: queries with other hits.
        other_first: queries, of both kinds, with another first hit.
        overlap: mean share of the hits that A and B have in common, of the longer of their lists.
    """

    queries: int
    depth: int
    reordered: int
    other_hits: int
    other_first: int
    overlap: float

    @property
    def changed(self) -> int:
        """Number of queries with other answers."""
        return self.reordered + self.other_hits


def between(
    a: Mapping[str, Sequence[str]], b: Mapping[str, Sequence[str]], queries: Sequence[str], depth: int
) -> AnswerChange | None:
    """Return the changes from A to B, or ``None`` if there are no queries.

    Args:
        a: hits by query, the best first; a query without hits may be missing.
        b: likewise.
        queries: the queries that both runs were asked.
        depth: hits that count.
    """
    reordered = other_hits = other_first = 0
    shares = []
    for query in queries:
        ours, theirs = tuple(a.get(query, ())[:depth]), tuple(b.get(query, ())[:depth])
        longer = max(len(ours), len(theirs))
        shares.append(len({*ours} & {*theirs}) / longer if longer else 1.0)
        other_first += ours[:1] != theirs[:1]
        if {*ours} != {*theirs}:
            other_hits += 1
        elif ours != theirs:
            reordered += 1
    if not shares:
        return None
    return AnswerChange(len(shares), depth, reordered, other_hits, other_first, sum(shares) / len(shares))
