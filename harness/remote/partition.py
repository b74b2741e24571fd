"""Partition jobs into parts for machines, price them, and limit their lives.

All machines together never cost more than the cap.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from harness import filesystem
from harness.jobs import estimates
from harness.jobs.estimates import DurationEstimate, RunModel
from harness.jobs.indexes import Index
from harness.jobs.inputs import IndexBuild, Inputs
from harness.jobs.plan import Planned, component_keys
from harness.launch.base import Launcher, Prepared
from harness.pricing.offers import ChosenMachine
from harness.remote.records import Launch, PartJob, PlannedPart
from harness.results.schema import Result, job_key

# A cloud bills by the second, at least these.
MINIMUM_BILLED_S = 60.0
# The rule in the cloud looks for workers past their deadline this often.
REAPER_EVERY_S = 300.0
# A worker may outlive its limit by a minute to the tag's deadline, the rule's period, and a minute until it is ended.
BEYOND_LIMIT_S = 60.0 + REAPER_EVERY_S + 60.0
# An estimate from measurements may be off by so much before a worker counts as stuck; an assumed one by more.
_SLACK_MEASURED, _SLACK_ASSUMED = 3.0, 8.0
_LEAST_LIMIT_S = 3600.0
# No worker is launched for less than its estimate and this share of it.
_NEED = 1.25
T = TypeVar("T")
GIB = 1 << 30
# Operating system, engine, Python and its packages, logs; the AMI for GPUs is that large by itself.
_SYSTEM_GIB, _GPU_SYSTEM_GIB, _LEAST_GIB = 20, 45, 30
_UNKNOWN_IMAGE_BYTES = 2 * GIB
# A worker has an image as the file that was shipped and unpacked in the engine; the like for data.
_IMAGE_FACTOR, _DATA_FACTOR = 3.0, 2.5


def expected_usd(parts: Iterable[PlannedPart]) -> float:
    """Return what parts cost at their estimates."""
    return sum(part.usd_per_hour * max(part.expected_s, MINIMUM_BILLED_S) / 3600 for part in parts)


def usual_limit_s(part: PlannedPart) -> float:
    """Return how long a part's worker may live where no cap says less."""
    slack = _SLACK_MEASURED if part.measured else _SLACK_ASSUMED
    return max(min(slack * part.expected_s, part.worst_s), _LEAST_LIMIT_S)


def least_limit_s(part: PlannedPart) -> float:
    """Return the least time that a part's worker is launched for."""
    return min(_NEED * part.expected_s, usual_limit_s(part))


def most_usd(usd_per_hour: float, limit_s: float) -> float:
    """Return the most that workers with that time limit cost, even if some are lost."""
    return usd_per_hour * (limit_s + BEYOND_LIMIT_S) / 3600


def worst_usd(parts: Iterable[PlannedPart], attempts: int, cap_usd: float | None) -> float:
    """Return what parts cost if every worker lives as long as it may; with a cap none is replaced."""
    limits = sum(most_usd(part.usd_per_hour, usual_limit_s(part)) for part in parts)
    return attempts * limits if cap_usd is None else min(limits, cap_usd)


def committed_usd(launches: Iterable[Launch]) -> float:
    """Return what launches have cost, and the most that the rest of them can cost."""
    return sum(
        launch.attempts * most_usd(launch.usd_per_hour, launch.limit_s) if launch.usd is None else launch.usd
        for launch in launches
    )


def plan_launch(
    part: PlannedPart, others: Iterable[PlannedPart], now: float, attempts: int, left_usd: float | None = None
) -> Launch | None:
    """Return a launch with the time that it may take; ``None``: too little money is left now.

    ``others`` wait behind it, and keep what they need at least; ``attempts`` and no ``left_usd``: without a cap.
    """
    limit_s = usual_limit_s(part)
    if left_usd is not None:
        need = least_limit_s(part)
        kept = sum(most_usd(other.usd_per_hour, least_limit_s(other)) for other in others)
        # Rounding must not refuse what is just enough.
        allowed = max(left_usd - kept, min(left_usd, most_usd(part.usd_per_hour, need))) + 1e-9
        most_s = 3600 * allowed / part.usd_per_hour - BEYOND_LIMIT_S
        if most_s < need:
            return None
        limit_s, attempts = math.floor(min(limit_s, most_s)), 1
    return Launch(part.name, round(limit_s), attempts, round(now), part.usd_per_hour)


