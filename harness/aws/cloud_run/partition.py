"""Partition jobs into parts for machines, price them, limit their lives, and quote the sum.

All machines together never cost more than the cap.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness import filesystem
from harness.aws.cloud_run.backend import Submission
from harness.aws.cloud_run.records import Launch, PartJob, PlannedPart
from harness.jobs import estimates
from harness.jobs.estimates import DurationEstimate, DurationModel
from harness.jobs.indexes import Index
from harness.jobs.inputs import IndexBuild, Inputs
from harness.jobs.machines import ChosenMachine
from harness.jobs.plan import Planned, index_key, order
from harness.launch.base import Prepared
from harness.results.schema import Result, job_key

# EC2 bills by the second, at least these.
MINIMUM_BILLED_S = 60.0
HOURS_A_MONTH = 730.0
# A public IPv4 address (aws.amazon.com/vpc/pricing, since 2024-02-01, all regions); in a default VPC each has one.
ADDRESS_USD_PER_HOUR = 0.005
# The rule on AWS's side looks for workers past their deadline this often.
REAPER_EVERY_S = 300.0
# A worker may outlive its limit by a minute to the tag's deadline, the rule's period, and a minute until it is ended.
BEYOND_LIMIT_S = 60.0 + REAPER_EVERY_S + 60.0
# An estimate from measurements may be off by so much before a worker counts as stuck; an assumed one by more.
_SLACK_MEASURED, _SLACK_ASSUMED = 3.0, 8.0
_LEAST_LIMIT_S = 3600.0
# No worker is launched for less than its estimate and this share of it.
_NEED = 1.25
# How often a machine that is lost is replaced where the service does that; with a cap never.
ATTEMPTS = 3
T = TypeVar("T")
GIB = 1 << 30
# Operating system, engine, Python and its packages, logs; the AMI for GPUs is that large by itself.
_SYSTEM_GIB, _GPU_SYSTEM_GIB, _LEAST_GIB = 20, 45, 30
# A worker has an image as the file that was shipped and unpacked in the engine; the like for data.
_IMAGE_FACTOR, _DATA_FACTOR = 3.0, 2.5
# More rows than these are joined by instance type.
_MOST_ROWS = 24


def usd_per_hour(instance_usd: float, disk_gib: int, usd_per_gib_month: float) -> float:
    """Return what an instance costs with its disk and address."""
    return instance_usd + disk_gib * usd_per_gib_month / HOURS_A_MONTH + ADDRESS_USD_PER_HOUR


def part_estimate(part: PlannedPart) -> DurationEstimate:
    """Return a part's time."""
    return DurationEstimate(part.expected_s, part.worst_s, part.measured)


def expected_usd(parts: Iterable[PlannedPart]) -> float:
    """Return what parts cost at their estimates."""
    return sum(part.usd_per_hour * max(part.expected_s, MINIMUM_BILLED_S) / 3600 for part in parts)


def usual_limit_s(estimate: DurationEstimate) -> float:
    """Return how long a worker may live where no cap says less."""
    slack = _SLACK_MEASURED if estimate.measured else _SLACK_ASSUMED
    return min(max(slack * estimate.seconds, _LEAST_LIMIT_S), max(estimate.worst_s, _LEAST_LIMIT_S))


def least_limit_s(estimate: DurationEstimate) -> float:
    """Return the least time that a worker is launched for."""
    return min(_NEED * estimate.seconds, usual_limit_s(estimate))


def most_usd(usd_per_hour: float, limit_s: float) -> float:
    """Return the most that a worker with that time limit costs, whoever dies."""
    return usd_per_hour * (limit_s + BEYOND_LIMIT_S) / 3600


def worst_usd(parts: Iterable[PlannedPart], cap_usd: float | None) -> float:
    """Return what parts cost if every worker lives as long as it may."""
    limits = sum(most_usd(part.usd_per_hour, usual_limit_s(part_estimate(part))) for part in parts)
    return limits if cap_usd is None else min(limits, cap_usd)


