"""The axes that rank systems (accuracy and costs), and the groups of rows that may be compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, TypeVar

from harness.analysis.table import Row
from harness.errors import UnknownName
from harness.estimate import Estimate
from harness.results.schema import Cell

Item = TypeVar("Item")
Key = TypeVar("Key")

MIB = 2**20
ACCURACY = "accuracy"


@dataclass(frozen=True)
class Axis:
    """One property of a system; ``read`` returns a priced row's figure in ``unit``."""

    name: str
    label: str
    unit: str
    higher: bool
    read: Callable[[Row], Estimate]


def accuracy(measure: str) -> Axis:
    """Return the axis of a measure in points (its value times 100), as papers print it."""
    return Axis(
        ACCURACY,
        measure,
        "points",
        True,
        lambda row: row.measures.get(measure, _UNMEASURED).map(lambda value: value * 100),
    )


def axis(name: str, measure: str) -> Axis:
    """Return the axis of that name; ``measure`` is the measure of accuracy.

    Raises:
        UnknownName: there is no such axis.
    """
    if name == ACCURACY:
        return accuracy(measure)
    if name not in OTHERS:
        raise UnknownName("axis", name, (ACCURACY, *OTHERS))
    return OTHERS[name]


def _size(value: int | None) -> Estimate:
    return _UNMEASURED if value is None else Estimate(value / MIB)


_UNMEASURED = Estimate(None, reason="not measured")
OTHERS = {
    each.name: each
    for each in (
        Axis("latency", "mean latency", "ms", False, lambda row: row.latency.mean_s.map(lambda seconds: seconds * 1e3)),
        Axis("cost", "cost", "US$ per million queries", False, attrgetter("usd_per_million")),
        Axis("memory", "peak anonymous memory", "MiB", False, lambda row: _size(row.resources.peak_anon_bytes)),
        Axis("index", "index", "MiB", False, lambda row: _size(row.index.size_bytes)),
        Axis("throughput", "throughput", "queries/s", True, lambda row: row.throughput_qps),
    )
}


class ComparisonGroup(NamedTuple):
    """The properties that rows must share to be compared: the same questions over the same documents in the same way.

    ``suite`` is set for published rows only, because a paper's tables are separate measurements.
    """

    dataset: str
    scenario: str
    isolation: str
    suite: str | None
    k: int
    latency_target_s: float | None
    latency_percentile: float | None
    sample_sha256: str | None
    corpus_sha256: str | None


def comparison_group(row: Row) -> ComparisonGroup:
    """Return the group of rows that this row may be compared with."""
    return ComparisonGroup(
        row.dataset,
        row.scenario,
        row.isolation.name,
        row.suite if row.isolation.published else None,
        row.k,
        row.latency_target_s,
        row.latency_percentile,
        row.sample_sha256,
        row.corpus_sha256,
    )


def cell_of(row: Row) -> Cell:
    """Return a row's cell."""
    return Cell(row.suite, row.system, row.dataset, row.scenario, row.profile)


def group_rows(rows: Iterable[Row]) -> dict[ComparisonGroup, list[Row]]:
    """Return the rows of each comparison group, groups in the order of their first rows."""
    return grouped(rows, comparison_group)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items of each key, keys in the order of their first items."""
    groups: dict[Key, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)
