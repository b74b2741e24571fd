"""Report on the cheapest row that reaches a goal: few lines for people, every row for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from harness.analysis.cheapest import CheapestPoint, OperatingPoint, QualityGoal
from harness.analysis.table import Row, Table
from harness.errors import counted
from harness.estimate import Estimate
from harness.report.document import (
    MISSING,
    Escape,
    Grid,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    digits,
    few_lines,
    grid_of,
    joined_by_and,
    left_out_records,
    lines_of_records,
    number,
    price_facts,
    system_name,
    usual_reason,
    with_ends,
)
from harness.report.groups import group_words
from harness.report.hardware import hardware
from harness.report.row_figures import COST_HEADER, facts
from harness.report.sentences import noise
from harness.report.summary import doubts, tone
from harness.report.verdict_scope import ONE_DIFFERENCE, OWN_MEAN
from harness.report.writers import narrowed

# Version of the JSON.
CHEAPEST_VERSION = 1

METHOD = (
    "Rows with a mean of the measure and a cost count, in order of cost; failed and invalid ones are left out.",
    "Lower end: of the 95 % interval of the distance to the goal, for other such queries. Where the goal is a number, "
    "it is the mean's interval; where it is relative to a system, the paired difference's (randomisation test).",
)
_INTERVAL, _DISTANCE = "to the goal, 95 %", "to the goal"
# What decides least, first; the interval is in the sentence.
_DROPPED = ("hardware", _INTERVAL, _DISTANCE)
_ROLES = {"cheapest": "cheapest", "cheaper": "next cheaper", "sure": "lower end too", "best": "best", "": ""}
_Line = tuple[CheapestPoint, OperatingPoint]


def cheapest_document(found: Sequence[CheapestPoint], goal: QualityGoal, table: Table) -> ReportDocument:
    """Return the document: people see all rows in order of cost, CSV has a line for each, JSON all that is known."""
    return ReportDocument(
        sections=lambda escape: _sections(found, goal, escape),
        lines=lambda: _lines(found, goal),
        content=lambda: {
            "cheapest_version": CHEAPEST_VERSION,
            "goal": goal.text,
            "measure": goal.measure,
            "prices": price_facts(table),
            "groups": [_record(each) for each in found],
        },
    )


def answer(
    found: Sequence[CheapestPoint], goal: QualityGoal, table: Table, escape: Escape, width: int | None = None
) -> Section:
    """Return the rows that decide, a sentence for each of at most two groups, and at most five lines.

    A goal that no row reaches is one sentence.  ``width``: of the terminal; columns that the sentences repeat are left
    out until the grid fits.
    """
    reached = [each for each in found if each.cheapest is not None]
    rows = [(each, point) for each in reached for point in each.points if each.role(point)]
    grids = (narrowed(_grid(rows, found, goal, escape), _DROPPED, width),) if rows else ()
    sentences = [_sentence(each, goal, escape) for each in found]
    if len(found) > 2:
        missed = [each for each in found if each.cheapest is None]
        sentences = [f"{len(reached)} of {len(found)} groups have a row that reaches {escape(goal.text)}."]
        sentences += [f"{_name(each, found, escape)}: {_sentence(each, goal, escape)}" for each in missed[:2]]
    elif len(found) == 2:
        sentences = [f"{_name(each, found, escape)}: {text}" for each, text in zip(found, sentences, strict=True)]
    prices = f", prices {table.price_provider} {table.price_region} {table.price_date}" if table.price_date else ""
    lead = (f"Cheapest with {escape(_words(found, goal))}{prices}",) if rows else ()
    unread = tuple(map(escape, left_out_records(table)))
    if not rows:
        return Section(after=tuple(sentences), notes=unread)
    # Of the other measures nothing is shown.
    shown = [replace(point.row, measures={goal.measure: point.mean}) for _, point in rows]
    notes = [*unread, *doubts(shown, escape), *map(escape, _left_out(found))]
    pointer = "every row in order of cost: --wide"
    scope = () if all(point.gap.low is None for _, point in rows) else (_scope(goal),)
    return Section(lead=lead, grids=grids, after=tuple(sentences), notes=few_lines((*scope, *notes), pointer))


def _scope(goal: QualityGoal) -> str:
    return ONE_DIFFERENCE if goal.value is None else OWN_MEAN


def _words(found: Sequence[CheapestPoint], goal: QualityGoal) -> str:
    """Return the goal in words, with its value where it is the same in all groups."""
    values = {each.goal for each in found if each.goal is not None}
    if goal.value is not None or len(values) != 1:
        return f"{goal.measure} of at least {goal.target}"
    return f"{goal.measure} of at least {digits(values.pop(), '.4f')} ({goal.target})"


def _name(each: CheapestPoint, found: Sequence[CheapestPoint], escape: Escape) -> str:
    """Return a group's dataset, and the facts that tell it from the dataset's other groups."""
    return escape(", ".join(group_words(other.place for other in found)[each.place]))


def _sentence(each: CheapestPoint, goal: QualityGoal, escape: Escape) -> str:
    least = f"{goal.measure} {digits(each.goal, '.4f')}"
    if each.reason is not None:
        return escape(f"No goal: {each.reason}.")
    if each.best is None:
        return escape(f"No row has both {goal.measure} and a cost ({usual_reason(each.left_out)}).")
    point = each.cheapest
    if point is None:
        best, *equal = each.equally_good
        which = f", the cheapest of {1 + len(equal)}," if equal else ""
        return (
            f"None reaches {escape(least)}; the best is {_called(best, escape)}{which} with "
            f"{digits(best.mean.value, '.4f')}, {_below(best)} below, at US$ "
            f"{number(best.row.usd_per_million.value)} per million queries."
        )
    others = [_called(other, escape) for other in each.equally_cheap if other is not point]
    at_once = f" ({joined_by_and(others)} at the same cost)" if others else ""
    text = (
        f"{_called(point, escape)} is the cheapest that reaches {escape(least)}: {digits(point.mean.value, '.4f')} at "
        f"US$ {number(point.row.usd_per_million.value)} per million queries{at_once}. {_lower(point, each, escape)}"
    )
    cheaper = each.cheaper
    if cheaper is None:
        return f"{text} No other row costs less.{noise((point.row,), escape)}"
    usd = number(cheaper.row.usd_per_million.value)
    next_one = f"The next cheaper, {_called(cheaper, escape)} at US$ {usd}, misses by {_below(cheaper)}."
    return f"{text} {next_one}{noise((point.row, cheaper.row), escape)}"


def _below(point: OperatingPoint) -> str:
    return digits(None if point.gap.value is None else -point.gap.value, ".4f")


def _called(point: OperatingPoint, escape: Escape) -> str:
    return f"{system_name(point.row, escape)} on {escape(hardware(point.row))}"


def _lower(point: OperatingPoint, each: CheapestPoint, escape: Escape) -> str:
    """Say whether the interval's lower end reaches the goal, and which row is the first whose end does."""
    if point.surely is None:
        return f"It has no interval ({escape(point.gap.reason or 'not measured by query')})."
    interval = f"Its distance to the goal is {_ends(point.gap)} (95 %)"
    if point.surely:
        return f"{interval}: the lower end reaches the goal too."
    sure = each.sure
    first = (
        "No row reaches the goal with its lower end."
        if sure is None
        else f"The cheapest row whose lower end reaches it is {_called(sure, escape)}."
    )
    return f"{interval}: the lower end misses the goal. {first}"


