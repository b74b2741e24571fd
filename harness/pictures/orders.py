"""Rows that may be compared -> how often two of their systems change places, as :mod:`harness.pictures.flips` draws it.

Rankings alone count here, not what they cost: profiles on which a system returned the same are one system.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harness import evaluate, measure_names, per_query, robustness
from harness.per_query import PerQuery
from harness.pictures import flips
from harness.pictures.compared import Drawing, Missing, Rows, named, why_none
from harness.robustness import Robustness, Values
from harness.table import Row

Floats = NDArray[np.float64]

_WHAT = "how often two systems change places"
_NOT_HERE = "Fewer judgements, which turn an order round as well, are drawn by harness robustness."


@dataclass(frozen=True)
class _Known:
    """A row that has values by query."""

    row: Row
    found: PerQuery


def make(rows: Rows) -> Drawing:
    """By the measure that is asked, held against other queries and the table's other measures.

    Raises:
        Missing: there is no order that could change.
    """
    known, others = _known(rows)
    if not known:
        raise Missing(f"{_WHAT}: {why_none(others)}")
    if not _is_mean(rows.measure):
        raise Missing(f"{_WHAT}: {rows.measure} makes no order of them: {robustness.NO_MEAN}")
    judgements = {each.row.qrels_sha256 for each in known}
    if len(judgements) > 1:
        raise Missing(f"{_WHAT}: rows were judged by {len(judgements)} different sets of judgements")
    ids = tuple(sorted(set().union(*(each.found.query_ids for each in known))))
    known = [replace(each, found=each.found.on(ids)) for each in known]
    merged = _merged(known)
    if len(merged) < 2:
        raise Missing(f"{_WHAT}: an order needs two systems, there is {merged[0].row.system} alone")
    values, left_out = _values(rows, merged)
    asked = robustness.Asked(rows.measure, tuple(each for each in rows.table.measures if each != rows.measure))
    found = robustness.of_values(rows.called, values, asked)
    if not any(condition.flips for condition in found.conditions):
        raise Missing(f"{_WHAT}: {found.conditions[0].reason}")
    return _drawing(rows, found, others, [*_one(known, merged), *left_out])


def _drawing(rows: Rows, found: Robustness, others: list[tuple[Row, str]], said: Sequence[str]) -> Drawing:
    around = rows.frame(flips.title(found), (), others)
    around = replace(around, notes=(*flips.notes(found), " ".join((*said, _NOT_HERE)), *around.notes))
    return lambda: flips.draw(found, around)


def _known(rows: Rows) -> tuple[list[_Known], list[tuple[Row, str]]]:
    """Rows that ran and have values of the measure by query, and the others with why."""
    kept, others = rows.usable()
    known = []
    for row in kept:
        found = rows.found.get(per_query.name(row))
        if found is None or not np.isfinite(found.measures.get(rows.measure, np.zeros(0))).any():
            others.append((row, f"no {rows.measure} by query"))
        else:
            known.append(_Known(row, found))
    return known, others


def _is_mean(measure: str) -> bool:
    (parsed,) = measure_names.parse([measure])
    return evaluate.is_mean(parsed)


def _merged(known: Sequence[_Known]) -> list[_Known]:
    """One for each system, and for each other ranking that a system gave; the first of the table's."""
    distinct: dict[tuple[object, ...], _Known] = {}
    for each in known:
        values = each.found.measures
        same = (each.row.system, *((name, values[name].tobytes()) for name in sorted(values)))
        distinct.setdefault(same, each)
    return list(distinct.values())


def _one(known: Sequence[_Known], merged: Sequence[_Known]) -> list[str]:
    if len(known) == len(merged):
        return []
    return ["Rows of a system that are worth the same for every query are one."]


def _values(rows: Rows, merged: Sequence[_Known]) -> tuple[Values, list[str]]:
    """By all of the table's measures, over the queries that are judged for every system; and how many are not."""
    main = _columns(merged, rows.measure)
    judged = np.isfinite(main)
    all_judged = judged.all(axis=1)
    if not all_judged.any():
        raise Missing(f"{_WHAT}: no query is judged for every system")
    columns, unfit = {rows.measure: main[all_judged]}, {}
    for measure in rows.table.measures:
        lacking = [each.row for each in merged if measure not in each.found.measures]
        if lacking:
            unfit[measure] = f"{named(lacking[0])} has none by query"
        elif not _is_mean(measure):
            unfit[measure] = robustness.NO_MEAN
        elif not np.isfinite(found := _columns(merged, measure)[all_judged]).all():
            unfit[measure] = "some of these queries have none"
        else:
            columns[measure] = found
    apart = int((judged.any(axis=1) & ~all_judged).sum())
    said = [f"Not judged for every system, left out: {apart:,} queries."] if apart else []
    return Values(_names([each.row for each in merged]), columns, unfit), said


def _columns(merged: Sequence[_Known], measure: str) -> Floats:
    return np.stack([each.found.measures[measure] for each in merged], axis=1)


# What a row is called where the names before it are those of others too.
_WAYS: tuple[Callable[[Row], str], ...] = (
    lambda row: row.system,
    named,
    lambda row: f"{named(row)}, {row.suite}",
    lambda row: f"{named(row)}, {per_query.name(row)}",
)


def _names(rows: Sequence[Row]) -> tuple[str, ...]:
    """A name for each row that no other has: its system's where that is enough."""
    found: list[str] = []
    for row in rows:
        ways = [
            way(row) for way in _WAYS if sum(way(row) == way(other) for other in rows) == 1 and way(row) not in found
        ]
        found.append(ways[0] if ways else f"{_WAYS[-1](row)} ({len(found) + 1})")
    return tuple(found)
