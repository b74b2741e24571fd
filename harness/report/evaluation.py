"""Write evaluated runs as Markdown, CSV or JSON: a line for each run, or for each query and measure."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterator
from typing import Any

from harness.errors import UnknownName
from harness.evaluation import evaluate
from harness.evaluation.evaluate_runs import EvaluatedRuns
from harness.report.csv_json import written
from harness.report.markdown import escape, grid
from harness.report.sheet import MISSING
from harness.stats import INTERVAL_MIN_QUERIES, Estimate

FORMATS = ("md", "csv", "json")
# Version of the JSON.
EVALUATION_VERSION = 1
METHOD = (
    "Measures by ir_measures over all judged queries; a query without results counts 0. "
    f"Intervals: {evaluate.INTERVAL_METHOD}."
)
ORDER = "Runs are ordered as trec_eval orders them: by score in 32 bits, then by document id, the largest first."

# By system, then by measure.
_Estimates = dict[str, dict[str, Estimate]]


def render(runs: EvaluatedRuns, format: str, *, by_query: bool = False) -> str:
    """Write evaluated runs.

    Args:
        runs: at least one run.
        format: one of ``FORMATS``.
        by_query: write each query's values; in JSON beside the estimates, else in their place.

    Raises:
        UnknownName: the format is unknown.
    """
    estimates = {
        system: {name: evaluate.estimate(evaluation, name) for name in runs.measures}
        for system, evaluation in runs.evaluations.items()
    }
    if format == "md":
        return _by_query(runs, estimates) if by_query else _markdown(runs, estimates)
    if format == "csv":
        return _csv(runs, estimates, by_query=by_query)
    if format == "json":
        return _json(runs, estimates, by_query=by_query)
    raise UnknownName("format", format, FORMATS)


def _common_notes(runs: EvaluatedRuns) -> tuple[str, ...]:
    judged = len(runs.queries)
    if judged >= INTERVAL_MIN_QUERIES:
        return runs.common_notes
    few = f"no intervals: they need {INTERVAL_MIN_QUERIES} judged queries, there are {judged}"
    return (few, *runs.common_notes)


def _markdown(runs: EvaluatedRuns, estimates: _Estimates) -> str:
    headers = ("run", "queries", *(f"{name} (95 %)" for name in runs.measures))
    cells = [
        (escape(system), f"{len(runs.queries):,}", *(_cell(estimates[system][name]) for name in runs.measures))
        for system in runs.evaluations
    ]
    lines = grid(headers, (False, *(True for _ in headers[1:])), cells, padded=True)
    own = [
        f"{system}: {note}"
        for system, notes in runs.run_notes.items()
        for note in (*_reasons(estimates[system]), *notes)
    ]
    notes = (*(f"- {escape(note)}" for note in (*own, *_common_notes(runs))), f"- {METHOD}", f"- {ORDER}")
    return "\n".join((*lines, "", *notes)) + "\n"


def _reasons(estimates: dict[str, Estimate]) -> list[str]:
    return [f"{name}: {of.reason}" for name, of in estimates.items() if of.value is None and of.reason]


def _cell(estimate: Estimate) -> str:
    if estimate.value is None:
        return MISSING
    text = f"{estimate.value:.4f}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} ({estimate.low:.4f}–{estimate.high:.4f})"


def _by_query(runs: EvaluatedRuns, estimates: _Estimates) -> str:
    cells = [
        (escape(system), escape(query), escape(name), MISSING if value is None else f"{value:.4f}")
        for system, query, name, value, _ in _values(runs, estimates)
    ]
    lines = grid(("run", "query", "measure", "value"), (False, False, False, True), cells, padded=True)
    reasons = [f"- {escape(f'{system}: {reason}')}" for system, of in estimates.items() for reason in _reasons(of)]
    return "\n".join((*lines, *(("", *reasons) if reasons else ()))) + "\n"


def _values(runs: EvaluatedRuns, estimates: _Estimates) -> Iterator[tuple[str, str, str, float | None, str | None]]:
    """Yield run, query, measure, value and the reason of a missing one; queries in the order of their ids."""
    for system, evaluation in runs.evaluations.items():
        for query in runs.queries:
            for name in runs.measures:
                value = evaluation.per_query.get(name, {}).get(query)
                yield system, query, name, value, estimates[system][name].reason if value is None else None


def _csv(runs: EvaluatedRuns, estimates: _Estimates, *, by_query: bool) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if by_query:
        writer.writerow(("run", "query_id", "measure", "value", "reason"))
        writer.writerows([written(value) for value in row] for row in _values(runs, estimates))
        return stream.getvalue()
    writer.writerow(("run", "measure", "value", "low", "high", "queries", "reason", "unjudged_share", "unjudged_depth"))
    for system, of_run in estimates.items():
        for name, of in of_run.items():
            cells = (system, name, of.value, of.low, of.high, len(runs.queries), of.reason, *_unjudged(runs, system))
            writer.writerow([written(value) for value in cells])
    return stream.getvalue()


def _unjudged(runs: EvaluatedRuns, system: str) -> tuple[float | None, int | None]:
    """Return the share of unjudged hits and the depth that it is of."""
    hits = runs.unjudged.get(system)
    return (hits.share, hits.depth) if hits else (None, None)


def _json(runs: EvaluatedRuns, estimates: _Estimates, *, by_query: bool) -> str:
    records = []
    for system, evaluation in runs.evaluations.items():
        share, depth = _unjudged(runs, system)
        record: dict[str, Any] = {
            "system": system,
            "queries": evaluation.queries,
            "figures": {name: dataclasses.asdict(of) for name, of in estimates[system].items()},
            "notes": runs.run_notes[system],
            "flagged": dataclasses.asdict(runs.flagged[system]),
            "unjudged_share": share,
            "unjudged_depth": depth,
        }
        if by_query:
            missing = dict.fromkeys(runs.queries)
            record["per_query"] = {name: evaluation.per_query.get(name, missing) for name in runs.measures}
        records.append(record)
    notes = [*_common_notes(runs), METHOD, ORDER]
    content = {"evaluation_version": EVALUATION_VERSION, "runs": records, "notes": notes}
    return json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
