"""Read a stored job's samples.

Another person may have made the file: its declared sizes and types are checked before any column is read.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from harness.driver.output import WARMUP_TRIAL
from harness.results import parquet_pages
from harness.untrusted import MAX_FILE_BYTES, open_regular, parquet_file, reading

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES = {"query_id": "string", "trial": "int32", "warmup": "bool", "latency_ns": "int64"}
_MORE = re.compile(
    r"scheduled_ns|service_ns|batch|failed|matching|stage_.{1,200}_ns|count_[a-z0-9_]{1,40}"
)  # whole numbers, where a sample has them
MOST_ROWS, _MOST_COLUMNS = 10_000_000, 64
_MOST_TRIALS = 1002  # of a suite, and warm-up and repeats
_LONGEST_ID_BYTES = 1024  # 256 characters
_MOST_FOOTER_BYTES = 4 << 20
_VALUE_BYTES = 8
# Latencies hardly shrink when they are packed: a file that unpacks to more does not hold latencies.
_FREE_BYTES, _MOST_TIMES = 8 << 20, 128
# The samples of a cell, for which statistics need several times that.
_MOST_HELD_BYTES = 256 << 20


@dataclass
class SampleBudget:
    """Memory for samples that are held together; what their files declare is compared with it before they are read.

    ``most_bytes`` bounds all of them, where it is given.  Without ``warmup``, its samples are dropped once a file is
    read.
    """

    most_bytes: int | None = None
    warmup: bool = True
    _held_bytes: int = 0
    _file_bytes: int = 0

    def admit(self, rows: int, columns: int, unpacked_bytes: int, file_bytes: int) -> None:
        """Make room for reading a file; errors as :meth:`hold`."""
        self._file_bytes += file_bytes
        self._check(max(rows * columns * _VALUE_BYTES, unpacked_bytes))

    def hold(self, size: int) -> None:
        """Count what stays in memory.

        Raises:
            ValueError: with it, more would be held than the files, or any samples, account for.
        """
        self._check(size)
        self._held_bytes += size

    def _check(self, size: int) -> None:
        most = _FREE_BYTES + _MOST_TIMES * self._file_bytes
        most = most if self.most_bytes is None else min(most, self.most_bytes)
        if self._held_bytes + size > most:
            raise ValueError(
                f"needs {size:,} bytes of memory in addition to {self._held_bytes:,}; the limit is {most:,}"
            )


def cell_budget() -> SampleBudget:
    """Return the budget of the samples of one cell, without warm-up."""
    return SampleBudget(_MOST_HELD_BYTES, warmup=False)


def no_samples() -> pa.Table:
    """Return the table of a job that finished no query."""
    import pyarrow as pa

    types = {name: pa.type_for_alias(kind) for name, kind in _TYPES.items()}
    # Ids are places in a dictionary, so that a long one takes no memory in each row.
    return pa.schema(types | {"query_id": pa.dictionary(pa.int32(), pa.string())}).empty_table()


def load_samples(path: Path, budget: SampleBudget | None = None) -> pa.Table:
    """Read a job's ``samples.parquet``; its query ids are places in a dictionary.

    Args:
        path: the file.
        budget: of the samples that are held together with it; ``None``: it is read alone.

    Raises:
        FileError: it is damaged, has other columns than samples have, or exceeds a limit.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    budget = budget or SampleBudget(_MOST_HELD_BYTES)
    remedy = "run its suite again with --fresh (harness verify names all damage)"
    with reading(path, remedy, damage=(OSError, ValueError, KeyError, pa.ArrowException)):
        with open_regular(path, MAX_FILE_BYTES) as content:
            _check_footer(content)
            with parquet_file(content, read_dictionary=["query_id"]) as file:
                rows, columns = _check_outline(file)
                pages_bytes = parquet_pages.unpacked_bytes(content, file.metadata)
                budget.admit(rows, columns, pages_bytes, os.fstat(content.fileno()).st_size)
                table = file.read(use_threads=False)  # a small file: threads cost more than they bring
        table.column("query_id").validate(full=True)  # an id that is not UTF-8 is an error now, not in a table
        index = table.column_names.index("query_id")
        ids = table.column(index)
        ids = ids if pa.types.is_dictionary(ids.type) else ids.dictionary_encode()  # in a file without rows
        _check_ids(ids)
        if (trials := pc.count_distinct(table.column("trial")).as_py()) > _MOST_TRIALS:
            raise ValueError(f"{trials:,} trials; the limit is {_MOST_TRIALS:,}")
        for name in _TYPES:
            if table.column(name).null_count:
                raise ValueError(f"column {name!r} has holes")
        table = table.set_column(index, "query_id", ids)
        if not budget.warmup:
            table = table.filter(pc.not_equal(table.column("trial"), WARMUP_TRIAL))
        budget.hold(max(table.nbytes, table.num_rows * columns * _VALUE_BYTES))
        return table


