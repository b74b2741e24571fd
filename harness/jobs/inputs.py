"""The inputs of a run: its options, and all that the suite names, loaded and checked.

Gathering takes seconds and runs no job.  It writes prepared corpora into the cache, and nothing else.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness import datasets
from harness.commands import quoted
from harness.datasets import CorpusToMake, Dataset, QuerySample, dataset_name
from harness.driver.records import Envelope
from harness.errors import JobError, UsageError, counted
from harness.estimate import MIN_QUERIES
from harness.evaluation import measure_names
from harness.jobs import indexes
from harness.jobs.suite import Suite
from harness.launch import host
from harness.launch.base import Launcher, Limits
from harness.launch.images import catalog, first_use
from harness.launch.images.systems import System
from harness.launch.service_address import INDEX
from harness.pricing import instances, offers
from harness.results import pin_lock
from harness.results.pin_lock import PinLock
from harness.results.reader import StoredJob
from harness.results.samples import MOST_ROWS
from harness.results.schema import Cell, SweepPoint
from harness.results.store import ResultPublisher

log = logging.getLogger(__name__)


class RunCallbacks:
    """Callbacks between jobs, while nothing is measured; the default does nothing."""

    def starts(self, key: str) -> None:
        """Report that a job is about to run."""

    def stored(self, job: StoredJob) -> None:
        """Report that a job is stored."""

    def builds(self) -> None:
        """Report that an index is about to be built."""

    def built(self, key: str, error: JobError | None) -> None:
        """Report that an index is in the cache, or why it cannot be built."""


@dataclass(frozen=True)
class AssignedJob:
    """One job of another machine's plan: its repetition and the key that it must have."""

    repetition: int
    key: str


@dataclass(frozen=True)
class IndexBuild:
    """One index to build, with its key: the index of ``system``, or of its ``component``.

    ``components`` maps the components of the index to the keys of their indexes.
    """

    key: str
    system: str
    dataset: str
    component: str | None = None
    components: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of the system whose index it is."""
        return self.component or self.system


@dataclass(frozen=True)
class AssignedWork:
    """The part of another machine's plan that this machine runs: jobs by cell and number, and indexes.

    ``make_images``: no image was shipped, so this machine makes them.
    """

    jobs: Mapping[tuple[Cell, int], AssignedJob]
    builds: tuple[IndexBuild, ...] = ()
    make_images: bool = False


@dataclass(frozen=True)
class RunOptions:
    """The options of a run, from the command line.

    ``cells`` restricts the cells that ``only`` matches.  ``publisher`` receives results in addition to the folder
    ``results``.  ``fresh_index`` builds again the indexes of the jobs to do.  ``assigned`` restricts the run to a part
    of another machine's plan.  ``instance_types`` maps a profile to the machine that its jobs are planned for, and
    ``platforms`` maps it to that machine's platform (empty: the launcher's own).
    """

    results: Path
    cache: Path
    suite_dir: Path
    only: str | None = None
    fresh: bool = False
    retry_noisy: int = 0
    fresh_index: bool = False
    cells: frozenset[Cell] | None = None
    publisher: ResultPublisher | None = None
    assigned: AssignedWork | None = None
    callbacks: RunCallbacks = field(default_factory=RunCallbacks)
    instance_types: Mapping[str, str | None] = field(default_factory=dict)
    platforms: Mapping[str, str] = field(default_factory=dict)

    def has_index(self, key: str) -> bool:
        """Return whether the cache has an index that the run does not build again."""
        return not self.fresh_index and indexes.find(self.cache, key) is not None


@dataclass(frozen=True)
class Inputs:
    """Everything that a suite names, loaded and checked.

    ``profiles`` are the limits that are enforced; ``nominal_bytes`` is the memory that a profile asks for, where the
    machine's host leaves less of it.  ``platforms``: see :class:`RunOptions`.  ``to_make``: datasets of the suite at
    sizes whose corpora are still to be made; they are not in ``datasets``.  ``absent`` cells, which are not in
    ``cells``, lack their data here.
    """

    suite: Suite
    cells: list[Cell]
    systems: dict[str, System]
    profiles: dict[str, Envelope]
    datasets: dict[str, Dataset]
    samples: dict[str, QuerySample]
    nominal_bytes: Mapping[str, int] = field(default_factory=dict)
    platforms: Mapping[str, str] = field(default_factory=dict)
    to_make: Mapping[str, CorpusToMake] = field(default_factory=dict)
    absent: tuple[Cell, ...] = ()

    def system(self, cell: Cell) -> System:
        """Return the searching system, for the GPUs of the cell's profile and the language of its dataset."""
        return self._searching(cell.system, cell.profile, self.language(cell.dataset))

    def builder(self, cell: Cell) -> System:
        """Return the system that builds the cell's index: one index serves all profiles."""
        return self.building(cell.system, self.language(cell.dataset))

    def needed(self, cells: Iterable[Cell]) -> list[str]:
        """Return the names of the systems that search or build for these cells."""
        names = dict.fromkeys(cell.system for cell in cells)
        return list(dict.fromkeys((*names, *(self.suite.same_index.get(name, name) for name in names))))

    def _searching(self, system: str, profile: str, language: str | None = None) -> System:
        return self.systems[system].for_job(
            "search",
            gpus=self.profiles[profile].gpus,
            build_gpus=self.build_gpus,
            language=language,
            platform=self.platforms.get(profile),
        )

    def building(self, system: str, language: str | None = None) -> System:
        """Return the system that builds a system's indexes; without a ``language``, for images alone or estimates."""
        # Without a profile of builds, all machines are of one platform.
        platform = self.platforms.get(self.suite.build_profile or next(iter(self.platforms), ""))
        return self.systems[self.suite.same_index.get(system, system)].for_job(
            "build", gpus=self.build_gpus, language=language, platform=platform
        )

    def language(self, dataset: str) -> str | None:
        """Return the language of a dataset: by the suite, else by the dataset's folder."""
        return self.suite.language(dataset) or self.datasets[dataset].language

    @property
    def build_gpus(self) -> int:
        """Return the number of GPUs of index builds."""
        return self.profiles[self.suite.build_profile].gpus if self.suite.build_profile else 0

    @property
    def limits(self) -> Limits:
        """Return the time limits of a job, from the protocol."""
        protocol = self.suite.protocol
        return Limits(
            load_s=protocol.load_timeout_s,
            query_s=protocol.query_timeout_s + (1 / protocol.max_qps if protocol.max_qps else 0.0),
            build_s=protocol.build_timeout_s,
            job_s=protocol.job_timeout_s,
        )

    def cell_of(self, system: str, dataset: str) -> Cell:
        """Return a cell of a system and a dataset; raise UsageError if the suite has no such cell."""
        for cell in self.cells:
            if (cell.system, cell.dataset) == (system, dataset):
                return cell
        raise UsageError(f"the suite {self.suite.name} has no cell of {system} on {dataset}; see `harness plan`")

    def sweep_point(self, system: str) -> SweepPoint | None:
        """Return a system's point on a sweep or a curve: the parameters that differ there."""
        for curve, names in self.suite.curve.items():
            if system in names:
                others, own = [self.systems[name].params for name in names], self.systems[system].params
                params = {key: value for key, value in own.items() if any(each.get(key) != value for each in others)}
                return SweepPoint(curve, params)
        return self.suite.variants.get(system)

    def images(self, cells: Iterable[Cell]) -> dict[str, System]:
        """Return the systems that run these cells or build their indexes, by image name."""
        pairs = dict.fromkeys((cell.system, cell.profile) for cell in cells)
        searching = [self._searching(name, profile) for name, profile in pairs]
        building = [self.building(name) for name, _ in pairs]
        return {system.image: system for system in (*searching, *building)}  # one image serves all languages