def _ends(gap: Estimate) -> str:
    return f"{digits(gap.low, '+.4f')} to {digits(gap.high, '+.4f')}"


def _left_out(found: Sequence[CheapestPoint]) -> Iterator[str]:
    """Yield how many rows do not count, once for each reason."""
    reasons = Counter(reason for each in found for _, reason in each.left_out)
    for reason, count in reasons.most_common():
        yield f"{counted(count, 'row')} left out: {reason}"


def _grid(rows: Sequence[_Line], found: Sequence[CheapestPoint], goal: QualityGoal, escape: Escape) -> Grid:
    doubted = any(line[1].row.validity.doubt for line in rows)
    columns: list[GridColumn[_Line] | None] = [
        ("group", False, lambda line: _name(line[0], found, escape)) if len(found) > 1 else None,
        ("", False, lambda line: _ROLES[line[0].role(line[1])]),
        ("system", False, lambda line: system_name(line[1].row, escape)),
        ("hardware", False, lambda line: escape(hardware(line[1].row))),
        (goal.measure, True, lambda line: digits(line[1].mean.value, ".4f")),
        (_DISTANCE, True, lambda line: digits(line[1].gap.value, "+.4f")),
        (_INTERVAL, False, lambda line: MISSING if line[1].gap.low is None else _ends(line[1].gap)),
        (COST_HEADER, True, lambda line: number(line[1].row.usd_per_million.value)),
        ("", False, lambda line: line[1].row.validity.doubt) if doubted else None,
    ]
    return grid_of(rows, columns, tones=[tone(point.row, good=point is each.cheapest) for each, point in rows])


