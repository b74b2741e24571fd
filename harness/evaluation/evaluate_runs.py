"""Runs that answer the same queries -> what each is worth, with intervals, by query, and what is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness import stats
from harness.evaluation import evaluate, per_query, run_notes, unjudged
from harness.evaluation.evaluate import Evaluation
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.per_query import PerQuery
from harness.evaluation.unjudged import SetApart
from harness.stats import Estimate

# MERGED harness.evaluation.evaluate_runs: Runs and their judgements -> what each run is worth, query by query.


@dataclass(frozen=True)
class JudgedValues:
    """By system: its evaluation, its values by query, and the queries that are ``set_apart``."""

    measures: tuple[str, ...]
    evaluations: Mapping[str, Evaluation]
    by_query: Mapping[str, PerQuery]
    set_apart: Mapping[str, SetApart] = field(default_factory=dict)


def query_values(
    runs: JudgedRuns, measures: Sequence[Any], step: Callable[[int, int], None] = lambda _done, _total: None
) -> JudgedValues:
    """Judge every run over the queries that count.

    Args:
        runs: which, and by what.
        measures: as :func:`harness.evaluation.measure_names.parse` gives them.
        step: is told how many of how many runs are judged.

    Raises:
        UsageError: no query is judged.
    """
    unjudged.check_judged(runs)
    evaluations = {}
    for number, (system, run) in enumerate(runs.runs.items()):
        step(number, len(runs.runs))
        evaluations[system] = evaluate.evaluate(run, runs.qrels, runs.query_ids, measures, hits_alone=runs.hits_alone)
    by_query = {system: per_query.collect(system, {}, (), each.per_query) for system, each in evaluations.items()}
    apart = {system: unjudged.of(runs, system, each) for system, each in evaluations.items()}
    return JudgedValues(tuple(str(each) for each in measures), evaluations, by_query, apart)


@dataclass(frozen=True)
class RunMeasures:
    """One run: measures by name over ``queries`` judged queries, their values by query, and what to know of them.

    ``notes`` are sentences, and ``set_apart`` has all queries that those are about.  ``unjudged_share`` is that of its
    first ``unjudged_depth`` hits which nobody judged (mean over queries with hits).  A measure that has no value has
    none for each query.
    """

    system: str
    queries: int
    figures: Mapping[str, Estimate]
    per_query: Mapping[str, Mapping[str, float | None]]
    notes: tuple[str, ...]
    set_apart: SetApart
    unjudged_share: float | None = None
    unjudged_depth: int | None = None


def measure_runs(
    found: JudgedRuns, measures: Sequence[Any], done: Callable[[str], None] = lambda _: None
) -> tuple[RunMeasures, ...]:
    """Judge each run over all queries that are to be judged.

    Args:
        found: runs that are files.
        measures: as :func:`harness.evaluation.measure_names.parse` gives them.
        done: told of each system when it is judged.

    Raises:
        UsageError: no query is judged.
    """
    unjudged.check_judged(found)
    judged, shares = [], run_notes.unjudged_of(found, measures)
    for system, run in found.runs.items():
        each = evaluate.evaluate(run, found.qrels, found.query_ids, measures, hits_alone=found.hits_alone)
        figures = {str(name): evaluate.figure(each, str(name)) for name in measures}
        said = run_notes.of_run(found, system, each, measures)
        apart = unjudged.of(found, system, each)
        looked = shares.get(system)
        share, depth = (looked.share, looked.depth) if looked else (None, None)
        left_out = set(each.unjudged)
        none = dict.fromkeys(query for query in sorted(found.query_ids) if query not in left_out)
        by_query = {str(name): each.per_query.get(str(name), none) for name in measures}
        judged.append(RunMeasures(system, each.queries, figures, by_query, said, apart, share, depth))
        done(system)
    return tuple(judged)


def of_judgements(found: JudgedRuns, measures: Sequence[Any]) -> tuple[str, ...]:
    """What is to know of the judgements, whatever run is judged by them, whose hits they lack, and who has ties."""
    judged = sum(bool(found.qrels.get(query)) for query in found.queries)
    few = judged < stats.INTERVAL_MIN_QUERIES
    said = [f"no intervals: they need {stats.INTERVAL_MIN_QUERIES} judged queries, there are {judged}"] if few else []
    return (
        *said,
        *run_notes.of_ties(found),
        *run_notes.of_judgements(found),
        *run_notes.of_unjudged(found, measures),
    )