@dataclass
class Budget:
    """A cap, and what is promised and spent of it, by launch (US$)."""

    cap_usd: float | None = None
    promised: dict[str, float] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)

    @property
    def committed_usd(self) -> float:
        """Return what was spent, and the most that the rest can cost."""
        return sum(self.spent.get(name, usd) for name, usd in self.promised.items())

    @property
    def outstanding(self) -> bool:
        """Return whether some promised money may come back."""
        return bool(self.promised.keys() - self.spent.keys())

    def launch(self, submission: Submission, others: Iterable[Submission], now: float) -> Launch | None:
        """Return a launch with the time that it may take; ``None``: the money does not reach for it now.

        ``others`` wait behind it, and keep what they need at least.
        """
        parts, usd_per_hour = submission.parts, sum(part.usd_per_hour for part in submission.parts)
        usual, names = max(usual_limit_s(part_estimate(part)) for part in parts), tuple(part.name for part in parts)
        if self.cap_usd is None:
            return Launch(submission.name, names, round(usual), ATTEMPTS, round(now), usd_per_hour)
        need = _least_limit_s_of(parts)
        left = self.cap_usd - self.committed_usd
        kept = sum(_most_usd_of(each.parts, _least_limit_s_of(each.parts)) for each in others)
        # Rounding must not refuse what is just enough.
        allowed = max(left - kept, min(left, _most_usd_of(parts, need))) + 1e-9
        most_s = 3600 * allowed / usd_per_hour - BEYOND_LIMIT_S
        if most_s < need:
            return None
        return Launch(submission.name, names, int(min(usual, most_s)), 1, round(now), usd_per_hour)

    def promise(self, launch: Launch) -> None:
        """Note the most that a launch can cost."""
        self.promised[launch.name] = launch.attempts * most_usd(launch.usd_per_hour, launch.limit_s)

    def settle(self, name: str, usd: float) -> None:
        """Note what a launch has cost."""
        self.promised.setdefault(name, usd)
        self.spent[name] = usd


def cost_usd(launch: Launch, parts: Sequence[PlannedPart], seconds: Sequence[float | None]) -> float:
    """Return what a launch has cost; a time that is not known counts as all that was allowed."""
    most = launch.attempts * (launch.limit_s + BEYOND_LIMIT_S)
    billed = (most if each is None else min(most, max(each, MINIMUM_BILLED_S)) for each in seconds)
    return sum(part.usd_per_hour * each / 3600 for part, each in zip(parts, billed, strict=True))


def _least_limit_s_of(parts: Sequence[PlannedPart]) -> float:
    return max(least_limit_s(part_estimate(part)) for part in parts)


def _most_usd_of(parts: Sequence[PlannedPart], limit_s: float) -> float:
    return sum(most_usd(part.usd_per_hour, limit_s) for part in parts)


@dataclass(frozen=True)
class Sizes:
    """Bytes of images by system, corpora by dataset, indexes by key; ``image_bytes``: of an unknown image."""

    images: Mapping[str, int] = field(default_factory=dict)
    corpora: Mapping[str, int] = field(default_factory=dict)
    indexes: Mapping[str, int] = field(default_factory=dict)
    image_bytes: int = 2 * GIB


@dataclass(frozen=True)
class MissingIndex:
    """An index that is nowhere yet, and the time that its build takes."""

    build: IndexBuild
    estimate: DurationEstimate


@dataclass(frozen=True)
class Grouping:
    """Machines, estimates and sizes by which jobs are grouped into parts.

    ``machines`` by profile; ``build_machine``: where the suite gives builds a profile of their own; ``estimate``: how
    long a job takes; ``missing``: indexes to build, by key.
    """

    machines: Mapping[str, ChosenMachine]
    estimate: Callable[[Planned], DurationEstimate]
    missing: Mapping[str, MissingIndex] = field(default_factory=dict)
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
            made.append(_planned_part(how.build_machine, [], builds, how, missing, how.build_gpus))
        built = set(missing)
    for jobs in _grouped(todo, job_group):
        keys = dict.fromkeys(job.spec.index_key for job in jobs)
        builds = [missing[key] for key in keys if key in missing and key not in built]
        built |= {each.build.key for each in builds}
        gpus = max(job.spec.envelope.gpus for job in jobs)
        made.append(_planned_part(how.machines[jobs[0].cell.profile], jobs, builds, how, missing, gpus))
    return tuple(replace(part, name=f"{number:03}") for number, part in enumerate(made, 1))


