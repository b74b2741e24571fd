"""The cache of a results folder's rows: a Parquet file of rows, and one of values by query.

Reading, bootstrapping and scoring thousands of jobs takes minutes and does not depend on prices.  Cached rows are used
only for the same stored files (name, inode, size, times of change), the same judgements and the same code.  If files
changed, only their cells are computed again.  A cache file may be removed at any time; a damaged file, or another
user's, is ignored and replaced.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import json
import logging
import os
import typing
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

import harness
from harness import filesystem
from harness.analysis.table import Row, Table, Validity
from harness.analysis.validity.sample_checks import SampleFacts
from harness.errors import FileError
from harness.evaluation import per_query
from harness.evaluation.per_query import PerQuery
from harness.results import origins, reader
from harness.results.reader import StoredJob
from harness.results.schema import ANSWER_DEPTHS, JUDGED_HITS
from harness.untrusted import native_file, open_regular, reason_of

log = logging.getLogger(__name__)

_ROWS, _QUERIES = ".rows.parquet", ".queries.parquet"
# Numbers depend on these libraries and on our own sources.
_LIBRARIES = ("ir-measures", "numpy", "pyarrow", "scipy")
# The files of a job that rows are made of, and the files of a suite, five folders above a job's.
_JOB_FILES = (reader.RESULT, reader.SAMPLES, reader.RUN, reader.FIRST_STAGE, JUDGED_HITS, ANSWER_DEPTHS)
_SUITE_FOLDERS = ("qrels", "samples")
# Columns that are not fields of a row.
_STAMP, _FACTS, _DISAGREEMENTS = "cell_stamp", "cell_facts", "cell_disagreements"
_PLAIN_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_ARROW_TYPES = {hint: arrow for plain, arrow in _PLAIN_TYPES.items() for hint in (plain, plain | None)}
# Errors of pyarrow and pydantic for a file with unexpected content (ArrowInvalid is a ValueError).
_DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException)


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
        self._queries = cache / "tables" / f"{name}{_QUERIES}"
        self._folder, self._judged, self._stamp = folder, judged, folder_stamp(folder)

    def table(self, columns: Collection[str] | None = None) -> Table | None:
        """Return the cached table if it is still valid; records in its rows that are not in ``columns`` are missing."""
        return _table(self.path, self._stamp, columns)

    def per_query(self) -> dict[str, PerQuery] | None:
        """Return the values by query if they are still valid."""
        return per_query.read(self._queries, self._stamp)

    def cells(self) -> dict[str, CellRow]:
        """Return the cells of the last write by stamp, even if other cells have changed since."""
        stamp = _facts(self.path).get("stamp", "")
        content = _read(self.path, stamp) if stamp else None
        by_query = per_query.read(self._queries, stamp)
        if content is None or by_query is None:
            return {}
        try:
            evidence = [_decode(content, name) for name in (_STAMP, _FACTS, _DISAGREEMENTS)]
            cells = list(zip(_decode_rows(content), *evidence, strict=True))
        except _DAMAGE:
            return {}
        return {
            stamp: CellRow(_without_verdict(row), stamp, by_query[row.per_query_key], facts, disagreements)
            for row, stamp, facts, disagreements in cells
            if stamp is not None and row.per_query_key in by_query
        }

    def write(self, built: RowSet) -> None:
        """Cache the rows; log an error if the cache cannot be written."""
        # If a run stored something meanwhile, the files behind these rows are unknown.
        if folder_stamp(self._folder) != self._stamp:
            return
        try:
            about = {
                "stamp": self._stamp,
                "judged": self._judged,
                "table": _table_adapter().dump_json(replace(built.table, rows=()), exclude_defaults=True),
            }
            content = _encode(built).replace_schema_metadata(about)
            with filesystem.scratch_folder(self.path.parent, self.path.name.partition(".")[0]) as scratch:
                # Values by query come first, because rows without them would look complete.
                per_query.write(scratch / _QUERIES, built.per_query.values(), self._stamp)
                (scratch / _QUERIES).replace(self._queries)
                pq.write_table(content, scratch / _ROWS, compression="zstd", write_page_checksum=True)
                (scratch / _ROWS).replace(self.path)
        except (OSError, ValueError, OverflowError) as error:
            reason = reason_of(error)
            log.info("%s: cannot be written: %s; the next table is computed again", self.path, reason)


@dataclass(frozen=True)
class CachedFile:
    """A cache file that is valid now; ``table`` is ``None`` if it is damaged."""

    path: Path
    table: Table | None
    per_query: dict[str, PerQuery] | None


def cached_files(folder: Path, cache: Path) -> Iterator[CachedFile]:
    """Find the cached rows of ``folder`` in its present state, scored by the stored judgements.

    Raises:
        FileError: ``folder`` is missing or cannot be read.
    """
    stamp = folder_stamp(folder)
    for path in sorted((cache / "tables").glob(f"*{_ROWS}")):
        about = _facts(path)
        if about.get("stamp") == stamp and not about.get("judged"):
            queries = path.with_name(path.name.removesuffix(_ROWS) + _QUERIES)
            yield CachedFile(path, _table(path, stamp), per_query.read(queries, stamp))


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


def _line(path: str, about: os.stat_result) -> str:
    # Users can set mtime back (cp -p, tar, touch), but not the kernel's ctime.
    return f"{path} {about.st_ino} {about.st_size} {about.st_mtime_ns} {about.st_ctime_ns}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _facts(path: Path) -> dict[str, str]:
    """Read the metadata of a cache file; empty if the file is missing, damaged or another user's."""
    try:
        with open_regular(path) as stream:
            if os.fstat(stream.fileno()).st_uid != os.getuid():
                return {}
            about = pq.read_schema(stream).metadata or {}
        return {name.decode(): value.decode() for name, value in about.items()}
    except _DAMAGE:
        return {}


