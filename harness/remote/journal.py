"""Journal of a run in the storage, from which any later command resumes it; and the records of its workers."""

from __future__ import annotations

import re
import secrets
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, TypeVar

from harness.errors import RemoteError
from harness.remote import records
from harness.remote.failures import NO_STORAGE, OURS_TO_MEND, PASSING, ignoring
from harness.remote.records import Heartbeat, Launch, RemoteRun, WorkerEnd, WorkerPart, dump, fetch
from harness.remote.storage import Storage, StoredObject
from harness.untrusted import one_line

T = TypeVar("T", Heartbeat, WorkerEnd)
_READERS = 16
# Read of one worker at most.
_MOST_OBJECTS = 100_000
_MOST_CHARACTERS = 1000


def _plain(value: Any) -> Any:
    """Return a worker's text on one line, cut."""
    return one_line(value, _MOST_CHARACTERS) if isinstance(value, str) else value


def run_id(suite: str, now: float) -> str:
    """Return a name for a new run; ``now``: seconds since 1970 by the storage's clock."""
    return f"{suite}-{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def is_run_id(name: str) -> bool:
    """Return whether a name is a run's, and not a suite's."""
    return re.search(r"-\d{8}T\d{6}-[0-9a-f]{6}$", name) is not None


def open_runs(work: Storage) -> list[RemoteRun]:
    """Return all runs below a work place that are not closed; skip records of other versions."""
    runs = []
    for marker in work.list(f"{records.OPEN}/"):
        name = f"{records.run(PurePosixPath(marker.name).name)}/{records.RUN}"
        with ignoring("BadRecord"):
            runs.append(fetch(RemoteRun, work, name))
    return [run for run in runs if run is not None]


def find(work: Storage, launcher: str, suite: str, results: str, owner: str) -> RemoteRun | None:
    """Return the oldest open run of this launcher, suite, results folder and owner."""
    wanted = (launcher, suite, results, owner)
    with ignoring(NO_STORAGE):
        mine = [run for run in open_runs(work) if (run.launcher, run.suite, run.results, run.owner) == wanted]
        return min(mine, key=lambda run: run.run_id, default=None)
    return None


@dataclass
class WorkerRecords:
    """The records that one worker has written; ``heartbeat_at`` is the storage's own time, in seconds since 1970."""

    heartbeat: Heartbeat | None = None
    heartbeat_at: float | None = None
    end: WorkerEnd | None = None
    jobs: set[str] = field(default_factory=set)
    indexes: set[str] = field(default_factory=set)


class Journal:
    """One run's records, and the folders of its workers."""

    def __init__(self, work: Storage, run: RemoteRun) -> None:
        self.run = run
        self.objects = work.below(records.run(run.run_id))
        self.launches: dict[str, Launch] = {}
        self.workers: dict[str, WorkerRecords] = defaultdict(WorkerRecords)
        self._work = work
        self._read: dict[str, str] = {}

    def begin(self) -> None:
        """Write the run's record, and mark it open."""
        self.objects.put_new(records.RUN, dump(self.run))
        self._work.put(records.is_open(self.run.run_id), b"")

    def recall(self) -> None:
        """Read the launches of earlier commands."""
        names = [stored.name for stored in self.objects.list(f"{records.LAUNCHES}/")]
        with ThreadPoolExecutor(_READERS) as pool:
            launches = pool.map(lambda name: fetch(Launch, self.objects, name), names)
            self.launches = {launch.name: launch for launch in launches if launch is not None}

    def look(self, worker_ids: Iterable[str]) -> None:
        """Read what these workers have written since the last look.

        Raises:
            RemoteError: the storage refuses or is not reached.
        """
        with ThreadPoolExecutor(_READERS) as pool:
            list(pool.map(self._read_worker, dict.fromkeys(worker_ids)))

    def _read_worker(self, worker_id: str) -> None:
        folder, written = self._work.below(records.worker(worker_id)), self.workers[worker_id]
        for stored in islice(folder.list(), _MOST_OBJECTS):
            kind, _, name = stored.name.rpartition("/")
            if stored.name == records.HEARTBEAT:
                written.heartbeat = self._changed(Heartbeat, folder, stored) or written.heartbeat
                written.heartbeat_at = stored.modified.timestamp()
            elif stored.name == records.END:
                written.end = self._changed(WorkerEnd, folder, stored) or written.end
            elif kind == records.JOBS:
                written.jobs.add(name.rpartition(".")[0])
            elif kind == records.INDEXES and name.endswith(".json"):
                written.indexes.add(name.partition(".")[0])

    def _changed(self, kind: type[T], folder: Storage, stored: StoredObject) -> T | None:
        """Read a new or changed record; ignore a foreign one."""
        name = folder.where(stored.name)
        if self._read.get(name) == stored.etag:
            return None
        try:
            record = fetch(kind, folder, stored.name)
        except RemoteError as error:
            if error.code in PASSING | OURS_TO_MEND:
                raise
            record = None
        self._read[name] = stored.etag
        return record and replace(record, **{key: _plain(value) for key, value in vars(record).items()})

    def put_part(self, part: WorkerPart) -> None:
        """Write a part for its worker."""
        self.objects.put(records.part(part.name), dump(part))

    def new_launch(self, launch: Launch) -> Launch:
        """Write a launch before the backend gets the request; return the record that was first."""
        self.objects.put_new(records.launch(launch.name), dump(launch))
        launch = fetch(Launch, self.objects, records.launch(launch.name)) or launch
        self.launches[launch.name] = launch
        return launch

    def put_launch(self, launch: Launch) -> None:
        """Write the present state of a launch."""
        self.objects.put(records.launch(launch.name), dump(launch))
        self.launches[launch.name] = launch

    def drop_launch(self, name: str) -> None:
        """Take back a launch that the service has refused."""
        self.objects.delete([records.launch(name)])
        del self.launches[name]

    def close(self) -> None:
        """Close the run: every job is fetched, every machine gone."""
        self._work.delete([records.is_open(self.run.run_id)])
