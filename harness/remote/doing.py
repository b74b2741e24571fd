"""What ``harness run --part`` does beside a usual run: only the part's jobs, each handed over once it is stored."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from harness import indexes, whole_file
from harness.aws.objects import Objects
from harness.errors import AwsError, FileError, HarnessError, JobError
from harness.inputs import Options
from harness.remote import handover, layout, shipping
from harness.remote.records import MOST_BYTES, Assignment, Status, dump, read
from harness.result import job_key
from harness.share import Build, Follower, Share, Wanted
from harness.stored_jobs import StoredJob
from harness.suite import Suite

# How long S3 may be out of reach at the end of a part.  All jobs are safe on this machine's disk, for as long as it
# lives: its own time limit is what ends it.
PATIENCE_S = 4 * 3600.0
_FIRST_WAIT_S = 2.0
_LONGEST_WAIT_S = 60.0


def read_assignment(path: Path) -> Assignment:
    """Read the file that ``--part`` names.

    Raises:
        FileError: it cannot be read.
        AwsError: it is no assignment.
    """
    try:
        content = path.read_bytes()[: MOST_BYTES + 1]
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}; only the agent of a box writes such") from error
    return read(Assignment, str(path), content)


def options(usual: Options, suite: Suite, assignment: Assignment, follower: Follower) -> Options:
    """What a run is told that does this part and nothing else."""
    part = assignment.part
    jobs = {(job.cell, job.job): Wanted(job.repetition, job.key) for job in part.jobs}
    builds = tuple(Build(build.key, build.system, build.dataset) for build in part.builds)
    types = dict.fromkeys(suite.profiles, part.instance_type)
    return replace(usual, share=Share(jobs, follower, builds), instance_types=types)


@dataclass
class _Waiting:
    """Something still to be handed over."""

    name: str
    hand_over: Callable[[], None]


class HandingOver(Follower):
    """Hands over each job once it is stored, and indexes that are asked for once they are built.

    What S3 does not take now is tried again after the next job, and at the end for long.
    """

    def __init__(
        self,
        assignment: Assignment,
        work: Objects,
        cache: Path,
        say: Callable[[str], None],
        *,
        patience_s: float = PATIENCE_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._part = assignment.part
        self._work = work
        self._run = work.below(layout.run(assignment.part.run_id))
        self._cache = cache
        self._say = say
        self._patience_s = patience_s
        self._sleep = sleep
        self._file = Path(assignment.status)
        self._waiting: list[_Waiting] = []
        self._built: set[str] = set()
        self._asked = {build.key: build for build in self._part.builds}
        self.status = Status("fetching", 0, len(self._part.jobs))

    def starts(self, key: str) -> None:
        """Say which job runs now."""
        self._now(replace(self.status, phase="measuring", current=key))

    def stored(self, job: StoredJob) -> None:
        """Hand over one job, and what waits."""
        key = job_key(job.result.spec)
        # Packed when it is tried: jobs that wait do so on disk, not in memory.
        self._waiting.append(_Waiting(f"the job {key}", lambda: self._hand_over(key, handover.pack(job.folder))))
        self._now(replace(self.status, done=self.status.done + 1, current=None))
        self._try()

    def builds(self) -> None:
        """Say that an index is in the making."""
        self._now(replace(self.status, phase="building", current=None))

    def built(self, key: str, error: JobError | None) -> None:
        """Hand over an index, if it is asked for."""
        if key not in self._asked or key in self._built:
            return
        self._built.add(key)
        build = self._asked[key]
        if error is not None:
            self._trouble(f"the index of {build.system} on {build.dataset} was not built: {error}")
            return
        self._waiting.append(_Waiting(f"the index of {build.system} on {build.dataset}", lambda: self._ship(key)))
        self._try()

    def finish(self) -> None:
        """Hand over what waits, however long S3 takes.  A job that still runs was cut off, and stays named.

        Raises:
            AwsError: it took too long; the status says what is still here.
        """
        self._now(replace(self.status, phase="finishing"))
        for key in self._asked.keys() - self._built:
            build = self._asked[key]
            self._trouble(f"the index of {build.system} on {build.dataset} was not built; see the log")
        waited, wait = 0.0, _FIRST_WAIT_S
        while (error := self._try()) is not None:
            if waited >= self._patience_s:
                for each in self._waiting:
                    self._trouble(f"{each.name} could not be handed over: {error}")
                raise error
            self._sleep(wait)
            waited, wait = waited + wait, min(2 * wait, _LONGEST_WAIT_S)

    def _try(self) -> AwsError | None:
        """Hand over all that waits, in order; what stands in the way, if something does."""
        while self._waiting:
            try:
                self._waiting[0].hand_over()
            except AwsError as error:
                self._say(f"{self._waiting[0].name} waits to be handed over: {error}")
                return error
            del self._waiting[0]
        return None

    def _hand_over(self, key: str, content: bytes) -> None:
        name = layout.job(key)
        if not self._run.put_new(name, content):
            there, place = self._run.get(name, handover.MOST_BYTES), self._run.place.below(name)
            if there is None:
                raise AwsError(f"{place}: is there and cannot be read yet", "Busy")
            if there != content:
                # Never overwritten: what is there may be home already.
                self._trouble(f"{place}: another job lies there; that of this box is lost with it")
                return
        self._now(replace(self.status, handed_over=(*self.status.handed_over, key)))

    def _ship(self, key: str) -> None:
        found = indexes.find(self._cache, key)
        if found is not None:
            shipping.index(self._work, key, found, self._say, cache=self._cache)

    def _trouble(self, text: str) -> None:
        self._say(text)
        self._now(replace(self.status, troubles=(*self.status.troubles, text)))

    def _now(self, status: Status) -> None:
        self.status = status
        # That it cannot be told hinders no job.
        with contextlib.suppress(HarnessError), whole_file.writing(self._file) as path:
            path.write_bytes(dump(self.status))
