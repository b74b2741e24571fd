"""Jobs to do -> groups, each for one box at a time: by instance type, cells whole, evenly by hours.  Pure."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.ec2 import estimates
from harness.ec2.estimates import Estimate
from harness.ec2.machines import Machine
from harness.ec2.money import Rate
from harness.ec2.records import Group
from harness.plan import Planned
from harness.remote.records import IndexBuild, PartJob
from harness.result import Cell, job_key

GIB = 1 << 30
# Operating system, engine, Python and its packages, logs.
_SYSTEM_GIB = 20
_LEAST_GIB = 30
# The AMI for GPUs is that large by itself.
_GPU_SYSTEM_GIB = 45
# An image is there as the file that was shipped, and in the engine unpacked; the like for data.
_IMAGE_FACTOR, _DATA_FACTOR = 3.0, 2.5


@dataclass(frozen=True)
class Sizes:
    """Bytes of what boxes fetch or make: images by system, corpora by dataset, indexes by key; what is missing in them
    is taken to be the default.
    """

    images: Mapping[str, int] = field(default_factory=dict)
    corpora: Mapping[str, int] = field(default_factory=dict)
    indexes: Mapping[str, int] = field(default_factory=dict)
    image_bytes: int = 2 * GIB


@dataclass(frozen=True)
class Missing:
    """An index that is nowhere yet, and the time that its build takes."""

    build: IndexBuild
    estimate: Estimate


@dataclass
class _Load:
    """What one box is to do, while it is being put together."""

    cells: list[Cell] = field(default_factory=list)
    builds: list[Missing] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True)
class Grouping:
    """What groups are made of, beside the jobs.

    ``machines`` by profile; ``build_machine`` is there where builds are boxes of their own; ``estimate`` says how long
    a job takes.
    """

    machines: Mapping[str, Machine]
    estimate: Callable[[Planned], Estimate]
    missing: Mapping[str, Missing] = field(default_factory=dict)
    build_machine: Machine | None = None
    build_gpus: int = 0
    per_type: int = 1
    sizes: Sizes = Sizes()
    usd_per_gib_month: float = 0.0


def groups(todo: Sequence[Planned], how: Grouping) -> tuple[Group, ...]:
    """All groups, builds first."""
    by_cell: dict[Cell, list[Planned]] = defaultdict(list)
    for job in todo:
        by_cell[job.cell].append(job)
    seconds = {cell: sum(how.estimate(job).seconds for job in jobs) for cell, jobs in by_cell.items()}
    made: list[Group] = []
    names = (f"{number:03}" for number in itertools.count(1))
    own = dict(how.missing) if how.build_machine is not None else {}
    needed = {job.spec.index_key for job in todo}
    own = {key: missing for key, missing in own.items() if key in needed}
    for load in _builds(own.values(), how.per_type):
        made.append(_group(next(names), how.build_machine, load, by_cell, how, how.build_gpus))
    by_machine: dict[tuple[str, bool], list[Cell]] = defaultdict(list)
    for cell, jobs in by_cell.items():
        by_machine[how.machines[cell.profile].name, bool(jobs[0].spec.envelope.gpus)].append(cell)
    taken = set(own)
    for _, cells in sorted(by_machine.items()):
        machine = how.machines[cells[0].profile]
        gpus = max(by_cell[cell][0].spec.envelope.gpus for cell in cells)
        for load in _split(cells, seconds, how.per_type):
            if how.build_machine is None:
                keys = dict.fromkeys(by_cell[cell][0].spec.index_key for cell in load.cells)
                load.builds = [how.missing[key] for key in keys if key in how.missing and key not in taken]
                taken |= {missing.build.key for missing in load.builds}
            made.append(_group(next(names), machine, load, by_cell, how, gpus))
    return tuple(made)


def _builds(missing: Iterable[Missing], most: int) -> list[_Load]:
    ordered = sorted(missing, key=lambda each: (-each.estimate.seconds, each.build.key))
    # A box that builds for less time than it takes to be set up is waste.
    worth = round(sum(each.estimate.seconds for each in ordered) / estimates.SETUP_S)
    loads = [_Load() for _ in range(max(1, min(most, len(ordered), worth)) if ordered else 0)]
    for each in ordered:
        load = min(loads, key=lambda one: one.seconds)
        load.builds.append(each)
        load.seconds += each.estimate.seconds
    return loads


def _split(cells: list[Cell], seconds: Mapping[Cell, float], most: int) -> list[_Load]:
    """The longest cell first to whoever has least: no box has more than a cell above its share."""
    loads = [_Load() for _ in range(min(most, len(cells)))]
    # The suite's own order where times are equal.
    for cell in sorted(cells, key=lambda each: -seconds[each]):
        load = min(loads, key=lambda one: one.seconds)
        load.cells.append(cell)
        load.seconds += seconds[cell]
    return loads


def _group(
    name: str,
    machine: Machine | None,
    load: _Load,
    by_cell: Mapping[Cell, list[Planned]],
    how: Grouping,
    gpus: int,
) -> Group:
    assert machine is not None
    jobs = [job for cell in load.cells for job in by_cell[cell]]
    keys = {job.spec.index_key for job in jobs}
    builds = tuple(missing.build for missing in load.builds)
    needs = sorted(key for key in keys & how.missing.keys() if key not in {build.key for build in builds})
    shipped, disk_gib = _shipped(load, jobs, how.sizes, bool(gpus))
    total = estimates.setup(shipped)
    for estimate in (*map(how.estimate, jobs), *(missing.estimate for missing in load.builds)):
        total += estimate
    rate = Rate(machine.usd_per_hour, disk_gib, how.usd_per_gib_month)
    return Group(
        name=name,
        instance_type=machine.name,
        usd_per_hour=rate.usd_per_hour,
        disk_gib=disk_gib,
        jobs=tuple(part_job(job) for job in jobs),
        builds=builds,
        needs=tuple(needs),
        expected_s=total.seconds,
        worst_s=total.worst_s,
        measured=total.measured,
        gpus=gpus,
    )


def part_job(job: Planned) -> PartJob:
    """A job as a part names it."""
    return PartJob(job.cell, job.spec.job, job.spec.repetition, job_key(job.spec))


def _shipped(load: _Load, jobs: Sequence[Planned], sizes: Sizes, gpus: bool) -> tuple[int, int]:
    """Bytes to fetch, and GiB of disk to give."""
    systems = {job.cell.system for job in jobs} | {missing.build.system for missing in load.builds}
    datasets = {job.cell.dataset for job in jobs} | {missing.build.dataset for missing in load.builds}
    images = sum(sizes.images.get(system, sizes.image_bytes) for system in systems)
    corpora = sum(sizes.corpora.get(dataset, 0) for dataset in datasets)
    of_index = {job.spec.index_key: job.cell.dataset for job in jobs}
    of_index |= {missing.build.key: missing.build.dataset for missing in load.builds}
    # What no one has built yet is taken to be as large as its corpus.
    indexes = sum(sizes.indexes.get(key, sizes.corpora.get(dataset, 0)) for key, dataset in of_index.items())
    need = _IMAGE_FACTOR * images + _DATA_FACTOR * (corpora + indexes)
    system_gib = _GPU_SYSTEM_GIB if gpus else _SYSTEM_GIB
    return images + corpora + indexes, max(_LEAST_GIB, system_gib + -(-int(need) // GIB))
