"""Watch a run's workers: launch ready parts, fetch jobs, end workers, until the run is over.

All that it knows is in the storage and with the backend, so any later command can go on.  All times are the storage's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from harness.driver.records import Outcome
from harness.errors import HarnessError, RemoteError
from harness.jobs import orchestrator
from harness.progress import console
from harness.remote import partition
from harness.remote.backend import ENDED, RUNNING, UNKNOWN, Backend, LaunchRefused, PartState
from harness.remote.failures import until_answered
from harness.remote.journal import Journal, WorkerRecords
from harness.remote.local_results import LocalResults, fetch_job
from harness.remote.partition import Submission
from harness.remote.records import Launch, PartJob, PlannedPart, RemoteRun
from harness.remote.shipment import Shipper
from harness.remote.storage import Storage
from harness.results.schema import Result

log = logging.getLogger(__name__)

DisplayLine = tuple[str, str, str, str]
# They speak of one job; the others are fetched before it is raised.
_OF_THE_JOB = frozenset({"BadJob", "TooLarge", "NoSuchKey", "InvalidObjectState"})
_AT_ONCE = 8


class RunDisplay:
    """Display of one line for each machine, and one for each fetched job."""

    def __init__(self, run: RemoteRun) -> None:
        self._title = run.run_id
        self._jobs = sum(len(part.jobs) for part in run.parts)
        self._expected_usd = partition.expected_usd(run.parts)
        self._live: Live | None = None
        self._shown: dict[str, str] = {}
        self._fetched = 0

    @contextmanager
    def open(self) -> Iterator[None]:
        """Draw on a terminal meanwhile."""
        with ExitStack() as stack:
            if console().is_terminal:
                live = Live(console=console(), refresh_per_second=2, transient=True)
                self._live = stack.enter_context(live)
            yield
        self._live = None

    def came(self, result: Result, expected: Outcome) -> None:
        """Print a fetched job."""
        self._fetched += 1
        log.info(orchestrator.line(self._fetched, self._jobs, [result], expected))

    def update(self, lines: list[DisplayLine], committed_usd: float) -> None:
        """Show the run's status; without a terminal, only changes."""
        money = f"at most US$ {committed_usd:.2f} so far, about {self._expected_usd:.2f} in all"
        if not self._expected_usd:
            money = f"{self._fetched} of {self._jobs} jobs"
        if self._live is not None:
            table = Table(title=escape(f"{self._title}: {money}"), title_justify="left", box=None)
            for head in ("part", "type", "state", "jobs"):
                table.add_column(head, justify="right" if head == "jobs" else "left")
            for line in lines:
                table.add_row(*map(escape, line))
            self._live.update(table)
            return
        for name, machine, state, _ in lines:
            if state not in ("waiting", self._shown.get(name)):
                self._shown[name] = state
                log.info(f"{name}{f' ({machine})' if machine else ''}: {state}  ({money})")


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
        self.display = RunDisplay(self.journal.run)
        self._submissions = {submission.name: submission for submission in self.backend.split(self.journal.run.parts)}
        self._states: dict[str, PartState] = {}
        self._over: set[str] = set()  # names of submissions
        self._finished: set[str] = set()  # names of parts
        self._attempts: dict[str, int] = {}
        self._ending: dict[str, tuple[float, float, str]] = {}  # part -> first and last request, and why
        self._indexes: set[str] = set()
        self._damaged: dict[str, str] = {}  # job or index -> what is wrong with it
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
        with self.display.open():
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
        if count := self._left(self._submissions[launch.name]):
            self._give_up(f"{launch.name}: {count} jobs left undone before")

    def _left(self, submission: Submission) -> int:
        return sum(len(self.local_results.left(part)) for part in submission.parts)

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
        self._states |= self.backend.look(self.launched, self._submissions)
        for launch in self.launched:
            machine = self._states[launch.parts[0]].machine
            if machine is not None and launch.machine is None:  # EC2 forgets it an hour after its end
                self.journal.put_launch(replace(launch, machine=machine.instance_id))
        open_parts = [part for launch in self.launched for part in self._submissions[launch.name].parts]
        live = [part for part in open_parts if part.name not in self._finished]
        states = {part.name: self._states[part.name] for part in live}
        begun = [state for state in states.values() if state.phase in (RUNNING, ENDED)]
        self.journal.look(worker_id for state in begun for worker_id in state.workers)
        self._heard = heard or self.work.clock.now
        self._arrivals(live)
        for part in live:
            self._part(part, states[part.name])
        for launch in self.launched:
            self._settle(launch)
        self._launches()
        self.display.update(self._lines(), self.committed_usd)
        return self._over >= self._submissions.keys()

    def _last(self, state: PartState) -> WorkerRecords:
        """Return the records of the last worker of a part that wrote any."""
        workers = (self.journal.workers.get(worker_id, WorkerRecords()) for worker_id in reversed(state.workers))
        return next((written for written in workers if written.heartbeat or written.end), WorkerRecords())

    def _arrivals(self, parts: list[PlannedPart]) -> None:
        """Fetch uploads of workers: indexes into the shared inputs, jobs into the store."""
        wanted: dict[str, tuple[PartJob, str]] = {}
        for part in parts:
            builds = {build.key for build in part.builds} - self._indexes - self._damaged.keys()
            jobs = {job.key: job for job in part.jobs if job.key not in self.local_results.keys | self._damaged.keys()}
            for worker_id in self._states[part.name].workers:
                written = self.journal.workers.get(worker_id, WorkerRecords())
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
                self.display.came(result, self.local_results.planned(wanted[key][0]).expected)
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
                log.info(f"{self._name(part, state)}: ended, because {why}")
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
        """Close a part whose machine is gone for good: its uploads are fetched."""
        self._finished.add(part.name)
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
            log.info(f"{self._name(part, state)}: {len(unbuilt)} indexes are not built ({why})")
        if not missing:
            return
        # A worker that ended by itself interrupted no job, unless its record says so.
        current = heartbeat.current if heartbeat is not None and (end is None or end.cut_off) else None
        for job in missing:
            reason = self._damaged.get(job.key) or (why if job.key == current else None)
            if reason is not None:
                when = last.heartbeat_at or self.work.clock.now
                machine = self.backend.market.known.get(part.instance_type)
                self.local_results.interrupt(job, f"interrupted: {reason}", when, state.machine, machine)
        begun = f"begun {state.attempts} times; " if state.attempts > 1 else ""
        self._give_up(f"{self._name(part, state)}: {len(missing)} jobs left undone: {begun}{why}")

    def _give_up(self, line: str) -> None:
        self.given_up.append(f"{line}; the same command plans them again")
        log.info(line)

    def _settle(self, launch: Launch) -> None:
        """Record that a launch is over, and its cost."""
        parts = self._submissions[launch.name].parts
        if not {part.name for part in parts} <= self._finished:
            return
        states = [self._states[part.name] for part in parts]
        # What does not go costs all that it may.
        usd = partition.cost_usd(launch, parts, [state.seconds if state.phase == ENDED else None for state in states])
        self.journal.put_launch(replace(launch, usd=usd))
        self._over.add(launch.name)

    def _launches(self) -> None:
        """Launch ready submissions, up to the limit of machines at once."""
        waiting = [submission for name, submission in self._submissions.items() if name not in self._over]
        for submission in waiting:
            launch = self.journal.launches.get(submission.name)
            if launch is not None:
                # The command that wrote it may have died before its request.
                if any(self._states[part.name].phase == UNKNOWN for part in submission.parts):
                    self._launch(launch, submission)
            elif self._all_there(submission):
                self._over.add(submission.name)
            elif len(self.launched) < self.most and self._ready(submission):
                self._new_launch(submission, waiting)

    def _new_launch(self, submission: Submission, waiting: list[Submission]) -> None:
        begun = {submission.name, *self.journal.launches, *self._over}
        others = [other for other in waiting if other.name not in begun]
        left_usd = None if self.cap_usd is None else self.cap_usd - self.committed_usd
        launch = partition.plan_launch(submission, others, self.work.clock.now, self.backend.attempts, left_usd)
        if launch is None:
            if not self.launched:  # nothing is promised that could come back
                reason = f"what is left of --max-usd, US$ {max(left_usd or 0.0, 0.0):.2f}, is not enough"
                self._give_up(f"{submission.name}: {self._left(submission)} jobs left undone: {reason}")
                self._over.add(submission.name)
            return
        for part in submission.parts:
            self.put_part(part, self.local_results.left(part))
        # Before the request: money that may be spent is promised first.
        launch = self.journal.new_launch(launch)
        if launch.usd is None:
            self._launch(launch, submission)
        else:
            self._close(launch)

    def _launch(self, launch: Launch, submission: Submission) -> None:
        for part in submission.parts:
            self._states.setdefault(part.name, PartState(UNKNOWN, "launching"))
        try:
            self.backend.launch(launch, submission, self.journal.put_launch)
        except LaunchRefused as error:
            self.journal.drop_launch(launch.name)
            self._over.add(launch.name)
            self._give_up(f"{submission.name}: {self._left(submission)} jobs left undone: {error}")

    def _all_there(self, submission: Submission) -> bool:
        """Return whether every job is fetched and every index is in the storage."""
        return not self._left(submission) and all(map(self._has_index, submission.builds))

    def _ready(self, submission: Submission) -> bool:
        """Return whether each needed index is in the storage, or its builder has ended without it."""
        making = {key for name, other in self._submissions.items() if name not in self._over for key in other.builds}
        return all(key not in making or self._has_index(key) for key in submission.needs)

    def _has_index(self, key: str) -> bool:
        if key not in self._indexes and self.shipper.find_index(key) is not None:
            self._indexes.add(key)
        return key in self._indexes

    def _name(self, part: PlannedPart, state: PartState) -> str:
        names = (part.instance_type, state.machine.instance_id if state.machine else "")
        machine = " ".join(filter(None, names))
        return f"{part.name} ({machine})" if machine else part.name

    def _lines(self) -> list[tuple[str, str, str, str]]:
        """Return name, machine, state and finished jobs of each submission that is not over."""
        lines = []
        for name, submission in self._submissions.items():
            if name in self._over:
                continue
            states = [self._states.get(part.name) for part in submission.parts]
            jobs = [job for part in submission.parts for job in part.jobs]
            fetched = sum(job.key in self.local_results.keys for job in jobs)
            lines.append((name, submission.parts[0].instance_type, self._words(states), f"{fetched}/{len(jobs)}"))
        return lines

    def _words(self, states: list[PartState | None]) -> str:
        known = [state for state in states if state is not None]
        if not known:
            return "waiting"
        words = []
        for state in known:
            heartbeat = self._last(state).heartbeat
            word = heartbeat.phase if heartbeat is not None and state.phase == RUNNING else state.words
            words.append(f"{word}: {state.reason}" if state.reason and state.phase != ENDED else word)
        if len(words) == 1:
            return words[0]
        return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
