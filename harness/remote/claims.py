"""Claims of a shared folder: which worker does which part, and whether another may go on with it.

A worker claims a part with a file that only one worker can make.  The next claim of the same part may be made once the
worker of the last one was interrupted, or gave no sign of life.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.remote import records
from harness.remote.backend import ENDED, RUNNING, WAITING, PartState
from harness.remote.records import Heartbeat, WorkerEnd, dump, fetch
from harness.remote.storage import Storage
from harness.remote.worker import heartbeat_s
from harness.untrusted import foreign

# Workers that a part gets, one after the other.
ATTEMPTS = 3
# Heartbeats that may be missing: five minutes by default, because a listing of NFS may be a minute old.
_MISSED = 10
_CLAIMS = "claims"


@dataclass(frozen=True)
class Claim:
    """A worker's claim of a part."""

    worker: str
    version: int = records.VERSION


def look(work: Storage, run_id: str, part: str) -> PartState:
    """Return who has claimed a part, and whether another worker may go on with it (``waiting``)."""
    workers = _claims(work, run_id, part)
    phase, reason = _phase(work, workers)
    words = {WAITING: f"waits for {'another' if workers else 'a'} worker", RUNNING: "running", ENDED: "ended"}[phase]
    # While another worker may go on, the reason is shown next to the state.
    return PartState(phase, words, workers, len(workers), reason, 0.0)


def _phase(work: Storage, workers: tuple[str, ...]) -> tuple[str, str]:
    """Return a part's phase, and why it has that."""
    if not workers:
        return WAITING, ""
    folder = work.below(records.worker(workers[-1]))
    if (end := fetch(WorkerEnd, folder, records.END)) is not None:
        reason = "" if end.ok else str(end.detail)
    else:
        beats = [stored.modified.timestamp() for stored in folder.list(records.HEARTBEAT)]
        silent = work.clock.now - max(beats, default=0.0)
        if silent <= _MISSED * heartbeat_s():
            return RUNNING, ""
        reason = f"no sign of life for {silent / 60:.0f} min"
    may_go_on = (end is None or end.cut_off) and len(workers) < ATTEMPTS
    return WAITING if may_go_on else ENDED, reason


def _claims(work: Storage, run_id: str, part: str) -> tuple[str, ...]:
    """Return the workers that claimed a part, the oldest first."""
    run = work.below(records.run(run_id))
    claims = [fetch(Claim, run, stored.name) for stored in run.list(f"{_CLAIMS}/{part}/")]
    return tuple(claim.worker for claim in claims if claim)


def ran_in(worker: str, task_id: str) -> bool:
    """Return whether a worker ran in a task of Slurm, whose id begins the worker's."""
    return worker.startswith(f"{task_id}-")


def claim(work: Storage, run_id: str, part: str, found: PartState, worker: str) -> bool:
    """Claim a part that was found free; return whether this worker has it."""
    folder, run = work.below(records.worker(worker)), work.below(records.run(run_id))
    # Before the claim: a worker that holds a part has always given a sign of life.
    folder.put(records.HEARTBEAT, dump(Heartbeat("fetching")))
    if run.put_new(f"{_CLAIMS}/{part}/{len(found.workers) + 1:04}.json", dump(Claim(worker))):
        return True
    folder.delete([records.HEARTBEAT])
    return False


def bury(work: Storage, worker: str, why: str) -> None:
    """Write the end of a worker that is known to be dead, unless it wrote its own; another may go on at once."""
    work.below(records.worker(worker)).put_new(records.END, dump(WorkerEnd(False, foreign(why), cut_off=True)))


def holds(work: Storage, run_id: str, part: str, worker: str) -> bool:
    """Return whether a worker is to go on: the run is open, and no other has claimed the part."""
    return work.size(records.is_open(run_id)) is not None and _claims(work, run_id, part)[-1:] == (worker,)