def gather(suite: Suite, options: RunOptions, *, fetch: bool = True, without: Collection[str] = ()) -> Inputs:
    """Load and check everything that the suite names.

    Args:
        fetch: fetch or make datasets that are not on this machine, or not at this size, or fail; otherwise their cells
            are absent.
        without: names of datasets that count as absent where none is fetched.

    Raises:
        UsageError: a name or a measure is unknown, a file is wrong, ``only`` matches nothing, or a sample is too small
            for the ``server`` scenario; or earlier results pin other bytes than a system's file now does.
    """
    if options.assigned is None:  # a worker makes no table
        _check_measures(suite)
    asked = suite.envelopes()
    profiles = asked if suite.url else enforced_limits(asked, options.instance_types)
    services = [name for name, system in suite_systems(suite).items() if system.service] if suite.overhead else []
    cells = suite.chosen(options.only, services)
    if options.cells is not None:
        cells = [cell for cell in cells if cell in options.cells]
        if not cells:
            raise UsageError(f"the suite {suite.name} declares no contested cell; name a suite that declares them")
    measured = (cell.system for cell in cells)  # the null system is in no suite's list
    systems = suite_systems(suite, dict.fromkeys((*suite.systems, *measured)))
    declared, to_make = (suite.datasets, {}) if fetch else _here(suite, options, without)
    here = set(map(dataset_name, declared))
    absent = tuple(cell for cell in cells if cell.dataset not in here)
    cells = [cell for cell in cells if cell.dataset in here]
    _check_curves(suite, systems)
    _check_depths(systems.values(), suite.protocol.k)
    served = tuple(dict.fromkeys(cell.dataset for cell in cells if cell.scenario == "server"))
    for name in served:
        _check_proves(suite, name, suite.protocol.sample_size)  # a large corpus takes its time to load
    loaded = {dataset_name(name): datasets.load_named(name, options.suite_dir, options.cache) for name in declared}
    for dataset in loaded.values():
        for fault in dataset.faults:
            log.info(f"  {dataset.name}: {fault.text}")
    protocol = suite.protocol
    samples = {
        name: datasets.draw_sample(
            dataset, protocol.sample_size, protocol.warmup_queries, protocol.seed, unjudged=protocol.unjudged
        )
        for name, dataset in loaded.items()
    }
    for name in served:
        _check_proves(suite, name, len(samples[name].timed))
    for name, queries in samples.items():
        _check_size(suite, name, len(queries.timed))
        for fact in _sample_facts(queries, loaded[name].judged if protocol.unjudged else None):
            log.info(f"  {name}: {fact}")
    nominal = {name: each.memory_bytes for name, each in asked.items() if each != profiles[name]}
    folder = options.results / suite.name
    inputs = Inputs(suite, cells, systems, profiles, loaded, samples, nominal, options.platforms, to_make, absent)
    inputs = with_pins(inputs, pin_lock.read(folder), folder)
    for cell in cells if options.assigned is None else ():
        inputs.builder(cell)  # fails without an analyser for the dataset's language
    return inputs


