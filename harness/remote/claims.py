"""Claims of a shared folder: which worker does which part, and whether another may go on with it.

A worker claims a part with a file that only one worker can make.  The next claim of the same part may be made once the
worker of the last one was stopped, or gave no sign of life.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.remote import records
from harness.remote.records import Heartbeat, WorkerEnd, dump, fetch
from harness.remote.storage import Storage
from harness.remote.worker import heartbeat_s

# Workers that a part gets, one after the other.
ATTEMPTS = 3
# Heartbeats that may be missing: five minutes by default, because a listing of NFS may be a minute old.
_MISSED = 10
FREE, HELD, OVER = "free", "held", "over"
_CLAIMS, _STOP = "claims", "stop"


@dataclass(frozen=True)
class Claim:
    """A worker's claim of a part."""

    worker: str
    version: int = records.VERSION


@dataclass(frozen=True)
class PartClaims:
    """The workers of a part, the oldest first; its state (``free``, ``held`` or ``over``), and why it has that."""

    workers: tuple[str, ...]
    state: str
    reason: str = ""


def look(work: Storage, run_id: str, part: str) -> PartClaims:
    """Return who has claimed a part, and whether another worker may go on with it."""
    workers, stopped = _claims(work, run_id, part)
    if stopped:
        return PartClaims(workers, OVER, "it was stopped")
    if not workers:
        return PartClaims((), FREE)
    reason = _gone(work, workers[-1])
    if reason is None:
        return PartClaims(workers, HELD)
    end = fetch(WorkerEnd, work.below(records.worker(workers[-1])), records.END)
    if end is not None and not end.cut_off:
        return PartClaims(workers, OVER, reason)
    return PartClaims(workers, FREE if len(workers) < ATTEMPTS else OVER, reason)


def _claims(work: Storage, run_id: str, part: str) -> tuple[tuple[str, ...], bool]:
    """Return the workers that claimed a part, the oldest first, and whether it was stopped."""
    run = work.below(records.run(run_id))
    names = [stored.name for stored in run.list(f"{_CLAIMS}/{part}/")]
    stop = f"{_CLAIMS}/{part}/{_STOP}"
    claims = [fetch(Claim, run, name) for name in names if name != stop]
    return tuple(claim.worker for claim in claims if claim), stop in names


def _gone(work: Storage, worker: str) -> str | None:
    """Return how a worker ended (empty: well), or ``None`` while it lives."""
    folder = work.below(records.worker(worker))
    if (end := fetch(WorkerEnd, folder, records.END)) is not None:
        return "" if end.ok else str(end.detail)
    beats = [stored.modified.timestamp() for stored in folder.list(records.HEARTBEAT)]
    silent = work.clock.now - max(beats, default=0.0)
    return f"no sign of life for {silent / 60:.0f} min" if silent > _MISSED * heartbeat_s() else None


def claim(work: Storage, run_id: str, part: str, found: PartClaims, worker: str, host: str) -> bool:
    """Claim a part that was found free; return whether this worker has it."""
    folder, run = work.below(records.worker(worker)), work.below(records.run(run_id))
    # Before the claim: a worker that holds a part has always given a sign of life.
    folder.put(records.HEARTBEAT, dump(Heartbeat(part, host, "fetching")))
    if run.put_new(f"{_CLAIMS}/{part}/{len(found.workers) + 1:04}.json", dump(Claim(worker))):
        return True
    folder.delete([records.HEARTBEAT])
    return False


def holds(work: Storage, run_id: str, part: str, worker: str) -> bool:
    """Return whether a worker is to go on: the run is open, and the part neither stopped nor claimed by another."""
    if work.size(records.is_open(run_id)) is None:
        return False
    workers, stopped = _claims(work, run_id, part)
    return not stopped and workers[-1:] == (worker,)


def stop(work: Storage, run_id: str, part: str) -> None:
    """Have the worker of a part end, and no other begin."""
    work.below(records.run(run_id)).put_new(f"{_CLAIMS}/{part}/{_STOP}", b"")
