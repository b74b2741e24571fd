"""The cache of a results folder's rows: rows and tests, as packed JSON, and a Parquet file of values by query.

Reading, bootstrapping and scoring thousands of jobs takes minutes and does not depend on prices.  Cached rows are used
only for the same stored files (name, inode, size, times of change), the same judgements and the same code.  If files
changed, only their cells are computed again.  A cache file may be removed at any time; a damaged file, or another
user's, is ignored and replaced.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import gzip
import hashlib
import json
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

import harness
from harness import filesystem
from harness.analysis.table import Row, Table, Validity
from harness.analysis.verdict import QualityDifference
from harness.compression import unpacked
from harness.errors import FileError
from harness.results import origins, reader
from harness.results.reader import StoredJob
from harness.results.schema import ANSWER_DEPTHS, JUDGED_HITS
from harness.untrusted import open_regular, reason_of

if TYPE_CHECKING:
    from harness.analysis.validity.sample_checks import SampleFacts
    from harness.evaluation.per_query import PerQuery

log = logging.getLogger(__name__)

_ROWS, _QUERIES, _TESTS, _PAGES = ".rows.cache", ".queries.parquet", ".tests.cache", ".pages.cache"
_LONGEST_STAMP = 1 << 12
# Numbers depend on these libraries and on our own sources.
_LIBRARIES = ("ir-measures", "numpy", "pyarrow", "scipy")
# The files of a job that rows are made of, and the files of a suite, five folders above a job's.
_JOB_FILES = (
    *(reader.RESULT, reader.SAMPLES, reader.RUN, reader.FIRST_STAGE, reader.UPDATES, reader.UPDATED_RUN),
    *(JUDGED_HITS, ANSWER_DEPTHS),
)
_SUITE_FOLDERS = ("qrels", "samples")
# Errors for a file with unexpected content (those of pydantic and of JSON are ValueErrors).
_DAMAGE = (OSError, EOFError, ValueError, RecursionError, zlib.error)


@dataclass(frozen=True)
class CellRow:
    """A cell's row before its verdict, its values by query, and the evidence for the verdict.

    A verdict also depends on other cells (the machine's usual speed), so it is never cached.  ``stamp`` identifies the
    row's files (``None``: one cannot be read).  A failed cell has no ``per_query``.
    """

    row: Row
    stamp: str | None = None
    per_query: PerQuery | None = None
    facts: SampleFacts | None = None
    disagreements: int | None = None


@dataclass(frozen=True)
class RowSet:
    """An unpriced table, and the cells of its rows in their order."""

    table: Table
    cells: tuple[CellRow, ...] = ()

    @property
    def per_query(self) -> dict[str, PerQuery]:
        """Values by query, by :attr:`Row.per_query_key`, for rows that have them."""
        return {cell.per_query.key: cell.per_query for cell in self.cells if cell.per_query is not None}


class RowCache:
    """The cached rows of one results folder for one choice of measures and judgements.

    ``judged`` identifies other judgements and vectors for Frechet distances; ``""``: the stored judgements, without
    vectors.

    Raises:
        FileError: the folder is missing or cannot be read.
    """

    def __init__(self, cache: Path, folder: Path, measures: Sequence[str], judged: str = "") -> None:
        name = hashlib.sha256(_bytes(json.dumps([str(folder.resolve()), list(measures), judged]))).hexdigest()[:32]
        self.path = cache / "tables" / f"{name}{_ROWS}"
        others = (cache / "tables" / f"{name}{suffix}" for suffix in (_QUERIES, _TESTS, _PAGES))
        self._queries, self._tests, self._pages = others
        self._folder, self._stamp = folder, folder_stamp(folder)

    def table(self) -> Table | None:
        """Return the cached table if it is still valid."""
        found = _read(self.path, parts=2)
        if found is None or found[0] != self._stamp:
            return None
        try:
            with _no_collection():
                return _table_adapter().validate_json(found[1][0])
        except ValueError:
            return None

    def per_query(self) -> dict[str, PerQuery] | None:
        """Return the values by query if they are still valid."""
        from harness.evaluation import per_query  # late: needs numpy, which cached rows do not

        return per_query.read(self._queries, self._stamp)

    def cells(self) -> dict[str, CellRow]:
        """Return the cells of the last write by stamp, even if other cells have changed since."""
        from harness.evaluation import per_query  # late

        found = _read(self.path, parts=2)
        by_query = None if found is None else per_query.read(self._queries, found[0])
        if found is None or by_query is None:
            return {}
        try:
            rows = _table_adapter().validate_json(found[1][0]).rows
            cells = list(zip(rows, _evidence_adapter().validate_json(found[1][1]), strict=True))
        except _DAMAGE:
            return {}
        return {
            stamp: CellRow(_without_verdict(row), stamp, by_query[row.per_query_key], facts, disagreements)
            for row, (stamp, facts, disagreements) in cells
            if stamp is not None and row.per_query_key in by_query
        }

    def write(self, built: RowSet) -> None:
        """Cache the rows; log an error if the cache cannot be written."""
        # If a run stored something meanwhile, the files behind these rows are unknown.
        if folder_stamp(self._folder) != self._stamp:
            return
        try:
            from harness.evaluation import per_query  # late

            table = _table_adapter().dump_json(built.table, exclude_defaults=True)
            evidence = _evidence_adapter().dump_json(
                [(cell.stamp if cell.per_query else None, cell.facts, cell.disagreements) for cell in built.cells],
                exclude_defaults=True,
            )
            # Values by query come first, because rows without them would look complete.
            with self._replacing(self._queries) as path:
                per_query.write(path, built.per_query.values(), self._stamp)
            self._keep(self.path, table, evidence)
        except (OSError, ValueError) as error:
            reason = reason_of(error)
            log.info("%s: cannot be written: %s; the next table is computed again", self.path, reason)

    def test(self, key: Sequence[object], compute: Callable[[], QualityDifference]) -> QualityDifference:
        """Return the kept test of some inputs, or compute and keep it.

        Args:
            key: all that the test depends on apart from the stored files, as values of JSON.
            compute: computes the test.
        """
        text = json.dumps(key)
        if text in self._known_tests:
            return self._known_tests[text]
        self._known_tests[text] = compute()
        # If a run stored something meanwhile, the files behind this test are unknown.
        if folder_stamp(self._folder) == self._stamp:
            with contextlib.suppress(OSError):  # where the cache cannot be written, the next call computes it again
                self._keep(self._tests, _tests_adapter().dump_json(self._known_tests))
        return self._known_tests[text]

    def keep_pages(self, pages: Iterable[Path], inputs: Iterable[Path]) -> None:
        """Remember that these files were written from the rows and from other input files."""
        with contextlib.suppress(OSError):  # where the cache cannot be written, the next run writes the files again
            self._keep(self._pages, _bytes(_states(pages, inputs)))

    def are_current(self, pages: Iterable[Path], inputs: Iterable[Path]) -> bool:
        """Return whether these files are as they were written from the rows and inputs, which have not changed."""
        found = _read(self._pages, parts=1)
        try:
            return found is not None and found == (self._stamp, [_bytes(_states(pages, inputs))])
        except OSError:
            return False

    def _keep(self, path: Path, *parts: bytes) -> None:
        """Write parts and the stamp to a file of the cache; raise OSError if it cannot be written."""
        with self._replacing(path) as fresh:
            fresh.write_bytes(self._stamp.encode() + b"\n" + gzip.compress(b"\n".join(parts), 1))

    @contextlib.contextmanager
    def _replacing(self, path: Path) -> Iterator[Path]:
        """Yield a free path, whose file then replaces a file of the cache."""
        with filesystem.scratch_folder(path.parent, path.name.partition(".")[0]) as scratch:
            yield scratch / path.name
            (scratch / path.name).replace(path)

    @functools.cached_property
    def _known_tests(self) -> dict[str, QualityDifference]:
        """Kept tests by the text of their key, if they are still valid."""
        found = _read(self._tests, parts=1)
        if found is None or found[0] != self._stamp:
            return {}
        try:
            return _tests_adapter().validate_json(found[1][0])
        except ValueError:
            return {}


def folder_stamp(folder: Path) -> str:
    """Hash the code, and name and times of every stored file below ``folder`` that rows depend on.

    Raises:
        FileError: ``folder`` cannot be read; unreadable folders below it are ignored.
    """
    reader.entries_of(str(folder.resolve()))
    return hashlib.sha256(_bytes("\n".join((_code(), *sorted(_files(str(folder.resolve()))))))).hexdigest()


def cell_stamp(jobs: Iterable[StoredJob]) -> str | None:
    """Hash the code, and name and times of every file that a cell's row depends on; None if one cannot be read."""
    lines = []
    try:
        for job in jobs:
            lines.append(f"origin {job.origin}")
            inputs = (job.qrels_path(), job.folder.parents[4] / "samples" / f"{job.result.spec.sample_sha256}.json")
            lines += (_line(str(path), path.lstat()) for path in (*job.folder.iterdir(), *inputs))
    except (OSError, FileError):
        return None
    return hashlib.sha256(_bytes("\n".join((_code(), *sorted(lines))))).hexdigest()


@functools.cache
def _code() -> str:
    """Hash the package's own sources and the versions of the libraries that compute."""
    content = hashlib.sha256()
    package = Path(harness.__file__).resolve().parent
    for path in sorted(package.rglob("*.py")):
        content.update(f"{path.relative_to(package)}\n".encode())
        content.update(path.read_bytes())
    for name in _LIBRARIES:
        content.update(f"{name} {metadata.version(name)}\n".encode())
    return content.hexdigest()


def _files(root: str) -> Iterator[str]:
    """Describe each stored file that rows below ``root`` depend on."""
    suites = set()
    wrong: list[FileError] = []
    for folder, entries in reader.folders(root, wrong):
        names = frozenset(entry.name for entry in entries)
        if reader.is_job(names):
            suites.add(folder.rsplit("/", 5)[0])
            if reader.RESULT not in names:
                yield f"{folder} holds remains"
            yield from (_entry(entry) for entry in entries if entry.name in _JOB_FILES)
    yield from map(str, wrong)
    for suite in suites:
        for name in _SUITE_FOLDERS:
            try:
                yield from map(_entry, reader.entries_of(f"{suite}/{name}"))
            except FileError as error:  # rows that need its files report it
                yield str(error)
    for home in {suite.rpartition("/")[0] for suite in suites}:
        path = f"{home}/{origins.FILE}"
        with contextlib.suppress(OSError):  # most results were never merged
            yield _line(path, Path(path).lstat())


def _entry(entry: os.DirEntry[str]) -> str:
    try:
        return _line(entry.path, entry.stat(follow_symlinks=False))
    except FileNotFoundError:
        return f"{entry.path} gone"


def _states(pages: Iterable[Path], inputs: Iterable[Path]) -> str:
    """Return one text on the state of files, without a line end.

    Raises:
        OSError: a file is missing.
    """
    return json.dumps([_line(str(path.absolute()), path.stat()) for path in (*pages, *inputs)])


def _line(path: str, about: os.stat_result) -> str:
    # Users can set mtime back (cp -p, tar, touch), but not the kernel's ctime.
    return f"{path} {about.st_ino} {about.st_size} {about.st_mtime_ns} {about.st_ctime_ns}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _read(path: Path, parts: int) -> tuple[str, list[bytes]] | None:
    """Read stamp and parts of a cache file; None if it is missing, damaged or another user's."""
    try:
        with open_regular(path) as stream:
            if os.fstat(stream.fileno()).st_uid != os.getuid():
                return None
            stamp = stream.readline(_LONGEST_STAMP).decode("ascii").rstrip("\n")
            with unpacked(stream) as content:
                found = content.read().split(b"\n")
            return (stamp, found) if len(found) == parts else None
    except _DAMAGE:
        return None


@functools.cache
def _table_adapter() -> TypeAdapter[Table]:
    return TypeAdapter(Table)


@functools.cache
def _evidence_adapter() -> TypeAdapter[list[tuple[str | None, SampleFacts | None, int | None]]]:
    """Describe, for each row of the table, the cell's stamp and the evidence for its verdict."""
    from harness.analysis.validity.sample_checks import SampleFacts  # late: needs numpy

    return TypeAdapter(list[tuple[str | None, SampleFacts | None, int | None]])


@functools.cache
def _tests_adapter() -> TypeAdapter[dict[str, QualityDifference]]:
    return TypeAdapter(dict[str, QualityDifference])


def _without_verdict(row: Row) -> Row:
    # The sentences of a verdict come last.
    return replace(
        row,
        findings=(),
        notes=row.notes[: len(row.notes) - len(row.findings)],
        index=replace(row.index, validity=Validity.UNKNOWN, findings=()),
    )


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Pause the garbage collector, which would double the time by scanning a million live records."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
