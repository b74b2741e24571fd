"""Watch a running job through its output: progress, time limits, a bound on its files; hand it its queries.

An untrusted process writes this output: only regular files are read, never more than a bound, and a senseless line is
skipped (``collect`` judges the whole at the end).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from harness.driver.output import EVENTS, SAMPLES
from harness.driver.records import Outcome, to_json
from harness.driver.scenarios import planned_queries
from harness.launch.base import LaunchRequest, StopReason, TrialTimes
from harness.progress import duration
from harness.untrusted import max_output_bytes, max_trials, open_regular

GO = "go-"  # the file that holds the queries of a stretch; its number follows
_CHUNK = 1 << 20
_LEAST_FREE_BYTES = 256 << 20
_FREE_INDEX_BYTES = 1 << 30
_LONGEST_PATH = 3000
_TOO_DEEP = 1 << 62  # more bytes than anything may have
_ENTRY = 4096  # bytes that any entry of a folder is counted as, at least
# Seconds between two looks for new events (one system call).
_ASK_S = 0.1
# A job that waits for queries is looked at more often: after a part of the time since it got the last.  The end of a
# trial is known as exactly, and an empty job waits for nothing.
_ASK_PAUSING_S = (0.001, 0.01)
_ASK_SHARE = 0.05


@dataclass(frozen=True)
class Step:
    """A job's progress: phase, steps done, steps in all (0: unknown)."""

    phase: str
    done: int
    total: int


