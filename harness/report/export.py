"""Rows, jobs and samples as files that pandas reads in one line: Parquet, SQLite and CSV."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from harness.analysis.table import Table
from harness.errors import StoreError
from harness.report import csv_json, dataframe
from harness.report.export_files import new_file
from harness.report.ir_metadata import Actor
from harness.report.ir_metadata import write as ir_metadata
from harness.results.reader import StoredJob

# A table of the database that documents the others.
_COLUMNS = "columns"
_TYPES = {"string": "TEXT", "Float64": "REAL", "Int64": "INTEGER", "boolean": "INTEGER"}


def csv(table: Table, out: Path) -> None:
    """The text of ``harness report --format csv``; errors as :func:`harness.report.export_files.new_file`."""
    with new_file(out) as path:
        path.write_text(csv_json.render_csv(table), encoding="utf-8")


def parquet(table: Table, out: Path) -> None:
    """The frame of the table; each column's metadata holds its ``unit`` and ``meaning``.  Errors as :func:`csv`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = dataframe.of_table(table)
    units, meanings = made.attrs["units"], made.attrs["meanings"]
    whole = pa.Table.from_pandas(made, preserve_index=False)
    fields = [
        field.with_metadata({"unit": units[field.name], "meaning": meanings[field.name]}) for field in whole.schema
    ]
    with new_file(out) as path:
        pq.write_table(whole.cast(pa.schema(fields, metadata=whole.schema.metadata)), path, compression="zstd")


def sqlite(table: Table, jobs: Sequence[StoredJob], out: Path, *, samples: bool = False) -> None:
    """Tables ``rows``, ``jobs`` (if any), ``samples`` (if asked for) and ``columns``, which says what all others hold.

    Args:
        table: what ``rows`` holds.
        jobs: stored jobs; published tables have none.
        out: the file.
        samples: every raw sample too.

    Raises:
        FileError: ``out`` is there already, or a job's samples are damaged.
        StoreError: it cannot be written.
    """
    frames = {"rows": dataframe.of_table(table)}
    if jobs:
        frames["jobs"] = dataframe.of_jobs(jobs)
    if jobs and samples:
        frames["samples"] = dataframe.of_samples(jobs)
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


# MERGED harness.report.export: Stored results for other programs: one file of a table, or a file of metadata for each
# job.


__all__ = ["FORMATS", "Actor", "csv", "ir_metadata", "parquet", "sqlite"]

FORMATS = ("parquet", "sqlite", "csv", "ir_metadata")
