"""Comparisons as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from typing import Any

from harness.analysis import comparison
from harness.analysis.comparison import Comparison, ComparisonSide
from harness.analysis.paired_differences import LATENCY, POWER, Difference, QueryChange
from harness.analysis.significance import DRAWS, LEVEL
from harness.report import headline, writer
from harness.report.csv_json import written
from harness.report.markdown import escape, grid
from harness.report.sheet import MISSING, number
from harness.stats import Estimate
from harness.untrusted import one_line

FORMATS = ("md", "csv", "json")
# Version of the JSON.
COMPARISON_VERSION = 1
# The longest text of a query that a table shows; JSON has all of it.
_LONGEST_TEXT = 100
# More pairs of run files are one table.
MOST_APART = 6
# A table shows p to four decimals.
LEAST_SHOWN = 0.0001


def render(found: Sequence[Comparison], format: str, notes: Sequence[str] = ()) -> str:
    """Write comparisons that were corrected together (:func:`harness.analysis.comparison.corrected`).

    Args:
        found: of runs or stored rows.
        format: one of ``FORMATS``.
        notes: on all of them.

    Raises:
        UnknownName: there is no such format.
    """
    return writer({"md": _markdown, "csv": _csv, "json": _json}, format)(found, notes)


_HEADERS = (
    "metric",
    "A",
    "B",
    "B - A (95 %)",
    "B / A",
    "B is",
    "queries",
    "queries that would show it",
)


_TEST_HEADERS = (
    "metric",
    "p",
    "p, Holm",
    "effect size d_z",
    "queries where B is better",
    "worse",
    "equal",
)
_CHANGED_HEADERS = ("query", "text", "A", "B", "B - A")


METHOD = (
    "B - A: paired by query, a query's value being its mean over trials. Its interval, of a measure: for queries like "
    f"these, the means that the test behind p does not reject, so that it excludes 0 where p is at most {LEVEL}. Of "
    "latency: measured again, with other such queries, in fresh processes; Student's t over queries, corrected for "
    "skew (Hall 1992), and Welch's over repeated measurements, their reaches squared and added. A latency differs only "
    "where it excludes 0.",
    f"Queries that would show it: for a difference of this size, at 95 % confidence in {POWER:.0%} of samples.",
)


def _markdown(found: Sequence[Comparison], notes: Sequence[str]) -> str:
    count = len(comparison.family(found))
    # Stored rows have notes of their own.
    many = len(found) > MOST_APART and all(each.a.row is None and each.b.row is None for each in found)
    parts = [_overview(found)] if many else ["\n".join(_comparison(each, count)).rstrip() for each in found]
    said = [*(escape(note) for note in notes), *_method(found, count)]
    return "\n\n".join((*parts, "\n".join(f"- {note}" for note in said))) + "\n"


def _overview(found: Sequence[Comparison]) -> str:
    """One line for each difference of many pairs of runs."""
    headers = ("A", "B", "metric", "A", "B", "B - A (95 %)", "p, Holm", "effect size d_z", "B is")
    cells = []
    for each in found:
        for line in each.differences:
            metric, a, b, interval, *_ = _cells(line)
            size = None if line.tested is None else line.tested.effect_size
            tests = (_p(line.p_holm), MISSING if size is None else f"{size:+.2f}", line.verdict.value)
            names = (escape(side.name.partition("/")[0]) for side in (each.a, each.b))
            cells.append((*names, metric, a, b, interval, *tests))
    numeric = (False, False, False, True, True, True, True, True, False)
    shared = [note for note in found[0].notes if all(note in each.notes for each in found)]
    own = [f"A {each.a.name}, B {each.b.name}: {note}" for each in found for note in each.notes if note not in shared]
    lines = [f"**{len(found):,} pairs of runs**", "", *grid(headers, numeric, cells, padded=True), ""]
    return "\n".join(
        (
            *lines,
            *(f"- {escape(note)}" for note in (*shared, *own)),
            "- Queries that changed most: --format json has them.",
        )
    )


def _comparison(each: Comparison, count: int) -> list[str]:
    numeric = (False, True, True, True, True, False, True, True)
    a, b = (escape(side.name.replace("/", " ")) for side in (each.a, each.b))
    lines = [f"**A: {a}; B: {b}**", "", headline.sentence(each, count, escape), ""]
    lines += grid(_HEADERS, numeric, [_cells(line) for line in each.differences], padded=True)
    tested = [_test_cells(line) for line in each.differences if line.tested is not None]
    if tested:
        lines += ["", *grid(_TEST_HEADERS, (False, *(True,) * 6), tested, padded=True)]
    if each.changed:
        lines += ["", f"**The queries that changed most by {escape(each.by or '')}**", ""]
        cells = [_changed_cells(query) for query in each.changed]
        lines += grid(_CHANGED_HEADERS, (False, False, True, True, True), cells, padded=True)
    return [*lines, "", *(f"- {escape(note)}" for note in (*_costs(each), *each.notes))]


def _method(found: Sequence[Comparison], count: int) -> tuple[str, ...]:
    tested = [line.tested for each in found for line in each.differences if line.tested is not None]
    least = min((each.least for each in tested), default=1.0)
    again = len(tested) - count
    once = f"; {again:,} more are the same again, of systems that rank alike on several profiles" if again else ""
    said = (
        f"p, two-sided: randomisation, each query's difference with its sign at random ({DRAWS:,} draws or more, all "
        "signs where few queries differ; Fisher; Smucker, Allan and Carterette 2007). Holm: corrected for all "
        f"{count:,} comparisons made here{once} (Holm 1979). B is better or worse only where that is at most {LEVEL}, "
        "and faster or slower only where its interval excludes 0 as well."
    )
    if least > LEVEL:
        said += f" So few queries differ that no p can be below {least:.2g}."
    elif count * least > LEVEL:
        said += (
            f" Of so many comparisons none can have a corrected p below {min(count * least, 1.0):.2g}: compare fewer."
        )
    effect = (
        "Effect size d_z: the mean difference in standard deviations of the differences (0.2 is small, 0.5 medium; "
        "Cohen 1988). It does not grow with the number of queries, as 1/p does."
    )
    return (*METHOD, said, effect) if count else METHOD


def _cells(each: Difference) -> tuple[str, ...]:
    scale, unit = (1e3, ", ms") if each.metric == LATENCY else (1.0, "")

    def shown(value: float | None) -> str:
        if value is None:
            return MISSING
        return number(value * scale) if unit else f"{value:.3f}"

    return (
        escape(each.metric + unit),
        shown(each.a),
        shown(each.b),
        _interval(each.interval, scale) + (" a query" if headline.counted(each.metric) else ""),
        MISSING if each.ratio is None else f"{each.ratio:.3g}",
        each.verdict.value,
        f"{each.queries:,}" if each.queries else MISSING,
        MISSING if each.needed is None else f"{each.needed:,}",
    )


def _test_cells(each: Difference) -> tuple[str, ...]:
    tested, counts = each.tested, each.won_lost_tied
    assert tested is not None and counts is not None
    return (
        escape(each.metric),
        _p(tested.p),
        _p(each.p_holm),
        MISSING if tested.effect_size is None else f"{tested.effect_size:+.2f}",
        *(f"{count:,}" for count in counts),
    )


def _p(value: float | None) -> str:
    """To four decimals; what is smaller is no 0."""
    return MISSING if value is None else f"{value:.4f}" if value >= LEAST_SHOWN else f"<{LEAST_SHOWN}"


def _changed_cells(each: QueryChange) -> tuple[str, ...]:
    text = one_line(each.text)
    text = text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1].rstrip()}…"
    query = escape(each.query_id)
    return query, escape(text) or MISSING, f"{each.a:.3f}", f"{each.b:.3f}", f"{each.difference:+.3f}"


def _interval(figure: Estimate, scale: float) -> str:
    if figure.value is None:
        return MISSING
    ends = "" if figure.low is None else f" ({_ends(figure, scale)})"
    return f"{_signed(figure.value * scale)}{ends}"


def _ends(figure: Estimate, scale: float) -> str:
    if figure.low is None or figure.high is None:
        return MISSING
    return f"{_signed(figure.low * scale)} to {_signed(figure.high * scale)}"


def _signed(value: float) -> str:
    return f"{value:+.3g}"


def _costs(each: Comparison) -> list[str]:
    """What the cost is made of, where both are priced."""
    a, b = each.a.row, each.b.row
    if a is None or b is None or a.price is None or b.price is None:
        return []
    one, other = a.usd_per_million.value, b.usd_per_million.value
    if not one or other is None:
        return []
    types = dict.fromkeys((b.price.instance_type, a.price.instance_type))
    dates = dict.fromkeys((b.price.date, a.price.date))
    return [
        f"cost, sequential: US$ {number(other)} against {number(one)} per million queries "
        f"({' against '.join(types)}, {' and '.join(dates)})"
    ]


def _csv(found: Sequence[Comparison], _notes: Sequence[str]) -> str:
    head = ["a", "b", "metric", "unit", "value_a", "value_b", "difference", "low", "high"]
    head += ["queries_low", "queries_high", "again_low", "again_high"]
    head += ["ratio", "verdict", "queries", "queries_needed"]
    head += ["p", "p_holm", "effect_size", "won", "lost", "tied"]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    for each in found:
        for line in each.differences:
            intervals = (line.interval, line.over_queries, line.again or Estimate(None))
            tested = line.tested
            tests = (None,) * 2 if tested is None else (tested.p, line.p_holm)
            counts = (None if tested is None else tested.effect_size, *(line.won_lost_tied or (None,) * 3))
            cells = (each.a.name, each.b.name, line.metric, "s" if line.metric == LATENCY else "", line.a, line.b)
            interval = (line.over_queries.value, *(end for each in intervals for end in (each.low, each.high)))
            rest = (line.ratio, line.verdict.value, line.queries, line.needed)
            writer.writerow([written(value) for value in (*cells, *interval, *rest, *tests, *counts)])
    return stream.getvalue()


def _json(found: Sequence[Comparison], notes: Sequence[str]) -> str:
    count = len(comparison.family(found))
    content = {
        "comparison_version": COMPARISON_VERSION,
        "comparisons_tested": count,
        "notes": list(notes),
        "comparisons": [
            {
                "a": _side(each.a),
                "b": _side(each.b),
                "summary": headline.sentence(each, count),
                "differences": [_difference(line) for line in each.differences],
                "changed_most": {"by": each.by, "queries": [dataclasses.asdict(query) for query in each.changed]},
                "notes": list(each.notes),
            }
            for each in found
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _difference(line: Difference) -> dict[str, Any]:
    won, lost, tied = line.won_lost_tied or (None, None, None)
    fields = dataclasses.asdict(dataclasses.replace(line, column=None))
    fields["interval"] = dataclasses.asdict(line.interval)
    del fields["fingerprint"], fields["column"]
    if line.tested is not None:
        del fields["tested"]["interval"]
    return fields | {"won": won, "lost": lost, "tied": tied}


def _side(side: ComparisonSide) -> dict[str, Any]:
    if side.row is None:
        flagged = {} if side.flagged is None else {"flagged": dataclasses.asdict(side.flagged)}
        return {"system": side.name, **flagged}
    names = ("suite", "system", "dataset", "scenario", "profile", "key")
    return {name: getattr(side.row, name) for name in names} | {"validity": side.row.validity.value}
