"""Read stored jobs: whole folders, which never change.

``results/<suite>/<system>/<dataset>/<scenario>/<profile>/<job key>/`` holds ``result.json``, ``samples.parquet``,
``run.trec.gz`` and ``log.txt.gz``; ``first_stage.trec.gz`` where the system has two stages; ``judged-hits.trec.gz`` and
``answer-depths.tsv.gz`` where documents are judged by answers in their texts; ``updates.tsv.gz`` and
``updated.trec.gz`` in scenario ``mixed``.
``results/<suite>/qrels/`` and ``results/<suite>/samples/`` hold, by hash, what is needed to judge the runs anywhere;
``results/<suite>/manifest.txt`` lists the jobs (:mod:`harness.results.seals`).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import TypeAdapter

from harness import config
from harness.errors import FileError, StoreError, UsageError, counted, did_you_mean
from harness.evaluation import answer_recall, trec
from harness.evaluation.trec import Run
from harness.results import version1
from harness.results.origins import JobOrigins
from harness.results.samples import SampleBudget, load_samples, no_samples
from harness.results.schema import ANSWER_DEPTHS, JUDGED_HITS, READ_VERSIONS, Cell, Result, ResultSpec
from harness.untrusted import check_names, parse_json, read_whole, reading, reason_of

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

RESULT = "result.json"
SAMPLES = "samples.parquet"
RUN = "run.trec.gz"
# The run that the second stage was given in the first timed trial.
FIRST_STAGE = "first_stage.trec.gz"
# Of scenario mixed: what was inserted and deleted, and the run of the pass after it.
UPDATES, UPDATED_RUN = "updates.tsv.gz", "updated.trec.gz"
LOG = "log.txt.gz"
STAGING = ".staging"
# Folder of the verdicts of `harness viable`, next to a subject's jobs.
VERDICTS = "verdicts"
RESULT_BYTES, MOST_SAMPLE_BYTES = 2 << 20, 32 << 20
_MOST_LEVELS = 64
_NAME_BYTES = 255
# The faults of a folder that people see; reports in JSON have all.
_MOST_NAMED = 5
_SHA256 = re.compile("[0-9a-f]{64}")
_MAY_BE_NEGATIVE = frozenset({"params", "effective", "exit_code", "temperature_c"})
# Entries of a list or a table in a record: of a suite's most trials, and more than any honest one.
_MOST_ENTRIES = 4096
_LEAST = 1e-100
# The largest values of a suite (harness.jobs.suite); the ids of a larger sample would fill its file.
MOST_REPETITION = 1_000_000
_MOST = {"trials": 1000, "jobs": 1000, "k": 10_000, "sample_size": 100_000, "repetition": MOST_REPETITION}


@cache
def result_adapter() -> TypeAdapter[Result]:
    """Return the validator of ``result.json``, which also describes it as JSON Schema."""
    return TypeAdapter(Result)


@dataclass(frozen=True)
class StoredJob:
    """Stored job: its folder, its record, and its origin if results were merged."""

    folder: Path
    result: Result
    origin: str | None = None

    def samples(self, budget: SampleBudget | None = None) -> pa.Table:
        """Read raw latencies: query_id, trial (0-based; warm-up -1), warmup, latency_ns, stage_<name>_ns.

        There are no rows if the job finished no query.  ``budget`` bounds the samples that are held together.

        Raises:
            FileError: the file is damaged, or holds something else or more than samples.
        """
        path = self.file(SAMPLES)
        return load_samples(path, budget) if path else no_samples()

    @property
    def run_path(self) -> Path | None:
        """The TREC run of the first timed trial, if there is one."""
        return self.file(RUN)

    def file(self, name: str) -> Path | None:
        """Return a file of the job, such as ``FIRST_STAGE`` or ``UPDATES``; ``None``: it has none."""
        path = self.folder / name
        return path if os.path.lexists(path) else None

    def qrels_path(self) -> Path:
        """Return the file of the run's judgements: its own hits', if there is one, else its dataset's."""
        return self.file(JUDGED_HITS) or self.suite_folder / "qrels" / f"{self._hash('qrels_sha256')}.trec.gz"

    def sample_ids(self) -> tuple[str, ...]:
        """Read the query ids of the fixed sample."""
        return tuple(self.sample_texts())

    def sample_texts(self) -> dict[str, str]:
        """Read the texts of the fixed sample by query id, in their order; raise FileError if it is damaged."""
        path = self.suite_folder / "samples" / f"{self._hash('sample_sha256')}.json"
        wrong = (OSError, ValueError, KeyError, TypeError, AttributeError)
        with reading(path, "bring it from where it was made", fault="query sample cannot be read", damage=wrong):
            queries = parse_json(read_whole(path, MOST_SAMPLE_BYTES))
            return {str(query["query_id"]): str(query.get("text", "")) for query in queries}

    def _hash(self, name: str) -> str:
        """Return a hash of the spec that names a file; refuse other text, which could name any file of this machine."""
        sha256: str = getattr(self.result.spec, name)
        if not _SHA256.fullmatch(sha256):
            raise FileError(f"{self.folder / RESULT}: {name} {sha256[:80]!r} is not a SHA-256; restore the file")
        return sha256

    @property
    def suite_folder(self) -> Path:
        """The folder of the job's suite."""
        # <suite>/<system>/<dataset>/<scenario>/<profile>/<key>
        return self.folder.absolute().parents[4]


