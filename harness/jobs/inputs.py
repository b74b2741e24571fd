"""Everything that a suite names, found and checked; and what of it is done.

Costs seconds and runs no job; the one thing it writes are the corpora that it makes ready in the cache.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness import datasets
from harness.datasets import Dataset, QuerySample
from harness.errors import UsageError
from harness.evaluation import measure_names
from harness.jobs.assignment import AssignedWork
from harness.jobs.plan import DatasetFacts, Planned, cells, plan
from harness.jobs.suite import Suite, dataset_name
from harness.launch.base import Launcher, Limits
from harness.launch.images import assets, catalog
from harness.launch.images.catalog import System
from harness.pricing import instances
from harness.progress import bar
from harness.records import Envelope, Isolation
from harness.results.reader import read_jobs
from harness.results.schema import Cell, Result
from harness.results.store import Shelf
from harness.stats import MIN_QUERIES

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunOptions:
    """The options of a run, from the command line.

    ``cells``: these alone, of those that ``only`` matches; ``shelf``: where results go besides ``results``.
    ``share``: the part of a plan that this machine is to do, and no more.  ``instance_types``: profile -> the machine
    that its jobs are planned for.
    """

    results: Path
    cache: Path
    suite_dir: Path
    only: str | None = None
    fresh: bool = False
    retry_noisy: int = 0
    cells: frozenset[Cell] | None = None
    shelf: Shelf | None = None
    share: AssignedWork | None = None
    instance_types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Inputs:
    """Everything a suite names, found and checked before anything costs time."""

    suite: Suite
    cells: list[Cell]
    systems: dict[str, System]
    profiles: dict[str, Envelope]
    datasets: dict[str, Dataset]
    samples: dict[str, QuerySample]

    def system(self, cell: Cell) -> System:
        """The system of a cell, with packages that can use the GPUs of its profile."""
        return self.systems[cell.system].on(self.profiles[cell.profile].gpus)

    def builder(self, cell: Cell) -> System:
        """The same for the build of its index: one index serves all profiles."""
        return self.systems[cell.system].on(self.build_gpus)

    @property
    def build_gpus(self) -> int:
        """GPUs that index builds get."""
        return self.profiles[self.suite.build_profile].gpus if self.suite.build_profile else 0

    @property
    def limits(self) -> Limits:
        """The time limits of a job, from the protocol."""
        protocol = self.suite.protocol
        return Limits(
            load_s=protocol.load_timeout_s,
            query_s=protocol.query_timeout_s,
            build_s=protocol.build_timeout_s,
            job_s=protocol.job_timeout_s,
        )

    def cell_of(self, system: str, dataset: str) -> Cell:
        """Some cell of a system and a dataset.

        Raises:
            UsageError: the suite has none.
        """
        for cell in self.cells:
            if (cell.system, cell.dataset) == (system, dataset):
                return cell
        raise UsageError(f"the suite {self.suite.name} has no cell of {system} on {dataset}; see `harness plan`")

    def images(self, cells: Iterable[Cell]) -> dict[str, System]:
        """All that these cells run or are built by, by image name."""
        return {each.image: each for cell in cells for each in (self.system(cell), self.builder(cell))}


def gather(suite: Suite, options: RunOptions) -> Inputs:
    """Find and check all that the suite names.

    Args:
        suite: what is declared.
        options: where things are.

    Raises:
        UsageError: a name or a measure is unknown, a file is wrong, ``only`` matches nothing, or a sample is too small
            for the ``server`` scenario.
    """
    if options.share is None:  # who does a share makes no table of it
        measure_names.parse(suite.measures)  # a table that cannot be made is known before what costs
    profiles = {name: instances.hardware_profile(name) for name in suite.profiles}
    if suite.build_profile is not None:
        profiles[suite.build_profile] = instances.hardware_profile(suite.build_profile)
    wanted = cells(suite, options.only)
    if not wanted:
        raise UsageError(f"--only {options.only!r} matches no cell of the suite {suite.name}; see `harness plan`")
    if options.cells is not None:
        wanted = [cell for cell in wanted if cell in options.cells]
        if not wanted:
            raise UsageError(f"the suite {suite.name} declares none of the contested cells; name the suite that does")
    systems = catalog.named(dict.fromkeys((*suite.systems, *(cell.system for cell in wanted))))
    served = tuple(dict.fromkeys(cell.dataset for cell in wanted if cell.scenario == "server"))
    for name in served:
        _check_proves(suite, name, suite.protocol.sample_size)  # a large corpus takes its time to load
    loaded = {dataset_name(name): _load(name, options) for name in suite.datasets}
    protocol = suite.protocol
    samples = {
        name: datasets.draw_sample(dataset, protocol.sample_size, protocol.warmup_queries, protocol.seed)
        for name, dataset in loaded.items()
    }
    for name in served:
        _check_proves(suite, name, len(samples[name].timed))
    for name, queries in samples.items():
        if queries.held_out:
            log.info(
                f"  {name}: {len(queries.held_out):,} of {len(queries.sample):,} queries warm the systems up;"
                " they are judged, not timed (the dataset has no others)"
            )
    return Inputs(suite, wanted, systems, profiles, loaded, samples)


def _load(declared: str, options: RunOptions) -> Dataset:
    """Load a dataset, with a bar while a large corpus is made ready."""
    place = datasets.find(declared, options.suite_dir)
    with bar(f"{dataset_name(declared)}: corpus", "documents", line=True) as step:
        found = datasets.load(place, options.cache, step)
    if found.corpus.empty:
        log.info(f"  {found.name}: {found.corpus.empty:,} of {found.corpus.size:,} documents are empty")
    if unknown := found.unknown_judged():
        pairs, (query, document) = len(unknown), unknown[0]
        log.info(
            f"  {found.name}: {pairs:,} judgements are of documents that its corpus has not, such as {document!r} "
            f"for query {query!r}; no system can find them"
        )
    return found


def _check_proves(suite: Suite, dataset: str, queries: int) -> None:
    """Refuse a sample from which no rate of the ``server`` scenario could ever be shown to keep its target."""
    percentile = suite.server.latency_percentile
    floor = MIN_QUERIES[f"p{percentile}"]
    if queries < floor:
        size = suite.protocol.sample_size
        larger = f"raise protocol.sample_size (now {size})" if queries >= size else "judge more of its queries"
        raise UsageError(
            f"dataset {dataset}: a sample of {queries} queries cannot show that a rate keeps"
            f" server.latency_percentile = {percentile}, which takes {floor}; {larger}, or lower the percentile"
        )


def not_pinned(inputs: Inputs) -> list[str]:
    """One line for each system whose image cannot be made yet, because its weights are not pinned."""
    systems = [each for system in inputs.systems.values() for each in (system, *system.components)]
    lines = [assets.not_pinned(each.name, each.system_assets) for each in systems]
    return list(dict.fromkeys(filter(None, lines)))


def planned(inputs: Inputs, options: RunOptions, launcher: Launcher) -> list[Planned]:
    """List the jobs of a suite, done and to do, without changing anything."""
    folder = options.results / inputs.suite.name
    stored = [job.result for job in read_jobs(folder)] if folder.is_dir() else []
    ready = {name: launcher.find(system) for name, system in inputs.images(inputs.cells).items()}
    digests = {name: found.digest for name, found in ready.items() if found}
    return plan_with(inputs, launcher, digests, stored, options.fresh, options.instance_types)


def plan_with(
    inputs: Inputs,
    launcher: Launcher,
    digests: Mapping[str, str],
    stored: list[Result],
    fresh: bool,
    instance_types: Mapping[str, str] | None = None,
) -> list[Planned]:
    """Plan with these image digests (image name -> digest), stored results and machines (profile -> instance type)."""
    cannot = {name: reason for name, envelope in inputs.profiles.items() if (reason := launcher.cannot(envelope))}
    return plan_on(inputs, launcher.isolation, digests, stored, fresh, instance_types or {}, cannot)


def plan_on(
    inputs: Inputs,
    isolation: Isolation,
    digests: Mapping[str, str],
    stored: Iterable[Result],
    fresh: bool,
    instance_types: Mapping[str, str],
    cannot: Mapping[str, str],
) -> list[Planned]:
    """As :func:`plan_with`, for machines that may be others than this; ``cannot``: profile -> why there is none."""
    facts = {
        name: DatasetFacts(
            corpus_sha256=dataset.corpus.sha256,
            qrels_sha256=dataset.qrels_sha256,
            sample_sha256=inputs.samples[name].sample_sha256,
            warmup_sha256=inputs.samples[name].warmup_sha256,
            sample_size=len(inputs.samples[name].sample),
            warmup_queries=len(inputs.samples[name].warmup),
            held_out=len(inputs.samples[name].held_out),
        )
        for name, dataset in inputs.datasets.items()
    }
    return plan(
        inputs.suite,
        inputs.cells,
        systems=inputs.systems,
        profiles=inputs.profiles,
        datasets=facts,
        digests=digests,
        cannot=cannot,
        isolation=isolation,
        stored=stored,
        fresh=fresh,
        build_gpus=inputs.build_gpus,
        instance_types=instance_types,
    )
