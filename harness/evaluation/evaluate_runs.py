"""Evaluate runs over the same queries: values by query, the queries that need a note, and the notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from harness.errors import UsageError, counted
from harness.evaluation import measure_names, per_query
from harness.evaluation.evaluate import Evaluation, evaluate
from harness.evaluation.judged_runs import (
    JudgedRuns,
    UnjudgedHits,
    UnknownQueries,
    count_unjudged,
    unjudged_share_notes,
)
from harness.evaluation.per_query import PerQuery
from harness.progress import Progress, silent

_TIES = "ordered by document id, the largest first, as trec_eval does"
_TIES_STORED = "judged in the order that was returned"
# A note names at most this many runs; of more, the first two and the last.
_MAX_NAMED = 8


@dataclass(frozen=True)
class EvaluatedRuns:
    """Evaluation, flagged queries, unjudged hits and notes of each system; ``common_notes`` concern every system.

    ``flagged`` has the ids of queries that need a note, by kind: ``unjudged`` ones are left out of every mean,
    ``without_hits`` count 0, ``without_relevant`` have no relevant document and count, ``tied`` have equal scores,
    ``unknown`` ones are only in the run's file and are ignored.

    ``queries``: sorted ids of the judged queries.  ``unjudged`` is empty where only hits are judged.
    """

    measures: tuple[str, ...]
    queries: tuple[str, ...]
    evaluations: Mapping[str, Evaluation]
    flagged: Mapping[str, Mapping[str, tuple[str, ...]]]
    unjudged: Mapping[str, UnjudgedHits]
    run_notes: Mapping[str, tuple[str, ...]]
    common_notes: tuple[str, ...]

    @cached_property
    def by_query(self) -> dict[str, PerQuery]:
        """Values by query of each system."""
        return {
            system: per_query.collect(system, {}, (), evaluation.per_query)
            for system, evaluation in self.evaluations.items()
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """All notes: a note of every run once, a note of one run after its name, and the common ones."""
        shared = [
            note
            for note in next(iter(self.run_notes.values()), ())
            if all(note in notes for notes in self.run_notes.values())
        ]
        own = [f"{system}: {note}" for system, notes in self.run_notes.items() for note in notes if note not in shared]
        return (*shared, *own, *self.common_notes)


def evaluate_runs(runs: JudgedRuns, measures: Sequence[Any], step: Progress = silent) -> EvaluatedRuns:
    """Evaluate each run over all queries.

    Args:
        runs: runs and their qrels.
        measures: from :func:`harness.evaluation.measure_names.parse`.
        step: gets the numbers of evaluated runs and of all.

    Raises:
        UsageError: no query is judged.
    """
    if not runs.hits_alone and not runs.judged_ids:
        count = f"{len(runs.queries):,}"
        raise UsageError(f"{runs.dataset}: the judgements cover none of the {count} queries; name other judgements")
    evaluations, flagged = {}, {}
    for number, (system, run) in enumerate(runs.runs.items()):
        step(number, len(runs.runs))
        evaluation = evaluate(run, runs.qrels, runs.query_ids, measures, hits_alone=runs.hits_alone)
        evaluations[system] = evaluation
        flagged[system] = {
            "unjudged": evaluation.unjudged,
            "without_hits": evaluation.without_hits,
            "without_relevant": runs.without_relevant(),
            "tied": evaluation.tied_queries,
            "unknown": runs.unknown[system].queries if system in runs.unknown else (),
        }
    unjudged = count_unjudged_hits(runs, measures)
    shares = {system: {hits.share} for system, hits in unjudged.items() if hits.share is not None}
    depth = next((hits.depth for hits in unjudged.values()), 0)
    return EvaluatedRuns(
        measures=tuple(str(measure) for measure in measures),
        queries=tuple(sorted(runs.query_ids if runs.hits_alone else runs.judged_ids)),
        evaluations=evaluations,
        flagged=flagged,
        unjudged=unjudged,
        run_notes={
            system: tuple(_run_notes(runs, system, evaluation, measures)) for system, evaluation in evaluations.items()
        },
        common_notes=(*tie_notes(runs), *qrels_notes(runs), *unjudged_share_notes(runs.dataset, depth, shares)),
    )


def count_unjudged_hits(runs: JudgedRuns, measures: Sequence[Any]) -> dict[str, UnjudgedHits]:
    """Count each system's unjudged hits down to the first measure's cutoff; none where only hits are judged."""
    if runs.hits_alone:
        return {}
    deepest = max((len(ranking) for run in runs.runs.values() for ranking in run.rankings.values()), default=0)
    depth = measure_names.unjudged_depth(measures, max(deepest, 1))
    return {system: count_unjudged(run, runs.qrels, runs.judged_ids, depth) for system, run in runs.runs.items()}


def _run_notes(runs: JudgedRuns, system: str, evaluation: Evaluation, measures: Sequence[Any]) -> Iterator[str]:
    """Yield notes on one run: queries without a value, and reasons to doubt its measures."""
    run, stored = runs.runs[system], runs.corpus_sha256 is not None
    k = max(map(len, run.rankings.values()), default=0)
    # A file has the whole ranking; a stored run was cut at the k of its job.
    deep = [
        str(measure)
        for measure in measures
        if k and (measure_names.looks_deeper(measure, k) if stored else (measure_names.cutoff(measure) or 0) > k)
    ]
    yield from measure_notes(replace(evaluation, tied_queries=()), deep, k)  # tie_notes covers all runs
    if system in runs.unknown:
        yield _unknown_query_note(runs.unknown[system])
    judged = (document in runs.qrels.get(query, ()) for query, ranking in run.rankings.items() for document in ranking)
    if run.rankings and not any(judged):
        yield "none of its hits is in the judgements; check that both use the same ids"


def measure_notes(evaluation: Evaluation, deep: Sequence[str], k: int) -> tuple[str, ...]:
    """Return notes on the queries and ranks that a run's measures leave out.

    Args:
        evaluation: of the run.
        deep: names of the measures that look deeper than the run.
        k: retrieved hits of each query.
    """
    notes = []
    if evaluation.unjudged:
        total = evaluation.queries + len(evaluation.unjudged)
        unjudged = count_and_ids(evaluation.unjudged)
        notes.append(f"{unjudged} of {total:,} queries have no judgements, left out of the measures")
    if evaluation.without_hits:
        notes.append(f"{count_and_ids(evaluation.without_hits)} judged queries got no hits and count 0")
    if evaluation.tied_queries:
        notes.append(
            f"{count_and_ids(evaluation.tied_queries)} queries have equal scores, judged in the order that was returned"
        )
    for name, truncated in evaluation.truncated.items():
        queries = count_and_ids(truncated.queries)
        notes.append(
            f"{name}: the hits of {queries} queries end before its tokens do, without an answer, and count 0; some "
            f"{truncated.k:,} hits per query would be enough"
        )
    if deep:
        look = "looks" if len(deep) == 1 else "look"
        notes.append(f"{', '.join(deep)}: {look} deeper than the {counted(k, 'hit')} retrieved")
    return tuple(notes)


def tie_notes(runs: JudgedRuns) -> tuple[str, ...]:
    """Return a note that names the runs with equal scores, if there are any."""
    order = _TIES if runs.corpus_sha256 is None else _TIES_STORED
    judged = set(runs.query_ids if runs.hits_alone else runs.judged_ids)
    tied = {
        system: queries
        for system, run in runs.runs.items()
        if (queries := tuple(query for query in run.tied_queries if query in judged))
    }
    if not tied:
        return ()
    if len(tied) == 1 or (len(tied) == len(runs.runs) and len(set(tied.values())) == 1):
        name, queries = next(iter(tied.items()))
        prefix = "" if len(tied) == len(runs.runs) else f"{name}: "
        return (f"{prefix}{count_and_ids(queries)} queries have equal scores, {order}",)
    counts = [f"{name} {len(tied[name]):,}" for name in sorted(tied, key=lambda name: (-len(tied[name]), name))]
    counts = counts if len(counts) <= _MAX_NAMED else [*counts[:2], f"... {counts[-1]}"]
    share = f"{len(tied):,} of {len(runs.runs):,} runs"
    return (f"{share} have queries with equal scores ({', '.join(counts)} of {len(judged):,}), {order}",)


def unknown_query_notes(runs: JudgedRuns) -> tuple[str, ...]:
    """Return notes on the queries that are left out of run files."""
    return tuple(f"{system}: {_unknown_query_note(unknown)}" for system, unknown in runs.unknown.items())


def _unknown_query_note(unknown: UnknownQueries) -> str:
    return (
        f"{count_and_ids(unknown.queries)} queries of the run are not to be judged and are left out; the"
        f" first is in {unknown.place}"
    )


def qrels_notes(runs: JudgedRuns) -> tuple[str, ...]:
    """Return notes on the qrels alone."""
    if not (queries := runs.without_relevant()):
        return runs.notes
    count = f"{count_and_ids(queries)} of {len(runs.judged_ids):,} judged queries"
    return (*runs.notes, f"{count} have no relevant document; they count")


def count_and_ids(queries: Sequence[str]) -> str:
    """Return a count with the first few ids: ``2 (q1, q7)``."""
    more = ", ..." if len(queries) > 3 else ""
    return f"{len(queries):,} ({', '.join(queries[:3])}{more})"