def _sections(found: Sequence[CheapestPoint], goal: QualityGoal, escape: Escape) -> Iterator[Section]:
    for each in found:
        rows = [(each, point) for point in each.points]
        grids = (_grid(rows, (each,), goal, escape),) if rows else ()
        yield Section(title=_name(each, found, escape), grids=grids, after=(_sentence(each, goal, escape),))
    yield Section(notes=(*map(escape, _left_out(found)), *map(escape, METHOD), _scope(goal)))


_CSV = (
    *("dataset", "scenario", "isolation", "suite", "system", "hardware_profile", "role", "measure", "goal"),
    *("mean", "mean_low", "mean_high", "gap", "gap_low", "gap_high", "reaches", "lower_end_reaches"),
    *("usd_per_million_queries", "latency_mean_ms", "validity", "key", "reason"),
)


def _lines(found: Sequence[CheapestPoint], goal: QualityGoal) -> Iterator[Sequence[Value]]:
    """Yield a line for each row in order of cost, then for those that are left out."""
    lines: list[dict[str, Any]] = []
    for each in found:
        shared = {"measure": goal.measure, "goal": each.goal}
        lines += [{**shared, **_values(each, point)} for point in each.points]
        lines += [{**shared, **_names(row), "reason": reason} for row, reason in each.left_out]
    yield from lines_of_records(lines, _CSV)


def _names(row: Row) -> dict[str, Any]:
    names = ("dataset", "scenario", "isolation", "suite", "system", "hardware_profile", "validity")
    return {**facts(row, *names), "key": row.per_query_key}


def _values(each: CheapestPoint, point: OperatingPoint) -> dict[str, Any]:
    row = point.row
    return {
        **_names(row),
        "role": each.role(point),
        **with_ends("mean", point.mean),
        **with_ends("gap", point.gap),
        "reaches": point.reaches,
        "lower_end_reaches": point.surely,
        "usd_per_million_queries": row.usd_per_million.value,
        **facts(row, "latency_mean_ms"),
    }


def _record(each: CheapestPoint) -> dict[str, Any]:
    """Return a group for programs; its parts are rows of ``points``, or None."""
    places = {id(point): number for number, point in enumerate(each.points)}
    parts = {"cheapest": each.cheapest, "cheaper": each.cheaper, "sure": each.sure, "best": each.best}
    return {
        **each.place._asdict(),
        "goal": each.goal,
        "reason": each.reason,
        **{name: None if point is None else places[id(point)] for name, point in parts.items()},
        "points": [
            {
                **_values(each, point),
                "gap": asdict(point.gap),
                "mean": asdict(point.mean),
                "keys": list(point.row.keys),
            }
            for point in each.points
        ],
        "left_out": [{**_names(row), "reason": reason} for row, reason in each.left_out],
    }
