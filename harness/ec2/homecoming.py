"""The jobs of a run against the local store: which are home, which are left, and those that were interrupted."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import harness
from harness import environment
from harness.ec2.fleet import Seen
from harness.ec2.records import Group
from harness.errors import UsageError
from harness.instances import Instance
from harness.jobs import assemble, nothing
from harness.plan import Planned
from harness.records import Outcome
from harness.remote.records import PartJob
from harness.result import Cell, Ec2Instance, Environment, Result, ResultSpec, job_key
from harness.store import Store


class Home:
    """What of a run's jobs is in the store."""

    def __init__(self, planned: Iterable[Planned], stored: Iterable[Result], store: Store) -> None:
        self._planned: dict[tuple[Cell, int], Planned] = {(job.cell, job.spec.job): job for job in planned}
        self._store = store
        self._lock = threading.Lock()
        self.outcomes: dict[str, Outcome] = {result.key: result.outcome for result in stored}

    def planned(self, job: PartJob) -> Planned:
        """The job as it is planned here, with the part's repetition.

        Raises:
            UsageError: it is planned otherwise than when the run began.
        """
        known = self._planned.get((job.cell, job.job))
        if known is not None:
            spec = replace(known.spec, repetition=job.repetition)
            if job_key(spec) == job.key:
                return replace(known, spec=spec)
        cell = job.cell
        raise UsageError(
            f"{cell.system} {cell.dataset} {cell.profile}: planned otherwise than when the run in S3 began (the suite,"
            " an image or a dataset has changed); bring them back as they were, or give another --results"
        )

    def spec(self, job: PartJob) -> ResultSpec:
        """What its result must say that was measured."""
        return self.planned(job).spec

    @property
    def keys(self) -> frozenset[str]:
        """All that is stored."""
        return frozenset(self.outcomes)

    @property
    def done(self) -> frozenset[str]:
        """All that is stored and was not interrupted."""
        return frozenset(key for key, outcome in self.outcomes.items() if outcome is not Outcome.INTERRUPTED)

    def left(self, group: Group) -> tuple[PartJob, ...]:
        """The group's jobs that are not home; one that was interrupted is a new attempt."""
        return tuple(job for job in map(self._next, group.jobs) if job.key not in self.outcomes)

    def _next(self, job: PartJob) -> PartJob:
        while self.outcomes.get(job.key) is Outcome.INTERRUPTED:
            spec = replace(self.spec(job), repetition=job.repetition + 1)
            job = replace(job, repetition=spec.repetition, key=job_key(spec))
        return job

    def last(self, job: PartJob) -> str:
        """The key of the last attempt at a job that is stored, or of the first."""
        following = self._next(job)
        if following.key in self.outcomes or following.repetition == job.repetition:
            return following.key
        spec = self.spec(following)
        return job_key(replace(spec, repetition=following.repetition - 1))

    def came(self, result: Result) -> None:
        """Note what was stored."""
        with self._lock:
            self.outcomes[result.key] = result.outcome

    def interrupt(self, job: PartJob, why: str, when: float, box: Seen | None, machine: Instance | None) -> Result:
        """Store that a job's machine was taken away.

        Args:
            job: what ran there.
            why: one line.
            when: of its last sign of life, seconds since 1970 by AWS' clock.
            box: the instance, where EC2 still shows it.
            machine: facts of its type.
        """
        planned = self.planned(job)
        at = datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds")
        about = _environment(machine, planned.spec.instance_type)
        result = assemble(planned, at, nothing(Outcome.INTERRUPTED, why), None, None, about)
        if box is not None:
            lifecycle = "spot" if box.spot else "on-demand"
            result = replace(
                result, instance=Ec2Instance(box.instance_id, box.instance_type, box.zone, box.ami_id, lifecycle)
            )
        stored = self._store.put(result, None, None, b"").result
        self.came(stored)
        return stored


def _environment(machine: Instance | None, instance_type: str | None) -> Environment:
    """What is known of a machine that says nothing any more: what its type is."""
    return Environment(
        cpu_model="unknown",
        architecture={"arm64": "aarch64"}.get(machine.architecture, machine.architecture) if machine else "unknown",
        host_cpus=machine.vcpus if machine else 0,
        host_memory_bytes=machine.memory_bytes if machine else 0,
        kernel="unknown",
        cgroup_version=None,
        docker_version=None,
        harness_version=harness.__version__,
        harness_commit=environment.commit(),
        instance_type=instance_type,
    )
