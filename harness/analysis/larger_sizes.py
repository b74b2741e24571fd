"""Figures of systems at a number of documents that was not measured, from rows of several sizes of one dataset.

Each figure has a law of its own and an exam (:mod:`harness.analysis.scaling`): a figure whose exam failed is not
predicted.  The machine of a prediction holds the memory that is predicted, and its price gives the cost.  Quality has
no law: it depends on the documents that come, and not on their number.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from harness.analysis import scaling
from harness.analysis.scaling import ExaminedLaw, MeasuredSize
from harness.analysis.table import Cost, CpuUse, Latency, Resources, Row
from harness.driver.records import Outcome, digest
from harness.estimate import Estimate
from harness.results.schema import NULL_SYSTEMS, sized_name, split_size

# Sizes at which two systems' costs are compared, between the smallest and the predicted one.
_STEPS = 40
# Sizes among them at which the interval of memory is computed.
_ANCHORS = 8
_GIB = ("GiB", 1024.0)


@dataclass(frozen=True)
class SizeFigure:
    """A figure that has a law of size.

    Args:
        name: as files name it.
        title: as people name it.
        unit: of a value times ``scale``.
        scale: from the unit of a row.
        read: returns the value of a row.
        larger_unit: the unit for people where values are large, and how many of ``unit`` it has.
        own_error, steepest: as :func:`harness.analysis.scaling.examined` takes them.
    """

    name: str
    title: str
    unit: str
    scale: float
    read: Callable[[Row], float | None]
    larger_unit: tuple[str, float] | None = None
    own_error: float = scaling.OWN_ERROR
    steepest: float = scaling.STEEPEST


def _memory_bytes(row: Row) -> float | None:
    """Return the peak of memory that must be there: anonymous and shared, and the pages of mapped files."""
    anon_bytes = row.resources.peak_anon_bytes
    return None if anon_bytes is None else anon_bytes + (row.resources.peak_mapped_bytes or 0)


LATENCY = SizeFigure("latency_ms", "latency", "ms", 1e3, lambda row: row.latency.mean_s.value)
CPU = SizeFigure("cpu_per_query_ms", "CPU time of a query", "ms", 1e3, lambda row: row.cpu.of_system_s.value)
MEMORY = SizeFigure("memory_mib", "memory", "MiB", 1 / 2**20, _memory_bytes, _GIB, steepest=scaling.STORED_STEEPEST)
INDEX = SizeFigure(
    "index_mib",
    "index",
    "MiB",
    1 / 2**20,
    lambda row: row.index.size_bytes,
    _GIB,
    scaling.COUNTED_ERROR,
    scaling.STORED_STEEPEST,
)
BUILD = SizeFigure("build_s", "index build", "s", 1, lambda row: row.index.build_s, ("h", 3600))
FIGURES = (LATENCY, CPU, MEMORY, INDEX, BUILD)


@dataclass(frozen=True, eq=False)
class SizedSystem:
    """A system that was measured at several sizes of a dataset.

    Args:
        system: its name.
        rows: the smallest size first.
        processes: the rows of each process alone, by ``per_query_key``.
    """

    system: str
    rows: tuple[Row, ...]
    processes: Mapping[str, Sequence[Row]]

    @property
    def largest(self) -> int:
        """The largest measured number of documents."""
        return self.rows[-1].index.documents or 0

    def sizes(self, figure: SizeFigure) -> tuple[MeasuredSize, ...]:
        """Return the measured sizes of a figure, in the row's unit; a size without a value is left out."""
        found = []
        for row in self.rows:
            alone = (figure.read(each) for each in self.processes.get(row.per_query_key, ()))
            values = tuple(value for value in alone if value)
            # An index is built once for all processes.
            if figure in (INDEX, BUILD) or len(values) < len(self.processes.get(row.per_query_key, ())) or not values:
                value = figure.read(row)
                values = (value,) if value else ()
            if values:
                found.append(MeasuredSize(row.index.documents or 0, values))
        return tuple(found)

    @cached_property
    def laws(self) -> Mapping[SizeFigure, ExaminedLaw]:
        """The law and the exam of each figure, in the row's unit."""
        return {figure: scaling.examined(self.sizes(figure), figure.own_error, figure.steepest) for figure in FIGURES}


