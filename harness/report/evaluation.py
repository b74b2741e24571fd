"""The effectiveness of runs: a line for each run, or for each query and measure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from harness.evaluation import evaluate
from harness.evaluation.evaluate_runs import RunMeasures
from harness.report.document import MISSING, Escape, GridColumn, ReportDocument, Section, Value, fixed, grid_of

# Version of the JSON.
EVALUATION_VERSION = 1
METHOD = (
    f"Measures by ir_measures over all judged queries; a query without results counts 0. Intervals: {evaluate.METHOD}."
)
ORDER = "Runs are ordered as trec_eval orders them: by score in 32 bits, then by document id, the largest first."


def evaluation_document(runs: Sequence[RunMeasures], notes: Sequence[str], *, by_query: bool = False) -> ReportDocument:
    """Return the document of at least one evaluated run.

    Args:
        runs: the runs.
        notes: on all of them.
        by_query: show the values of each query instead of their means; JSON has both.
    """
    return ReportDocument(
        sections=lambda escape: (_queries(runs, escape) if by_query else _means(runs, notes, escape),),
        lines=lambda: _query_lines(runs) if by_query else _mean_lines(runs),
        content=lambda: _content(runs, notes, by_query=by_query),
    )


def _means(runs: Sequence[RunMeasures], notes: Sequence[str], escape: Escape) -> Section:
    def measure(name: str) -> GridColumn[RunMeasures]:
        return f"{name} (95 %)", True, lambda run: fixed(run.figures[name], 4)

    columns: list[GridColumn[RunMeasures]] = [
        ("run", False, lambda run: escape(run.system)),
        ("queries", True, lambda run: f"{run.queries:,}"),
        *(measure(name) for name in runs[0].figures),
    ]
    own = [f"{run.system}: {note}" for run in runs for note in (*_reasons(run), *run.notes)]
    return Section(grids=(grid_of(runs, columns),), notes=(*(escape(note) for note in (*own, *notes)), METHOD, ORDER))


def _queries(runs: Sequence[RunMeasures], escape: Escape) -> Section:
    columns: list[GridColumn[_QueryValue]] = [
        ("run", False, lambda value: escape(value[0])),
        ("query", False, lambda value: escape(value[1])),
        ("measure", False, lambda value: escape(value[2])),
        ("value", True, lambda value: MISSING if value[3] is None else f"{value[3]:.4f}"),
    ]
    reasons = tuple(escape(f"{run.system}: {reason}") for run in runs for reason in _reasons(run))
    return Section(grids=(grid_of(list(_values(runs)), columns),), notes=reasons)


# Run, query, measure, value, and why the value is missing.
_QueryValue = tuple[str, str, str, float | None, str | None]


def _values(runs: Sequence[RunMeasures]) -> Iterator[_QueryValue]:
    """Yield the value of each query, in the order of the queries' ids."""
    for run in runs:
        for query in sorted(set().union(*run.per_query.values())):
            for name, mean in run.figures.items():
                value = run.per_query[name].get(query)
                yield run.system, query, name, value, mean.reason if value is None else None


def _reasons(run: RunMeasures) -> list[str]:
    return [f"{name}: {mean.reason}" for name, mean in run.figures.items() if mean.value is None and mean.reason]


def _query_lines(runs: Sequence[RunMeasures]) -> Iterator[Sequence[Value]]:
    yield "run", "query_id", "measure", "value", "reason"
    yield from _values(runs)


def _mean_lines(runs: Sequence[RunMeasures]) -> Iterator[Sequence[Value]]:
    yield "run", "measure", "value", "low", "high", "queries", "reason", "unjudged_share", "unjudged_depth"
    for run in runs:
        for name, mean in run.figures.items():
            cells = (run.system, name, mean.value, mean.low, mean.high, run.queries, mean.reason)
            yield *cells, run.unjudged_share, run.unjudged_depth


def _content(runs: Sequence[RunMeasures], notes: Sequence[str], *, by_query: bool) -> dict[str, Any]:
    records = [dataclasses.asdict(run) for run in runs]
    if not by_query:
        for record in records:
            del record["per_query"]
    return {"evaluation_version": EVALUATION_VERSION, "runs": records, "notes": [*notes, METHOD, ORDER]}
