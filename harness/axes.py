"""What systems are weighed by: accuracy, and what it costs.  Each axis with its unit and the side that is better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.errors import UnknownName
from harness.table import Figure, Row

MIB = 2**20
ACCURACY = "accuracy"


@dataclass(frozen=True)
class Axis:
    """One thing to weigh: ``higher`` is better or not, and ``read`` gives a priced row's figure in ``unit``."""

    name: str
    label: str
    unit: str
    higher: bool
    read: Callable[[Row], Figure]


def accuracy(measure: str) -> Axis:
    """A measure in points: a hundred times its value, as papers print it."""
    return Axis(ACCURACY, measure, "points", True, lambda row: _scaled(row.measures.get(measure, _UNMEASURED), 100))


def axis(name: str, measure: str) -> Axis:
    """The axis of that name; ``measure`` is what accuracy is.

    Raises:
        UnknownName: there is no such axis.
    """
    if name == ACCURACY:
        return accuracy(measure)
    if name not in OTHERS:
        raise UnknownName("axis", name, (ACCURACY, *OTHERS))
    return OTHERS[name]


def _cost(row: Row) -> Figure:
    """US$ per million queries by the model that the row's scenario has."""
    return row.usd_per_million if row.scenario == "single_stream" else row.usd_per_million_saturated


def _scaled(figure: Figure, factor: float) -> Figure:
    value, low, high = (None if each is None else each * factor for each in (figure.value, figure.low, figure.high))
    return Figure(value, low, high, figure.reason)


def _size(value: int | None) -> Figure:
    return _UNMEASURED if value is None else Figure(value / MIB)


_UNMEASURED = Figure(None, reason="not measured")
OTHERS = {
    each.name: each
    for each in (
        Axis("latency", "mean latency", "ms", False, lambda row: _scaled(row.latency_mean_s, 1e3)),
        Axis("cost", "cost", "US$ per million queries", False, _cost),
        Axis("memory", "peak anonymous memory", "MiB", False, lambda row: _size(row.peak_anon_bytes)),
        Axis("index", "index", "MiB", False, lambda row: _size(row.index_bytes)),
        Axis("throughput", "throughput", "queries/s", True, lambda row: row.throughput_qps),
    )
}
