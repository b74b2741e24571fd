"""Estimate how long jobs and builds take, by stored results, shipped results, published latencies or rules."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from harness import stats
from harness.analysis import published
from harness.driver.records import Outcome
from harness.jobs.shipped_runs import ShippedRuns
from harness.results.schema import Cell, Result, ResultSpec

# The time of a job of the demo without its queries: starting a container, loading a small system, canaries.
JOB_S = 30.0
# A query takes the slower systems of the published tables a tenth of a second on one CPU.
QUERY_S = 0.1
# The `server` scenario finds its rate in some ten probes of a sample each.
PROBES = 10
# BM25 indexes thousands of documents a second, a small encoder on CPUs tens: one in between.
DOCUMENT_S = 0.01
BUILD_S = 60.0
# From launch to the first job: boot, engine, packages.
SETUP_S = 300.0
# What one instance reads from S3 and unpacks a second, on small types.
BYTES_PER_S = 50e6
# What an engine's image and its packages take on a disk: 0.1 (tantivy) to 1.1 GB (dense).
ENGINE_BYTES = 1 << 30


@dataclass(frozen=True)
class DurationEstimate:
    """Seconds; ``worst_s`` is the protocol's time-outs.  ``measured``: nothing is assumed.

    ``published``: a part follows from latencies that a paper prints.  ``shipped``: a part was measured on the machine
    of the results that ship with harness, the rest here.
    """

    seconds: float
    worst_s: float
    measured: bool
    published: bool = False
    shipped: bool = False

    def __add__(self, other: DurationEstimate) -> DurationEstimate:
        return DurationEstimate(
            self.seconds + other.seconds,
            self.worst_s + other.worst_s,
            self.measured and other.measured,
            self.published or other.published,
            (self.shipped or other.shipped) and self._known and other._known,
        )

    @property
    def _known(self) -> bool:
        return self.measured or self.shipped


# System, dataset and hardware profile of a published latency.
PublishedCell = tuple[str, str, str]


@functools.cache
def published_latencies() -> Mapping[PublishedCell, float]:
    """Return the mean latencies (s) of single queries in the papers' tables that harness ships, by our own names.

    Raises:
        FileError: a table is wrong.
    """
    found: dict[PublishedCell, float] = {}
    for paper in published.shipped():
        if paper.about.protocol.scenario != "single_stream":
            continue
        for dataset in paper.about.datasets:
            for name in dataset.measured_as:
                for line in paper.table3[dataset.name]:
                    for system in {line.system.lower(), dataset.shipped(line.system)}:
                        found[system, name, line.hardware.profile] = float(line.latency_ms.value) / 1000
    return found


class DurationModel:
    """Estimates by job and by build, from earlier results, else ``shipped`` ones, else published ``latencies``."""

    def __init__(
        self,
        stored: Iterable[Result],
        *,
        job_timeout_s: float,
        build_timeout_s: float,
        latencies: Mapping[PublishedCell, float] | None = None,
        shipped: ShippedRuns | None = None,
    ) -> None:
        self._shipped = shipped or ShippedRuns(())
        self._job_timeout_s, self._build_timeout_s = job_timeout_s, build_timeout_s
        self._latencies = published_latencies() if latencies is None else latencies
        self._by_cell: dict[Cell, list[float]] = defaultdict(list)
        # Seconds by query, of other profiles.
        self._by_system: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        self._builds: dict[tuple[str, str], list[float]] = defaultdict(list)
        for result in stored:
            if result.outcome is Outcome.INTERRUPTED or result.wall_s <= 0:
                continue
            cell, seconds = result.spec.cell, result.wall_s / _queries(result.spec)
            self._by_cell[cell].append(seconds)
            if result.outcome is Outcome.OK:
                self._by_system[cell.system, cell.dataset, cell.scenario].append(seconds)
            if result.index is not None:
                self._builds[cell.system, cell.dataset].append(result.index.own_build_s)
                for name, facts in result.index.components.items():
                    self._builds[name, cell.dataset].append(facts.build_s)

    def job(self, spec: ResultSpec) -> DurationEstimate:
        """Estimate one job of that spec."""
        return self.search(spec.cell, _queries(spec))

    def search(self, cell: Cell, queries: int) -> DurationEstimate:
        """Estimate one job that asks this many queries."""
        known = self._by_cell.get(cell) or self._by_system.get((cell.system, cell.dataset, cell.scenario))
        if not known and (jobs := self._shipped.jobs(cell)):
            shipped_s = stats.median([job.wall_s / _queries(job.spec) for job in jobs])
            return _of_shipped(shipped_s * queries, self._job_timeout_s)
        query_s = self._latencies.get((cell.system, cell.dataset, cell.profile))
        if known or query_s is None or cell.scenario != "single_stream":
            return _estimate(known, queries, JOB_S + QUERY_S * queries, self._job_timeout_s)
        return replace(_estimate(None, queries, JOB_S + query_s * queries, self._job_timeout_s), published=True)

    def build(self, system: str, dataset: str, documents: int) -> DurationEstimate:
        """Estimate one index build without its components' builds; a joined index has no documents of its own."""
        known = self._builds.get((system, dataset))
        shipped_s = None if known else self._shipped.build_s(system, dataset, documents)
        if shipped_s is not None:
            return _of_shipped(shipped_s, self._build_timeout_s)
        return _estimate(known, 1, BUILD_S + DOCUMENT_S * documents, self._build_timeout_s)


def _estimate(known: list[float] | None, factor: int, assumed_s: float, worst_s: float) -> DurationEstimate:
    seconds = factor * stats.median(known) if known else assumed_s
    return DurationEstimate(min(worst_s, seconds), worst_s, bool(known))


def _of_shipped(seconds: float, worst_s: float) -> DurationEstimate:
    return DurationEstimate(min(worst_s, seconds), worst_s, measured=False, shipped=True)


def setup(shipped_bytes: int) -> DurationEstimate:
    """Estimate the time from the launch to the first job."""
    seconds = SETUP_S + shipped_bytes / BYTES_PER_S
    return DurationEstimate(seconds, 3 * seconds, True)


def _queries(spec: ResultSpec) -> int:
    """Return the number of queries that a job asks."""
    passes = spec.trials * (PROBES if spec.cell.scenario == "server" else 1)
    return spec.warmup_queries + spec.timed_queries * passes + 2 * spec.repeats
