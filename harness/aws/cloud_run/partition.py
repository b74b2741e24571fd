"""Jobs to do -> parts: what each machine builds and measures, for how long and at what price.  Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from harness import filesystem
from harness.aws.cloud_run import costs
from harness.aws.cloud_run.records import PartJob, PlannedPart
from harness.jobs import estimates
from harness.jobs.estimates import DurationEstimate, DurationModel
from harness.jobs.indexes import Index
from harness.jobs.inputs import IndexBuild, Inputs
from harness.jobs.machines import ChosenMachine
from harness.jobs.plan import Planned, index_key, order
from harness.launch.base import Prepared
from harness.results.schema import Result, job_key

T = TypeVar("T")

GIB = 1 << 30
# Operating system, engine, Python and its packages, logs; the AMI for GPUs is that large by itself.
_SYSTEM_GIB, _GPU_SYSTEM_GIB, _LEAST_GIB = 20, 45, 30
# A box has an image as the file that was shipped and unpacked in the engine; the like for data.
_IMAGE_FACTOR, _DATA_FACTOR = 3.0, 2.5


@dataclass(frozen=True)
class Sizes:
    """Bytes of images by system, corpora by dataset, indexes by key; ``image_bytes``: of an unknown image."""

    images: Mapping[str, int] = field(default_factory=dict)
    corpora: Mapping[str, int] = field(default_factory=dict)
    indexes: Mapping[str, int] = field(default_factory=dict)
    image_bytes: int = 2 * GIB


@dataclass(frozen=True)
class Missing:
    """An index that is nowhere yet, and the time that its build takes."""

    build: IndexBuild
    estimate: DurationEstimate


@dataclass(frozen=True)
class Grouping:
    """Facts that parts are made of besides the jobs.

    ``machines`` by profile; ``build_machine``: where the suite gives builds a profile of their own; ``estimate``: how
    long a job takes; ``missing``: indexes to build, by key.
    """

    machines: Mapping[str, ChosenMachine]
    estimate: Callable[[Planned], DurationEstimate]
    missing: Mapping[str, Missing] = field(default_factory=dict)
    build_machine: ChosenMachine | None = None
    build_gpus: int = 0
    sizes: Sizes = Sizes()
    usd_per_gib_month: float = 0.0


def parts(
    todo: Sequence[Planned],
    how: Grouping,
    job_group: Callable[[Planned], Hashable],
    build_group: Callable[[IndexBuild], Hashable],
) -> tuple[PlannedPart, ...]:
    """Group jobs and index builds into parts, builds first; parts are named ``001`` and so on.

    Where builds have no profile of their own, the first part that needs an index builds it.
    """
    needed = {job.spec.index_key for job in todo}
    missing = {key: each for key, each in how.missing.items() if key in needed}
    made: list[PlannedPart] = []
    built: set[str] = set()
    if how.build_machine is not None:
        for builds in _grouped(missing.values(), lambda each: build_group(each.build)):
            made.append(_part(how.build_machine, [], builds, how, missing, how.build_gpus))
        built = set(missing)
    for jobs in _grouped(todo, job_group):
        keys = dict.fromkeys(job.spec.index_key for job in jobs)
        builds = [missing[key] for key in keys if key in missing and key not in built]
        built |= {each.build.key for each in builds}
        gpus = max(job.spec.envelope.gpus for job in jobs)
        made.append(_part(how.machines[jobs[0].cell.profile], jobs, builds, how, missing, gpus))
    return tuple(replace(part, name=f"{number:03}") for number, part in enumerate(made, 1))


def _grouped(members: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    found: dict[Hashable, list[T]] = defaultdict(list)
    for each in members:
        found[key(each)].append(each)
    return list(found.values())


def _part(
    machine: ChosenMachine,
    jobs: Sequence[Planned],
    builds: Sequence[Missing],
    how: Grouping,
    missing: Mapping[str, Missing],
    gpus: int,
) -> PlannedPart:
    own = {each.build.key for each in builds}
    needs = sorted({job.spec.index_key for job in jobs} & missing.keys() - own)
    shipped, disk_gib = _shipped(jobs, builds, how.sizes, bool(gpus))
    total = estimates.setup(shipped)
    for estimate in (*map(how.estimate, jobs), *(each.estimate for each in builds)):
        total += estimate
    return PlannedPart(
        name="",
        instance_type=machine.name,
        usd_per_hour=costs.usd_per_hour(machine.usd_per_hour, disk_gib, how.usd_per_gib_month),
        disk_gib=disk_gib,
        jobs=tuple(PartJob(job.cell, job.spec.job, job.spec.repetition, job_key(job.spec)) for job in jobs),
        builds=tuple(each.build for each in builds),
        needs=tuple(needs),
        expected_s=total.seconds,
        worst_s=total.worst_s,
        measured=total.measured,
        gpus=gpus,
    )


def _shipped(jobs: Sequence[Planned], builds: Sequence[Missing], sizes: Sizes, gpus: bool) -> tuple[int, int]:
    """Return bytes to fetch and GiB of disk to give."""
    systems = {job.cell.system for job in jobs} | {each.build.system for each in builds}
    of_index = {job.spec.index_key: job.cell.dataset for job in jobs}
    of_index |= {each.build.key: each.build.dataset for each in builds}
    images = sum(sizes.images.get(system, sizes.image_bytes) for system in systems)
    corpora = sum(sizes.corpora.get(dataset, 0) for dataset in set(of_index.values()))
    # An index that is not built yet counts as large as its corpus.
    indexes = sum(sizes.indexes.get(key, sizes.corpora.get(dataset, 0)) for key, dataset in of_index.items())
    need = _IMAGE_FACTOR * images + _DATA_FACTOR * (corpora + indexes)
    system_gib = _GPU_SYSTEM_GIB if gpus else _SYSTEM_GIB
    return images + corpora + indexes, max(_LEAST_GIB, system_gib + -(-int(need) // GIB))


def grouping(
    inputs: Inputs,
    machines: Mapping[str, ChosenMachine],
    images: Mapping[str, Prepared],
    planned: Iterable[Planned],
    stored: Iterable[Result],
    local: Mapping[str, Index],
    remote: frozenset[str],
    usd_per_gib_month: float,
) -> tuple[list[Planned], Grouping]:
    """Return what is to do, in its order, and what parts are made of.

    ``local`` are indexes in the cache, ``remote`` those in the work place, by key.
    """
    protocol = inputs.suite.protocol
    todo = order(planned, protocol.seed)
    times = DurationModel(stored, job_timeout_s=protocol.job_timeout_s, build_timeout_s=protocol.build_timeout_s)
    missing: dict[str, Missing] = {}
    for job in todo:
        key, cell = job.spec.index_key, job.cell
        if key not in missing and key not in local and key not in remote:
            documents = inputs.datasets[cell.dataset].corpus.size
            estimate = times.build(cell.system, cell.dataset, documents)
            missing[key] = Missing(IndexBuild(key, cell.system, cell.dataset), estimate)
    name = inputs.suite.build_profile
    how = Grouping(
        machines=machines,
        estimate=lambda job: times.job(job.spec),
        missing=missing,
        build_machine=machines[name] if name else None,
        build_gpus=inputs.build_gpus,
        sizes=_sizes(inputs, images, local),
        usd_per_gib_month=usd_per_gib_month,
    )
    return todo, how


def index_keys(inputs: Inputs, images: Mapping[str, Prepared], planned: Iterable[Planned]) -> set[str]:
    """Return the keys of the indexes that jobs to do search, as far as their images are there."""
    found = set()
    for job in planned:
        builder = inputs.builder(job.cell)
        prepared = images.get(builder.image)
        if not job.done and prepared is not None:
            found.add(index_key(builder, prepared.digest, inputs.datasets[job.cell.dataset].corpus.sha256))
    return found


def _sizes(inputs: Inputs, images: Mapping[str, Prepared], local: Mapping[str, Index]) -> Sizes:
    found: dict[str, int] = {}
    for cell in inputs.cells:
        for system in (inputs.system(cell), inputs.builder(cell)):
            prepared = images.get(system.image)
            if prepared is not None and prepared.size_bytes is not None:
                found[cell.system] = max(found.get(cell.system, 0), prepared.size_bytes)
    corpora = {
        name: sum(entry.stat().st_size for entry in filesystem.walk(dataset.corpus.folder))
        for name, dataset in inputs.datasets.items()
    }
    return Sizes(found, corpora, {key: index.facts.index_bytes for key, index in local.items()})