class StoredJobs(tuple[StoredJob, ...]):
    """Readable jobs of a folder, in the order of their paths.

    ``unreadable`` holds an error for each job that is left out.  ``taken`` holds the keys of unreadable jobs, whose
    folders no new job may use.
    """

    unreadable: tuple[FileError, ...]
    taken: frozenset[str]

    def __new__(
        cls, jobs: Iterable[StoredJob] = (), unreadable: Iterable[FileError] = (), taken: Iterable[str] = ()
    ) -> Self:
        """Make the tuple of the jobs, with the facts about unreadable ones."""
        made = super().__new__(cls, jobs)
        made.unreadable, made.taken = tuple(unreadable), frozenset(taken)
        return made


def read_jobs(root: Path, required: str | None = None) -> StoredJobs:
    """Read the stored jobs below ``root``; name in the log, and leave out, what cannot be read.

    Args:
        root: a folder of results.
        required: the error if the folder has no job; ``None``: it may be empty.

    Raises:
        FileError: ``root`` is not a folder.
        UsageError: no job can be read, though one is required.
    """
    if root.is_file():
        raise FileError(
            f"{root}: a file, and this command reads the samples or runs in a folder of results; name one (the name of"
            " a passport's file ends in .yaml)"
        )
    if not root.is_dir():
        hint = did_you_mean(root.name, config.published_names())
        raise FileError(f"{root}: no results here; run a suite first, or give the folder that holds them{hint}")
    unreadable: list[FileError] = []
    job_origins, jobs, taken = JobOrigins(unreadable), [], []
    found = ((Path(folder), {entry.name for entry in entries}) for folder, entries in folders(str(root), unreadable))
    for path, names in sorted((path, names) for path, names in found if is_job(names)):
        try:
            if RESULT not in names:
                raise FileError(f"{path / RESULT}: does not exist; restore it, or move its folder away")
            result = read_result(path / RESULT)
        except FileError as error:
            unreadable.append(error)
            taken.append(path.name)
        else:
            jobs.append(StoredJob(path, result, job_origins.of_job(path)))
    if required is not None and not jobs:
        raise UsageError(first_fault(unreadable) or required)
    announce(map(left_out, unreadable))
    return StoredJobs(jobs, unreadable, taken)


def stored_jobs(root: Path) -> StoredJobs:
    """Read the stored jobs of a suite that may never have run."""
    return read_jobs(root) if root.is_dir() else StoredJobs()


