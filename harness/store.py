"""Results on disk: append, never overwrite.

``results/<suite>/<system>/<dataset>/<scenario>/<profile>/<job key>/`` holds ``result.json``, ``samples.parquet``,
``run.trec.gz`` and ``log.txt.gz``; and ``judged-hits.trec.gz`` where documents are judged by answers in their texts.
A folder is written beside and renamed into place, so it is whole or absent.
``results/<suite>/qrels/`` and ``results/<suite>/samples/`` hold, by hash, what is needed to judge the runs anywhere.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from harness import leftovers, origins
from harness.errors import FileError, StoreError
from harness.records import to_json
from harness.result import JUDGED_HITS, SCHEMA_VERSION, Cell, Result

if TYPE_CHECKING:
    import pyarrow as pa

RESULT = "result.json"
SAMPLES = "samples.parquet"
RUN = "run.trec.gz"
LOG = "log.txt.gz"
STAGING = ".staging"
_LOCK = ".lock"
_LEAST_FREE_BYTES = 1 << 20


@cache
def result_adapter() -> TypeAdapter[Result]:
    """Validates and describes (JSON Schema) what ``result.json`` holds."""
    return TypeAdapter(Result)


@dataclass(frozen=True)
class StoredJob:
    """One stored job: its folder, its result as read, and whose it is, where results were merged."""

    folder: Path
    result: Result
    origin: str | None = None

    def samples(self) -> pa.Table:
        """Raw latencies: query_id, trial (0-based; warm-up -1), warmup, latency_ns, stage_<name>_ns.

        No rows where the job finished no query.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.folder / SAMPLES
        if path.exists():
            return pq.read_table(path)
        columns = {"query_id": pa.string(), "trial": pa.int32(), "warmup": pa.bool_(), "latency_ns": pa.int64()}
        return pa.schema(columns).empty_table()

    @property
    def run_path(self) -> Path | None:
        """The TREC run of the first timed trial, where there is one."""
        path = self.folder / RUN
        return path if path.exists() else None

    def qrels_path(self) -> Path:
        """The judgements that the run is judged by: its own hits', where there are some, else its dataset's."""
        hits = self.folder / JUDGED_HITS
        if hits.exists():
            return hits
        return self._suite_folder() / "qrels" / f"{self.result.spec.qrels_sha256}.trec.gz"

    def sample_ids(self) -> tuple[str, ...]:
        """Query ids of the fixed sample."""
        path = self._suite_folder() / "samples" / f"{self.result.spec.sample_sha256}.json"
        try:
            return tuple(str(query["query_id"]) for query in json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise FileError(
                f"{path}: the query sample cannot be read: {error}; bring it from where it was made"
            ) from error

    def _suite_folder(self) -> Path:
        # <suite>/<system>/<dataset>/<scenario>/<profile>/<key>
        return self.folder.absolute().parents[4]


def read_jobs(root: Path) -> tuple[StoredJob, ...]:
    """Every stored job below ``root``, in the order of their paths.

    Raises:
        FileError: ``root`` is no folder, or a ``result.json`` or ``origin.toml`` is damaged.
    """
    if not root.is_dir():
        raise FileError(f"{root}: no results here; run a suite first, or give the folder that holds them")
    known = origins.Known()
    paths = sorted(result_paths(root))
    return tuple(StoredJob(path.parent, read_result(path), known.of_job(path.parent)) for path in paths)


def result_paths(root: Path) -> Iterator[Path]:
    """Where the results below ``root`` are.  A run may be adding to them."""
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            inside = {entry.name: entry.is_dir(follow_symlinks=False) for entry in os.scandir(folder)}
        except FileNotFoundError:
            continue  # a run removed it while we looked
        except OSError as error:
            raise FileError(f"{folder}: cannot be read: {error.strerror}; see to its permissions") from error
        if inside.get(RESULT) is False:
            yield folder / RESULT
        # Staging folders hold jobs in the making, as foreign code writes them: they are never results.
        waiting += [folder / name for name, is_folder in inside.items() if is_folder and name != STAGING]


def read_result(path: Path) -> Result:
    """Read one ``result.json`` of any known schema version.

    Raises:
        FileError: it is damaged, or of a version that this harness does not know.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        version = raw.get("schema_version")
        # What an older version has not, the record's defaults say.
        if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
            raise FileError(
                f"{path}: schema version {version!r}, this harness reads 1 to {SCHEMA_VERSION}; update harness"
            )
        return result_adapter().validate_python(raw)
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        what = f"key '{'.'.join(map(str, first['loc']))}': {first['msg']}" if first else str(error)
        raise FileError(f"{path}: damaged: {what}; move its folder away and run the suite again") from error


class Store:
    """The writing side: one suite's folder, held by one process at a time."""

    def __init__(self, root: Path, suite: str) -> None:
        self.folder = root / suite
        self.staging = self.folder / STAGING

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder; what a dead run left half-written goes.

        Raises:
            StoreError: it cannot be written, or another run holds it.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / _LOCK).open("w")
        except OSError as error:
            raise StoreError(f"{self.folder}: cannot be written: {error.strerror}; choose another --results") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StoreError(
                    f"{self.folder}: another run holds it; wait for its end or choose another --results"
                ) from None
            leftovers.remove(self.staging)
            with _disk_errors(self.folder):
                self.staging.mkdir()
            try:
                yield
            finally:
                leftovers.remove(self.staging)

    @contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        """An empty folder for a job in the making; gone afterwards."""
        path = self.staging / name
        with _disk_errors(path):
            path.mkdir(parents=True)
        try:
            yield path
        finally:
            leftovers.remove(path)

    def keep_inputs(
        self, judgements: bytes, qrels_sha256: str, samples: Mapping[str, str], ending: str = "trec"
    ) -> None:
        """Keep judgements and query samples beside the results, so that they can be judged anywhere.

        Args:
            judgements: TREC qrels, or whatever else ``ending`` says.
            qrels_sha256: names them.
            samples: JSON by name.
            ending: of the judgements' file, before ``.gz``.
        """
        contents = {Path("qrels") / f"{qrels_sha256}.{ending}.gz": gzip.compress(judgements, mtime=0)}
        contents |= {Path("samples") / f"{name}.json": text.encode("utf-8") for name, text in samples.items()}
        for name, content in contents.items():
            target = self.folder / name
            if target.exists():
                continue
            with _disk_errors(target):
                target.parent.mkdir(exist_ok=True)
                partial = self.staging / target.name
                partial.write_bytes(content)
                partial.rename(target)

    def put(
        self, result: Result, samples: pa.Table | None, run: bytes | None, log: bytes, judged: bytes | None = None
    ) -> StoredJob:
        """Store one job for good.

        Args:
            result: what is known of it; the files' hashes are added.
            samples: raw latencies.
            run: a TREC run.
            log: what the job said.
            judged: the judgements of the run's own hits, where its dataset has no others.

        Raises:
            StoreError: no space, no permission, or the key is taken (it never should be).
        """
        target = self.folder.parent / cell_path(result.spec.cell) / result.key
        partial = self.staging / f"put-{result.key}"
        with _disk_errors(target):
            partial.mkdir()
            (partial / LOG).write_bytes(gzip.compress(log, mtime=0))
            if run is not None:
                (partial / RUN).write_bytes(gzip.compress(run, mtime=0))
            if judged is not None:
                (partial / JUDGED_HITS).write_bytes(gzip.compress(judged, mtime=0))
            if samples is not None:
                import pyarrow.parquet as pq

                pq.write_table(samples, partial / SAMPLES, compression="zstd")
            files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(partial.iterdir())}
            result = replace(result, files=files)
            (partial / RESULT).write_text(to_json(result, indent=2) + "\n", encoding="utf-8")
            for path in partial.iterdir():
                _sync(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                raise StoreError(f"{target}: exists already; nothing is ever overwritten")
            partial.rename(target)
            _sync(target.parent)
        return StoredJob(target, result)


def check_room(folder: Path) -> None:
    """Is there room for a job's files at all?  What fails on a full disk says nothing of a system.

    Raises:
        StoreError: there is not.
    """
    with _disk_errors(folder):
        free = shutil.disk_usage(folder).free
    if free < _LEAST_FREE_BYTES:
        raise StoreError(f"{folder}: the disk is full ({free >> 10} KiB left); make room, what was finished is kept")


def cell_path(cell: Cell) -> Path:
    """Where a cell's jobs lie below the results folder."""
    return Path(cell.suite, cell.system, cell.dataset, cell.scenario, cell.profile)


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}; what was finished is kept") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
