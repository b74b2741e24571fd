"""Mirror a results folder in S3: list every object, fetch the new ones, remove files whose objects have gone.

A file of the mirror has its object's size and time, so that a listing alone shows that it is there.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise, takewhile
from pathlib import Path

from harness import filesystem
from harness.aws.clients import CONNECTIONS, Connections, S3Uri
from harness.aws.objects import CHANGED, Objects
from harness.containment import is_plain_name
from harness.errors import RemoteError, StoreError, UsageError
from harness.progress import Progress, silent
from harness.remote.failures import retry
from harness.remote.storage import StoredObject
from harness.results import origins, pin_lock, reader, seals, suite_record
from harness.results.reader import RESULT
from harness.results.schema import ANSWER_DEPTHS, JUDGED_HITS
from harness.untrusted import parse_json, reason_of

log = logging.getLogger(__name__)

LOCK = ".lock"
INPUTS = ("qrels", "samples")
# A published paper's folder; the .csv files next to it are the paper's tables.
_PUBLISHED = "published.toml"
# `harness viable --fresh` writes fresh-since next to a subject's jobs.
_MARKS = (origins.FILE, "fresh-since", _PUBLISHED, seals.MANIFEST, suite_record.FILE, pin_lock.FILE)
_RUNS = (reader.RUN, reader.FIRST_STAGE, reader.UPDATES, reader.UPDATED_RUN, JUDGED_HITS, ANSWER_DEPTHS)
JOB_FILES = (reader.RESULT, reader.SAMPLES, reader.LOG, *_RUNS)
# Suite, system, dataset, scenario, profile, key.
_JOB_DEPTH = 6
_MAXIMUM_DEPTH = 24
_MAXIMUM_NAME_BYTES = 255
_MIB = 1 << 20
_MAXIMUM_BYTES = {
    reader.RESULT: 16 * _MIB,
    reader.LOG: 256 * _MIB,
    **dict.fromkeys(_MARKS, 4 * _MIB),
    seals.MANIFEST: seals.MOST_BYTES,
}
_MAXIMUM_OTHER_BYTES = 4096 * _MIB
_MISPLACED = "have names that no results folder uses"
_OVERSIZE = "are larger than any file that harness writes; remove them"
# Objects that a line names.
_SHOWN = 3
# Listings of one place before it counts as changing all the time.
_ROUNDS = 4
# Files of the mirror between two cuts of a listing: a page has 1,000 keys, some of them not in the mirror.
_RANGE = 700


class Listing:
    """Files of results folders in a listing of objects, by whole keys.

    ``jobs`` (folder -> file name -> object) have a ``result.json``, which is written last.
    """

    def __init__(self, objects: Iterable[StoredObject]) -> None:
        self.jobs: dict[str, dict[str, StoredObject]] = {}
        self.others: dict[str, StoredObject] = {}
        self.refused: dict[str, list[str]] = {_MISPLACED: [], _OVERSIZE: []}
        self.add(objects)

    def add(self, objects: Iterable[StoredObject]) -> None:
        """Add what another listing shows."""
        jobs: dict[str, dict[str, StoredObject]] = {}
        tables: list[StoredObject] = []
        for stored in objects:
            folder, _, name = stored.name.rpartition("/")
            inside = folder.rpartition("/")[2]
            if name in JOB_FILES and inside not in INPUTS:
                if self._accepts(stored, _JOB_DEPTH):
                    jobs.setdefault(folder, {})[name] = stored
            elif inside in INPUTS or name in _MARKS:
                if self._accepts(stored):
                    self.others[stored.name] = stored
            elif name.endswith(".csv"):
                tables.append(stored)
        self.jobs |= {folder: files for folder, files in jobs.items() if reader.RESULT in files}
        for stored in tables:
            if f"{stored.name.rpartition('/')[0]}/{_PUBLISHED}" in self.others and self._accepts(stored):
                self.others[stored.name] = stored

    def _accepts(self, stored: StoredObject, depth: int = 0) -> bool:
        *folders, name = stored.name.split("/")
        if any(part.startswith(".") and part not in (".", "..") for part in (*folders, name)):
            return False  # a staging folder that another tool copied
        if not _is_plain(stored.name) or len(folders) < depth:
            self.refused[_MISPLACED].append(stored.name)
        elif stored.size_bytes > _MAXIMUM_BYTES.get(name, _MAXIMUM_OTHER_BYTES):
            self.refused[_OVERSIZE].append(stored.name)
        else:
            return True
        return False

    def left_out(self) -> Iterator[str]:
        """Yield lines about refused objects, the first few by name."""
        for reason, names in self.refused.items():
            if names:
                shown = ", ".join(repr(name) for name in names[:_SHOWN])
                yield f"left out {len(names):,} objects that {reason} ({shown})"


def may_be_mirrored(key: str, beside: Collection[str]) -> bool:
    """Return whether a file of the mirror, by names alone, may be an object's."""
    folder, _, name = key.rpartition("/")
    taken = name in (*JOB_FILES, *_MARKS) or folder.rpartition("/")[2] in INPUTS
    return (taken or (name.endswith(".csv") and _PUBLISHED in beside)) and _is_plain(key)