def is_job(names: Collection[str]) -> bool:
    """Return whether a folder with these files is a stored job, or what remains of one."""
    return not {RESULT, SAMPLES, RUN, FIRST_STAGE, UPDATES, UPDATED_RUN, LOG}.isdisjoint(names)


def first_fault(unreadable: Sequence[FileError]) -> str | None:
    """Return the first fault and the number of further ones; None without a fault."""
    if not unreadable:
        return None
    others = len(unreadable) - 1
    return f"{unreadable[0]} ({counted(others, 'record')} more cannot be read)" if others else str(unreadable[0])


def left_out(error: FileError) -> str:
    """Return the note on a record that could not be read."""
    return f"left out: {error}"


def announce(notes: Iterable[str]) -> None:
    """Log what is left out: the first notes in full, and the number of the others; each once in a process."""
    listed = tuple(notes)
    for note in listed[:_MOST_NAMED]:
        _log_once(note)
    if len(listed) > _MOST_NAMED:
        more = counted(len(listed) - _MOST_NAMED, "record")
        _log_once(f"left out: {more} more that cannot be read; harness verify names all")


@cache
def _log_once(text: str) -> None:
    log.warning("%s", text)


def result_paths(root: Path, wrong: list[FileError] | None = None) -> Iterator[Path]:
    """Find every ``result.json`` below ``root``, to which a run may be adding; arguments as :func:`folders`."""
    for folder, entries in folders(str(root), wrong):
        if any(entry.name == RESULT for entry in entries):
            yield Path(folder, RESULT)


def folders(root: str, wrong: list[FileError] | None = None) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Yield ``root`` and each folder below it, with its entries; links are not followed.

    Raises:
        FileError: a folder cannot be read, or is too deep; with ``wrong``, the error is added there instead.
    """
    waiting = [(root, 0)]
    while waiting:
        folder, level = waiting.pop()
        try:
            if level > _MOST_LEVELS:
                raise FileError(f"{folder[:300]}: is a folder more than {_MOST_LEVELS} levels deep; remove it")
            entries = entries_of(folder)
        except FileError as error:
            if wrong is None:
                raise
            wrong.append(error)
            continue
        yield folder, entries
        # Foreign code writes into staging folders: nothing there is a result yet.
        below = (entry for entry in entries if entry.name != STAGING and entry.is_dir(follow_symlinks=False))
        waiting += ((entry.path, level + 1) for entry in below)


def entries_of(folder: str) -> list[os.DirEntry[str]]:
    """List a folder to which a run may be adding; raise FileError if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []  # no such inputs, or a run removed it while we looked
    except OSError as error:
        remedy = "name a folder" if isinstance(error, NotADirectoryError) else "see to its permissions"
        raise FileError(f"{folder[:300]}: cannot be read: {error.strerror}; {remedy}") from error


def read_result(path: Path) -> Result:
    """Read one ``result.json``.

    Raises:
        FileError: it is damaged, or of a version that this harness does not know.
    """
    try:
        return parse_result(read_whole(path, RESULT_BYTES))
    except FileError as error:
        raise FileError(f"{path}: {error}") from None
    except PermissionError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}; see to its permissions") from error
    except (OSError, ValueError, AttributeError) as error:
        raise FileError(f"{path}: damaged: {reason_of(error)}; move its folder away and run the suite again") from error


@lru_cache(maxsize=512)
def parse_result(content: bytes) -> Result:
    """Parse a result, each text once: ``harness viable`` reads all its jobs again after each new one.

    Raises:
        FileError: this harness does not know its version.
        ValueError, AttributeError: it is damaged, or no stored result may look like it.
    """
    raw = parse_record(content)
    version = raw.get("schema_version")
    if type(version) is not int or version not in READ_VERSIONS:
        known = " and ".join(map(str, READ_VERSIONS))
        raise FileError(f"schema version {version!r}, this harness reads {known}; update harness")
    check_facts(raw, "")
    if version == 1:
        raw = version1.lift(raw)
    result = result_adapter().validate_python(raw)
    check_names(result)
    _check_spec(result)
    return result


