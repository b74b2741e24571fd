"""Stored jobs, as they are read: whole folders that nobody changes.

``results/<suite>/<system>/<dataset>/<scenario>/<profile>/<job key>/`` holds ``result.json``, ``samples.parquet``,
``run.trec.gz`` and ``log.txt.gz``; and ``judged-hits.trec.gz`` and
``answer-depths.tsv.gz`` where documents are judged by answers in their texts.
``results/<suite>/qrels/`` and ``results/<suite>/samples/`` hold, by hash, what is needed to judge the runs anywhere;
``results/<suite>/manifest.txt`` lists the jobs (:mod:`harness.seals`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from harness import origins
from harness.errors import FileError
from harness.result import JUDGED_HITS, SCHEMA_VERSION, Cell, Result

if TYPE_CHECKING:
    import pyarrow as pa

RESULT = "result.json"
SAMPLES = "samples.parquet"
RUN = "run.trec.gz"
LOG = "log.txt.gz"
STAGING = ".staging"
# What `harness viable` found, beside a subject's jobs.
VERDICTS = "verdicts"


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
            with pq.ParquetFile(path) as file:  # a small file: cheaper than a data set with its threads
                return file.read(use_threads=False)
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
        return tuple(self.sample_texts())

    def sample_texts(self) -> dict[str, str]:
        """The queries of the fixed sample: their texts by id, in their order."""
        path = self._suite_folder() / "samples" / f"{self.result.spec.sample_sha256}.json"
        try:
            queries = json.loads(path.read_text(encoding="utf-8"))
            return {str(query["query_id"]): str(query.get("text", "")) for query in queries}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
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


def of_key(root: Path, key: str) -> StoredJob | None:
    """A stored job by its key, found without reading the others; of several origins that have it, any.

    Raises:
        FileError: its ``result.json`` is damaged.
    """
    path = next((path for path in result_paths(root) if path.parent.name == key), None)
    return None if path is None else StoredJob(path.parent, read_result(path))


def result_paths(root: Path) -> Iterator[Path]:
    """Find every ``result.json`` below ``root``, to which a run may be adding."""
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
        return _parsed(path.read_text(encoding="utf-8"))
    except FileError as error:
        raise FileError(f"{path}: {error}") from None
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        what = f"key '{'.'.join(map(str, first['loc']))}': {first['msg']}" if first else str(error)
        raise FileError(f"{path}: damaged: {what}; move its folder away and run the suite again") from error


@lru_cache(maxsize=512)
def _parsed(text: str) -> Result:
    """Parse a result, each text once: ``harness viable`` reads all its jobs again after each new one."""
    raw = json.loads(text)
    version = raw.get("schema_version")
    # What an older version has not, the record's defaults say.
    if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
        raise FileError(f"schema version {version!r}, this harness reads 1 to {SCHEMA_VERSION}; update harness")
    return result_adapter().validate_python(raw)


def cell_path(cell: Cell) -> Path:
    """Return the folder of a cell's jobs, relative to the results folder."""
    return Path(cell.suite, cell.system, cell.dataset, cell.scenario, cell.profile)
