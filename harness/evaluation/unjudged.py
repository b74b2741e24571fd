"""How much of what a run found nobody has judged: such documents count as not relevant, whatever they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.errors import UsageError
from harness.evaluation.evaluate import Evaluation
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.trec import Qrels, Run

# MERGED harness.evaluation.unjudged: Queries that are not as all others, every one by its id: sentences name the first few,
# what programs read all.


@dataclass(frozen=True)
class SetApart:
    """Of one run: ids of queries.

    ``unjudged`` ones were asked and are left out of every mean; ``without_hits`` are judged and count 0;
    ``without_relevant`` are judged, nothing relevant is known of them, and they count; ``tied`` have equal scores;
    ``strangers`` stand in the run's file alone, and play no part.
    """

    unjudged: tuple[str, ...]
    without_hits: tuple[str, ...]
    without_relevant: tuple[str, ...]
    tied: tuple[str, ...]
    strangers: tuple[str, ...]


def of(runs: JudgedRuns, system: str, judged: Evaluation) -> SetApart:
    """What is set apart of a system's run.

    Args:
        runs: hold it.
        system: whose.
        judged: its evaluation.
    """
    known = runs.strangers.get(system)
    strangers = known.queries if known is not None else ()
    return SetApart(judged.unjudged, judged.without_hits, without_relevant(runs), judged.tied_queries, strangers)


def without_relevant(runs: JudgedRuns) -> tuple[str, ...]:
    """Queries that were asked and judged, and none of whose documents is relevant; of hits alone nobody knows."""
    if runs.hits_alone:
        return ()
    grades = {query: runs.qrels[query].values() for query in runs.queries if runs.qrels.get(query)}
    return tuple(query for query, of_query in grades.items() if max(of_query) <= 0)


def check_judged(runs: JudgedRuns) -> None:
    """Refuse what has no value anywhere.

    Raises:
        UsageError: none of the queries is judged.
    """
    if not runs.hits_alone and not any(runs.qrels.get(query) for query in runs.queries):
        raise UsageError(
            f"{runs.dataset}: none of the {len(runs.queries):,} queries is judged; are these the judgements of these"
            " queries?"
        )


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
