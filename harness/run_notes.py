"""What is to know of runs that answer the same queries, and of what they are judged by, beside their measures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness import measure_names, notes, set_apart, unjudged
from harness.evaluate import Evaluation
from harness.judged_runs import JudgedRuns, Strangers
from harness.unjudged import Unjudged

_TIES = "ordered by document id, the largest first, as trec_eval does"
_TIES_STORED = "judged in the order that was returned"
# Runs that a sentence names; of more the first two and the last.
_MOST_NAMED = 8


def every(found: JudgedRuns, evaluations: Mapping[str, Evaluation], measures: Sequence[Any]) -> tuple[str, ...]:
    """All sentences, each run's own behind its name and what all runs say once."""
    of_runs = {system: of_run(found, system, judged, measures) for system, judged in evaluations.items()}
    shared = [note for note in next(iter(of_runs.values()), ()) if all(note in own for own in of_runs.values())]
    own = [f"{system}: {note}" for system, said in of_runs.items() for note in said if note not in shared]
    return (*shared, *own, *of_ties(found), *of_judgements(found), *of_unjudged(found, measures))


def of_run(found: JudgedRuns, system: str, judged: Evaluation, measures: Sequence[Any]) -> tuple[str, ...]:
    """What one run's measures leave out or were made in spite of."""
    return tuple(_of_run(found, system, judged, measures))


def _of_run(found: JudgedRuns, system: str, judged: Evaluation, measures: Sequence[Any]) -> Iterator[str]:
    run, stored = found.runs[system], found.corpus_sha256 is not None
    k = max(map(len, run.rankings.values()), default=0)
    # A file is the whole ranking; what was stored was cut where the system was asked to stop.
    deep = [
        str(each)
        for each in measures
        if k and (measure_names.looks_deeper(each, k) if stored else (measure_names.cutoff(each) or 0) > k)
    ]
    yield from notes.of_measures(replace(judged, tied_queries=()), deep, k)  # of_ties has those of all runs
    strangers = found.strangers.get(system)
    if strangers is not None:
        yield _left_out(strangers)
    known = (document in found.qrels.get(query, ()) for query, ranking in run.rankings.items() for document in ranking)
    if run.rankings and not any(known):
        yield "none of its hits is judged: are its ids those of the judgements?"


def of_ties(found: JudgedRuns) -> tuple[str, ...]:
    """Which runs have queries with equal scores, in one sentence."""
    how = _TIES if found.corpus_sha256 is None else _TIES_STORED
    judged = {query for query in found.queries if found.hits_alone or found.qrels.get(query)}
    tied = {
        system: queries
        for system, run in found.runs.items()
        if (queries := tuple(query for query in run.tied_queries if query in judged))
    }
    if not tied:
        return ()
    if len(tied) == 1 or (len(tied) == len(found.runs) and len(set(tied.values())) == 1):
        name, queries = next(iter(tied.items()))
        whose = "" if len(tied) == len(found.runs) else f"{name}: "
        return (f"{whose}{notes.named(queries)} queries have equal scores, {how}",)
    counts = [f"{name} {len(tied[name]):,}" for name in sorted(tied, key=lambda name: (-len(tied[name]), name))]
    counts = counts if len(counts) <= _MOST_NAMED else [*counts[:2], f"... {counts[-1]}"]
    share = f"{len(tied):,} of {len(found.runs):,} runs"
    return (f"{share} have queries with equal scores ({', '.join(counts)} of {len(judged):,}), {how}",)


def of_strangers(found: JudgedRuns) -> tuple[str, ...]:
    """What of runs that are files is left out, as nobody asked for it."""
    return tuple(f"{system}: {_left_out(each)}" for system, each in found.strangers.items())


def _left_out(strangers: Strangers) -> str:
    return (
        f"{notes.named(strangers.queries)} queries of the run are not among those to be judged and are left out; the"
        f" first stands in {strangers.place}"
    )


def of_judgements(found: JudgedRuns) -> tuple[str, ...]:
    """What is to know of the judgements, whatever run is judged by them."""
    if found.hits_alone:
        return found.said
    none = set_apart.without_relevant(found)
    if not none:
        return found.said
    judged = sum(bool(found.qrels.get(query)) for query in found.queries)
    return (*found.said, f"{notes.named(none)} of {judged:,} judged queries have no relevant document; they count")


def unjudged_of(found: JudgedRuns, measures: Sequence[Any]) -> dict[str, Unjudged]:
    """By system: what of its first hits nobody judged, as deep as the first measure with a cutoff looks.

    Nothing where documents were judged by the answers in their texts: all are judged then.
    """
    if found.hits_alone:
        return {}
    deepest = max((len(ranking) for run in found.runs.values() for ranking in run.rankings.values()), default=0)
    cutoffs = (measure_names.cutoff(each) for each in measures)
    depth = min(max(deepest, 1), next((cutoff for cutoff in cutoffs if cutoff), unjudged.DEPTH))
    judged = [query for query in found.query_ids if found.qrels.get(query)]
    return {system: unjudged.count(run, found.qrels, judged, depth) for system, run in found.runs.items()}


def of_unjudged(found: JudgedRuns, measures: Sequence[Any]) -> tuple[str, ...]:
    """Whose hits nobody judged, in one sentence."""
    shares = unjudged_of(found, measures)
    known = {system: {each.share} for system, each in shares.items() if each.share is not None}
    if not known:
        return ()
    return tuple(notes.unjudged_among(found.dataset, next(iter(shares.values())).depth, known))
