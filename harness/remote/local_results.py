"""A run's jobs in the local store: fetched, missing, or interrupted.

An arriving job is untrusted until names, sizes, hashes, seal and spec are checked.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import harness
from harness import filesystem
from harness.driver.records import Outcome
from harness.errors import FileError, RemoteError, UsageError
from harness.jobs import environment
from harness.jobs.collect import CollectedJob, build_result
from harness.jobs.plan import Planned
from harness.remote import archive, records
from harness.remote.records import PartJob, PlannedPart
from harness.remote.storage import Storage
from harness.results import seals
from harness.results.reader import FIRST_STAGE, LOG, RESULT, RUN, SAMPLES, UPDATED_RUN, UPDATES, read_result
from harness.results.schema import (
    ANSWER_DEPTHS,
    JUDGED_HITS,
    Cell,
    Environment,
    JobProvenance,
    RentedMachine,
    Result,
    ResultSpec,
    job_key,
)
from harness.results.store import Store
from harness.untrusted import ForeignText, foreign

# Of one packed job, which is held in memory; honest ones have a few MiB.
MOST_BYTES = 256 << 20
_UNKNOWN = ForeignText("unknown")
_FILES = frozenset((LOG, RUN, FIRST_STAGE, UPDATES, UPDATED_RUN, SAMPLES, JUDGED_HITS, ANSWER_DEPTHS, RESULT))


class LocalResults:
    """The store's side of a run."""

    def __init__(
        self,
        planned: Iterable[Planned],
        stored: Iterable[Result],
        store: Store,
        nominal_bytes: Mapping[str, int] | None = None,
    ) -> None:
        """Take the plan; ``nominal_bytes`` is the memory that profiles ask for, where limits are less."""
        self._planned: dict[tuple[Cell, int], Planned] = {(job.cell, job.spec.job): job for job in planned}
        self.store = store
        self._nominal_bytes = nominal_bytes or {}
        self.keys = {result.key for result in stored}

    def planned(self, job: PartJob) -> Planned:
        """Return the job as planned, with the part's repetition."""
        known = self._planned.get((job.cell, job.job))
        if known is not None:
            spec = replace(known.spec, repetition=job.repetition)
            if job_key(spec) == job.key:
                return replace(known, spec=spec)
        cell = job.cell
        raise UsageError(
            f"{cell.system} {cell.dataset} {cell.profile}: differs from the plan of the open run; give the same"
            " suite, images, datasets, --only, --instance and --architecture, or another --results"
        )

    def left(self, part: PlannedPart) -> tuple[PartJob, ...]:
        """Return a part's jobs that are not stored yet."""
        return tuple(job for job in part.jobs if job.key not in self.keys)

    def interrupt(self, job: PartJob, why: str, when: float, instance: RentedMachine | None) -> None:
        """Store that a job's machine went away after ``when``."""
        planned = self.planned(job)
        about = Environment(
            cpu_model=_UNKNOWN,
            architecture=_UNKNOWN,
            host_cpus=0,
            host_memory_bytes=0,
            kernel=_UNKNOWN,
            cgroup_version=None,
            docker_version=None,
            harness_version=ForeignText(harness.__version__),
            harness_commit=foreign(environment.commit()),
            instance_type=foreign(planned.spec.instance_type),
        )
        at = datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds")
        provenance = JobProvenance(nominal_memory_bytes=self._nominal_bytes.get(job.cell.profile))
        result = build_result(planned.spec, at, CollectedJob(Outcome.INTERRUPTED, why), about, provenance)
        self.keys.add(self.store.put(replace(result, instance=instance), None, None, b"").result.key)


def pack(folder: Path) -> bytes:
    """Pack a stored job's folder as a tar, always the same bytes."""
    target = io.BytesIO()
    archive.write(target, [(path.name, path) for path in sorted(folder.iterdir()) if path.is_file()])
    return target.getvalue()


def fetch_job(work: Storage, worker_id: str, key: str, expected: ResultSpec, store: Store) -> Result:
    """Store a worker's uploaded job; this process holds the store.

    Raises:
        RemoteError: with code ``BadJob``: it is not whole, or not as ``expected``; or the storage refuses.
    """
    folder = work.below(records.worker(worker_id))
    place = folder.where(records.job(key))
    content = folder.get(records.job(key), MOST_BYTES)
    if content is None:
        raise RemoteError(f"{place}: the job does not exist", "NoSuchKey")
    with store.scratch(f"arrived-{key}") as scratch:
        whole = scratch / key
        whole.mkdir()
        try:
            archive.unpack(io.BytesIO(content), whole, what="a job", most_bytes=MOST_BYTES, allowed=_FILES.__contains__)
            result = read_result(whole / RESULT)
            _check(result, whole, key, expected)
        except (RemoteError, FileError, ValueError, RecursionError) as error:
            raise RemoteError(f"{place}: {error}; it stays there and was not stored", "BadJob") from error
        return store.put(result, whole=whole).result


def _check(result: Result, folder: Path, key: str, expected: ResultSpec) -> None:
    """Refuse a result that contradicts itself, its files or the plan."""
    hashes = {file.name: filesystem.sha256(file) for file in folder.iterdir()}
    del hashes[RESULT]
    if hashes != result.files:
        names = hashes.keys() | result.files.keys()
        other = sorted(name for name in names if hashes.get(name) != result.files.get(name))
        raise RemoteError(f"{', '.join(other)} are not as its {RESULT} says")
    if result.key != job_key(result.spec):
        raise RemoteError(f"its key {result.key[:40]!r} does not match its spec")
    if seals.broken(json.loads((folder / RESULT).read_bytes())):
        raise RemoteError(f"its {RESULT} is not as it was sealed")
    if result.spec != expected or result.key != key:
        raise RemoteError(f"holds the job {result.key}, which is not the one that was planned")
    measured = {result.instance.instance_type if result.instance else None, result.environment.instance_type}
    if expected.instance_type is not None and measured != {expected.instance_type}:
        types = ", ".join(sorted(str(name) for name in measured - {expected.instance_type}))
        raise RemoteError(f"planned for {expected.instance_type}, it was measured on {types}")
