"""Runs that answer the same queries -> what each is worth, with intervals, by query, and what is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness import evaluate, measure_figures, measure_names, notes, stats
from harness.evaluate import Evaluation
from harness.judged_runs import JudgedRuns
from harness.table import Figure
from harness.trec_files import Run

_TIES = "ordered by document id, the largest first, as trec_eval does"


@dataclass(frozen=True)
class RunMeasures:
    """One run: measures by name over ``queries`` judged queries, their values by query, and what to know of them.

    A measure that has no value has none for each query.
    """

    system: str
    queries: int
    figures: Mapping[str, Figure]
    per_query: Mapping[str, Mapping[str, float | None]]
    notes: tuple[str, ...]


def judge(
    found: JudgedRuns, measures: Sequence[Any], done: Callable[[str], None] = lambda _: None
) -> tuple[RunMeasures, ...]:
    """Judge each run over all queries that are to be judged.

    Args:
        found: runs that are files.
        measures: as :func:`harness.measure_names.parse` gives them.
        done: told of each system when it is judged.
    """
    judged = []
    for system, run in found.runs.items():
        each = evaluate.evaluate(run, found.qrels, found.query_ids, measures, hits_alone=found.hits_alone)
        figures = {str(name): measure_figures.figure(each, str(name)) for name in measures}
        said = tuple(_notes(found, system, run, each, measures))
        left_out = set(each.unjudged)
        none = dict.fromkeys(query for query in sorted(found.query_ids) if query not in left_out)
        by_query = {str(name): each.per_query.get(str(name), none) for name in measures}
        judged.append(RunMeasures(system, each.queries, figures, by_query, said))
        done(system)
    return tuple(judged)


def of_judgements(found: JudgedRuns) -> tuple[str, ...]:
    """What is to know of the judgements, whatever run is judged by them."""
    asked = {query: found.qrels[query].values() for query in found.queries if query in found.qrels}
    few = len(asked) < stats.INTERVAL_MIN_QUERIES
    none = tuple(query for query, grades in asked.items() if max(grades) <= 0)
    below = sum(grade < 0 for grades in asked.values() for grade in grades)
    said = []
    if few:
        said.append(f"no intervals: they need {stats.INTERVAL_MIN_QUERIES} judged queries, there are {len(asked)}")
    if none:
        said.append(f"{notes.named(none)} of {len(asked):,} judged queries have no relevant document; they count")
    if below:
        said.append(f"{below:,} grades are below 0: no more relevant than 0 (Bpref and infAP take them as not judged)")
    return tuple(said)


def _notes(found: JudgedRuns, system: str, run: Run, judged: Evaluation, measures: Sequence[Any]) -> Iterator[str]:
    k = max(map(len, run.rankings.values()), default=0)
    deep = [str(each) for each in measures if (measure_names.cutoff(each) or 0) > k]
    yield from notes.of_measures(judged, deep, k, ties=_TIES)
    strangers = found.strangers.get(system)
    if strangers is not None:
        yield (
            f"{notes.named(strangers.queries)} queries of the run are not among those to be judged and are left out; "
            f"the first stands in {strangers.place}"
        )
    known = (document in found.qrels.get(query, ()) for query, ranking in run.rankings.items() for document in ranking)
    if run.rankings and not any(known):
        yield "none of its hits is judged: are its ids those of the judgements?"
