"""Runs and their judgements -> what each run is worth, query by query; and what of them does not count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness import evaluate, per_query, set_apart
from harness.evaluate import Evaluation
from harness.judged_runs import JudgedRuns, Strangers
from harness.per_query import PerQuery
from harness.set_apart import SetApart

# So many ids are named of those that a sentence is about.
_NAMED = 3


@dataclass(frozen=True)
class JudgedValues:
    """By system: its evaluation, its values by query, and the queries that are ``set_apart``.

    ``notes`` are sentences on what does not count, which name the first few of those, and on the files.
    """

    measures: tuple[str, ...]
    evaluations: Mapping[str, Evaluation]
    by_query: Mapping[str, PerQuery]
    notes: tuple[str, ...]
    set_apart: Mapping[str, SetApart] = field(default_factory=dict)


def judge(
    runs: JudgedRuns, measures: Sequence[Any], step: Callable[[int, int], None] = lambda _done, _total: None
) -> JudgedValues:
    """Judge every run over the queries that count.

    Args:
        runs: which, and by what.
        measures: as :func:`harness.measure_names.parse` gives them.
        step: is told how many of how many runs are judged.

    Raises:
        UsageError: no query is judged.
    """
    set_apart.check_judged(runs)
    evaluations = {}
    for number, (system, run) in enumerate(runs.runs.items()):
        step(number, len(runs.runs))
        evaluations[system] = evaluate.evaluate(run, runs.qrels, runs.query_ids, measures, hits_alone=runs.hits_alone)
    first = next(iter(evaluations.values()))
    by_query = {system: per_query.collect(system, {}, (), each.per_query) for system, each in evaluations.items()}
    notes = (*_unjudged(first), *_of_runs(evaluations, runs.strangers), *runs.said)
    apart = {system: set_apart.of(runs, system, each) for system, each in evaluations.items()}
    return JudgedValues(tuple(str(each) for each in measures), evaluations, by_query, notes, apart)


def _unjudged(first: Evaluation) -> list[str]:
    if not first.unjudged:
        return []
    return [f"{_some(first.unjudged, 'query', 'queries')} without judgements, left out of every mean"]


def _of_runs(evaluations: Mapping[str, Evaluation], strangers: Mapping[str, Strangers]) -> list[str]:
    said = []
    for system, each in evaluations.items():
        if system in strangers:
            what = _some(strangers[system].queries, "query", "queries")
            said.append(
                f"{system}: {what} not asked for, which play no part; the first stands in {strangers[system].place}"
            )
        if each.without_hits:
            said.append(f"{system}: {_some(each.without_hits, 'judged query', 'judged queries')} without hits count 0")
    return said


def _some(ids: Sequence[str], one: str, many: str) -> str:
    more = ", ..." if len(ids) > _NAMED else ""
    return f"{len(ids):,} {one if len(ids) == 1 else many} ({', '.join(ids[:_NAMED])}{more})"
