"""The share of a plan that this machine is to do, where another machine made the plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from harness.errors import JobError, UsageError
from harness.jobs.plan import NO_IMAGE, Planned
from harness.results.reader import StoredJob
from harness.results.schema import Cell, job_key


@dataclass(frozen=True)
class AssignedJob:
    """One job: which attempt it is to be, and the key that it must have."""

    repetition: int
    key: str


@dataclass(frozen=True)
class IndexBuild:
    """One index that is asked for, and its key."""

    key: str
    system: str
    dataset: str


class RunCallbacks:
    """Told, between jobs, what is done; nothing is measured meanwhile.  This one lets all of it pass."""

    def starts(self, key: str) -> None:
        """A job is about to run."""

    def stored(self, job: StoredJob) -> None:
        """A job is stored."""

    def builds(self) -> None:
        """An index is about to be built."""

    def built(self, key: str, error: JobError | None) -> None:
        """An index is there, built just now or before; or it cannot be."""


@dataclass(frozen=True)
class AssignedWork:
    """Jobs by cell and number, and indexes; whoever asked for them follows."""

    jobs: Mapping[tuple[Cell, int], AssignedJob]
    follower: RunCallbacks
    builds: tuple[IndexBuild, ...] = ()

    def of(self, planned: Iterable[Planned], stored: Collection[str]) -> list[Planned]:
        """Those of the jobs planned here that belong to the share, as the attempts that they are to be.

        Args:
            planned: all that the suite declares.
            stored: keys of the jobs that are stored here; these are done, however they ended.

        Raises:
            UsageError: a job is not planned here, or is another one here than there.
        """
        found: list[Planned] = []
        for job in planned:
            wanted = self.jobs.get((job.cell, job.spec.job))
            if wanted is not None:
                ours = replace(job, spec=replace(job.spec, repetition=wanted.repetition))
                _check(ours, wanted.key)
                found.append(replace(ours, done=wanted.key in stored, latest=None))
        missing = self.jobs.keys() - {(job.cell, job.spec.job) for job in found}
        if missing:
            cell, number = min(missing, key=str)
            raise UsageError(f"{_place(cell)} job {number}: the suite here does not declare it; ship the same suite")
        return found


def _check(job: Planned, key: str) -> None:
    """Refuse a job that is not what was planned elsewhere under its key."""
    if job_key(job.spec) == key:
        return
    what = f"{_place(job.cell)} job {job.spec.job}"
    if job.cannot:
        raise UsageError(f"{what}: this machine cannot run it: {job.cannot}; choose another instance type")
    if job.spec.image_digest == NO_IMAGE:
        raise UsageError(f"{what}: its image is not here, or of another recipe; ship image and harness again")
    if job_key(replace(job.spec, instance_type=None)) == key:
        raise UsageError(f"{what}: it was planned for no instance type, here it is {job.spec.instance_type}")
    raise UsageError(
        f"{what}: would be another job here ({job_key(job.spec)}) than was planned ({key}): its image, dataset,"
        " parameters, profile, protocol or instance type differ; ship all inputs again"
    )


def _place(cell: Cell) -> str:
    return f"{cell.system} {cell.dataset} {cell.scenario} {cell.profile}"
