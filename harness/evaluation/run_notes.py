"""What is to know of runs that answer the same queries, and of what they are judged by, beside their measures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.evaluation import evaluate, measure_names, unjudged
from harness.evaluation.evaluate import Evaluation
from harness.evaluation.judged_runs import JudgedRuns, Strangers
from harness.evaluation.unjudged import Unjudged

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
    yield from of_measures(replace(judged, tied_queries=()), deep, k)  # of_ties has those of all runs
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
        return (f"{whose}{count_named(queries)} queries have equal scores, {how}",)
    counts = [f"{name} {len(tied[name]):,}" for name in sorted(tied, key=lambda name: (-len(tied[name]), name))]
    counts = counts if len(counts) <= _MOST_NAMED else [*counts[:2], f"... {counts[-1]}"]
    share = f"{len(tied):,} of {len(found.runs):,} runs"
    return (f"{share} have queries with equal scores ({', '.join(counts)} of {len(judged):,}), {how}",)


def of_strangers(found: JudgedRuns) -> tuple[str, ...]:
    """What of runs that are files is left out, as nobody asked for it."""
    return tuple(f"{system}: {_left_out(each)}" for system, each in found.strangers.items())


def _left_out(strangers: Strangers) -> str:
    return (
        f"{count_named(strangers.queries)} queries of the run are not among those to be judged and are left out; the"
        f" first stands in {strangers.place}"
    )


def of_judgements(found: JudgedRuns) -> tuple[str, ...]:
    """What is to know of the judgements, whatever run is judged by them."""
    if found.hits_alone:
        return found.said
    none = unjudged.without_relevant(found)
    if not none:
        return found.said
    judged = sum(bool(found.qrels.get(query)) for query in found.queries)
    return (*found.said, f"{count_named(none)} of {judged:,} judged queries have no relevant document; they count")


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
    return tuple(unjudged_among(found.dataset, next(iter(shares.values())).depth, known))


def of_measures(judged: evaluate.Evaluation, deep: Sequence[str], k: int) -> tuple[str, ...]:
    """What a row's measures leave out.

    Args:
        judged: the row's evaluation.
        deep: names of the measures that look deeper than the run.
        k: hits that were retrieved for each query.
    """
    said = []
    if judged.unjudged:
        total = judged.queries + len(judged.unjudged)
        said.append(f"{count_named(judged.unjudged)} of {total:,} queries have no judgements, left out of the measures")
    if judged.without_hits:
        said.append(f"{count_named(judged.without_hits)} judged queries got no hits and count 0")
    if judged.tied_queries:
        said.append(
            f"{count_named(judged.tied_queries)} queries have equal scores, judged in the order that was returned"
        )
    for name, short in judged.cut_short.items():
        said.append(
            f"{name}: the hits of {count_named(short.queries)} queries end before its tokens do, with no answer in them, "
            f"and count 0; some {short.k:,} hits a query would reach"
        )
    if deep:
        look = "looks" if len(deep) == 1 else "look"
        said.append(f"{', '.join(deep)}: {look} deeper than the {k} hits that were retrieved")
    return tuple(said)


def count_named(queries: Sequence[str]) -> str:
    """A count with the first few ids: ``2 (q1, q7)``."""
    more = ", ..." if len(queries) > 3 else ""
    return f"{len(queries):,} ({', '.join(queries[:3])}{more})"


def unjudged_among(dataset: str, depth: int, systems: Mapping[str, set[float]]) -> Iterator[str]:
    """The same, of the shares of unjudged hits that systems have on one dataset; nothing where all are judged."""
    if not any(max(shares) > 0 for shares in systems.values()):
        return
    ordered = sorted(systems, key=lambda name: (-max(systems[name]), name))
    listed = [f"{name} {_per_cent(systems[name])}" for name in ordered]
    if len(listed) > 8:
        listed = [*listed[:2], f"... {listed[-1]} ({len(listed)} systems)"]
    hits = "first hits" if depth == 1 else f"first {depth} hits"
    yield (
        f"Unjudged among the {hits} on {dataset}: {', '.join(listed)}; they count as not relevant, so a "
        "system whose hits nobody pooled looks worse than it is (harness pool lists them)."
    )


def _per_cent(shares: set[float]) -> str:
    ends = dict.fromkeys(f"{share:.0%}" if share >= 0.095 or not share else f"{share:.1%}" for share in sorted(shares))
    return "–".join(dict.fromkeys((next(iter(ends)), list(ends)[-1])))
