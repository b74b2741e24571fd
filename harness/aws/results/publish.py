"""Publish jobs to S3: the files of each first, its record last, nothing of a finished job ever overwritten."""

from __future__ import annotations

import hashlib
import logging
import platform
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness import filesystem
from harness.aws.clients import Connections, S3Uri, random_id
from harness.aws.objects import Objects
from harness.aws.results.lock import Lock
from harness.aws.results.mirror import Wants, sync
from harness.aws.results.names import JOB_FILES, Place
from harness.errors import StoreError
from harness.results import reader
from harness.results.reader import RESULT

log = logging.getLogger(__name__)


class Taken(StoreError):
    """Another job has the key in S3."""


class Publisher:
    """Publishes a store's files from a mirror (a :class:`harness.results.store.Shelf`).

    A job is whole in S3 before it is in the mirror; until then it waits in a folder of its own, from which the next run
    publishes it if this one dies.
    """

    def __init__(self, place: Place, connections: Connections) -> None:
        self._place = place
        self._connections = connections
        self._lock: Lock | None = None

    @property
    def name(self) -> str:
        """``s3://bucket/prefix``."""
        return str(self._place.uri)

    @contextmanager
    def held(self, folder: Path) -> Iterator[None]:
        """Hold a suite's folder, publish waiting jobs, and update the mirror; StoreError: another run holds it."""
        suite = self._place.key(folder)
        # Machines may share a cache on a network's disk, where one's lock does not keep another out.
        self._lock = Lock(self._objects(suite), random_id(self._place.cache / "s3" / ".owner" / _machine()))
        with self._lock.held():
            self._publish_waiting(suite)
            sync(self._place.below(suite), self._connections, Wants.FIGURES)
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
        found = waiting_jobs(self._place.below(suite))
        for folder in found:
            job = folder.relative_to(self._place.waiting)
            try:
                self._publish(folder)
            except Taken as error:
                aside = self._place.cache / "s3" / ".aside" / secrets.token_hex(4) / job
                _move(folder, aside)
                log.info("%s; what was measured here under its key lies in %s", error, aside)
                continue
            target = self._place.path(job.as_posix())
            if target.exists():  # a reader mirrored it since
                filesystem.remove_tree(folder)
            else:
                _move(folder, target)
        if found:
            log.info("published %s jobs that an earlier run had measured", f"{len(found):,}")

    def _publish(self, folder: Path) -> None:
        assert self._lock is not None, "held() comes first"
        publish(folder, self._objects(folder.relative_to(self._place.waiting).as_posix()), self._lock)

    def _objects(self, key: str) -> Objects:
        return Objects(self._connections, S3Uri(self._place.uri.bucket, key))


def publish(folder: Path, job: Objects, lock: Lock) -> None:
    """Write a job's files and then its record; finish a job that a dead run began.

    Nobody else writes there while the lock on its suite is held: files of a dead run are replaced.

    Raises:
        Taken: another job has its key.
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
                raise StoreError(f"{job.place.below(name)}: another run writes it; let one run alone write there")
        lock.confirm()
        if job.put_new(RESULT, record):
            return
    if not _is(job, RESULT, record):
        raise Taken(f"{job.place.below(RESULT)}: exists already; nothing is ever overwritten")


def waiting_jobs(place: Place) -> tuple[Path, ...]:
    """Return folders of jobs below a place that were measured here and are not in S3 yet."""
    top = place.waiting.joinpath(*filter(None, place.uri.prefix.split("/")))
    return tuple(sorted(path.parent for path in reader.result_paths(top))) if top.is_dir() else ()


def _is(job: Objects, name: str, content: bytes) -> bool:
    """Return whether an object has this content: our own write, whose answer did not arrive."""
    size = job.size(name)
    return size == len(content) and job.get(name, size) == content


def _machine() -> str:
    """Return a hash that tells machines apart without their names."""
    name = ""
    with suppress(OSError, ValueError):
        name = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    return hashlib.sha256(f"harness {name or platform.node()}".encode()).hexdigest()[:16]


def _move(folder: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