def _check_footer(file: IO[bytes]) -> None:
    """Raise ValueError for declarations that would take much more memory than any samples need."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - 8))
    size = int.from_bytes(file.read(4), "little")
    file.seek(0)
    if size > _MOST_FOOTER_BYTES:
        raise ValueError(f"{size:,} bytes of declarations; the limit is {_MOST_FOOTER_BYTES:,}")


def _check_outline(file: Any) -> tuple[int, int]:
    """Return the rows and columns that a Parquet file declares; raise ValueError if samples have others."""
    import pyarrow as pa

    schema, about = file.schema_arrow, file.metadata
    if len(schema) > _MOST_COLUMNS or about.num_columns != len(schema):
        raise ValueError(f"{about.num_columns} columns; the limit is {_MOST_COLUMNS} plain columns")
    types = {
        field.name: str(field.type.value_type if pa.types.is_dictionary(field.type) else field.type) for field in schema
    }
    for name, kind in types.items():
        expected = _TYPES.get(name, "int64" if _MORE.fullmatch(name) else None)
        if kind != expected:
            raise ValueError(f"column {name[:80]!r} of {kind[:80]}, must be {expected or 'no column of samples'}")
    if missing := _TYPES.keys() - types.keys():
        raise ValueError(f"no column {min(missing)!r}")
    rows = max(about.num_rows, sum(about.row_group(number).num_rows for number in range(about.num_row_groups)))
    if rows > MOST_ROWS:
        raise ValueError(f"{rows:,} rows; the limit is {MOST_ROWS:,}")
    parquet_pages.check_values(about)
    return rows, len(schema)


def _check_ids(column: pa.ChunkedArray) -> None:
    """Raise ValueError for ids that are longer than any, or missing."""
    import pyarrow.compute as pc

    for dictionary in (chunk.dictionary for chunk in column.chunks if len(chunk.dictionary)):
        if dictionary.null_count:
            raise ValueError("column 'query_id' has holes")
        if (longest := pc.max(pc.binary_length(dictionary)).as_py()) > _LONGEST_ID_BYTES:
            raise ValueError(f"a query id of {longest:,} bytes; the limit is {_LONGEST_ID_BYTES:,}")


def id_bytes(samples: pa.Table) -> int:
    """Return the bytes of the query ids of samples, written out in each row."""
    import pyarrow.compute as pc

    return sum(
        pc.sum(pc.take(pc.binary_length(chunk.dictionary), chunk.indices)).as_py() or 0
        for chunk in samples.column("query_id").chunks
    )


def query_ids(samples: pa.Table) -> list[str]:
    """Return the query id of each sample; equal ids share one text in memory."""
    chunks = samples.column("query_id").chunks
    named = ((chunk.dictionary.to_pylist(), chunk.indices.to_pylist()) for chunk in chunks)
    return [names[place] for names, places in named for place in places]