def suite_of(job: str) -> str:
    """Return the key of the suite's folder that holds a job's folder."""
    return job.rsplit("/", _JOB_DEPTH - 1)[0]


def _is_plain(key: str) -> bool:
    """Return whether a key is a path below the bucket in which no file is a folder."""
    parts = key.split("/")
    return (
        is_plain_name(key)
        and key.isprintable()
        and len(parts) <= _MAXIMUM_DEPTH
        and max(len(part.encode("utf-8")) for part in parts) <= _MAXIMUM_NAME_BYTES
        and not any(part in (*JOB_FILES, *_MARKS) for part in parts[:-1])
    )


@dataclass(frozen=True)
class MirroredFolder:
    """A results folder in S3, and its mirror in the cache: ``<cache>/s3/<bucket>/<prefix>``."""

    uri: S3Uri
    cache: Path

    def __post_init__(self) -> None:
        if self.uri.prefix and (
            not _is_plain(self.uri.prefix) or any(part.startswith(".") for part in self.uri.prefix.split("/"))
        ):
            raise UsageError(f"{self.uri}: a results folder cannot have this name; name another place")

    @property
    def bucket_folder(self) -> Path:
        """Return the mirror of the whole bucket."""
        return self.cache / "s3" / self.uri.bucket

    @property
    def folder(self) -> Path:
        """Return the mirror of the place."""
        return self.path(self.uri.prefix)

    @property
    def waiting(self) -> Path:
        """Folder of the bucket's jobs that were measured here and are not in S3 yet."""
        return self.cache / "s3" / ".waiting" / self.uri.bucket

    def below(self, key: str) -> MirroredFolder:
        """Return the place of a folder in the same bucket."""
        return MirroredFolder(S3Uri(self.uri.bucket, key), self.cache)

    def path(self, key: str) -> Path:
        """Return where the mirror has an object or a folder; the key is one of :class:`Listing`."""
        return self.bucket_folder / key

    def key(self, path: Path) -> str:
        """Return the key of a path in the mirror."""
        return path.relative_to(self.bucket_folder).as_posix().removeprefix(".")


class FileSelection(Enum):
    """Selection of a job's files: its record, all files that make tables, or all."""

    RECORDS = frozenset({RESULT})
    FIGURES = RECORDS | {reader.SAMPLES, *_RUNS}
    ALL = FIGURES | {reader.LOG}


class _Moved(Exception):
    """An object has changed since it was listed: list again."""


def sync(
    place: MirroredFolder,
    connections: Connections,
    wants: FileSelection,
    progress: Progress = silent,
    *,
    thorough: bool = False,
) -> None:
    """Bring the mirror of a place up to date; with a part of a suite come the suite's judgements and samples.

    ``thorough`` compares the content of the mirror's files too, and not their size and time alone.
    """
    objects = Objects(connections, S3Uri(place.uri.bucket))
    for _ in range(_ROUNDS):
        pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="s3")
        try:
            _Round(place, objects, wants.value, progress, pool).run(thorough)
            return
        except _Moved:
            continue
        finally:
            pool.shutdown(cancel_futures=True)
    text = "keeps changing while it is read; wait for the run that writes it"
    raise RemoteError(f"{place.uri}: {text}", "Changing")


