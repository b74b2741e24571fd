"""What a store does besides its own folder when its results are in S3: hold, publish, bring up to date."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness import leftovers, stored_jobs
from harness.aws import conditional
from harness.aws.connections import Connections
from harness.aws.objects import Objects
from harness.aws.uri import S3Uri
from harness.errors import StoreError
from harness.s3.lock import Lock
from harness.s3.mirror import Wants, Watch, keep_index, sync
from harness.s3.names import Place
from harness.s3.publishing import Taken, publish


class Shelf:
    """Publishes what is stored into a mirror (a :class:`harness.shelf.Shelf`).

    A job is whole in S3 before it is in the mirror; until then it waits in a folder of its own, from which the next run
    publishes it if this one dies.
    """

    def __init__(self, place: Place, connections: Connections, watch: Watch) -> None:
        self._place = place
        self._connections = connections
        self._watch = watch
        self._lock: Lock | None = None

    @property
    def name(self) -> str:
        """``s3://bucket/prefix``."""
        return str(self._place.uri)

    @contextmanager
    def held(self, folder: Path) -> Iterator[None]:
        """Hold a suite's folder against all other machines, publish what waits, and bring the mirror up to date.

        Raises:
            StoreError: another run holds it.
            AwsError: S3 refuses or is not reached.
        """
        suite = self._place.key(folder)
        self._lock = Lock(self._objects(suite), self._owner(suite))
        with self._lock.held():
            self._publish_waiting(suite)
            here = replace(self._place, uri=S3Uri(self._place.uri.bucket, suite))
            keep_index(here, self._connections, sync(here, self._connections, Wants.FIGURES, self._watch))
            yield

    def keep(self, path: Path, content: bytes) -> None:
        """Publish an input, which is named by its content's hash: what is there is the same."""
        key = self._place.key(path)
        conditional.put(self._objects(""), key, content, None)

    def write(self, path: Path, content: bytes) -> None:
        """Publish a file that is made anew each time, over what is there."""
        self._objects("").put(self._place.key(path), content)

    def into_place(self, whole: Path, target: Path) -> None:
        """Publish a job's folder, and then rename it to ``target``, which is not there.

        Raises:
            StoreError: another job of its key is in S3.
            AwsError: S3 refuses or is not reached; the job waits for the next run.
        """
        waiting = self._waiting(self._place.key(target))
        waiting.parent.mkdir(parents=True, exist_ok=True)
        whole.rename(waiting)
        self._publish(waiting)
        _move(waiting, target)

    def _publish_waiting(self, suite: str) -> None:
        """Publish what dead runs had measured."""
        found = waiting_jobs(replace(self._place, uri=S3Uri(self._place.uri.bucket, suite)))
        for folder in found:
            try:
                self._publish(folder)
            except Taken as error:
                aside = _aside(self._place, folder)
                self._watch.say(f"{error}; what was measured here under its key lies in {aside}")
                continue
            target = self._place.path(folder.relative_to(self._place.waiting).as_posix())
            if target.exists():  # a reader mirrored it since
                leftovers.remove(folder)
            else:
                _move(folder, target)
        if found:
            self._watch.say(f"published {len(found):,} jobs that an earlier run had measured")

    def _publish(self, folder: Path) -> None:
        if self._lock is None:
            raise StoreError(f"{self._place.uri}: is not held")
        publish(folder, self._objects(folder.relative_to(self._place.waiting).as_posix()), self._lock)

    def _waiting(self, key: str) -> Path:
        return self._place.waiting / key

    def _objects(self, key: str) -> Objects:
        return Objects(self._connections, S3Uri(self._place.uri.bucket, key))

    def _owner(self, suite: str) -> str:
        """Names this cache on this machine as holder of that suite: random, and the same in the next run."""
        # Machines may share a cache on a network's disk, where one's lock does not keep another out.
        path = self._place.cache / "s3" / ".owners" / _machine() / self._place.uri.bucket / suite / "owner"
        try:
            owner = path.read_text(encoding="ascii").strip()
        except (FileNotFoundError, ValueError):
            owner = ""
        if len(owner) != 32:
            owner = secrets.token_hex(16)
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f"{os.getpid()}.partial")
            partial.write_text(owner, encoding="ascii")
            partial.replace(path)
        return owner


def _machine() -> str:
    """Tells machines apart; as a hash: what a machine is called is nobody's business."""
    try:
        name = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        name = ""
    return hashlib.sha256(f"harness {name or platform.node()}".encode()).hexdigest()[:16]


def waiting_jobs(place: Place) -> tuple[Path, ...]:
    """Folders of jobs below a place that were measured here and are not yet in S3."""
    top = place.waiting.joinpath(*filter(None, place.uri.prefix.split("/")))
    return tuple(sorted(path.parent for path in stored_jobs.result_paths(top))) if top.is_dir() else ()


def _move(folder: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)


def _aside(place: Place, folder: Path) -> Path:
    """Put a job out of the way, and lose nothing."""
    aside = place.cache / "s3" / ".aside" / secrets.token_hex(4) / folder.relative_to(place.waiting)
    _move(folder, aside)
    return aside
