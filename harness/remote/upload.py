"""``harness run --part``: do one part, upload each job and index."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import indexes, suite, whole_file
from harness.aws.objects import Objects
from harness.errors import AwsError, FileError, HarnessError, JobError
from harness.inputs import Options
from harness.remote import home, layout, shipping
from harness.remote.records import Assignment, Part, Status, dump, read
from harness.result import job_key
from harness.share import Follower, Share, Wanted
from harness.stored_jobs import StoredJob
from harness.suite import Suite

# Below the folder of the assignment.
DATASETS = "datasets"
# How long S3 may be out of reach at the end of a part; the jobs are safe on disk until the box's time limit.
PATIENCE_S = 4 * 3600.0
_FIRST_WAIT_S = 2.0
_LONGEST_WAIT_S = 60.0


def read_assignment(path: Path) -> Assignment:
    """Read the file that ``--part`` names."""
    try:
        return read(Assignment, str(path), path.read_bytes())
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}; only the agent of a box writes such") from error


def suite_of(part: Part, file: Path) -> Suite:
    """Return a part's suite, with its datasets that lie beside ``file``."""
    # In their order, because the overhead is measured on the first.
    names = [name for name in map(suite.dataset_name, part.suite.get("datasets", ())) if name in part.datasets]
    return suite.parse({**part.suite, "datasets": [f"./{DATASETS}/{name}" for name in dict.fromkeys(names)]}, file)


def options(usual: Options, suite: Suite, part: Part, follower: Follower) -> Options:
    """Return the options of a run that does one part alone."""
    jobs = {(job.cell, job.job): Wanted(job.repetition, job.key) for job in part.jobs}
    types = dict.fromkeys(suite.profiles, part.instance_type)
    return replace(usual, share=Share(jobs, follower, part.builds), instance_types=types)


class Uploader(Follower):
    """Uploads stored jobs and the part's indexes to the box's folder.

    A failed upload is tried again after the next job, and at the end for ``patience_s``.
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
        self._work, self._box_id, self._cache, self._say = work, assignment.box_id, cache, say
        self._box = work.below(layout.box(assignment.box_id))
        self._patience_s, self._sleep, self._file = patience_s, sleep, Path(assignment.status)
        self._waiting: list[tuple[str, Callable[[], None]]] = []
        # Index key -> how errors name the index.
        self._unbuilt = {each.key: f"the index of {each.system} on {each.dataset}" for each in assignment.part.builds}
        self.status = Status("fetching")

    def starts(self, key: str) -> None:
        """Note which job runs now."""
        self._note(phase="measuring", current=key)

    def stored(self, job: StoredJob) -> None:
        """Upload a job, and what waits."""
        key = job_key(job.result.spec)
        # Packed when it is tried, so that jobs wait on disk, not in memory.
        self._waiting.append((f"the job {key}", lambda: self._upload_job(key, job.folder)))
        self._note(current=None)
        self._try()

    def builds(self) -> None:
        """Note that an index is being built."""
        self._note(phase="building", current=None)

    def built(self, key: str, error: JobError | None) -> None:
        """Upload an index, if the part asks for it."""
        name = self._unbuilt.pop(key, None)
        if name is not None and error is not None:
            self._trouble(f"{name} was not built: {error}")
        elif name is not None:
            self._waiting.append((name, lambda: self._upload_index(key)))
            self._try()

    def finish(self) -> None:
        """Upload the rest; after ``patience_s`` raise S3's error."""
        self._note(phase="finishing")
        for name in self._unbuilt.values():
            self._trouble(f"{name} was not built; see the log")
        waited, wait = 0.0, _FIRST_WAIT_S
        while (error := self._try()) is not None:
            if waited >= self._patience_s:
                for name, _ in self._waiting:
                    self._trouble(f"{name} could not be handed over: {error}")
                raise error
            self._sleep(wait)
            waited, wait = waited + wait, min(2 * wait, _LONGEST_WAIT_S)

    def _try(self) -> AwsError | None:
        """Upload all that waits, in order; return the error that stops it."""
        while self._waiting:
            name, upload = self._waiting[0]
            try:
                upload()
            except AwsError as error:
                self._say(f"{name} waits to be handed over: {error}")
                return error
            del self._waiting[0]
        return None

    def _upload_job(self, key: str, folder: Path) -> None:
        # Refused where it is there already: only an earlier try of this box can have written it.
        self._box.put_new(layout.job(key), home.pack(folder))
        self._note(uploaded=self.status.uploaded + 1)

    def _upload_index(self, key: str) -> None:
        found = indexes.find(self._cache, key)
        if found is not None:
            shipping.upload_index(self._work, self._box_id, key, found, self._cache, self._say)

    def _trouble(self, text: str) -> None:
        self._say(text)
        self._note(troubles=(*self.status.troubles, text))

    def _note(self, **changes: Any) -> None:
        self.status = replace(self.status, **changes)
        # A status that cannot be written hinders no job.
        with contextlib.suppress(HarnessError), whole_file.writing(self._file) as path:
            path.write_bytes(dump(self.status))
