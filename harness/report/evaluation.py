"""What runs are worth, as Markdown, CSV and JSON: a line for each run, or for each query and measure."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence

from harness.errors import UnknownName
from harness.evaluation import evaluate
from harness.evaluation.evaluate_runs import RunMeasures
from harness.report.csv_json import written
from harness.report.markdown import escape, grid
from harness.report.sheet import MISSING
from harness.stats import Estimate

FORMATS = ("md", "csv", "json")
# Version of the JSON.
EVALUATION_VERSION = 1
METHOD = (
    f"Measures by ir_measures over all judged queries; a query without results counts 0. Intervals: {evaluate.METHOD}."
)
ORDER = "Runs are ordered as trec_eval orders them: by score in 32 bits, then by document id, the largest first."


def render(found: Sequence[RunMeasures], said: Sequence[str], format: str, *, by_query: bool = False) -> str:
    """Write what runs are worth.

    Args:
        found: at least one run.
        said: what is to know of all of them.
        format: one of ``FORMATS``.
        by_query: the values of each query instead of the figures; JSON has them beside.

    Raises:
        UnknownName: there is no such format.
    """
    if format == "md":
        return _by_query(found) if by_query else _markdown(found, said)
    if format == "csv":
        return _csv(found, by_query=by_query)
    if format == "json":
        return _json(found, said, by_query=by_query)
    raise UnknownName("format", format, FORMATS)


def _markdown(found: Sequence[RunMeasures], said: Sequence[str]) -> str:
    names = list(found[0].figures)
    headers = ("run", "queries", *(f"{name} (95 %)" for name in names))
    cells = [
        (escape(each.system), f"{each.queries:,}", *(_cell(each.figures[name]) for name in names)) for each in found
    ]
    lines = grid(headers, (False, *(True for _ in headers[1:])), cells, padded=True)
    own = [f"{each.system}: {note}" for each in found for note in (*_reasons(each), *each.notes)]
    return "\n".join((*lines, "", *(f"- {escape(note)}" for note in (*own, *said)), f"- {METHOD}", f"- {ORDER}")) + "\n"


def _reasons(each: RunMeasures) -> list[str]:
    return [f"{name}: {of.reason}" for name, of in each.figures.items() if of.value is None and of.reason]


def _cell(figure: Estimate) -> str:
    if figure.value is None:
        return MISSING
    shown = f"{figure.value:.4f}"
    return shown if figure.low is None or figure.high is None else f"{shown} ({figure.low:.4f}–{figure.high:.4f})"


def _by_query(found: Sequence[RunMeasures]) -> str:
    cells = [
        (escape(system), escape(query), escape(name), MISSING if value is None else f"{value:.4f}")
        for system, query, name, value, _ in _values(found)
    ]
    lines = grid(("run", "query", "measure", "value"), (False, False, False, True), cells, padded=True)
    reasons = [f"- {escape(f'{each.system}: {reason}')}" for each in found for reason in _reasons(each)]
    return "\n".join((*lines, *(("", *reasons) if reasons else ()))) + "\n"


def _values(found: Sequence[RunMeasures]) -> list[tuple[str, str, str, float | None, str | None]]:
    """Run, query, measure, value, why there is none; queries in the order of their ids."""
    listed = []
    for each in found:
        for query in sorted(set().union(*each.per_query.values())):
            for name, of in each.figures.items():
                value = each.per_query[name].get(query)
                listed.append((each.system, query, name, value, of.reason if value is None else None))
    return listed


def _csv(found: Sequence[RunMeasures], *, by_query: bool) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if by_query:
        writer.writerow(("run", "query_id", "measure", "value", "reason"))
        writer.writerows([written(value) for value in row] for row in _values(found))
        return stream.getvalue()
    writer.writerow(("run", "measure", "value", "low", "high", "queries", "reason", "unjudged_share", "unjudged_depth"))
    for each in found:
        for name, of in each.figures.items():
            cells = (each.system, name, of.value, of.low, of.high, each.queries, of.reason)
            writer.writerow([written(value) for value in (*cells, each.unjudged_share, each.unjudged_depth)])
    return stream.getvalue()


def _json(found: Sequence[RunMeasures], said: Sequence[str], *, by_query: bool) -> str:
    runs = [dataclasses.asdict(each) for each in found]
    if not by_query:
        for each in runs:
            del each["per_query"]
    content = {"evaluation_version": EVALUATION_VERSION, "runs": runs, "notes": [*said, METHOD, ORDER]}
    return json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
