"""Estimate times and memory of jobs and builds: by stored or shipped results, published latencies or rules."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from harness import stats
from harness.analysis import published
from harness.driver.records import Outcome
from harness.jobs import growth
from harness.jobs.shipped_runs import ShippedRuns
from harness.results.schema import Cell, Result, ResultSpec, split_size

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


# Documents -> values of a figure.
_BySize = dict[int, list[float]]
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


class RunModel:
    """Estimates by job and by build, from earlier results, else ``shipped`` ones, else published latencies.

    Earlier results of a dataset at other sizes count, too.
    """

    def __init__(
        self,
        stored: Iterable[Result],
        *,
        job_timeout_s: float,
        build_timeout_s: float,
        shipped: ShippedRuns | None = None,
    ) -> None:
        self._shipped = shipped
        self._job_timeout_s, self._build_timeout_s = job_timeout_s, build_timeout_s
        self._by_cell: dict[Cell, list[float]] = defaultdict(list)
        # Seconds by query, of other profiles.
        self._by_system: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        self._builds: dict[tuple[str, str], list[float]] = defaultdict(list)
        # Of a system and a dataset at any size: documents -> seconds per query, seconds of the build, bytes of memory.
        self._queries_by_size: dict[tuple[str, str, str], _BySize] = defaultdict(lambda: defaultdict(list))
        self._builds_by_size: dict[tuple[str, str], _BySize] = defaultdict(lambda: defaultdict(list))
        self._peaks_by_size: dict[tuple[str, str], _BySize] = defaultdict(lambda: defaultdict(list))
        for result in stored:
            if result.outcome is Outcome.INTERRUPTED or result.wall_s <= 0:
                continue
            cell, seconds = result.spec.cell, result.wall_s / _queries(result.spec)
            self._by_cell[cell].append(seconds)
            documents, whole = result.provenance.corpus_documents, split_size(cell.dataset)[0]
            if result.outcome is Outcome.OK:
                self._by_system[cell.system, cell.dataset, cell.scenario].append(seconds)
                if documents:
                    self._queries_by_size[cell.system, whole, cell.scenario][documents].append(seconds)
                    if peak := result.observed.memory.peak_anon_bytes:
                        self._peaks_by_size[cell.system, whole][documents].append(peak)
            if result.index is not None:
                builds = {name: facts.build_s for name, facts in result.index.components.items()}
                for name, build_s in {**builds, cell.system: result.index.own_build_s}.items():
                    self._builds[name, cell.dataset].append(build_s)
                    if documents:
                        self._builds_by_size[name, whole][documents].append(build_s)

    def job(self, spec: ResultSpec) -> DurationEstimate:
        """Estimate one job of that spec."""
        return self.search(spec.cell, _queries(spec))

    def search(self, cell: Cell, queries: int) -> DurationEstimate:
        """Estimate one job that asks this many queries."""
        known = self._by_cell.get(cell) or self._by_system.get((cell.system, cell.dataset, cell.scenario))
        whole, documents = split_size(cell.dataset)
        sizes = _medians(self._queries_by_size.get((cell.system, whole, cell.scenario))) if documents else {}
        if not known and documents and sizes:
            known = [growth.at(sizes, documents) if len(sizes) > 1 else next(iter(sizes.values()))]
        if not known and self._shipped and (jobs := self._shipped.jobs(cell)):
            shipped_s = stats.median([job.wall_s / _queries(job.spec) for job in jobs])
            return _of_shipped(shipped_s * queries, self._job_timeout_s)
        query_s = published_latencies().get((cell.system, cell.dataset, cell.profile))
        if known or query_s is None or cell.scenario != "single_stream":
            return _estimate(known, queries, JOB_S + QUERY_S * queries, self._job_timeout_s)
        return replace(_estimate(None, queries, JOB_S + query_s * queries, self._job_timeout_s), published=True)

    def build(self, system: str, dataset: str, documents: int) -> DurationEstimate:
        """Estimate one index build without its components' builds; a joined index has no documents of its own."""
        known = self._builds.get((system, dataset))
        sizes = {} if known or not documents else _medians(self._builds_by_size.get((system, split_size(dataset)[0])))
        if len(sizes) > 1:
            known = [growth.at(sizes, documents)]
        elif sizes:
            ((than, build_s),) = sizes.items()
            known = [build_s * growth.times(system, "build_s", documents, than)]
        shipped_s = None if known or not self._shipped else self._shipped.figure(system, dataset, documents, "build_s")
        if shipped_s is not None:
            return _of_shipped(shipped_s, self._build_timeout_s)
        return _estimate(known, 1, BUILD_S + DOCUMENT_S * documents, self._build_timeout_s)

    def memory_bytes(self, system: str, dataset: str, documents: int) -> float | None:
        """Estimate the least peak of anonymous memory, by other sizes of the dataset, else by the shipped sweep.

        The least: a Java heap takes what a larger profile gives it.
        """
        by_size = self._peaks_by_size.get((system, split_size(dataset)[0]), {})
        peaks = {size: min(values) for size, values in by_size.items()}
        if not documents:
            return None
        if len(peaks) > 1 or documents in peaks:
            return growth.at(peaks, documents)
        return growth.shipped(system, "memory_bytes", documents) if self._shipped else None


def _medians(by_size: Mapping[int, list[float]] | None) -> dict[int, float]:
    return {documents: stats.median(values) for documents, values in (by_size or {}).items()}


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