def _read(path: Path, stamp: str, columns: Collection[str] | None = None) -> pa.Table | None:
    """Read a cache file with that stamp; None if the file is missing, damaged, another user's or has another stamp."""
    try:
        with open_regular(path) as stream:
            whole = pq.read_metadata(stream)
            about = whole.metadata or {}
            if os.fstat(stream.fileno()).st_uid != os.getuid() or about.get(b"stamp") != stamp.encode():
                return None
            records = {name for name, column in _columns().items() if not column.is_plain}
            names = [name for name in whole.schema.names if columns is None or name in columns or name not in records]
            texts = [name for name in names if name in records]
            checked = {"metadata": whole, "read_dictionary": texts, "page_checksum_verification": True}
            with native_file(stream) as native, pq.ParquetFile(native, **checked) as file:
                return file.read(columns=names, use_threads=False)
    except _DAMAGE:
        return None


def _table(path: Path, stamp: str, columns: Collection[str] | None = None) -> Table | None:
    content = _read(path, stamp, columns)
    if content is None:
        return None
    try:
        with _no_collection():
            table: Table = _table_adapter().validate_json(content.schema.metadata[b"table"])
            return replace(table, rows=tuple(_decode_rows(content)))
    except _DAMAGE:
        return None


def _encode(built: RowSet) -> pa.Table:
    """Put rows and evidence into columns; leave out columns that hold only defaults."""
    values: dict[str, list[Any]] = {
        field.name: [getattr(row, field.name) for row in built.table.rows] for field in fields(Row)
    }
    values[_STAMP] = [cell.stamp if cell.per_query else None for cell in built.cells]
    values[_FACTS] = [cell.facts for cell in built.cells]
    values[_DISAGREEMENTS] = [cell.disagreements for cell in built.cells]
    columns = _columns()
    return pa.table(
        {
            name: columns[name].encode(column)
            for name, column in values.items()
            if any(value != columns[name].default for value in column)
        }
    )


def _decode(content: pa.Table, name: str) -> list[Any]:
    column = _columns()[name]
    return column.decode(content.column(name)) if name in content.column_names else [column.default] * len(content)


def _decode_rows(content: pa.Table) -> list[Row]:
    names = tuple(field.name for field in fields(Row))
    values = (_decode(content, name) for name in names)
    return [Row(**dict(zip(names, of_row, strict=True))) for of_row in zip(*values, strict=True)]


class _Column:
    """A row's field as a column: plain values unchanged, records as JSON text."""

    def __init__(self, hint: Any, default: Any) -> None:
        self.default = default
        self._arrow = _ARROW_TYPES.get(hint)
        self.is_plain = self._arrow is not None
        self._values: Any = list[hint]

    @functools.cached_property
    def _adapter(self) -> TypeAdapter[list[Any]]:
        # Created on first use: many columns are never read.
        return TypeAdapter(self._values)

    def encode(self, values: Sequence[Any]) -> pa.Array:
        if not self.is_plain:
            values = [self._adapter.dump_json([value], exclude_defaults=True).decode()[1:-1] for value in values]
        return pa.array(values, self._arrow or pa.string())

    def decode(self, column: pa.ChunkedArray) -> list[Any]:
        if self.is_plain:
            if column.type != self._arrow:
                raise ValueError(f"a column of {column.type}")
            return list(column.to_pylist())
        # Each distinct text is parsed once, because rows share many values.
        decoded: list[Any] = []
        for texts in column.chunks:
            values = self._adapter.validate_json(f"[{','.join(texts.dictionary.to_pylist())}]")
            decoded += [values[index] for index in texts.indices.to_pylist()]
        return decoded


@functools.cache
def _columns() -> dict[str, _Column]:
    """Return the columns of a row's fields (the default of a required one is None), and of its evidence."""
    hints = typing.get_type_hints(Row)
    defaults = {field.name: None if field.default is MISSING else field.default for field in fields(Row)}
    defaults |= {field.name: field.default_factory() for field in fields(Row) if field.default_factory is not MISSING}
    columns = {name: _Column(hints[name], default) for name, default in defaults.items()}
    evidence = {_STAMP: str | None, _FACTS: SampleFacts | None, _DISAGREEMENTS: int | None}
    return columns | {name: _Column(hint, None) for name, hint in evidence.items()}


@functools.cache
def _table_adapter() -> TypeAdapter[Table]:
    return TypeAdapter(Table)


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
