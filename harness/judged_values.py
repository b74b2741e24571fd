"""Runs and their judgements -> what each run is worth, query by query; and what of them does not count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness import evaluate, per_query
from harness.errors import UsageError
from harness.evaluate import Evaluation
from harness.judged_runs import JudgedRuns
from harness.per_query import PerQuery
from harness.trec_files import Run

# So many ids are named of those that a sentence is about.
_NAMED = 3


@dataclass(frozen=True)
class JudgedValues:
    """By system: its evaluation, and its values by query.  ``notes`` are sentences on what does not count."""

    measures: tuple[str, ...]
    evaluations: Mapping[str, Evaluation]
    by_query: Mapping[str, PerQuery]
    notes: tuple[str, ...]


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
    evaluations, strangers = {}, {}
    for number, (system, run) in enumerate(runs.runs.items()):
        step(number, len(runs.runs))
        strangers[system] = sorted(run.rankings.keys() - runs.queries.keys())
        evaluations[system] = evaluate.evaluate(
            among(run, runs), runs.qrels, runs.query_ids, measures, hits_alone=runs.hits_alone
        )
    first = next(iter(evaluations.values()))
    if not first.queries:
        raise UsageError(
            f"{runs.dataset}: none of the {len(runs.queries):,} queries is judged; are these the judgements of these"
            " queries?"
        )
    by_query = {system: per_query.collect(system, {}, (), each.per_query) for system, each in evaluations.items()}
    notes = (*_unjudged(first), *_of_runs(evaluations, strangers))
    return JudgedValues(tuple(str(each) for each in measures), evaluations, by_query, notes)


def among(run: Run, runs: JudgedRuns) -> Run:
    """A run without the queries that do not count: others' runs often hold more than was judged."""
    if run.rankings.keys() <= runs.queries.keys():
        return run
    rankings = {query: hits for query, hits in run.rankings.items() if query in runs.queries}
    return Run(rankings, tuple(query for query in run.tied_queries if query in rankings))


def _unjudged(first: Evaluation) -> list[str]:
    if not first.unjudged:
        return []
    return [f"{_some(first.unjudged, 'query', 'queries')} without judgements, left out of every mean"]


def _of_runs(evaluations: Mapping[str, Evaluation], strangers: Mapping[str, Sequence[str]]) -> list[str]:
    said = []
    for system, each in evaluations.items():
        if strangers[system]:
            said.append(f"{system}: {_some(strangers[system], 'query', 'queries')} not asked for, which play no part")
        if each.without_hits:
            said.append(f"{system}: {_some(each.without_hits, 'judged query', 'judged queries')} without hits count 0")
    return said


def _some(ids: Sequence[str], one: str, many: str) -> str:
    more = ", ..." if len(ids) > _NAMED else ""
    return f"{len(ids):,} {one if len(ids) == 1 else many} ({', '.join(ids[:_NAMED])}{more})"