@dataclass
class _Round:
    """One listing of a place, and all that follows from it."""

    place: MirroredFolder
    objects: Objects
    wants: frozenset[str]
    progress: Progress
    pool: Executor

    def run(self, thorough: bool) -> None:
        """List, fetch, remove; _Moved: an object changed meanwhile."""
        # Before the listing: jobs that others publish meanwhile are in S3 before they are here, and must not look gone.
        before = sorted(_files(self.place))
        listing = self._list(before)
        for line in listing.left_out():
            log.info("%s: %s", self.place.uri, line)
        absent = {
            folder: missing
            for folder, files in listing.jobs.items()
            if (missing := [name for name in files if name in self.wants and not self._has(files[name], thorough)])
        }
        others = [stored for stored in listing.others.values() if not self._has(stored, thorough)]
        if absent or others:
            with filesystem.scratch_folder(self.place.cache / "s3" / ".partial", "sync") as scratch:
                waiting: list[Future[None]] = [self.pool.submit(self._fetch, stored, scratch) for stored in others]
                for folder, missing in absent.items():
                    waiting.append(self.pool.submit(self._fetch_job, listing.jobs[folder], missing, scratch))
                for number, done in enumerate(as_completed(waiting), 1):
                    done.result()
                    self.progress(number, len(waiting))
        there = {stored.name for files in listing.jobs.values() for stored in files.values()} | listing.others.keys()
        _remove(self.place, [key for key in before if key not in there])

    def _list(self, before: Sequence[str]) -> Listing:
        """List the place, and the files above it that belong to it."""
        prefix = self.place.uri.beginning
        listing = Listing(list_ranges(self.objects, prefix, before, self.pool))
        above = set()
        for suite in {suite_of(job) for job in listing.jobs}:
            if not f"{suite}/".startswith(prefix):
                files = (seals.MANIFEST, suite_record.FILE, pin_lock.FILE, *(f"{name}/" for name in INPUTS))
                above |= {f"{suite}/{name}" for name in files}
            folder = suite.rpartition("/")[0]
            if not f"{folder}/".startswith(prefix):
                above.add(f"{folder}/{origins.FILE}".removeprefix("/"))
        for listed in self.pool.map(self._list_above, sorted(above)):
            listing.add(listed)
        return listing

    def _list_above(self, prefix: str) -> list[StoredObject]:
        """List objects above the place, if the user may."""
        try:
            return list(self.objects.list(prefix))
        except RemoteError as error:
            if error.code != "AccessDenied":
                raise
            which = S3Uri(self.place.uri.bucket, prefix)
            log.info("%s: read without %s, which is not permitted", self.place.uri, which)
            return []

    def _has(self, stored: StoredObject, thorough: bool) -> bool:
        """Return whether the mirror has an object: its size and time, or else its MD5."""
        path, time_ns = self.place.path(stored.name), _time_ns(stored)
        with suppress(OSError):
            status = path.stat()
            same_time = status.st_mtime_ns == time_ns
            if status.st_size != stored.size_bytes:
                return False
            if (thorough or not same_time) and _md5(path) != stored.etag:
                return False
            if not same_time:
                with suppress(OSError):  # this user may only read the mirror
                    os.utime(path, ns=(time_ns, time_ns))
            return True
        return False

    def _fetch_job(self, files: Mapping[str, StoredObject], missing: Sequence[str], scratch: Path) -> None:
        """Fetch a job's record and missing files; the record lands last, because it says that the job is whole."""
        record = files[RESULT]
        with self._landing(record, scratch) as partial:
            fetch(self.objects, record, partial)
            rest = {name: files[name] for name in missing if name != RESULT}
            hashes = _hashes(partial.read_bytes())
            if lacking := (hashes.keys() & self.wants) - files.keys():
                # Written after their page of the listing was made, and before the record's page.
                folder = record.name.removesuffix(RESULT)
                now = {stored.name.removeprefix(folder): stored for stored in self.objects.list(folder)}
                rest |= {name: now[name] for name in lacking & now.keys()}
            for name, stored in rest.items():
                self._fetch(stored, scratch, hashes.get(name))

    def _fetch(self, stored: StoredObject, scratch: Path, sha256: str | None = None) -> None:
        with self._landing(stored, scratch) as partial:
            fetch(self.objects, stored, partial, sha256)

    @contextmanager
    def _landing(self, stored: StoredObject, scratch: Path) -> Iterator[Path]:
        """Yield a path whose file becomes the mirror's file of an object."""
        partial, target = scratch / secrets.token_hex(8), self.place.path(stored.name)
        try:
            yield partial
            os.utime(partial, ns=(_time_ns(stored), _time_ns(stored)))
            if target.is_dir():
                shutil.rmtree(target)
            target.parent.mkdir(parents=True, exist_ok=True)
            partial.replace(target)
        except FileNotFoundError as error:  # another process removed the folder, which was empty
            raise _Moved(stored.name) from error
        except OSError as error:
            text = f"cannot be written: {reason_of(error)}; make room or choose another --cache"
            raise StoreError(f"{target}: {text}") from error


