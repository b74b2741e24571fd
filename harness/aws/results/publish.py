"""Publish jobs to S3 under a suite's lock: files first, the record last, a finished job never overwritten."""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import filesystem
from harness.aws.clients import Connections, S3Uri, random_id
from harness.aws.objects import MISSING, Objects, age
from harness.aws.results.mirror import JOB_FILES, LOCK, FileSelection, MirroredFolder, sync
from harness.errors import RemoteError, StoreError
from harness.remote.failures import ignoring
from harness.results import reader
from harness.results.reader import RESULT

log = logging.getLogger(__name__)

# A holder that did not renew for this long is dead.
LEASE_S = 600
_RENEW_S = 120
_TRIES = 8
_MAXIMUM_BYTES = 1 << 16


@dataclass(frozen=True)
class _StoredLock:
    """The lock object in S3; its record is empty if harness did not write it."""

    etag: str
    age_s: float
    modified: str
    record: dict[str, Any]


class SuiteLock:
    """The lock of one suite's folder.

    Args:
        owner: names this machine's mirror. A lock of the same name is taken over at once: its holder is dead, because
            a machine lets one run at a time hold its mirror.
    """

    def __init__(self, folder: Objects, owner: str) -> None:
        self._folder = folder
        # Only this process has this holder: a clone of this machine has the same owner.
        self._record = {"owner": owner, "holder": secrets.token_hex(8), "since": _format_time(datetime.now(UTC))}
        self._etag: str | None = None
        self._lost = False
        self._turn = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it, and renew it meanwhile; StoreError: another run holds it."""
        self._acquire()
        ended = threading.Event()
        renewing = threading.Thread(target=self._renew_until, args=(ended,), name="s3-lock", daemon=True)
        renewing.start()
        try:
            yield
        finally:
            ended.set()
            renewing.join()
            with suppress(RemoteError), self._turn:  # it expires by itself
                if not self._lost:
                    self._write(released=True)

    def confirm(self) -> None:
        """Renew it; StoreError: another run took it over."""

        def is_ours(lock: _StoredLock | None) -> bool:  # our own write may have arrived without its answer
            return lock is not None and lock.record.get("holder") == self._record["holder"]

        with self._turn:
            self._lost = self._lost or not self._take(is_ours)
        if self._lost:
            raise StoreError(
                f"{self._folder.place}: another run took the lock over after {LEASE_S // 60} minutes without a renewal;"
                " measured jobs are kept here, and the same command resumes"
            )

    def _acquire(self) -> None:
        def is_free(lock: _StoredLock | None) -> bool:
            if lock is None:
                return True
            mine, released = lock.record.get("owner") == self._record["owner"], lock.record.get("released") is True
            if mine or released or lock.age_s > LEASE_S:
                return True
            since = str(lock.record.get("since") or lock.modified)[:40]
            raise StoreError(
                f"{self._folder.place}: another run has held the lock since {since}; wait until it ends (if it died: "
                f"{LEASE_S // 60} minutes) or choose another --results"
            )

        if not self._take(is_free):
            raise StoreError(f"{self._folder.place}: other runs keep taking the lock; try again when they are done")

    def _take(self, may_take: Callable[[_StoredLock | None], bool]) -> bool:
        """Write over the lock that was read last, and read again while S3 has another one that may be taken."""
        for _ in range(_TRIES):
            if self._write():
                return True
            lock = self._look()
            if not may_take(lock):
                return False
            self._etag = lock.etag if lock else None
        return False

    def _renew_until(self, ended: threading.Event) -> None:
        while not ended.wait(_RENEW_S):
            with suppress(RemoteError, StoreError):  # the run's own confirm() raises
                self.confirm()

    def _write(self, *, released: bool = False) -> bool:
        # The sign makes the content, and so the ETag, another one each time.
        record = {**self._record, "released": released, "sign": secrets.token_hex(8)}
        written = self._folder.put_if(LOCK, json.dumps(record).encode(), self._etag)
        self._etag = written or self._etag
        return written is not None

    def _look(self) -> _StoredLock | None:
        with ignoring(*MISSING), self._folder.reading(LOCK) as answer:
            try:
                record = json.loads(answer["Body"].read(_MAXIMUM_BYTES))
            except (ValueError, RecursionError):
                record = None
            return _StoredLock(
                answer["ETag"].strip('"'),
                age(answer).total_seconds(),
                _format_time(answer["LastModified"]),
                record if isinstance(record, dict) else {},
            )
        return None


def _format_time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


class KeyTaken(StoreError):
    """Another job has the key in S3."""


class Publisher:
    """Publisher of a store's files from a mirror (a :class:`harness.results.store.ResultPublisher`).

    A job is whole in S3 before it is in the mirror; until then it waits in a folder of its own, from which the next run
    publishes it if this one dies.
    """

    def __init__(self, place: MirroredFolder, connections: Connections) -> None:
        self._place = place
        self._connections = connections
        self._lock: SuiteLock | None = None

    @property
    def name(self) -> str:
        """``s3://bucket/prefix``."""
        return str(self._place.uri)

    @contextmanager
    def held(self, folder: Path) -> Iterator[None]:
        """Hold a suite's folder, publish waiting jobs, and update the mirror; StoreError: another run holds it."""
        suite = self._place.key(folder)
        # Machines may share a cache on a network's disk, where one's lock does not keep another out.
        self._lock = SuiteLock(self._objects(suite), random_id(self._place.cache / "s3" / ".owner" / _machine()))
        with self._lock.held():
            self._publish_waiting(suite)
            sync(self._place.below(suite), self._connections, FileSelection.FIGURES)
            yield

    def keep(self, path: Path, content: bytes) -> None:
        """Publish an input, which is named by its content's hash, unless it is there."""
        self._objects("").put_new(self._place.key(path), content)

    def write(self, path: Path, content: bytes) -> None:
        """Publish a file, over the one that is there."""
        self._objects("").put(self._place.key(path), content)

    def into_place(self, whole: Path, target: Path) -> None:
        """Publish a job's folder, and then rename it to ``target``; after an error it waits for the next run."""
        waiting = self._place.waiting / self._place.key(target)
        _move(whole, waiting)
        self._publish(waiting)
        _move(waiting, target)

    def _publish_waiting(self, suite: str) -> None:
        """Publish jobs that dead runs measured."""
        folders = waiting_jobs(self._place.below(suite))
        for folder in folders:
            job = folder.relative_to(self._place.waiting)
            try:
                self._publish(folder)
            except KeyTaken as error:
                aside = self._place.cache / "s3" / ".aside" / secrets.token_hex(4) / job
                _move(folder, aside)
                log.info("%s; the job that was measured here under its key is now in %s", error, aside)
                continue
            target = self._place.path(job.as_posix())
            if target.exists():  # a reader mirrored it since
                filesystem.remove_tree(folder)
            else:
                _move(folder, target)
        if folders:
            log.info("published %s jobs that an earlier run had measured", f"{len(folders):,}")

    def _publish(self, folder: Path) -> None:
        assert self._lock is not None, "held() comes first"
        publish(folder, self._objects(folder.relative_to(self._place.waiting).as_posix()), self._lock)

    def _objects(self, key: str) -> Objects:
        return Objects(self._connections, S3Uri(self._place.uri.bucket, key))