def _grouped(members: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    found: dict[Hashable, list[T]] = defaultdict(list)
    for each in members:
        found[key(each)].append(each)
    return list(found.values())


def _planned_part(
    machine: ChosenMachine,
    jobs: Sequence[Planned],
    builds: Sequence[MissingIndex],
    how: Grouping,
    missing: Mapping[str, MissingIndex],
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
        usd_per_hour=usd_per_hour(machine.usd_per_hour, disk_gib, how.usd_per_gib_month),
        disk_gib=disk_gib,
        jobs=tuple(PartJob(job.cell, job.spec.job, job.spec.repetition, job_key(job.spec)) for job in jobs),
        builds=tuple(each.build for each in builds),
        needs=tuple(needs),
        expected_s=total.seconds,
        worst_s=total.worst_s,
        measured=total.measured,
        gpus=gpus,
    )


def _shipped(jobs: Sequence[Planned], builds: Sequence[MissingIndex], sizes: Sizes, gpus: bool) -> tuple[int, int]:
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
    missing: dict[str, MissingIndex] = {}
    for job in todo:
        key, cell = job.spec.index_key, job.cell
        if key not in missing and key not in local and key not in remote:
            documents = inputs.datasets[cell.dataset].corpus.size
            estimate = times.build(cell.system, cell.dataset, documents)
            missing[key] = MissingIndex(IndexBuild(key, cell.system, cell.dataset), estimate)
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


def show_quote(
    parts: Sequence[PlannedPart],
    notes: Sequence[str],
    machines: Mapping[str, ChosenMachine],
    cap: float | None,
    to: Console,
) -> None:
    """Print a table of parts, notes, and the sum."""
    table = Table(box=None, pad_edge=False)
    for head in ("part", "type", "builds", "jobs", "disk", "hours", "", "US$/h", "US$"):
        table.add_column(head, justify="left" if head in ("part", "type", "") else "right", no_wrap=True)
    together = len(parts) > _MOST_ROWS
    for _, same in itertools.groupby(
        parts, lambda part: (part.instance_type, not part.jobs) if together else part.name
    ):
        table.add_row(*_quote_row(list(same)))
    to.print(table)
    remarks = list(dict.fromkeys(machine.remark for machine in machines.values() if machine.remark))
    more = f" ({len(remarks) - 1} more profiles likewise: --instance names a type)" if len(remarks) > 1 else ""
    for line in (*notes, *(f"{remark}{more}" for remark in remarks[:1]), _quote_sum(parts, cap)):
        to.print(escape(line), highlight=False, soft_wrap=True)


def _quote_row(same: Sequence[PlannedPart]) -> tuple[str, ...]:
    first, last = same[0], same[-1]
    return (
        first.name if first is last else f"{first.name}-{last.name}",
        first.instance_type,
        str(sum(len(part.builds) for part in same)),
        str(sum(len(part.jobs) for part in same)),
        f"{max(part.disk_gib for part in same)} GiB",
        f"{sum(part.expected_s for part in same) / 3600:.2f}",
        "measured" if all(part.measured for part in same) else "assumed",
        f"{max(part.usd_per_hour for part in same):.4f}",
        f"{expected_usd(same):.2f}",
    )


def _quote_sum(parts: Sequence[PlannedPart], cap: float | None) -> str:
    by = "by the time limit of each" + (" and --max-usd" if cap is not None else "")
    return f"about US$ {expected_usd(parts):.2f}; never more than US$ {worst_usd(parts, cap):.2f}, {by}"
