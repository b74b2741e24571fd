"""Write results: append, never overwrite.

A job's folder is written under another name and then renamed, so it is complete or absent.
:mod:`harness.results.reader` describes its files.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from harness import filesystem
from harness.errors import StoreError
from harness.filesystem import reports_full_disk
from harness.results import pin_lock, seals, suite_record
from harness.results.pin_lock import PinLock
from harness.results.reader import (
    LOG,
    MOST_SAMPLE_BYTES,
    RESULT,
    RESULT_BYTES,
    RUN,
    SAMPLES,
    STAGING,
    StoredJob,
    cell_path,
    parse_result,
    result_paths,
)
from harness.results.schema import Result
from harness.results.suite_record import SuiteRecord
from harness.untrusted import read_start, reason_of, to_json

if TYPE_CHECKING:
    import pyarrow as pa


class ResultPublisher(Protocol):
    """Receiver of results before they count as stored in the folder (:mod:`harness.aws.results.publish`)."""

    @property
    def name(self) -> str:
        """Name of the receiver, the same on every machine."""

    def held(self, folder: Path) -> AbstractContextManager[None]:
        """Lock a suite's folder against all other machines, and fetch their jobs."""

    def keep(self, path: Path, content: bytes) -> None:
        """Publish an input file of the suite."""

    def into_place(self, whole: Path, target: Path) -> None:
        """Publish a job's folder, then rename it to ``target``."""

    def write(self, path: Path, content: bytes) -> None:
        """Publish a file that may be overwritten."""


_LOCK = ".lock"
_LEAST_FREE_BYTES = 1 << 20
_ROOMY_BYTES = 256 << 20