def publish(folder: Path, job: Objects, lock: SuiteLock) -> None:
    """Write a job's files and then its record; finish a job that a dead run began.

    The lock on the suite keeps other writers away, so files of a dead run can be replaced.

    Raises:
        KeyTaken: another job has its key.
        StoreError: another run took the lock over.
    """
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    record = contents.pop(RESULT)
    there = {stored.name: stored for stored in job.list() if stored.name in JOB_FILES}
    if RESULT not in there:
        if strays := there.keys() - contents.keys():
            lock.confirm()
            job.delete(strays)
        for name, content in sorted(contents.items()):
            stored = there.get(name)
            if stored and stored.etag == hashlib.md5(content, usedforsecurity=False).hexdigest():
                continue
            if stored:  # another run must not take the lock over while this is overwritten
                lock.confirm()
            written = job.put_if(name, content, stored.etag if stored else None)
            if written is None and not _is(job, name, content):
                raise StoreError(f"{job.place.below(name)}: another run writes it; let only one run write there")
        lock.confirm()
        if job.put_new(RESULT, record):
            return
    if not _is(job, RESULT, record):
        raise KeyTaken(f"{job.place.below(RESULT)}: exists already; nothing is ever overwritten")


def waiting_jobs(place: MirroredFolder) -> tuple[Path, ...]:
    """Return folders of jobs below a place that were measured here and are not in S3 yet."""
    top = place.waiting / place.uri.prefix
    return tuple(sorted(path.parent for path in reader.result_paths(top))) if top.is_dir() else ()


def _is(job: Objects, name: str, content: bytes) -> bool:
    """Return whether an object has this content: our own write, whose answer did not arrive."""
    size = job.size(name)
    return size == len(content) and job.get(name, size) == content


def _machine() -> str:
    """Return a hash that identifies this machine without its name."""
    name = ""
    with suppress(OSError, ValueError):
        name = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    return hashlib.sha256(f"harness {name or platform.node()}".encode()).hexdigest()[:16]


def _move(folder: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