def parse_record(content: bytes, most_bytes: int = RESULT_BYTES) -> Any:
    """Parse a stored record, or a part of one that is to be stored.

    Raises:
        ValueError: it is larger than ``most_bytes``, or JSON that no record may hold.
    """
    if len(content) > most_bytes:
        raise ValueError(f"has {len(content):,} bytes; the limit is {most_bytes:,}")
    return parse_json(content)


def check_facts(facts: Any, name: str, *, negative: bool = False) -> None:
    """Refuse facts that no job has: long lists and tables, negative numbers, and numbers very close to 0.

    ``negative``: numbers may be below 0, as the kernel's and the system's parameters may.

    Raises:
        ValueError: names the key and the number.
    """
    if isinstance(facts, dict | list) and len(facts) > _MOST_ENTRIES:
        raise ValueError(f"key '{name[:80]}' has {len(facts):,} entries; the limit is {_MOST_ENTRIES:,}")
    if isinstance(facts, dict):
        for key, value in facts.items():
            check_facts(value, f"{name}.{key}" if name else key, negative=negative or key in _MAY_BE_NEGATIVE)
    elif isinstance(facts, list):
        for value in facts:
            check_facts(value, name, negative=negative)
    elif isinstance(facts, int | float) and not negative:
        if facts < 0:
            raise ValueError(f"key '{name}': {facts} is below 0")
        if 0 < facts < _LEAST:
            raise ValueError(f"key '{name}': {facts} is too close to 0")


def names_folder(text: str) -> bool:
    """Return whether a part of a cell may have this name, which is a folder's too."""
    return text not in ("", ".", "..") and "/" not in text and text.isprintable() and len(text.encode()) <= _NAME_BYTES


def _check_spec(result: Result) -> None:
    """Raise ValueError for names that lead out of a folder, counts beyond any suite, and malformed times."""
    for name, value in vars(result.spec.cell).items():
        if not names_folder(value):
            raise ValueError(f"key 'spec.cell.{name}': {value[:80]!r} does not name a folder")
    for name, most in _MOST.items():
        if (count := getattr(result.spec, name)) > most:
            raise ValueError(f"key 'spec.{name}': {count} is beyond {most:,}")
    try:
        datetime.fromisoformat(result.started_at)
    except ValueError:
        raise ValueError(f"key 'started_at': {result.started_at[:80]!r} is not an ISO time") from None


def cell_path(cell: Cell) -> Path:
    """Return the folder of a cell's jobs, relative to the results folder."""
    return Path(cell.suite, *cell.names)


def judges_hits_alone(path: Path) -> bool:
    """Return whether a qrels file holds only a run's own hits."""
    return path.name == JUDGED_HITS


def most_hits(spec: ResultSpec) -> int:
    """Return how many lines of a job's run are read at most; a run that is slightly too long is read and named."""
    return 1000 + 2 * spec.sample_size * spec.k


def most_first_stage_hits(spec: ResultSpec) -> int:
    """Return how many lines of the run of a job's first stage are read at most."""
    depth = spec.params.get("depth")
    deepest = min(depth, _MOST["k"]) if type(depth) is int else 0
    return 1000 + 2 * spec.sample_size * max(spec.k, deepest)


def read_job_run(job: StoredJob) -> Run:
    """Read a stored job's run, with the stored depths of its answers.

    Raises:
        StoreError: the job has none.
        FileError: a file is missing or damaged.
    """
    if job.run_path is None:
        raise StoreError(f"{job.folder}: holds no run; measure the job again")
    run, depths = trec.read_run(job.run_path, most_hits(job.result.spec)), job.file(ANSWER_DEPTHS)
    return replace(run, depths=answer_recall.read_depths(depths)) if depths else run