def _here(
    suite: Suite, options: RunOptions, without: Collection[str]
) -> tuple[tuple[str, ...], dict[str, CorpusToMake]]:
    """Return the declared datasets that can be loaded, and by name those whose corpora are still to be made."""

    @functools.cache
    def load_whole(name: str) -> Dataset:
        return datasets.load_named(name, options.suite_dir, options.cache)

    here, unmade = [], {}
    for declared in suite.datasets:
        name = dataset_name(declared)
        if name in without or not datasets.is_here(datasets.find(declared, options.suite_dir)):
            continue
        # Whether a stored job is done depends on its corpus, so that one is made.
        measured = any((options.results / suite.name).glob(f"*/{name}"))
        corpus = None if measured else datasets.to_make(declared, options.suite_dir, options.cache, load_whole)
        if corpus is None:
            here.append(declared)
        else:
            unmade[name] = corpus
    return tuple(here), unmade


def check_launcher(suite: Suite, launcher: Launcher | None) -> None:
    """Refuse a service that runs already where no client of it is launched; ``None``: jobs run on other machines.

    Raises:
        UsageError: the suite has a ``url`` and this launcher asks no service, or the other way round.
    """
    if suite.url is not None and (launcher is None or launcher.service_url is None):
        raise UsageError(
            f"the suite {suite.name} measures a service that runs already (its `url`), which only `harness run` on this"
            " machine does, with --launcher attached; leave other launchers out"
        )
    if suite.url is None and launcher is not None and launcher.isolation.attached:
        raise UsageError(
            f"--launcher attached measures a service that runs already, and the suite {suite.name} has no `url`;"
            " use `harness attach URL`, or another launcher"
        )


def enforced_limits(profiles: Mapping[str, Envelope], instance_types: Mapping[str, str | None]) -> dict[str, Envelope]:
    """Return the limits of each profile on its machine; a profile that is too large for it stays as it is.

    A profile asks for nominal memory.  Where that is the whole machine, the limit is what the machine's host leaves.

    Args:
        profiles: the declared limits, by name.
        instance_types: by profile, the EC2 type that its jobs are planned for; ``None``: any machine with the profile's
            memory; empty: this host runs them all.
    """
    reserve, shown = offers.host_reserve(), host.memory_bytes()
    known = instances.read_instances("aws") if instance_types else {}
    limits = dict(profiles)
    for name, asked in profiles.items():
        machine = known.get(instance_types.get(name) or "")
        if not instance_types:
            limit = reserve.limit_on_host(asked.memory_bytes, shown)
        elif machine and asked.memory_bytes <= machine.memory_bytes:
            limit = reserve.limit(asked.memory_bytes, machine.memory_bytes)
        else:
            limit = None
        if limit:
            limits[name] = replace(asked, memory_bytes=limit)
    return limits


def with_pins(inputs: Inputs, lock: PinLock, folder: Path) -> Inputs:
    """Return the inputs with the pins that the results in a suite's folder were measured with.

    Raises:
        UsageError: a measured system's file has named other bytes since.
    """
    place = folder / pin_lock.FILE
    systems = {name: first_use.locked(inputs.systems[name], lock, place) for name in inputs.needed(inputs.cells)}
    return replace(inputs, systems={**inputs.systems, **systems})