def cost_usd(launch: Launch, seconds: float | None) -> float:
    """Return what a launch has cost; a time that is not known counts as all that was allowed."""
    most = launch.attempts * (launch.limit_s + BEYOND_LIMIT_S)
    lived = most if seconds is None else min(most, max(seconds, MINIMUM_BILLED_S))
    return launch.usd_per_hour * lived / 3600


@dataclass(frozen=True)
class Market:
    """The machines that a backend rents for each hardware profile; empty: its machines cost nothing and are any.

    ``usd_per_hour`` returns the price of a machine with a disk of so many
    GiB, ``notes`` are lines for the quote.
    """

    machines: Mapping[str, ChosenMachine] = field(default_factory=dict)
    platforms: Mapping[str, str] = field(default_factory=dict)
    usd_per_hour: Callable[[ChosenMachine, int], float] = lambda _machine, _disk_gib: 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grouping:
    """Machines, estimates and sizes by which jobs are grouped into parts.

    ``missing``: indexes to build, by key; ``build_machine``: where the suite gives builds a
    profile of their own.  Bytes of images by system, of corpora by dataset, of indexes by key, as far as known.
    """

    market: Market
    job_estimate: Callable[[Planned], DurationEstimate]
    build_estimate: Callable[[IndexBuild], DurationEstimate]
    missing: Mapping[str, IndexBuild] = field(default_factory=dict)
    build_machine: ChosenMachine | None = None
    build_gpus: int = 0
    image_bytes: Mapping[str, int] = field(default_factory=dict)
    corpus_bytes: Mapping[str, int] = field(default_factory=dict)
    index_bytes: Mapping[str, int] = field(default_factory=dict)

    def joined(self, key: str) -> tuple[str, ...]:
        """Return the keys of the indexes that an index needs: of its components, if it is missing, and its own."""
        return (*self.missing[key].components.values(), key) if key in self.missing else (key,)


def parts(
    todo: Sequence[Planned],
    how: Grouping,
    job_group: Callable[[Planned], Hashable],
    build_group: Callable[[IndexBuild], Hashable],
) -> tuple[PlannedPart, ...]:
    """Group jobs and index builds into parts, builds first; parts are named ``001`` and so on.

    Where builds have no profile of their own, the first part that needs an index builds it.
    """
    needed = {key for job in todo for key in how.joined(job.spec.index_key)}
    unbuilt = {key: build for key, build in how.missing.items() if key in needed}
    made: list[PlannedPart] = []
    if how.build_machine is not None:
        for builds in _grouped(unbuilt.values(), build_group):
            made.append(_planned_part(how.build_machine, [], builds, how, how.build_gpus))
        unbuilt = {}
    for jobs in _grouped(todo, job_group):
        keys = dict.fromkeys(key for job in jobs for key in how.joined(job.spec.index_key))
        builds = [unbuilt.pop(key) for key in keys if key in unbuilt]
        gpus = max(job.spec.envelope.gpus for job in jobs)
        made.append(_planned_part(how.market.machines.get(jobs[0].cell.profile), jobs, builds, how, gpus))
    return tuple(replace(part, name=f"{number:03}") for number, part in enumerate(made, 1))


