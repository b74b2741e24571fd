"""A suite on EC2, planned here for machines elsewhere: what is to do, on which types, in which groups, for how long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from harness import indexes, leftovers
from harness.catalog import System
from harness.ec2.estimates import Estimates
from harness.ec2.grouping import Grouping, Missing, Sizes, groups
from harness.ec2.machines import Machine
from harness.ec2.records import Group
from harness.inputs import Inputs, plan_on
from harness.launch.base import Prepared
from harness.plan import Planned, index_key, order
from harness.records import Isolation
from harness.remote.records import IndexBuild
from harness.result import Result


@dataclass(frozen=True)
class Ready:
    """What is made already: images by name."""

    images: Mapping[str, Prepared]

    @property
    def digests(self) -> dict[str, str]:
        """Image name -> digest."""
        return {name: prepared.digest for name, prepared in self.images.items()}


def planned(
    inputs: Inputs,
    machines: Mapping[str, Machine],
    ready: Ready,
    isolation: Isolation,
    stored: Iterable[Result],
    fresh: bool,
) -> list[Planned]:
    """Every job of the suite, done or to do; what this host cannot run does not matter."""
    types = {name: machine.name for name, machine in machines.items()}
    return plan_on(inputs, isolation, ready.digests, stored, fresh, types, {})


@dataclass(frozen=True)
class There:
    """Indexes that need no build: in the cache (to be shipped), and in S3."""

    local: Mapping[str, indexes.Index]
    remote: frozenset[str]


def grouped(
    inputs: Inputs,
    machines: Mapping[str, Machine],
    ready: Ready,
    jobs: Iterable[Planned],
    stored: Iterable[Result],
    there: There,
    *,
    per_type: int,
    usd_per_gib_month: float,
) -> tuple[Group, ...]:
    """The groups of what is to do."""
    todo, how = grouping(inputs, machines, ready, jobs, stored, there, usd_per_gib_month=usd_per_gib_month)
    return groups(todo, replace(how, per_type=per_type))


def grouping(
    inputs: Inputs,
    machines: Mapping[str, Machine],
    ready: Ready,
    jobs: Iterable[Planned],
    stored: Iterable[Result],
    there: There,
    *,
    usd_per_gib_month: float,
) -> tuple[list[Planned], Grouping]:
    """What is to do, in its order, and what groups are made of."""
    todo = order(jobs, inputs.suite.protocol.seed)
    protocol = inputs.suite.protocol
    times = Estimates(stored, job_timeout_s=protocol.job_timeout_s, build_timeout_s=protocol.build_timeout_s)
    missing = {}
    for job in todo:
        key, cell = job.spec.index_key, job.cell
        if key not in missing and key not in there.local and key not in there.remote:
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
        sizes=_sizes(inputs, ready, there),
        usd_per_gib_month=usd_per_gib_month,
    )
    return todo, how


def index_keys(inputs: Inputs, ready: Ready, jobs: Iterable[Planned]) -> dict[str, tuple[System, str]]:
    """Index key -> its builder and dataset, for what is to do and has an image."""
    found = {}
    for job in jobs:
        builder = inputs.builder(job.cell)
        prepared = ready.images.get(builder.image)
        if not job.done and prepared is not None:
            dataset = inputs.datasets[job.cell.dataset]
            found[index_key(builder, prepared.digest, dataset.corpus.sha256)] = (builder, job.cell.dataset)
    return found


def _sizes(inputs: Inputs, ready: Ready, there: There) -> Sizes:
    images: dict[str, int] = {}
    for cell in inputs.cells:
        for system in (inputs.system(cell), inputs.builder(cell)):
            prepared = ready.images.get(system.image)
            if prepared is not None and prepared.size_bytes is not None:
                images[cell.system] = max(images.get(cell.system, 0), prepared.size_bytes)
    corpora = {
        name: sum(entry.stat().st_size for entry in leftovers.files(dataset.corpus.folder))
        for name, dataset in inputs.datasets.items()
    }
    return Sizes(images, corpora, {key: index.facts.index_bytes for key, index in there.local.items()})
