"""One job or one other file of a listing -> the mirror; a job's record lands last, so that the rest is there."""

from __future__ import annotations

import io
import json
import shutil
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from harness.aws.objects import Objects, Stored
from harness.errors import StoreError
from harness.s3.fetching import fetch
from harness.s3.names import Place, Tree
from harness.stored_jobs import RESULT


@dataclass(frozen=True)
class Job:
    """A job of which something is missing here.

    ``listed`` are all its objects by file; ``text`` is the content of its record where an index had it.
    """

    folder: str
    listed: dict[str, Stored]
    missing: list[Stored]
    wanted: Collection[str]
    text: bytes | None = None

    @property
    def record_is_new(self) -> bool:
        """Whether its ``result.json`` is among what is missing."""
        return any(each.name == self.listed[RESULT].name for each in self.missing)


class Landing:
    """Takes objects in; safe to share between threads.

    Args:
        place: whose mirror.
        objects: of the whole bucket.
        scratch: a folder on the mirror's disk for files in the making.
    """

    def __init__(self, place: Place, objects: Objects, scratch: Path) -> None:
        self._place = place
        self._objects = objects
        self._scratch = scratch
        self._numbers = count()
        self._lock = threading.Lock()

    def others(self, each: Stored) -> list[Stored]:
        """Fetch a file that is no job's; returns it, as it is here now."""
        self._file(each, None)
        return [each]

    def job(self, job: Job) -> list[Stored]:
        """Fetch what is missing of a job; returns the objects that are here now and were not.

        Raises:
            Moved: an object is no longer what was listed.
            AwsError: it cannot be read.
            StoreError: it cannot be written here.
        """
        record = job.listed[RESULT]
        text = job.text if job.record_is_new else _read(self._place.path(record.name))
        if text is None:
            with io.BytesIO() as sink:
                fetch(self._objects, record, sink)
                text = sink.getvalue()
        hashes = _files(text)
        rest = [each for each in job.missing if each.name != record.name] + self._late(job, hashes)
        for each in rest:
            self._file(each, hashes.get(each.name.rpartition("/")[2]))
        if job.record_is_new:
            with self._landing(record) as partial:
                partial.write_bytes(text)
            rest.append(record)
        return rest

    def _late(self, job: Job, hashes: dict[str, str]) -> list[Stored]:
        """Files that were written after their page of the listing was made, and before the record's."""
        lacking = [name for name in hashes if name in job.wanted and name not in job.listed]
        if not job.record_is_new or not lacking:
            return []
        tree = Tree()
        tree.add(self._objects.list(f"{job.folder}/"))
        now = tree.jobs.get(job.folder, {})
        return [now[name] for name in lacking if name in now]

    def _file(self, each: Stored, sha256: str | None) -> None:
        with self._landing(each) as partial, partial.open("wb") as sink:
            came = fetch(self._objects, each, sink)
            if not came.proven and sha256 not in (None, came.sha256):
                # Nothing else proves that it came whole.  If it comes so again, S3 has it so: harness verify says it.
                sink.seek(0)
                sink.truncate()
                fetch(self._objects, each, sink)

    @contextmanager
    def _landing(self, each: Stored) -> Iterator[Path]:
        """Where to write what becomes the mirror's file of an object."""
        with self._lock:
            partial = self._scratch / str(next(self._numbers))
        target = self._place.path(each.name)
        try:
            yield partial
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                partial.replace(target)
            except FileNotFoundError:  # another process removed the folder, which was empty
                target.parent.mkdir(parents=True, exist_ok=True)
                partial.replace(target)
            except IsADirectoryError:
                shutil.rmtree(target)
                partial.replace(target)
        except OSError as error:
            raise StoreError(
                f"{target}: cannot be written: {error.strerror or error}; make room or choose another --cache"
            ) from error


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:  # it went meanwhile
        return None


def _files(record: bytes) -> dict[str, str]:
    """The files that a record names, and their hashes; a damaged one names none."""
    try:
        named = json.loads(record).get("files", {})
    except (ValueError, AttributeError, RecursionError):
        return {}
    return {str(name): str(sha256) for name, sha256 in named.items()} if isinstance(named, dict) else {}
