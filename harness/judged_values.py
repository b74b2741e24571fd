"""Runs and their judgements -> what each run is worth, query by query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness import evaluate, per_query, set_apart
from harness.evaluate import Evaluation
from harness.judged_runs import JudgedRuns
from harness.per_query import PerQuery
from harness.set_apart import SetApart


@dataclass(frozen=True)
class JudgedValues:
    """By system: its evaluation, its values by query, and the queries that are ``set_apart``."""

    measures: tuple[str, ...]
    evaluations: Mapping[str, Evaluation]
    by_query: Mapping[str, PerQuery]
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
    by_query = {system: per_query.collect(system, {}, (), each.per_query) for system, each in evaluations.items()}
    apart = {system: set_apart.of(runs, system, each) for system, each in evaluations.items()}
    return JudgedValues(tuple(str(each) for each in measures), evaluations, by_query, apart)