def suite_systems(suite: Suite, names: Iterable[str] | None = None) -> dict[str, System]:
    """Return systems of a suite by name, all unless named; each point of a sweep is a variant.

    Raises:
        UnknownName: no shipped system has that name.
        UsageError: a sweep names a parameter that its system lacks, or makes the name of another system.
    """
    variants, chosen = suite.variants, suite.systems if names is None else names
    points = {name: (at.system, at.params) if (at := variants.get(name)) else (name, {}) for name in chosen}
    known = catalog.named(dict.fromkeys(base for base, _ in points.values()))
    for name in variants.keys() & (catalog.systems(wrong={}) if variants else {}):
        sweep = f"[sweep.{variants[name].system}]"
        raise UsageError(f"{sweep}: {name} is the name of another system; rename that system, or sweep other values")
    made = {
        name: known[base].vary(name, params, suite.sweep[base]) if params else known[base]
        for name, (base, params) in points.items()
    }
    if suite.service.build and (lacking := [name for name, each in made.items() if INDEX not in each.params]):
        raise UsageError(
            f"{lacking[0]} has no parameter {INDEX!r}, so no index of its own can be built; leave out --build"
        )
    return {name: system.with_params(suite.service.params) for name, system in made.items()}


def _check_curves(suite: Suite, systems: Mapping[str, System]) -> None:
    """Refuse curves whose systems differ in more than numbers: a curve has no points between two models or texts."""
    for curve in suite.curve.keys() & (catalog.systems(wrong={}) if suite.curve else {}):
        raise UsageError(f"[curve]: {curve} is the name of a system; choose another")
    for curve, names in suite.curve.items():
        for one, other in itertools.combinations((systems[name] for name in names), 2):
            pair = f"[curve]: {one.name} and {other.name} of {curve}"
            if _model(one) != _model(other):
                raise UsageError(f"{pair} differ in engine, weights or components; name systems of one model")
            differ = [key for key in one.params if one.params[key] != other.params.get(key)]
            if not differ:
                raise UsageError(f"{pair} are the same point; keep one")
            for key in differ:
                if any(isinstance(each.params[key], str | bool) for each in (one, other)):
                    raise UsageError(f"{pair} differ in {key}, which is not a number; remove one of them")


def _model(system: System) -> tuple[object, ...]:
    """Return the parts that all systems of a curve share."""
    components = [component.name for component in system.components]
    return system.engine, system.assets, components, set(system.params)


def _check_measures(suite: Suite) -> None:
    """Refuse a wrong measure before anything costs time; name the measures that look beyond ``k`` hits."""
    k = suite.protocol.k
    deep = [measure for measure in measure_names.parse(suite.measures) if (measure_names.cutoff(measure) or 0) > k]
    if deep:
        log.info(f"  {', '.join(map(str, deep))}: deeper than {counted(k, 'hit')}; raise protocol.k")


def _check_depths(systems: Iterable[System], k: int) -> None:
    """Refuse more hits than a fusion takes of its systems."""
    for system in systems:
        depth = system.params.get("depth") if system.components and not system.two_stages else None
        if type(depth) is int and 0 < depth < k:  # the engine refuses any other depth
            raise UsageError(
                f"{system.name} fuses the first {depth} hits of its systems, protocol.k asks for {k}; lower k, or raise"
                f" `depth` in a system of your own ({quoted('systems', system.name)})"
            )


def _sample_facts(queries: QuerySample, judged: Collection[str] | None) -> Iterator[str]:
    """Yield which queries of a sample are not timed or not judged; ``judged`` is ``None`` if all are judged."""
    if queries.held_out:
        yield (
            f"{len(queries.held_out):,} of {len(queries.sample):,} queries warm the systems up; they are judged, not"
            " timed (the dataset has no others)"
        )
    count = len(queries.sample) if judged is None else sum(query.query_id in judged for query in queries.sample)
    if count < len(queries.sample):
        yield f"{counted(len(queries.timed), 'query')} timed, {count:,} judged"


def _check_size(suite: Suite, dataset: str, queries: int) -> None:
    """Refuse a protocol that measures more samples of a cell than its table would read."""
    if (samples := queries * suite.protocol.trials) > MOST_ROWS:
        raise UsageError(
            f"dataset {dataset}: a cell would have {samples:,} samples; the limit is {MOST_ROWS:,}. Lower"
            " protocol.sample_size or protocol.trials"
        )


def _check_proves(suite: Suite, dataset: str, queries: int) -> None:
    """Refuse a sample that is too small to prove any rate of the ``server`` scenario."""
    percentile = suite.server.latency_percentile
    floor = MIN_QUERIES[f"p{percentile}"]
    if queries < floor:
        size = suite.protocol.sample_size
        more = "add queries to it" if suite.protocol.unjudged else "judge more of its queries, set protocol.unjudged"
        larger = f"raise protocol.sample_size (now {size})" if queries >= size else more
        raise UsageError(
            f"dataset {dataset}: a sample of {queries} queries cannot show that a rate keeps"
            f" server.latency_percentile = {percentile}, which takes {floor}; {larger}, or lower the percentile"
        )