class FollowedFile:
    """Reader of the lines of a file that another process appends to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self.whole = True  # nothing was left when it was read last

    def lines(self) -> list[bytes]:
        """Return the whole lines that are new since the last call, up to a bound."""
        try:
            with open_regular(self._path) as file:
                file.seek(self._offset)
                new = file.read(_CHUNK)
        except OSError:
            return []
        self._offset += len(new)
        self.whole = len(new) < _CHUNK
        *lines, self._rest = (self._rest + new).split(b"\n")
        self._rest = self._rest[-_CHUNK:]
        return lines


class JobWatch:
    """Watch over one job, from just before its start; :meth:`poll` returns why it must be stopped, if it must."""

    def __init__(self, job: LaunchRequest) -> None:
        self._job = job
        self.pausing = job.spec.pause  # it waits for its queries
        self._limits = job.limits
        self._most_bytes = max_output_bytes(job.spec)
        self._enough_disk = _free_bytes(job.out) > _LEAST_FREE_BYTES
        self._out = job.out  # made once: these are looked at several times a second
        self._events_path = str(job.out / EVENTS)
        self._events = FollowedFile(job.out / EVENTS)
        self._samples = FollowedFile(job.out / SAMPLES)
        self._started = self._step = self._handed_s = time.monotonic()
        self._most_trials = max_trials(job.spec)
        self._asked = self._answered = -1  # the last stretch that the job asked for, and that it was handed
        self._went_ns = self._gone_ns = 0  # before and after the last queries were written
        self._warmup_s = 0.0  # from the first query to the last answer of warm-up
        self._quiet_ns = 0  # until when the job had written no more events than were read
        self._wrong: StopReason | None = None
        self.handed: list[TrialTimes] = []
        self.ready_s: float | None = None  # from the start until the job asked for its first queries
        self._wrote_ns: int | None = None  # what the driver had spent writing when the last trial ended
        self._seen_bytes = 0
        self.progress = Step("start", 0, 0)

    @property
    def paused(self) -> int | None:
        """Return the number of the queries that the job waits for, until :meth:`answer`."""
        return self._asked if self._asked > self._answered else None

    @property
    def ask_s(self) -> float:
        """Return the seconds until the next look for new events."""
        if not self.pausing:
            return _ASK_S
        least_s, most_s = _ASK_PAUSING_S
        return min(most_s, max(least_s, _ASK_SHARE * (time.monotonic() - self._handed_s)))

    @property
    def between(self) -> bool:
        """Return whether the job waits between two trials."""
        return 1 < self._asked <= self._most_trials

    def answer(self) -> None:
        """Hand the job the queries that it waits for, as a file."""
        number = self._answered = self._asked
        spec, folder = self._job.spec, self._job.folder
        with suppress(OSError):  # a plain process can close the folder; it then waits in vain
            # Renamed into place: whole when it is there, and a link that a plain process laid there is not followed.
            descriptor, name = tempfile.mkstemp(dir=folder)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(to_json([replace(query, matching=None) for query in planned_queries(spec, number)]))
                os.fchmod(descriptor, 0o644)
            self._went_ns = time.perf_counter_ns()
            Path(name).rename(folder / f"{GO}{number}")
            self._gone_ns = time.perf_counter_ns()
        self._step = self._handed_s = time.monotonic()

    def stirred(self) -> bool:
        """Return whether the job wrote any event: one system call, cheap enough to repeat often."""
        now_ns = time.perf_counter_ns()
        try:
            size_bytes = os.lstat(self._events_path).st_size
        except OSError:
            return False
        stirred, self._seen_bytes = size_bytes != self._seen_bytes, size_bytes
        if not stirred and self._events.whole:
            self._quiet_ns = now_ns
        return stirred

    def poll(self) -> StopReason | None:
        """Read new output; return why the job must be stopped, if it must."""
        self.follow()
        if self._wrong:
            return self._wrong
        now = time.monotonic()
        if now - self._started > self._limits.job_s:
            return StopReason(Outcome.TIMEOUT, f"the job took more than {self._limits.job_s:g} s")
        allowed_s = self._allowed_s()
        if now - self._step > allowed_s:
            unit = "a query" if self._batch_size() == 1 else "a batch"
            what = unit if self._asking() else self.progress.phase
            return StopReason(Outcome.TIMEOUT, f"{what} took more than {allowed_s:g} s")
        return self._over_budget() or self._too_much()

    def _over_budget(self) -> StopReason | None:
        """Return why the trials cannot end in time, by what a query of warm-up took; asked before the first trial."""
        spec, warmed = self._job.spec, self.progress.done
        if self.paused != 1 or spec.probes or not warmed:
            return None
        query_s, queries = self._warmup_s / warmed, spec.trials * len(spec.sample) + 2 * spec.repeats
        needed_s, left_s = query_s * queries, self._limits.job_s - (time.monotonic() - self._started)
        if needed_s <= left_s:
            return None
        depth, fits = spec.params.get("depth"), ""
        if type(depth) is int and depth:
            fits = f" or lower depth from {depth} to {int(depth * left_s / needed_s)},"
        return StopReason(
            Outcome.TIMEOUT,
            f"refused after warm-up: {query_s:.3g} s a query x {queries} queries = {duration(needed_s)}, the job has"
            f" {duration(left_s)} left; lower protocol.sample_size or trials,{fits} or raise protocol.job_timeout_s",
        )

    def _too_much(self) -> StopReason | None:
        """Return why the job takes more disk than it can honestly need."""
        if wrong := too_large(self._out, self._most_bytes, "wrote"):
            return wrong
        # An open file that the job unlinked is in no folder, but still fills the disk.
        if self._enough_disk and _free_bytes(self._out) < _LEAST_FREE_BYTES:
            return StopReason(
                Outcome.CRASH, f"no space left on device: less than {_LEAST_FREE_BYTES >> 20} MiB left; make room"
            )
        if self._job.may_write_index:
            return too_large(self._job.index_dir, most_index_bytes(self._job), "the index has")
        return None

    def _allowed_s(self) -> float:
        phase = self.progress.phase
        if phase in ("start", "load"):
            return self._limits.load_s
        if phase in ("build", "check"):  # of the index: all of it may be read
            return self._limits.build_s
        return self._limits.query_s * (self._batch_size() if self._asking() else 1)

    def _asking(self) -> bool:
        return self.progress.phase.startswith(("warmup", "trial"))

    def _batch_size(self) -> int:
        """Return the number of queries that are answered together."""
        spec = self._job.spec
        if spec.scenario != "offline":
            return 1
        return max(1, min(spec.scenario_params.batch_size or 1, max(len(spec.warmup), len(spec.sample))))

    def follow(self) -> StopReason | None:
        """Read new output; return why the image is dishonest, if it wrote what an honest driver never writes."""
        now_ns = time.perf_counter_ns()
        lines = self._events.lines()
        for line in lines:
            event = _event(line)
            phase, done, total = event.get("phase"), event.get("done"), event.get("total")
            self._late(event)
            if (number := _count(event.get("pause"))) is not None:
                self._pause(number)
            elif isinstance(ended := event.get("end"), str):
                self._end(ended, event)
            elif isinstance(phase, str) and phase.isprintable():
                self._step = time.monotonic()
                self.progress = Step(phase[:40], 0, _count(total) or 0)
            elif (steps := _count(done)) is not None:
                # An open loop writes its samples only when a probe is over; until then the count of answers must rise.
                if self._job.spec.overlaps and steps > self.progress.done:
                    self._step = time.monotonic()
                self.progress = Step(self.progress.phase, steps, self.progress.total)
        if self._events.whole:
            self._quiet_ns = now_ns
        answered = len(self._samples.lines())
        if answered:
            self._step = time.monotonic()
            self.progress = Step(self.progress.phase, self.progress.done + answered, self.progress.total)
        return self._wrong

    def _pause(self, number: int) -> None:
        """Note that the job asks for queries; an adapter may ask too, so each only once and in turn."""
        if not self.pausing:
            return
        most, due = self._most_trials + (self._job.spec.repeats > 0), self._answered + 1
        if number == due <= most and self.paused is None:
            self._asked = number
            self._step = time.monotonic()
            if number == 0:
                self.ready_s = self._step - self._started
            if number == 1:
                self._warmup_s = self._step - self._handed_s
        else:
            self._refuse(f"the image asked for queries {number} out of turn; {due} of {most} are next")

    def _end(self, phase: str, event: dict[str, object]) -> None:
        """Note that a phase ended; of a trial, when the host saw it and the driver's figures."""
        if not phase.startswith("trial-") or not self.pausing:
            return
        counts = [_count(event.get(name)) for name in ("start_ns", "t_ns", "claimed_ns", "written_ns", "wrote_ns")]
        due = f"trial-{self._job.spec.first_trial + len(self.handed)}"
        if phase != due or self._answered != len(self.handed) + 1 or None in counts:
            self._refuse("the image reported the end of a trial that did not run")
            return
        start_ns, end_ns, claimed_ns, written_ns, self._wrote_ns = (count or 0 for count in counts)
        least_ns = max(0, self._quiet_ns - self._gone_ns)
        seen_ns = time.perf_counter_ns()
        span_ns = max(0, end_ns - start_ns)
        self.handed.append(TrialTimes(phase, self._went_ns, seen_ns, least_ns, span_ns, claimed_ns, written_ns))

    def _late(self, event: dict[str, object]) -> None:
        """Subtract the time that a busy disk held back the end of the trial, from the next event."""
        wrote_ns = _count(event.get("wrote_ns"))
        if self._wrote_ns is not None and wrote_ns is not None:
            last = self.handed[-1]
            self.handed[-1] = replace(last, least_ns=max(0, last.least_ns - max(0, wrote_ns - self._wrote_ns)))
            self._wrote_ns = None

    def _refuse(self, why: str) -> None:
        self._wrong = self._wrong or StopReason(Outcome.BAD_OUTPUT, why)


