"""Data frames of rows, jobs and samples, and their files: Parquet, SQLite and CSV.

Columns, units and meanings are those of ``docs/reference/columns.md``.  A missing value is ``<NA>`` (``NaT`` for
times), never 0.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness import filesystem
from harness.analysis.table import Table
from harness.errors import FileError, StoreError
from harness.report import columns, writers
from harness.report.columns import JOBS, SAMPLES, ColumnMeaning, Kind, stage_column
from harness.report.main_table import table_document
from harness.results.reader import StoredJob

if TYPE_CHECKING:
    import pyarrow as pa

_DTYPES = {Kind.TEXT: "string", Kind.NUMBER: "Float64", Kind.COUNT: "Int64"}
FORMATS = ("parquet", "sqlite", "csv", "ir_metadata")
# A table of the database that documents the others.
_COLUMNS = "columns"
_TYPES = {"string": "TEXT", "Float64": "REAL", "Int64": "INTEGER"}
# The first columns of the jobs' table are texts that name a job; samples have them too.
_NAMES = next(place for place, each in enumerate(JOBS) if each.kind is not Kind.TEXT)


def rows_frame(table: Table) -> pd.DataFrame:
    """Return a priced table as a frame."""
    shown = columns.table_columns(table)
    frame = _frame((column, [column.get(row) for row in table.rows]) for column in shown)
    frame.attrs |= {
        "prices": {
            "provider": table.price_provider,
            "region": table.price_region,
            "date": table.price_date,
            "term": table.price_term,
            "source": table.price_source,
        },
        "notes": list(table.notes),
    }
    return frame


def jobs_frame(jobs: Sequence[StoredJob]) -> pd.DataFrame:
    """Return a frame with a row for each stored job, in the given order."""
    return _frame((column, [column.get(job) for job in jobs]) for column in JOBS)


def samples_frame(jobs: Sequence[StoredJob]) -> pd.DataFrame:
    """Return a frame with a row for each sample of at least one job, in the order of measurement.

    Raises:
        FileError: a job's samples are damaged.
    """
    import pyarrow as pa

    parts = [_samples(job) for job in jobs]
    whole = pa.concat_tables(parts, promote_options="default")
    stages = sorted(name for name in whole.column_names if name.startswith("stage_"))
    described = (*SAMPLES, *(stage_column(name) for name in stages))
    # A column that no job has is missing throughout.
    return _frame(
        (each, whole.column(each.name).to_pandas() if each.name in whole.column_names else [None] * len(whole))
        for each in described
    )


def _samples(job: StoredJob) -> pa.Table:
    """Return the samples of a job with the job's names, and times in seconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    raw = job.samples()
    names = {each.name: pa.repeat(pa.scalar(each.get(job), pa.string()), len(raw)) for each in JOBS[:_NAMES]}
    numbers = {"job": pa.repeat(pa.scalar(job.result.spec.job, pa.int64()), len(raw))}
    trial = raw.column("trial").cast(pa.int64())
    part = pc.if_else(pc.equal(trial, -2), "repeat", pc.if_else(pc.less(trial, 0), "warmup", "timed"))
    found = {"query_id": raw.column("query_id"), "trial": trial, "part": part}
    for name in raw.column_names:
        if name.endswith("_ns"):
            found[f"{name[:-3]}_s"] = pc.divide(raw.column(name).cast(pa.float64()), 1e9)
    if "batch" in raw.column_names:
        found["batch"] = raw.column("batch").cast(pa.int64())
    return pa.table({**names, **numbers, **found})


def _frame(found: Iterable[tuple[ColumnMeaning, Any]]) -> pd.DataFrame:
    listed = list(found)
    frame = pd.DataFrame({each.name: _typed(values, each.kind) for each, values in listed})
    frame.attrs["units"] = {each.name: each.unit for each, _ in listed}
    frame.attrs["meanings"] = {each.name: each.meaning for each, _ in listed}
    return frame


def _typed(values: Any, kind: Kind) -> Any:
    """Return a column with the nullable type of its kind."""
    if kind in (Kind.TIME, Kind.DATE):
        # A row of published tables has no time: it is missing, and so is what is no time.
        return pd.to_datetime(
            pd.Series(values, dtype="string"), format="ISO8601", utc=kind is Kind.TIME, errors="coerce"
        )
    return pd.array(values, dtype=_DTYPES[kind])