@dataclass(frozen=True, eq=False)
class SizeGroup:
    """Systems that were measured at several sizes of one dataset, on one profile and in one scenario."""

    dataset: str
    scenario: str
    profile: str
    systems: tuple[SizedSystem, ...]


@dataclass(frozen=True, eq=False)
class SystemAtSize:
    """A system at a number of documents that was not measured.

    ``row`` has the predicted latency, and machine and cost where memory is predicted.
    """

    of: SizedSystem
    documents: int
    figures: Mapping[SizeFigure, Estimate]
    row: Row


# Prices a row; the machine provides the row's CPUs and ``memory_limit_bytes``.
Pricing = Callable[[Row], Row]


def groups(rows: Iterable[Row], processes: Mapping[str, Sequence[Row]]) -> list[SizeGroup]:
    """Return the systems of each dataset that were measured at two sizes or more.

    Args:
        rows: of all sizes.
        processes: rows of each process alone, by ``per_query_key``.
    """
    by_group: dict[tuple[str, ...], dict[str, dict[int, Row]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row.outcome is Outcome.OK and row.index.documents and row.system not in NULL_SYSTEMS:
            name, _ = split_size(row.dataset)
            key = (row.suite, row.origin or "", name, row.scenario, row.profile, row.isolation.name)
            by_group[key][row.system].setdefault(row.index.documents, row)
    found = []
    for (*_, dataset, scenario, profile, _isolation), systems in by_group.items():
        sized = tuple(
            SizedSystem(system, tuple(row for _, row in sorted(sizes.items())), processes)
            for system, sizes in systems.items()
            if len(sizes) > 1
        )
        if sized:
            found.append(SizeGroup(dataset, scenario, profile, sized))
    return found


def sized_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of systems that were measured at several sizes."""
    return [row for group in groups(rows, {}) for system in group.systems for row in system.rows]


def at_size(system: SizedSystem, documents: int, priced: Pricing) -> SystemAtSize:
    """Return a system at a number of documents, with the machine that holds it and its cost."""
    figures = {figure: law.predict(documents) for figure, law in system.laws.items()}
    return SystemAtSize(system, documents, figures, _row_at(system, figures, documents, priced))


def _row_at(system: SizedSystem, figures: Mapping[SizeFigure, Estimate], documents: int, priced: Pricing) -> Row:
    """Return a row of these figures, priced on the cheapest type that holds its memory, wherever it was measured."""
    row, unknown = system.rows[-1], Estimate(None, reason="only the mean latency is predicted")
    latency, memory, index, build = (figures[each] for each in (LATENCY, MEMORY, INDEX, BUILD))
    dataset, _ = split_size(row.dataset)
    found = replace(
        row,
        dataset=sized_name(dataset, documents),
        predicted_from=system.largest,
        # Systems that were measured at other sizes of the dataset can be compared here.
        corpus_sha256=digest([dataset, documents, row.sample_sha256]),
        latency=Latency(mean_s=latency, p50_s=unknown, p95_s=unknown, p99_s=unknown),
        throughput_qps=unknown,
        load=(),
        updates=None,
        resources=Resources(),
        cpu=CpuUse(),
        measures={},
        index=replace(
            row.index,
            documents=documents,
            size_bytes=None if index.value is None else round(index.value),
            build_s=build.value,
            cpu_s=None,
            client_cpu_s=None,
            parts_s={},
        ),
        memory_limit_bytes=max(row.memory_limit_bytes, math.ceil(memory.high or memory.value or 0)),
        machine=None if row.machine is None else replace(row.machine, instance_type=None),
        published_type=None,
        price=None,
        cost=Cost(),
    )
    return replace(found, price_note=f"memory: {memory.reason}") if memory.value is None else priced(found)


def with_predicted(
    rows: Iterable[Row], processes: Mapping[str, Sequence[Row]], documents: int, priced: Pricing
) -> tuple[Row, ...]:
    """Return rows in which each system of several sizes has one row, predicted at a number of documents.

    Its latency or its machine is missing with a reason where a law predicts nothing.  A system that was measured at
    this size, or at too few sizes for a law, keeps the row of the nearest size.

    Args:
        rows: of all sizes.
        processes: rows of each process alone, by ``per_query_key``.
        documents: the size to predict.
        priced: prices a row.
    """
    kept = {id(row): row for row in rows}
    for system in (system for group in groups(list(kept.values()), processes) for system in group.systems):
        nearest = min(system.rows, key=lambda row: abs((row.index.documents or 0) - documents))
        for row in system.rows:
            if row is not nearest:
                del kept[id(row)]
        if nearest.index.documents != documents and len(system.rows) >= scaling.MIN_SIZES:
            kept[id(nearest)] = at_size(system, documents, priced).row
    return tuple(kept.values())


@dataclass(frozen=True)
class CostCrossing:
    """A size from which on another system is the cheaper one: ``documents`` is where their laws cross.

    ``sure``: at the predicted size the intervals of the two costs do not overlap.
    """

    cheaper_before: str
    cheaper_after: str
    documents: int
    sure: bool


def flips(found: Sequence[SystemAtSize], priced: Pricing) -> Iterator[CostCrossing]:
    """Yield the pairs of systems whose order by cost at the predicted size is another than at the smallest one.

    Args:
        found: systems of one group at one size.
        priced: as for :func:`at_size`.
    """
    known = [each for each in found if each.row.usd_per_million.value is not None]
    if len(known) < 2:
        return
    start = max(each.of.rows[0].index.documents or 1 for each in known)
    sizes = between(start, known[0].documents)
    costs = {each: costs_by_law(each.of, sizes, priced) for each in known}
    for one, other in itertools.combinations(known, 2):
        above = [a > b for a, b in zip(costs[one], costs[other], strict=True)]
        if above[0] == above[-1]:
            continue
        # The last change: before, a larger machine of one may change the order for a while.
        crossing = sizes[max(step for step, now in enumerate(above) if now != above[-1]) + 1]
        before, after = (other, one) if above[0] else (one, other)
        cheap, dear = after.row.usd_per_million, before.row.usd_per_million
        sure = cheap.high is not None and dear.low is not None and cheap.high < dear.low
        yield CostCrossing(before.of.system, after.of.system, crossing, sure)


def between(start: int, end: int, steps: int = _STEPS) -> list[int]:
    """Return numbers of documents from ``start`` to ``end``, each a constant factor larger than the one before."""
    return [round(start * (end / start) ** (step / steps)) for step in range(steps + 1)]


def costs_by_law(system: SizedSystem, sizes: Sequence[int], priced: Pricing) -> list[float]:
    """Return the US$ of a million queries at sizes by its laws, on machines that hold the high end of its memory.

    Infinite where a law predicts nothing.
    """
    latency, memory = system.laws[LATENCY], system.laws[MEMORY]
    if latency.reason or memory.reason or latency.law is None:
        return [math.inf] * len(sizes)
    # An interval takes 20 ms; between a few of them memory is a power of the size.
    anchors = between(sizes[0], sizes[-1], _ANCHORS)
    high = [math.log(memory.predict(size).high or math.inf) for size in anchors]
    highest = np.exp(np.interp(np.log(sizes), np.log(anchors), high)).tolist()
    unknown = dict.fromkeys(FIGURES, Estimate(None))
    found = []
    for size, memory_bytes in zip(sizes, highest, strict=True):
        if not math.isfinite(memory_bytes):  # beyond what its law predicts
            found.append(math.inf)
            continue
        figures = {**unknown, LATENCY: Estimate(latency.law.at(size)), MEMORY: Estimate(memory_bytes)}
        cost = _row_at(system, figures, size, priced).usd_per_million.value
        found.append(math.inf if cost is None else cost)
    return found


def outgrown(system: SizedSystem, memory_bytes: int, documents: int) -> int | None:
    """Return the number of documents from which on a system needs more memory than this, by its law.

    ``None``: not up to ``documents``, or its law predicts nothing.
    """
    law = system.laws[MEMORY]
    if law.reason is not None or law.law is None or law.law.at(documents) <= memory_bytes:
        return None
    low, high = 1.0, float(documents)
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if law.law.at(middle) <= memory_bytes else (low, middle)
    return round(high)