def most_index_bytes(job: LaunchRequest) -> int:
    """Return a bound on an index: 100 times its text; late interaction keeps a vector for each word."""
    return _FREE_INDEX_BYTES + 100 * (job.corpus_dir / "corpus.jsonl").stat().st_size


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _event(line: bytes) -> dict[str, object]:
    """Parse an event; a senseless one has no keys."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    """Return a number of steps that a progress bar can hold, else None."""
    return value if type(value) is int and 0 <= value < 1 << 53 else None


def too_large(folder: Path, most_bytes: int, what: str) -> StopReason | None:
    """Return why a folder has more bytes than anything honest would need."""
    size = _size(folder)
    if size <= most_bytes:
        return None
    amount = "folders nested deeper than a path can name" if size == _TOO_DEEP else f"{size >> 20} MiB"
    return StopReason(Outcome.BAD_OUTPUT, f"{what} {amount}; the limit is {most_bytes >> 20} MiB")


def _size(folder: Path) -> int:
    """Return the bytes below a folder, links not followed; an empty file or folder counts too.

    A sparse file counts by its length: it takes no blocks, but a reader reads all of it.
    A folder too deep for a path to name counts as more than anything may have.  No recursion: ``os.walk`` recurses
    until Python 3.12, and a thousand nested folders are more than it can take.
    """
    total, waiting = 0, [str(folder)]
    while waiting:
        parent = waiting.pop()
        if len(parent) > _LONGEST_PATH:
            return _TOO_DEEP
        with suppress(OSError), os.scandir(parent) as entries:  # it went while we looked
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    total += max(status.st_blocks * 512, status.st_size, _ENTRY)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total
