"""The jobs of a run against the local store: which are home, which are left, and those that were interrupted."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import harness
from harness import environment
from harness.errors import UsageError
from harness.instances import Instance
from harness.jobs import assemble, nothing
from harness.plan import Planned
from harness.records import Outcome
from harness.remote.records import PartJob, PlannedPart
from harness.result import Cell, Ec2Instance, Environment, Result, ResultSpec, job_key
from harness.store import Store


class Home:
    """The store's side of a run."""

    def __init__(self, planned: Iterable[Planned], stored: Iterable[Result], store: Store) -> None:
        self._planned: dict[tuple[Cell, int], Planned] = {(job.cell, job.spec.job): job for job in planned}
        self._lock = threading.Lock()
        self.store = store
        self.keys = {result.key for result in stored}

    def planned(self, job: PartJob) -> Planned:
        """Return the job as it is planned here, with the part's repetition.

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
        """Return what its result must say that was measured."""
        return self.planned(job).spec

    def left(self, part: PlannedPart) -> tuple[PartJob, ...]:
        """Return a part's jobs that are not home."""
        return tuple(job for job in part.jobs if job.key not in self.keys)

    def came(self, result: Result) -> None:
        """Note what was stored."""
        with self._lock:
            self.keys.add(result.key)

    def interrupt(self, job: PartJob, why: str, when: float, box: Ec2Instance | None, machine: Instance | None) -> None:
        """Store that a job's machine was taken away.

        Args:
            job: what ran there.
            why: one line.
            when: of its last sign of life, seconds since 1970 by AWS' clock.
            box: the instance, where it is known.
            machine: facts of its type.
        """
        planned = self.planned(job)
        at = datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds")
        about = _environment(machine, planned.spec.instance_type)
        result = assemble(planned, at, nothing(Outcome.INTERRUPTED, why), None, None, about)
        self.came(self.store.put(replace(result, instance=box), None, None, b"").result)


def _environment(machine: Instance | None, instance_type: str | None) -> Environment:
    """Return what is known of a machine that says nothing any more: what its type is."""
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