class Store:
    """Writer of a suite's folder, which one process holds at a time; ``publisher`` receives each job first."""

    def __init__(self, root: Path, suite: str, publisher: ResultPublisher | None = None) -> None:
        self.folder = root / suite
        self.staging = self.folder / STAGING
        self._publisher = publisher

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder, and remove the half-written files of a dead run.

        Raises:
            StoreError: the folder cannot be written, or another run holds it.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / _LOCK).touch()
        except OSError as error:
            raise StoreError(f"{self.folder}: cannot be written: {error.strerror}; choose another --results") from error
        try:
            lock = filesystem.lock(self.folder / _LOCK, wait=False)
        except BlockingIOError:
            raise StoreError(f"{self.folder}: another run holds it; wait, or choose another --results") from None
        except OSError as error:
            remedy = "choose --results on another file system"
            raise StoreError(f"{self.folder}: cannot be locked: {error.strerror}; {remedy}") from error
        with lock:
            filesystem.remove_tree(self.staging)
            with self._publisher.held(self.folder) if self._publisher else nullcontext():
                with _disk_errors(self.folder):
                    self.staging.mkdir()
                try:
                    self._list_unlisted()
                    yield
                finally:
                    filesystem.remove_tree(self.staging)

    @contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        """Make an empty folder for a job in progress; it is removed afterwards."""
        path = self.staging / name
        with _disk_errors(path):
            path.mkdir(parents=True)
        try:
            yield path
        finally:
            filesystem.remove_tree(path)

    def keep_inputs(
        self, judgements: bytes, qrels_sha256: str, samples: Mapping[str, str], ending: str = "trec"
    ) -> None:
        """Store qrels and query samples with the results, so that runs can be judged anywhere.

        Args:
            judgements: TREC qrels, or another format that ``ending`` names.
            qrels_sha256: the name of the qrels file.
            samples: query samples as JSON, by name.
            ending: ending of the judgements' file, before ``.gz``.

        Raises:
            StoreError: a sample is larger than readers accept, or a file cannot be written.
        """
        self._keep(self.folder / "qrels" / f"{qrels_sha256}.{ending}.gz", gzip.compress(judgements, mtime=0))
        for name, text in samples.items():
            target, content = self.folder / "samples" / f"{name}.json", text.encode("utf-8")
            if len(content) > MOST_SAMPLE_BYTES:
                size = f"{math.ceil(len(content) / 2**20):,} MiB, more than {MOST_SAMPLE_BYTES >> 20}"
                raise StoreError(f"{target}: the query sample takes {size}; lower protocol.sample_size")
            self._keep(target, content)

    def _keep(self, target: Path, content: bytes) -> None:
        """Store an input file, unless it is there, and seal it: its name is the hash of its content."""
        with _disk_errors(target):
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                partial = self.staging / target.name
                partial.write_bytes(content)
                if self._publisher:
                    self._publisher.keep(target, content)
                partial.rename(target)
            self._seal(target, target.name.partition(".")[0])

    def _seal(self, target: Path, sha256: str) -> None:
        """List a file of the suite in the manifest, unless it is already listed with this hash."""
        name = target.relative_to(self.folder).as_posix()
        if (seals.read(self.folder) or {}).get(name) != sha256:
            seals.append(self.folder, name, sha256)
            self._publish_manifest()

    def keep_suite(self, record: SuiteRecord, positions: Mapping[str, bytes]) -> None:
        """Store the suite's record, and the positions of datasets; they replace the earlier runs'."""
        given = {name: content for name, content in positions.items() if len(content) <= MOST_SAMPLE_BYTES}
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in given.items()}
        for name, sha256 in hashes.items():
            self._keep(suite_record.positions_path(self.folder, sha256), given[name])
        target = self.folder / suite_record.FILE
        content = record.model_copy(update={"positions": hashes}).text().encode()
        if len(content) > suite_record.MOST_BYTES:
            text = f"would have {len(content):,} bytes; the limit is {suite_record.MOST_BYTES:,}"
            raise StoreError(f"{target}: {text}; name fewer pairs in the suite's [firstp], [exact] and [seeds]")
        self._write_record(target, content)

    def keep_pins(self, lock: PinLock) -> None:
        """Store the pins of files at first use, replacing the pins of earlier runs; without pins write nothing."""
        target = self.folder / pin_lock.FILE
        if lock.systems or target.exists() or pin_lock.FILE in (seals.read(self.folder) or {}):
            self._write_record(target, pin_lock.content(lock))

    def _write_record(self, target: Path, content: bytes) -> None:
        """Write and seal a record of the suite, which a later run may replace."""
        with _disk_errors(target):
            stored = None
            with suppress(OSError):  # a missing or irregular file is replaced
                stored = read_start(target, len(content) + 1)
            if stored != content:
                if self._publisher:
                    self._publisher.write(target, content)
                partial = self.staging / target.name
                partial.write_bytes(content)
                partial.rename(target)
            self._seal(target, hashlib.sha256(content).hexdigest())

    def put(
        self,
        result: Result,
        samples: pa.Table | None = None,
        run: bytes | None = None,
        log: bytes = b"",
        further: Mapping[str, bytes] | None = None,
        *,
        whole: Path | None = None,
    ) -> StoredJob:
        """Store one job permanently: write its folder under another name, then rename it.

        Args:
            result: the job's record; the files' hashes and the seal are added.
            samples: raw latencies.
            run: a TREC run.
            log: the job's output.
            further: file name -> content: the first stage's run, judgements of the run's own hits.
            whole: a checked folder on the same disk that already holds the finished job.

        Raises:
            StoreError: no space, no permission, the key is taken, or the record would be unreadable (the last two never
                should happen).
        """
        target = self.folder.parent / cell_path(result.spec.cell) / result.key
        with _disk_errors(target):
            if whole is None:
                whole = self.staging / f"put-{result.key}"
                whole.mkdir()
                packed = {LOG: log, **(further or {})} | ({} if run is None else {RUN: run})
                for name, content in packed.items():
                    (whole / name).write_bytes(gzip.compress(content, mtime=0))
                if samples is not None:
                    import pyarrow.parquet as pq

                    pq.write_table(samples, whole / SAMPLES, compression="zstd")
                files = {path.name: filesystem.sha256(path) for path in sorted(whole.iterdir())}
                result, content = _sealed(replace(result, files=files), target)
                (whole / RESULT).write_bytes(content)
            for path in whole.iterdir():
                _sync(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                raise StoreError(f"{target}: exists already; nothing is ever overwritten")
            if self._publisher:
                self._publisher.into_place(whole, target)
            else:
                whole.rename(target)
            _sync(target.parent)
            if result.seal is not None:
                seals.append(self.folder, target.relative_to(self.folder).as_posix(), result.seal)
                self._publish_manifest()
        return StoredJob(target, result)

    def _list_unlisted(self) -> None:
        """Add to the manifest the jobs that a killed run did not list, and the inputs that an older harness did not."""
        try:
            listed = seals.read(self.folder) or {}
        except (OSError, ValueError) as error:
            path = self.folder / seals.MANIFEST
            raise StoreError(
                f"{path}: damaged: {reason_of(error)}; remove that line, or bring the file back"
            ) from error
        folders = {path.parent.relative_to(self.folder).as_posix(): path for path in result_paths(self.folder, [])}
        unlisted = {name: seal for name in folders.keys() - listed.keys() if (seal := _sound_seal(folders[name]))}
        inputs = seals.input_files(self.folder)
        named = {name: path.name.partition(".")[0] for name, path in inputs.items() if name not in listed}
        unlisted |= {name: sha256 for name, sha256 in named.items() if re.fullmatch("[0-9a-f]{64}", sha256)}
        if not unlisted:
            return
        manifest = self.folder / seals.MANIFEST
        with _disk_errors(manifest):
            partial = self.staging / seals.MANIFEST
            partial.write_text(seals.text(listed | dict(sorted(unlisted.items()))), encoding="utf-8")
            _sync(partial)
            partial.rename(manifest)
            self._publish_manifest()

    def _publish_manifest(self) -> None:
        if self._publisher:
            path = self.folder / seals.MANIFEST
            self._publisher.write(path, path.read_bytes())


def _sealed(result: Result, target: Path) -> tuple[Result, bytes]:
    """Return a sealed result and its record; raise StoreError if the reader would refuse the record."""
    try:
        result = replace(result, seal=seals.over(result))
        content = (to_json(result, indent=2) + "\n").encode("utf-8")
        parse_result(content)
    except ValueError as error:
        text = f"the record would be unreadable: {reason_of(error)}; what was finished is kept"
        raise StoreError(f"{target}: {text}") from error
    return result, content


def _sound_seal(path: Path) -> str | None:
    """Return the seal of an unedited record; None for an edited one."""
    try:
        raw = json.loads(read_start(path, RESULT_BYTES))
        return None if seals.broken(raw) else str(raw["seal"])
    except (OSError, ValueError, AttributeError, RecursionError):
        return None


def check_room(folder: Path, output: str = "", needed_bytes: int = 0) -> None:
    """Raise StoreError on a full disk, because the failure is not the system's.

    Args:
        output: output of a failed job.  If it blames a full disk, less free space than ``needed_bytes`` (at least 256
        MiB) confirms it, because engines remove their files when they fail.

    Raises:
        StoreError: the disk is full.
    """
    with _disk_errors(folder):
        free = shutil.disk_usage(folder).free
    if free < (max(needed_bytes, _ROOMY_BYTES) if reports_full_disk(output) else _LEAST_FREE_BYTES):
        raise StoreError(f"{folder}: the disk is full ({free >> 10} KiB left); make room, what was finished is kept")


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {reason_of(error)}; what was finished is kept") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
