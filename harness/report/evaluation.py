"""The effectiveness of runs: a line for each run, or for each query and measure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.estimate import INTERVAL_MIN_QUERIES, Estimate
from harness.evaluation import evaluate
from harness.evaluation.evaluate_runs import EvaluatedRuns
from harness.report.document import Escape, GridColumn, ReportDocument, Section, Value, bounded, digits, grid_of

# Version of the JSON.
EVALUATION_VERSION = 1
METHOD = (
    "Measures by ir_measures over all judged queries; a query without results counts 0. "
    f"Intervals: {evaluate.INTERVAL_METHOD}."
)
ORDER = "Runs are ordered as trec_eval orders them: by score in 32 bits, then by document id, the largest first."

# By system, then by measure.
_Estimates = Mapping[str, Mapping[str, Estimate]]
# Run, query, measure, value, and why the value is missing.
_QueryValue = tuple[str, str, str, float | None, str | None]


def evaluation_document(runs: EvaluatedRuns, *, by_query: bool = False) -> ReportDocument:
    """Return the document of at least one evaluated run.

    ``by_query``: show the values of each query instead of their means; JSON has both.
    """
    means = {
        system: {name: evaluate.estimate(evaluation, name) for name in runs.measures}
        for system, evaluation in runs.evaluations.items()
    }
    return ReportDocument(
        sections=lambda escape: (_queries(runs, means, escape) if by_query else _means(runs, means, escape),),
        lines=lambda: _query_lines(runs, means) if by_query else _mean_lines(runs, means),
        content=lambda: _content(runs, means, by_query=by_query),
    )


def _means(runs: EvaluatedRuns, means: _Estimates, escape: Escape) -> Section:
    def measure(name: str) -> GridColumn[str]:
        return f"{name} (95 %)", True, lambda system: bounded(means[system][name], decimals=4)

    columns: list[GridColumn[str]] = [
        ("run", False, escape),
        ("queries", True, lambda system: f"{runs.evaluations[system].queries:,}"),
        *(measure(name) for name in runs.measures),
    ]
    own = [f"{system}: {note}" for system in means for note in (*_reasons(means[system]), *runs.run_notes[system])]
    notes = (*(escape(note) for note in (*own, *_common_notes(runs))), METHOD, ORDER)
    return Section(grids=(grid_of(list(means), columns),), notes=notes)


def _common_notes(runs: EvaluatedRuns) -> tuple[str, ...]:
    judged = len(runs.queries)
    if judged >= INTERVAL_MIN_QUERIES:
        return runs.common_notes
    few = f"no intervals: they need {INTERVAL_MIN_QUERIES} judged queries, there are {judged}"
    return (few, *runs.common_notes)


def _queries(runs: EvaluatedRuns, means: _Estimates, escape: Escape) -> Section:
    columns: list[GridColumn[_QueryValue]] = [
        ("run", False, lambda value: escape(value[0])),
        ("query", False, lambda value: escape(value[1])),
        ("measure", False, lambda value: escape(value[2])),
        ("value", True, lambda value: digits(value[3], ".4f")),
    ]
    reasons = tuple(escape(f"{system}: {reason}") for system in means for reason in _reasons(means[system]))
    return Section(grids=(grid_of(list(_values(runs, means)), columns),), notes=reasons)


def _values(runs: EvaluatedRuns, means: _Estimates) -> Iterator[_QueryValue]:
    """Yield the value of each query, in the order of the queries' ids."""
    for system, evaluation in runs.evaluations.items():
        for query in runs.queries:
            for name, mean in means[system].items():
                value = evaluation.per_query.get(name, {}).get(query)
                yield system, query, name, value, mean.reason if value is None else None


def _reasons(means: Mapping[str, Estimate]) -> list[str]:
    return [f"{name}: {mean.reason}" for name, mean in means.items() if mean.value is None and mean.reason]


def _query_lines(runs: EvaluatedRuns, means: _Estimates) -> Iterator[Sequence[Value]]:
    yield "run", "query_id", "measure", "value", "reason"
    yield from _values(runs, means)


def _mean_lines(runs: EvaluatedRuns, means: _Estimates) -> Iterator[Sequence[Value]]:
    yield "run", "measure", "value", "low", "high", "queries", "reason", "unjudged_share", "unjudged_depth"
    for system, evaluation in runs.evaluations.items():
        for name, mean in means[system].items():
            ends = (mean.value, mean.low, mean.high)
            yield system, name, *ends, evaluation.queries, mean.reason, *_unjudged(runs, system)


def _unjudged(runs: EvaluatedRuns, system: str) -> tuple[float | None, int | None]:
    """Return the share of unjudged hits and the depth that was judged."""
    hits = runs.unjudged.get(system)
    return (hits.share, hits.depth) if hits else (None, None)


def _content(runs: EvaluatedRuns, means: _Estimates, *, by_query: bool) -> dict[str, Any]:
    records = []
    for system, evaluation in runs.evaluations.items():
        share, depth = _unjudged(runs, system)
        record: dict[str, Any] = {
            "system": system,
            "queries": evaluation.queries,
            "figures": {name: dataclasses.asdict(mean) for name, mean in means[system].items()},
            "notes": runs.run_notes[system],
            "flagged": runs.flagged[system],
            "unjudged_share": share,
            "unjudged_depth": depth,
        }
        if by_query:
            missing = dict.fromkeys(runs.queries)
            record["per_query"] = {name: evaluation.per_query.get(name, missing) for name in runs.measures}
        records.append(record)
    return {"evaluation_version": EVALUATION_VERSION, "runs": records, "notes": [*_common_notes(runs), METHOD, ORDER]}
