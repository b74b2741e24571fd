"""How much of what a run found nobody has judged: such documents count as not relevant, whatever they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.trec_files import Qrels, Run

# How deep to look where nothing says it.
DEPTH = 10


@dataclass(frozen=True)
class Unjudged:
    """Of the first ``depth`` hits of each query: how many there are, and how many of them nobody judged.

    ``share`` is the mean over the queries that have hits, as ir_measures' ``1 - Judged@depth``; ``None``: none has.
    """

    depth: int
    hits: int
    unjudged: int
    share: float | None


def count(run: Run, qrels: Qrels, queries: Iterable[str], depth: int) -> Unjudged:
    """Count the unjudged among the first ``depth`` hits.

    Args:
        run: rankings.
        qrels: judgements.
        queries: those that count; one without hits has no unjudged ones, and plays no part.
        depth: ranks to look at.
    """
    hits = unjudged = 0
    shares = []
    for query in queries:
        found = run.rankings.get(query, ())[:depth]
        if found:
            judged = qrels.get(query, {})
            missing = sum(document not in judged for document in found)
            hits += len(found)
            unjudged += missing
            shares.append(missing / len(found))
    return Unjudged(depth, hits, unjudged, sum(shares) / len(shares) if shares else None)