def list_ranges(objects: Objects, prefix: str, known: Sequence[str], pool: Executor) -> list[StoredObject]:
    """List every object below a prefix, in ranges that are cut at known keys.

    A page of a listing names the next one, so one listing is one request after another.
    """

    def list_range(ends: tuple[str | None, str | None]) -> list[StoredObject]:
        start, end = ends
        return list(takewhile(lambda stored: end is None or stored.name <= end, objects.list(prefix, after=start)))

    cuts = [None, *known[_RANGE::_RANGE], None]
    return [stored for some in pool.map(list_range, pairwise(cuts)) for stored in some]


def fetch(objects: Objects, stored: StoredObject, path: Path, sha256: str | None = None) -> None:
    """Read an object into a file, again if it arrives damaged.

    ``sha256`` is the content's by the job's record, for objects whose ETag is no MD5.

    Raises:
        _Moved: the object has changed since it was listed.
    """
    arrived: set[str] = set()

    def read() -> None:
        content, md5 = objects.fetch(stored.name, path, stored.size_bytes, IfMatch=f'"{stored.etag}"')
        if md5 is not None:
            intact = md5 == _md5(path)
        else:  # twice the same: S3 has it so, and `harness verify` says that it is damaged
            intact = sha256 in (None, content) or content in arrived
            arrived.add(content)
        if path.stat().st_size != stored.size_bytes or not intact:
            where = objects.place.below(stored.name)
            raise RemoteError(f"{where}: arrived damaged, several times; check the network and try again", "Damaged")

    try:
        retry(read, {"Damaged"})
    except RemoteError as error:
        if error.code in CHANGED:
            raise _Moved(stored.name) from error
        raise


def _hashes(record: bytes) -> dict[str, str]:
    """Return the hashes of the files that a record names; a damaged record names none."""
    try:
        return {str(name): str(sha256) for name, sha256 in parse_json(record)["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _time_ns(stored: StoredObject) -> int:
    """Return when an object was written, in the whole seconds that S3 lists."""
    return int(stored.modified.timestamp()) * 10**9


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _files(place: MirroredFolder) -> Iterator[str]:
    """Yield the keys of all files in the mirror of a place that may be an object's."""
    for folder, folders, names in os.walk(place.folder):
        folders[:] = [name for name in folders if name != reader.STAGING]
        for name in names:
            if may_be_mirrored(key := place.key(Path(folder, name)), names):
                yield key


def _remove(place: MirroredFolder, gone: Sequence[str]) -> None:
    """Remove files of the mirror, a job's record before the rest, and folders that become empty."""
    for key in sorted(gone, key=lambda key: not key.endswith(f"/{RESULT}")):
        place.path(key).unlink(missing_ok=True)
    for folder in {place.path(key).parent for key in gone}:
        with suppress(OSError):  # not empty, or removed with another
            for path in takewhile(lambda path: path != place.bucket_folder, (folder, *folder.parents)):
                path.rmdir()
