"""Data frames of rows, jobs and samples, and their files: Parquet, SQLite and CSV.

``docs/reference/columns.md`` has columns, units and meanings.  A missing value is ``<NA>`` (``NaT`` for
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

from harness import filesystem
from harness.analysis.table import Table
from harness.errors import FileError, StoreError, UsageError
from harness.report import row_figures, writers
from harness.report.columns import JOBS, SAMPLES, ColumnMeaning, Kind, count_column, stage_column
from harness.report.document import price_facts
from harness.report.main_table import table_document
from harness.results import reader
from harness.results.reader import StoredJob
from harness.results.samples import SampleBudget, id_bytes
from harness.untrusted import ForeignText, reading, reason_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_DTYPES = {Kind.TEXT: "string", Kind.NUMBER: "Float64", Kind.COUNT: "Int64"}
FORMATS = ("parquet", "sqlite", "csv", "ir_metadata", "passport")
# A table of the database that documents the others.
_COLUMNS = "columns"
_TYPES = {"string": "TEXT", "Float64": "REAL", "Int64": "INTEGER"}
_PLACE_BYTES = 8  # of each text of a frame
# The first columns of the jobs' table are texts that name a job; samples have them too.
_NAMES = next(number for number, column in enumerate(JOBS) if column.kind is not Kind.TEXT)


def rows_frame(table: Table) -> pd.DataFrame:
    """Return a priced table as a frame."""
    frame = _frame((column, list(map(column.get, table.rows))) for column in row_figures.table_columns(table))
    frame.attrs["prices"] = price_facts(table)
    frame.attrs["notes"] = list(table.notes)
    return frame


def samples_frame(jobs: Sequence[StoredJob]) -> pd.DataFrame:
    """Return a frame with a row for each sample of at least one job, in the order of measurement.

    The samples of a job that cannot be read are left out, and named in the log.

    Raises:
        UsageError: no job's samples can be read.
    """
    import pandas as pd
    import pyarrow as pa

    budget, tables = SampleBudget(), []
    unreadable: list[FileError] = []
    for job in jobs:
        try:
            tables.append(_samples(job, budget))
        except FileError as error:
            unreadable.append(error)
    if (fault := reader.first_fault(unreadable)) and not any(map(len, tables)):
        raise UsageError(fault)
    reader.announce(map(reader.left_out, unreadable))
    whole = pa.concat_tables(tables, promote_options="default")
    stages, counts = (
        sorted(name for name in whole.column_names if name.startswith(start)) for start in ("stage_", "count_")
    )
    # Whole numbers stay whole in a column with holes: floats would be wrong beyond 2^53.
    whole_numbers = {pa.int64(): pd.Int64Dtype()}.get
    found = {name: whole.column(name).to_pandas(types_mapper=whole_numbers) for name in whole.column_names}
    # A column that no job has is missing throughout.
    return _frame(
        (column, found.get(column.name, [None] * len(whole)))
        for column in (*SAMPLES, *map(stage_column, stages), *map(count_column, counts))
    )


def _samples(job: StoredJob, budget: SampleBudget) -> pa.Table:
    """Return the samples of a job with the job's names, and times in seconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    raw = job.samples(budget)
    texts = {column.name: _raw(column.get(job)) for column in JOBS[:_NAMES]}
    with reading(job.folder / reader.SAMPLES, "measure the job again", damage=(ValueError,)):
        budget.hold(
            id_bytes(raw) + len(raw) * sum(_PLACE_BYTES + len((text or "").encode()) for text in texts.values())
        )
    trial = raw.column("trial").cast(pa.int64())
    part = pc.if_else(pc.equal(trial, -2), "repeat", pc.if_else(pc.less(trial, 0), "warmup", "timed"))
    values = {name: pa.repeat(pa.scalar(text, pa.string()), len(raw)) for name, text in texts.items()}
    values["job"] = pa.repeat(pa.scalar(job.result.spec.job, pa.int64()), len(raw))
    values |= {"query_id": raw.column("query_id").cast(pa.string()), "trial": trial, "part": part}
    for name in raw.column_names:
        if name.endswith("_ns"):
            values[f"{name[:-3]}_s"] = pc.divide(raw.column(name).cast(pa.float64(), safe=False), 1e9)
    for name in raw.column_names:
        if name == "batch" or name.startswith("count_"):
            values[name] = raw.column(name).cast(pa.int64())
    return pa.table(values)