def export_csv(table: Table, out: Path) -> None:
    """Write the text of ``harness report --format csv``; errors as :func:`new_file`."""
    with new_file(out) as path:
        path.write_text(writers.write_csv(table_document(table)), encoding="utf-8")


def export_parquet(table: Table, out: Path) -> None:
    """Write the frame of the table; the metadata of a column hold its ``unit`` and ``meaning``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = rows_frame(table)
    units, meanings = made.attrs["units"], made.attrs["meanings"]
    whole = pa.Table.from_pandas(made, preserve_index=False)
    fields = [
        field.with_metadata({"unit": units[field.name], "meaning": meanings[field.name]}) for field in whole.schema
    ]
    with new_file(out) as path:
        pq.write_table(whole.cast(pa.schema(fields, metadata=whole.schema.metadata)), path, compression="zstd")


def export_sqlite(table: Table, jobs: Sequence[StoredJob], out: Path, *, samples: bool = False) -> None:
    """Write the tables ``rows``, ``jobs`` and ``samples``, and ``columns``, which describes them.

    Args:
        table: what ``rows`` holds.
        jobs: stored jobs; published tables have none, and then no table.
        out: the file.
        samples: every raw sample too.

    Raises:
        FileError: ``out`` is there already, or a job's samples are damaged.
        StoreError: it cannot be written.
    """
    frames = {"rows": rows_frame(table)}
    if jobs:
        frames["jobs"] = jobs_frame(jobs)
    if jobs and samples:
        frames["samples"] = samples_frame(jobs)
    frames[_COLUMNS] = _described(frames)
    with new_file(out) as path, contextlib.closing(sqlite3.connect(path)) as connection:
        for name, each in frames.items():
            _write(connection, name, each)
        connection.commit()


def _write(connection: sqlite3.Connection, name: str, made: pd.DataFrame) -> None:
    shown = made.copy()
    for column in shown.columns:
        # SQLite has no type for times: ISO texts sort and compare as they should.
        if isinstance(shown[column].dtype, pd.DatetimeTZDtype):
            shown[column] = shown[column].dt.strftime("%Y-%m-%dT%H:%M:%S.%f+00:00").astype("string")
        elif pd.api.types.is_datetime64_any_dtype(shown[column]):
            shown[column] = shown[column].dt.strftime("%Y-%m-%d").astype("string")
    types = {column: _TYPES[str(dtype)] for column, dtype in shown.dtypes.items()}
    try:
        shown.to_sql(name, connection, index=False, dtype=types)
    # Names of stages are a stranger's: SQLite knows no capitals, and no name with a zero byte.
    except (sqlite3.Error, ValueError, OverflowError) as error:
        if "disk is full" in str(error):  # the only word that SQLite has for it
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise StoreError(f"table {name}: SQLite cannot hold it: {error}; export it as parquet") from error


def _described(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    listed = [
        (name, column, unit, made.attrs["meanings"][column])
        for name, made in frames.items()
        for column, unit in made.attrs["units"].items()
    ]
    return pd.DataFrame(listed, columns=["table", "column", "unit", "meaning"], dtype="string")


@contextlib.contextmanager
def new_file(out: Path) -> Iterator[Path]:
    """Yield a path to write; the file becomes ``out`` on success.  Errors as :func:`new_folder`."""
    _refuse(out, out.exists())
    with _disk_errors(out), filesystem.scratch_folder(out.absolute().parent, out.name) as scratch:
        partial = scratch / out.name
        yield partial
        partial.replace(out)


@contextlib.contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a folder to fill; it becomes ``out`` on success.

    Raises:
        FileError: ``out`` exists and is not an empty folder.
        StoreError: it cannot be written.
    """
    _refuse(out, out.exists() and not (out.is_dir() and not any(out.iterdir())))
    with _disk_errors(out), filesystem.scratch_folder(out.absolute().parent, out.name) as scratch:
        partial = scratch / "whole"
        partial.mkdir()
        yield partial
        partial.replace(out)


def _refuse(out: Path, taken: bool) -> None:
    if taken:
        raise FileError(f"{out}: is there already, and nothing is overwritten; remove it or name another -o")
    if not out.absolute().parent.is_dir():
        raise FileError(f"{out}: there is no folder {out.absolute().parent} to write it in; make it")


@contextlib.contextmanager
def _disk_errors(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{out}: cannot be written: {error.strerror or error}; name another -o") from error
