"""Read a stored job's samples.

Another person may have made the file: its declared sizes and types are checked before any column is read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.untrusted import MAX_FILE_BYTES, MAX_UNPACKED_BYTES, open_regular, reading

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES = {"query_id": "string", "trial": "int32", "warmup": "bool", "latency_ns": "int64"}
_MORE = re.compile(
    r"scheduled_ns|service_ns|batch|stage_.{1,200}_ns|count_[a-z0-9_]{1,40}"
)  # whole numbers, where a sample has them
_MOST_ROWS, _MOST_VALUES, _MOST_COLUMNS = 10_000_000, 1 << 26, 64
_MOST_TRIALS = 1002  # of a suite, and warm-up and repeats
_LONGEST_ID_BYTES = 1024  # 256 characters
_MOST_ID_BYTES = 1 << 28  # numpy takes four times that, as it gives each id the room of the longest


def no_samples() -> pa.Table:
    """Return the table of a job that finished no query."""
    import pyarrow as pa

    kinds = {"string": pa.string(), "int32": pa.int32(), "bool": pa.bool_(), "int64": pa.int64()}
    return pa.schema({name: kinds[kind] for name, kind in _TYPES.items()}).empty_table()


def load_samples(path: Path) -> pa.Table:
    """Read a job's ``samples.parquet``.

    Raises:
        FileError: it is damaged, has other columns than samples have, or more of anything than makes sense.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    remedy = "run its suite again with --fresh (harness verify names all damage)"
    with reading(path, remedy, damage=(OSError, ValueError, KeyError, pa.ArrowException)):
        with (
            open_regular(path, MAX_FILE_BYTES) as content,
            # Ids are read as places in a dictionary: one long id, a million times, is a bomb of few bytes.
            pq.ParquetFile(content, read_dictionary=["query_id"]) as file,
        ):
            _check_outline(file)
            table = file.read(use_threads=False)  # a small file: threads cost more than they bring
        table.column("query_id").validate(full=True)  # an id that is not UTF-8 is an error now, not in a table
        _check_ids(table.column("query_id"))
        if (trials := pc.count_distinct(table.column("trial")).as_py()) > _MOST_TRIALS:
            raise ValueError(f"{trials:,} trials, at most {_MOST_TRIALS:,} make sense")
        for name in _TYPES:
            if table.column(name).null_count:
                raise ValueError(f"column {name!r} has holes")
        index = table.column_names.index("query_id")
        return table.set_column(index, "query_id", table.column(index).cast(pa.string()))


def _check_outline(file: Any) -> None:
    """Check the columns and sizes that a Parquet file declares; raise ValueError if samples have others."""
    import pyarrow as pa

    schema, about = file.schema_arrow, file.metadata
    if len(schema) > _MOST_COLUMNS or about.num_columns != len(schema):
        raise ValueError(f"{about.num_columns} columns, at most {_MOST_COLUMNS} plain ones make sense")
    types = {
        field.name: str(field.type.value_type if pa.types.is_dictionary(field.type) else field.type) for field in schema
    }
    for name, kind in types.items():
        expected = _TYPES.get(name, "int64" if _MORE.fullmatch(name) else None)
        if kind != expected:
            raise ValueError(f"column {name[:80]!r} of {kind[:80]}, must be {expected or 'no column of samples'}")
    if missing := _TYPES.keys() - types.keys():
        raise ValueError(f"no column {min(missing)!r}")
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    rows = max(about.num_rows, sum(group.num_rows for group in groups))
    if rows > _MOST_ROWS or rows * len(schema) > _MOST_VALUES:
        raise ValueError(f"{rows:,} rows, at most {min(_MOST_ROWS, _MOST_VALUES // len(schema)):,} make sense")
    if (size := sum(group.total_byte_size for group in groups)) > MAX_UNPACKED_BYTES:
        raise ValueError(f"{size:,} bytes unpacked, at most {MAX_UNPACKED_BYTES:,} make sense")


def _check_ids(column: pa.ChunkedArray) -> None:
    """Raise ValueError for ids that would take much more memory than the file."""
    import pyarrow.compute as pc

    lengths = (pc.max(pc.binary_length(chunk.dictionary)).as_py() for chunk in column.chunks if len(chunk.dictionary))
    longest = max(lengths, default=0)
    if longest > _LONGEST_ID_BYTES or longest * len(column) > _MOST_ID_BYTES:
        raise ValueError(f"{len(column):,} query ids, the longest of {longest:,} bytes, make no sense")
