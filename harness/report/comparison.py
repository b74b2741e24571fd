"""Comparisons as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from typing import Any

from harness.comparison import POWER, Comparison, Difference
from harness.errors import UnknownName
from harness.report.as_csv import written
from harness.report.markdown import escape, grid
from harness.report.sheet import MISSING, number
from harness.table import Figure, Row

FORMATS = ("md", "csv", "json")
# Version of the JSON.  History:
#   1  first version
COMPARISON_VERSION = 1


def render(found: Sequence[Comparison], format: str) -> str:
    """Write comparisons.

    Raises:
        UnknownName: there is no such format.
    """
    writers = {"md": _markdown, "csv": _csv, "json": _json}
    if format not in writers:
        raise UnknownName("format", format, FORMATS)
    return writers[format](found)


_HEADERS = (
    "metric",
    "A",
    "B",
    "B - A (95 %, queries like these)",
    "95 %, measured again",
    "B / A",
    "B is",
    "queries",
    "queries that would show it",
)


def _markdown(found: Sequence[Comparison]) -> str:
    numeric = (False, True, True, True, True, True, False, True, True)
    parts = []
    for each in found:
        a, b = (escape(_name(row).replace("/", " ")) for row in (each.a, each.b))
        lines = [f"**A: {a}; B: {b}**", ""]
        lines += grid(_HEADERS, numeric, [_cells(difference) for difference in each.differences], padded=True)
        costs = _costs(each.a, each.b)
        lines += ["", *(f"- {escape(note)}" for note in (*costs, *each.notes))]
        parts.append("\n".join(lines).rstrip())
    return "\n\n".join((*parts, "\n".join(f"- {note}" for note in METHOD))) + "\n"


METHOD = (
    "Queries like these: paired by query, a query's value being its mean over trials; 95 % BCa bootstrap of the mean "
    "difference. Measured again: 95 % Welch interval over repeated measurements of the same queries (fresh processes, "
    "where there are several, else trials of one). A latency differs only where both exclude 0.",
    f"Queries that would show it: for a difference of this size, at 95 % confidence in {POWER:.0%} of samples.",
)


def _cells(each: Difference) -> tuple[str, ...]:
    scale, unit = (1e3, ", ms") if each.metric == "latency" else (1.0, "")

    def shown(value: float | None) -> str:
        if value is None:
            return MISSING
        return number(value * scale) if unit else f"{value:.3f}"

    return (
        escape(each.metric + unit),
        shown(each.a),
        shown(each.b),
        _interval(each.over_queries, scale),
        MISSING if each.again is None else _ends(each.again, scale),
        MISSING if each.ratio is None else f"{each.ratio:.3g}",
        each.verdict.value,
        f"{each.queries:,}" if each.queries else MISSING,
        MISSING if each.needed is None else f"{each.needed:,}",
    )


def _interval(figure: Figure, scale: float) -> str:
    if figure.value is None:
        return MISSING
    ends = "" if figure.low is None else f" ({_ends(figure, scale)})"
    return f"{_signed(figure.value * scale)}{ends}"


def _ends(figure: Figure, scale: float) -> str:
    if figure.low is None or figure.high is None:
        return MISSING
    return f"{_signed(figure.low * scale)} to {_signed(figure.high * scale)}"


def _signed(value: float) -> str:
    return f"{value:+.3g}"


def _costs(a: Row, b: Row) -> list[str]:
    """What B costs against A, where both are priced."""
    one, other = a.usd_per_million.value, b.usd_per_million.value
    if not one or other is None or a.price is None or b.price is None:
        return []
    types = f"{a.price.instance_type} and {b.price.instance_type}, {a.price.date}"
    return [
        f"B costs {other / one:.3g} times what A does: US$ {number(other)} against {number(one)} a million ({types})"
    ]


def _csv(found: Sequence[Comparison]) -> str:
    head = ["a", "b", "metric", "unit", "value_a", "value_b", "difference", "low", "high", "again_low", "again_high"]
    head += ["ratio", "verdict", "queries", "queries_needed"]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    for each in found:
        for line in each.differences:
            again = line.again or Figure(None)
            cells = (_name(each.a), _name(each.b), line.metric, "s" if line.metric == "latency" else "", line.a, line.b)
            interval = (line.over_queries.value, line.over_queries.low, line.over_queries.high, again.low, again.high)
            rest = (line.ratio, line.verdict.value, line.queries, line.needed)
            writer.writerow([written(value) for value in (*cells, *interval, *rest)])
    return stream.getvalue()


def _name(row: Row) -> str:
    named = f"{row.system}/{row.dataset}/{row.scenario}/{row.profile}"
    return named if row.origin is None else f"{named}/of {row.origin}"


def _json(found: Sequence[Comparison]) -> str:
    content = {
        "comparison_version": COMPARISON_VERSION,
        "comparisons": [
            {
                "a": _row(each.a),
                "b": _row(each.b),
                "differences": [dataclasses.asdict(line) for line in each.differences],
                "notes": list(each.notes),
            }
            for each in found
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _row(row: Row) -> dict[str, Any]:
    names = ("suite", "system", "dataset", "scenario", "profile", "key")
    return {name: getattr(row, name) for name in names} | {"validity": row.validity.value}