def _grouped(members: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    groups: dict[Hashable, list[T]] = defaultdict(list)
    for member in members:
        groups[key(member)].append(member)
    return list(groups.values())


def _planned_part(
    machine: ChosenMachine | None, jobs: Sequence[Planned], builds: Sequence[IndexBuild], how: Grouping, gpus: int
) -> PlannedPart:
    needs = {job.spec.index_key for job in jobs} | {key for build in builds for key in build.components.values()}
    needs = needs & how.missing.keys() - {build.key for build in builds}
    shipped, disk_gib = _shipped(jobs, builds, how, bool(gpus))
    total = estimates.setup(shipped)
    for estimate in (*map(how.job_estimate, jobs), *map(how.build_estimate, builds)):
        total += estimate
    return PlannedPart(
        name="",
        instance_type=machine.name if machine else "",
        usd_per_hour=how.market.usd_per_hour(machine, disk_gib) if machine else 0.0,
        disk_gib=disk_gib,
        jobs=tuple(PartJob(job.cell, job.spec.job, job.spec.repetition, job_key(job.spec)) for job in jobs),
        builds=tuple(builds),
        needs=tuple(sorted(needs)),
        expected_s=total.seconds,
        worst_s=total.worst_s,
        measured=total.measured,
        gpus=gpus,
    )


def _shipped(jobs: Sequence[Planned], builds: Sequence[IndexBuild], how: Grouping, gpus: bool) -> tuple[int, int]:
    """Return bytes to fetch and GiB of disk to give."""
    systems = {job.cell.system for job in jobs} | {name for build in builds for name in (build.name, *build.components)}
    datasets = {job.spec.index_key: job.cell.dataset for job in jobs} | {build.key: build.dataset for build in builds}
    images = sum(how.image_bytes.get(system, _UNKNOWN_IMAGE_BYTES) for system in systems)
    corpora = sum(how.corpus_bytes.get(dataset, 0) for dataset in set(datasets.values()))
    # An index that is not built yet counts as large as its corpus.
    indexes = sum(how.index_bytes.get(key, how.corpus_bytes.get(dataset, 0)) for key, dataset in datasets.items())
    need = _IMAGE_FACTOR * images + _DATA_FACTOR * (corpora + indexes)
    system_gib = _GPU_SYSTEM_GIB if gpus else _SYSTEM_GIB
    return images + corpora + indexes, max(_LEAST_GIB, system_gib + -(-int(need) // GIB))


def grouping(
    inputs: Inputs,
    market: Market,
    launcher: Launcher,
    images: Mapping[str, Prepared],
    todo: Iterable[Planned],
    stored: Iterable[Result],
    local: Mapping[str, Index],
    remote: frozenset[str],
) -> Grouping:
    """Return the machines, estimates and sizes by which jobs are grouped.

    ``local`` are indexes in the cache, ``remote`` those in the work place, by key.
    """
    protocol, build_profile = inputs.suite.protocol, inputs.suite.build_profile
    times = RunModel(stored, job_timeout_s=protocol.job_timeout_s, build_timeout_s=protocol.build_timeout_s)
    builds = index_builds(inputs, launcher, todo)
    corpora = {name: dataset.corpus for name, dataset in inputs.datasets.items()}
    return Grouping(
        market=market,
        job_estimate=lambda job: times.job(job.spec),
        build_estimate=lambda build: times.build(
            build.name, build.dataset, 0 if build.components else corpora[build.dataset].size
        ),
        missing={key: build for key, build in builds.items() if key not in local and key not in remote},
        build_machine=market.machines.get(build_profile or ""),
        build_gpus=inputs.build_gpus,
        image_bytes=_image_bytes(inputs, images),
        corpus_bytes={name: _folder_bytes(corpus.folder) for name, corpus in corpora.items()},
        index_bytes={key: index.facts.index_bytes for key, index in local.items()},
    )


def index_builds(inputs: Inputs, launcher: Launcher, jobs: Iterable[Planned]) -> dict[str, IndexBuild]:
    """Return the builds of the indexes that jobs search, by key; components come first."""
    builds: dict[str, IndexBuild] = {}
    for job in jobs:
        cell, key = job.cell, job.spec.index_key
        if key in builds:
            continue
        components = component_keys(inputs.builder(cell), launcher, inputs.datasets[cell.dataset].corpus.sha256)
        for name, part in components.items():
            builds.setdefault(part, IndexBuild(part, cell.system, cell.dataset, name))
        builds[key] = IndexBuild(key, cell.system, cell.dataset, components=components)
    return builds


def _image_bytes(inputs: Inputs, images: Mapping[str, Prepared]) -> dict[str, int]:
    sizes: dict[str, dict[str, int]] = defaultdict(dict)
    for cell in inputs.cells:
        for system in (inputs.system(cell), inputs.builder(cell)):
            prepared = images.get(system.image)
            if prepared is not None and prepared.size_bytes is not None:
                sizes[cell.system][system.image] = prepared.size_bytes
    return {name: sum(each.values()) for name, each in sizes.items()}  # all are shipped


def _folder_bytes(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in filesystem.walk(folder))