def _frame(values_by_column: Iterable[tuple[ColumnMeaning, Any]]) -> pd.DataFrame:
    import pandas as pd

    columns = {column: _typed(values, column.kind) for column, values in values_by_column}
    frame = pd.DataFrame({column.name: values for column, values in columns.items()})
    frame.attrs["units"] = {column.name: column.unit for column in columns}
    frame.attrs["meanings"] = {column.name: column.meaning for column in columns}
    return frame


def _typed(values: Any, kind: Kind) -> Any:
    """Return a column with the nullable type of its kind."""
    import pandas as pd

    if kind in (Kind.TIME, Kind.DATE):
        # A row of published tables has no time: it is missing, as a text that is not a time.
        times = pd.Series(values, dtype="string")
        found = pd.to_datetime(times, format="ISO8601", utc=kind is Kind.TIME, errors="coerce")
        return found.dt.as_unit("us")  # without a time, pandas would take seconds
    if isinstance(values, list):
        values = [_raw(value) for value in values]
    return pd.array(values, dtype=_DTYPES[kind])


def _raw(value: Any) -> Any:
    return value.raw if isinstance(value, ForeignText) else value


def export_csv(table: Table, out: Path) -> None:
    """Write the text of ``harness report --format csv``; errors as :func:`new_path`."""
    with new_path(out) as path:
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
    with new_path(out) as path:
        pq.write_table(whole.cast(pa.schema(fields, metadata=whole.schema.metadata)), path, compression="zstd")


def export_sqlite(table: Table, jobs: Sequence[StoredJob], out: Path, *, samples: bool = False) -> None:
    """Write the tables ``rows``, ``jobs`` and ``samples``, and ``columns``, which describes them.

    Args:
        table: what ``rows`` holds.
        jobs: stored jobs; published tables have none, and then no table.
        out: the file.
        samples: every raw sample too.

    Raises:
        FileError: ``out`` is there already.
        UsageError: no job's samples can be read.
        StoreError: it cannot be written.
    """
    frames = {"rows": rows_frame(table)}
    if jobs:
        frames["jobs"] = _frame((column, list(map(column.get, jobs))) for column in JOBS)
    if jobs and samples:
        frames["samples"] = samples_frame(jobs)
    frames[_COLUMNS] = _described(frames)
    with new_path(out) as path, contextlib.closing(sqlite3.connect(path)) as connection:
        for name, frame in frames.items():
            _write(connection, name, frame)
        connection.commit()


def _write(connection: sqlite3.Connection, name: str, frame: pd.DataFrame) -> None:
    import pandas as pd

    plain = frame.copy()
    for column, dtype in frame.dtypes.items():
        # SQLite has no type for times: ISO texts sort and compare as they should.
        if pd.api.types.is_datetime64_any_dtype(dtype):
            form = "%Y-%m-%dT%H:%M:%S.%f+00:00" if isinstance(dtype, pd.DatetimeTZDtype) else "%Y-%m-%d"
            plain[column] = frame[column].dt.strftime(form).astype("string")
    types = {column: _TYPES[str(dtype)] for column, dtype in plain.dtypes.items()}
    try:
        plain.to_sql(name, connection, index=False, dtype=types)
    # Names of stages are a stranger's: SQLite knows no capitals, and no name with a zero byte.
    except (sqlite3.Error, ValueError, OverflowError) as error:
        if "disk is full" in str(error):  # the only word that SQLite has for it
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise StoreError(f"table {name}: SQLite cannot hold it: {error}; export it as parquet") from error


def _described(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    lines = [
        (name, column, unit, frame.attrs["meanings"][column])
        for name, frame in frames.items()
        for column, unit in frame.attrs["units"].items()
    ]
    return pd.DataFrame(lines, columns=["table", "column", "unit", "meaning"], dtype="string")


@contextlib.contextmanager
def new_path(out: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield a file to write, or a folder to fill; it becomes ``out`` on success.

    Raises:
        FileError: ``out`` exists, and is not an empty folder where a folder is made.
        StoreError: it cannot be written.
    """
    if out.exists() and not (folder and out.is_dir() and not any(out.iterdir())):
        raise FileError(f"{out}: exists already, and harness does not overwrite it; remove it or name another -o")
    parent = out.absolute().parent
    if not parent.is_dir():
        raise FileError(f"{out}: the folder {parent} does not exist; make it")
    try:
        with filesystem.scratch_folder(parent, out.name) as scratch:
            partial = scratch / out.name
            if folder:
                partial.mkdir()
            yield partial
            partial.replace(out)
    except OSError as error:
        raise StoreError(f"{out}: cannot be written: {reason_of(error)}; name another -o") from error
