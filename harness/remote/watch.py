"""Watch a run's workers: launch ready parts, fetch jobs, end workers, until the run is over.

All that it knows is in the storage and with the backend, so any later command can go on.  All times are the storage's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from harness.errors import HarnessError, RemoteError, counted
from harness.jobs import run_progress
from harness.remote import partition
from harness.remote.backend import ENDED, RUNNING, UNKNOWN, Backend, LaunchRefused, PartState
from harness.remote.failures import until_answered
from harness.remote.journal import Journal, WorkerRecords
from harness.remote.local_results import LocalResults, fetch_job
from harness.remote.records import Launch, PartJob, PlannedPart
from harness.remote.shipment import Shipper
from harness.remote.storage import Storage
from harness.results.schema import Result

log = logging.getLogger(__name__)

# They speak of one job; the others are fetched before it is raised.
_OF_THE_JOB = frozenset({"BadJob", "TooLarge", "NoSuchKey", "InvalidObjectState"})
_AT_ONCE = 8


@dataclass(frozen=True)
class Timeouts:
    """Seconds between two looks, and seconds to wait.

    ``first_heartbeat_s``: for the first heartbeat after a launch, boot and engine included; ``heartbeat_s``: for each
    further one; ``again_s``: between requests to end a machine; ``linger_s``: until the watch gives up on it.
    """

    poll_s: float = 10.0
    first_heartbeat_s: float = 1200.0
    heartbeat_s: float = 300.0
    again_s: float = 60.0
    linger_s: float = 900.0
    sleep: Callable[[float], None] = time.sleep


@dataclass
class RunWatch:
    """One run, from its present state to its end.

    ``put_part`` ships a part's inputs and its record; ``most``: launches at once; ``cap_usd``: what all may cost.
    """

    work: Storage
    journal: Journal
    local_results: LocalResults
    backend: Backend
    shipper: Shipper
    put_part: Callable[[PlannedPart, tuple[PartJob, ...]], None]
    most: int
    cap_usd: float | None
    timeouts: Timeouts
    given_up: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._parts = {part.name: part for part in self.journal.run.parts}
        self._states: dict[str, PartState] = {}
        self._over: set[str] = set()
        self._attempts: dict[str, int] = {}
        self._ending: dict[str, tuple[float, float, str]] = {}  # part -> first and last request, and why
        self._indexes: set[str] = set()
        self._damaged: dict[str, str] = {}  # job or index -> what is wrong with it
        self._shown: dict[str, str] = {}
        left = sum(len(self.local_results.left(part)) for part in self._parts.values())
        self._fetched = self._jobs - left  # an earlier command stored the others
        self._heard: float | None = None  # since when backend and storage answer

    def run(self) -> list[str]:
        """Watch until the run is over; return a line for each machine that still runs.

        Raises:
            RemoteError: storage or backend fail for long; what was launched goes on, and the same command resumes it.
            KeyboardInterrupt: the user stops watching; likewise.
        """
        self.journal.recall()
        for launch in self.journal.launches.values():
            if launch.usd is not None:
                self._close(launch)
        while not until_answered(self._tick, self._wait):
            self._wait()
        alive = until_answered(self.backend.alive, self._wait)
        if not alive:
            until_answered(self.journal.close, self._wait)
            if not self.given_up:
                until_answered(self.backend.tidy, self._wait)
        return alive

    @property
    def committed_usd(self) -> float:
        """Return the money that was spent, and the most that the rest can cost."""
        return partition.committed_usd(self.journal.launches.values())

    def _close(self, launch: Launch) -> None:
        """Note a launch that another command settled."""
        self._over.add(launch.name)
        if left := self.local_results.left(self._parts[launch.name]):
            self._give_up(launch.name, left, " before")

    def _wait(self) -> None:
        self.timeouts.sleep(self.timeouts.poll_s)

    @property
    def launched(self) -> list[Launch]:
        """Launches of which something may still live."""
        return [launch for name, launch in self.journal.launches.items() if name not in self._over]

    def _tick(self) -> bool:
        """Look and act once; return whether all is over."""
        heard, self._heard = self._heard, None
        self.work.ask_time()
        # The backend first: what the storage shows after a worker is gone is all that it ever uploaded.
        self._states |= self.backend.look(self.launched)
        for launch in self.launched:
            machine = self._states[launch.name].machine
            if machine is not None and launch.machine is None:  # EC2 forgets it an hour after its end
                self.journal.put_launch(replace(launch, machine=machine.instance_id))
        live = [self._parts[launch.name] for launch in self.launched]
        begun = [state for part in live if (state := self._states[part.name]).phase in (RUNNING, ENDED)]
        self.journal.look(worker_id for state in begun for worker_id in state.workers)
        self._heard = heard or self.work.clock.now
        self._arrivals(live)
        for part in live:
            self._part(part, self._states[part.name])
        self._launches()
        self._show()
        return self._over >= self._parts.keys()

    def _last(self, state: PartState) -> WorkerRecords:
        """Return the records of the last worker of a part that wrote any."""
        workers = (self.journal.workers[worker_id] for worker_id in reversed(state.workers))
        return next((written for written in workers if written.heartbeat or written.end), WorkerRecords())

    def _arrivals(self, parts: list[PlannedPart]) -> None:
        """Fetch uploads of workers: indexes into the shared inputs, jobs into the store."""
        wanted: dict[str, tuple[PartJob, str]] = {}
        for part in parts:
            builds = {build.key for build in part.builds} - self._indexes - self._damaged.keys()
            jobs = {job.key: job for job in part.jobs if job.key not in self.local_results.keys | self._damaged.keys()}
            for worker_id in self._states[part.name].workers:
                written = self.journal.workers[worker_id]
                for key in builds & written.indexes:
                    self._adopt(worker_id, key, part.disk_gib << 30)
                wanted |= {key: (jobs[key], worker_id) for key in jobs.keys() & written.jobs}

        def one(upload: tuple[PartJob, str]) -> Result | HarnessError:
            job, worker_id = upload
            try:
                return fetch_job(
                    self.work, worker_id, job.key, self.local_results.planned(job).spec, self.local_results.store
                )
            except HarnessError as error:
                return error

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            came = list(pool.map(one, wanted.values()))
        failed: HarnessError | None = None
        for key, result in zip(wanted, came, strict=True):
            if isinstance(result, Result):
                self.local_results.keys.add(result.key)
                self._fetched += 1
                expected = self.local_results.planned(wanted[key][0]).expected
                log.info(run_progress.line(self._fetched, self._jobs, [result], expected))
            elif isinstance(result, RemoteError) and result.code in _OF_THE_JOB:
                self._damage(key, result)
            else:
                failed = result
        if failed is not None:  # only now: the other jobs are stored
            raise failed

    def _adopt(self, worker_id: str, key: str, most_bytes: int) -> None:
        try:
            if self.shipper.adopt_index(worker_id, key, most_bytes) is not None:
                self._indexes.add(key)
        except RemoteError as error:
            if error.code != "BadInput":
                raise
            self._damage(key, error)

    def _damage(self, key: str, error: RemoteError) -> None:
        self._damaged[key] = str(error)
        log.info(f"{key}: {error}")

    def _part(self, part: PlannedPart, state: PartState) -> None:
        """See to one launched part."""
        if state.phase == ENDED:
            self._finish(part, state)
            return
        if state.attempts > self._attempts.setdefault(part.name, state.attempts):
            # A lost machine is replaced: the next one does the jobs that are missing.
            self._attempts[part.name] = state.attempts
            self._ending.pop(part.name, None)
            self.put_part(part, self.local_results.left(part))
        done = self._last(state).end is not None
        why = "it has done its part" if done else self._wrong(state)
        if why is None or state.launched is None:
            return
        now = self.work.clock.now
        first, last, _ = self._ending.get(part.name, (now, float("-inf"), why))
        if now - first > self.timeouts.linger_s:
            self._finish(part, state)
        elif now - last > self.timeouts.again_s:
            if not done and part.name not in self._ending:
                log.info(f"{_part_name(part, state)}: ended, because {why}")
            self._ending[part.name] = (first, now, why)
            self.backend.end(part.name, state, why)

    def _wrong(self, state: PartState) -> str | None:
        """Return why an unfinished worker must be ended, or None."""
        if state.launched is None or state.phase == UNKNOWN:
            return None
        if state.reason:
            return state.reason
        last = self._last(state)
        if last.heartbeat is not None and last.heartbeat.notice:
            return f"EC2 takes it away: {last.heartbeat.notice}"
        # Until harness is there, there is no heartbeat.
        installs = last.heartbeat is None or last.heartbeat.phase == "installing"
        # While the storage did not answer, no worker could write.
        silent = self.work.clock.now - max(last.heartbeat_at or state.launched, self._heard or 0.0)
        most = self.timeouts.first_heartbeat_s if installs else self.timeouts.heartbeat_s
        return f"no sign of life for {silent / 60:.0f} min" if silent > most else None

    def _finish(self, part: PlannedPart, state: PartState) -> None:
        """Close a part whose machine is gone for good, with its cost: its uploads are fetched."""
        self._give_up_missing(part, state)
        launch = self.journal.launches[part.name]
        # What does not go costs all that it may.
        usd = partition.cost_usd(launch, state.seconds if state.phase == ENDED else None)
        self.journal.put_launch(replace(launch, usd=usd))
        self._over.add(part.name)

    def _give_up_missing(self, part: PlannedPart, state: PartState) -> None:
        """Record the jobs that a part's worker interrupted or left undone, and why."""
        last = self._last(state)
        end, heartbeat = last.end, last.heartbeat
        missing = self.local_results.left(part)
        unbuilt = {build.key for build in part.builds} - self._indexes
        ending = self._ending.get(part.name)
        reasons = [str(end.detail or "") if end else "", ending[2] if ending and end is None else "", state.reason]
        if not last.heartbeat and not end:
            reasons.append(self.backend.last_words(state))
        left = "its worker skipped it" if end else "its worker went away"
        why = "; ".join(dict.fromkeys(filter(None, reasons))) or left
        if unbuilt and (missing or not part.jobs):
            log.info(f"{_part_name(part, state)}: {len(unbuilt)} indexes are not built ({why})")
        if not missing:
            return
        # A worker that ended by itself interrupted no job, unless its record says so.
        current = heartbeat.current if heartbeat is not None and (end is None or end.cut_off) else None
        for job in missing:
            reason = self._damaged.get(job.key) or (why if job.key == current else None)
            if reason is not None:
                when = last.heartbeat_at or self.work.clock.now
                self.local_results.interrupt(job, f"interrupted: {reason}", when, state.machine)
        begun = f"begun {state.attempts} times; " if state.attempts > 1 else ""
        self._give_up(_part_name(part, state), missing, f": {begun}{why}")

    def _give_up(self, name: str, left: Sequence[PartJob], why: str) -> None:
        line = f"{name}: {counted(len(left), 'job')} left undone{why}"
        self.given_up.append(f"{line}; the same command plans them again")
        log.info(line)

    def _launches(self) -> None:
        """Launch ready parts, up to the limit of machines at once."""
        waiting = [part for name, part in self._parts.items() if name not in self._over]
        for part in waiting:
            launch = self.journal.launches.get(part.name)
            if launch is not None:
                # The command that wrote it may have died before its request.
                if self._states[part.name].phase == UNKNOWN:
                    self._launch(launch, part)
            elif not self.local_results.left(part) and all(self._has_index(build.key) for build in part.builds):
                self._over.add(part.name)
            elif len(self.launched) < self.most and (self.backend.keeps_order or self._ready(part)):
                self._new_launch(part, waiting)

    def _new_launch(self, part: PlannedPart, waiting: list[PlannedPart]) -> None:
        begun = {part.name, *self.journal.launches, *self._over}
        others = [other for other in waiting if other.name not in begun]
        left_usd = None if self.cap_usd is None else self.cap_usd - self.committed_usd
        launch = partition.plan_launch(part, others, self.work.clock.now, self.backend.attempts, left_usd)
        left = self.local_results.left(part)
        if launch is None:
            if not self.launched:  # nothing is promised that could come back
                money = f"US$ {max(left_usd or 0.0, 0.0):.2f}"
                self._give_up(part.name, left, f": what is left of --max-usd, {money}, is not enough")
                self._over.add(part.name)
            return
        self.put_part(part, left)
        # Before the request: money that may be spent is promised first.
        launch = self.journal.new_launch(launch)
        if launch.usd is None:
            self._launch(launch, part)
        else:
            self._close(launch)

    def _launch(self, launch: Launch, part: PlannedPart) -> None:
        self._states.setdefault(part.name, PartState(UNKNOWN, "launching"))
        try:
            self.backend.launch(launch, part, self.journal.put_launch)
        except LaunchRefused as error:
            self.journal.drop_launch(launch.name)
            self._over.add(launch.name)
            self._give_up(part.name, self.local_results.left(part), f": {error}")

    def _ready(self, part: PlannedPart) -> bool:
        """Return whether each needed index is in the storage, or its builder has ended without it."""
        open_parts = (other for name, other in self._parts.items() if name not in self._over)
        making = {build.key for other in open_parts for build in other.builds}
        return all(key not in making or self._has_index(key) for key in part.needs)

    def _has_index(self, key: str) -> bool:
        if key not in self._indexes and self.shipper.find_index(key) is not None:
            self._indexes.add(key)
        return key in self._indexes

    @property
    def _jobs(self) -> int:
        return sum(len(part.jobs) for part in self._parts.values())

    def _show(self) -> None:
        """Log the states of parts that have changed."""
        expected_usd = partition.expected_usd(self._parts.values())
        money = f"at most US$ {self.committed_usd:.2f} so far, about {expected_usd:.2f} in all"
        progress = money if expected_usd else f"{self._fetched} of {self._jobs} jobs"
        for launch in self.launched:
            state = self._words(self._states[launch.name])
            if state != self._shown.get(launch.name):
                self._shown[launch.name] = state
                log.info(f"{_name(launch.name, self._parts[launch.name].instance_type)}: {state}  ({progress})")

    def _words(self, state: PartState) -> str:
        heartbeat = self._last(state).heartbeat
        word = state.words
        if heartbeat is not None and state.phase == RUNNING:
            word = f"{heartbeat.phase} on {state.place}" if state.place else heartbeat.phase
        return f"{word}: {state.reason}" if state.reason and state.phase != ENDED else word


def _part_name(part: PlannedPart, state: PartState) -> str:
    return _name(part.name, part.instance_type, state.machine.instance_id if state.machine else "")


def _name(part: str, *machine: str) -> str:
    """Return a part's name with its machine's type and id, as far as known."""
    known = " ".join(filter(None, machine))
    return f"{part} ({known})" if known else part
