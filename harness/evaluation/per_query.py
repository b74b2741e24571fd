"""Store a row's latencies and measures by query, for paired comparisons, resampling and distributions.

A file of their own keeps them out of the rows, which are read far more often.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from harness.stats import Floats
from harness.untrusted import open_regular, parquet_file

# Shares of all timed samples that ``quantiles_s`` has: 0, 2 %, ... 100 %.
SHARES = np.linspace(0.0, 1.0, 51)


@dataclass(frozen=True)
class PerQuery:
    """Values of one row's queries, in the order of their ids.

    ``latency_s`` has each query's mean over its trials, ``measures`` its value of each measure; both have the shape
    (queries,), ``nan`` where a query was not timed or is not judged.  ``latency_s`` is empty where the scenario has no
    latency of single queries.  ``quantiles_s`` has the quantiles of all timed samples at ``SHARES``, if there are any.
    """

    key: str
    query_ids: tuple[str, ...]
    latency_s: Floats
    measures: dict[str, Floats] = field(default_factory=dict)
    quantiles_s: tuple[float, ...] = ()

    def on(self, query_ids: tuple[str, ...]) -> PerQuery:
        """Return the values of other queries, in their order; ``nan`` for an unknown one."""
        if query_ids == self.query_ids:
            return self
        index_of = {query: index for index, query in enumerate(self.query_ids)}
        indexes = np.asarray([index_of.get(query, -1) for query in query_ids], dtype=np.int64)

        def take(values: Floats) -> Floats:
            return np.append(values, np.nan)[indexes] if len(values) else values

        taken = {name: take(values) for name, values in self.measures.items()}
        return PerQuery(self.key, query_ids, take(self.latency_s), taken, self.quantiles_s)


def collect(
    key: str,
    latencies_s: Mapping[str, float],
    quantiles_s: tuple[float, ...],
    values: Mapping[str, Mapping[str, float]],
) -> PerQuery:
    """Combine latencies by query (or none) and values by measure and judged query."""
    ids = tuple(sorted(set(latencies_s).union(*values.values())))

    def column(by_query: Mapping[str, float]) -> Floats:
        return np.asarray([by_query.get(query, np.nan) for query in ids], dtype=np.float64)

    latency = column(latencies_s) if latencies_s else np.zeros(0)
    measures = {measure: column(by_query) for measure, by_query in values.items()}
    return PerQuery(key, ids, latency, measures, quantiles_s)


def write(path: Path, rows: Iterable[PerQuery], stamp: str) -> None:
    """Write a Parquet file with one line for each row; raise OSError if it cannot be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    listed = list(rows)
    measures = sorted({measure for row in listed for measure in row.measures})
    nothing = np.zeros(0)
    floats = pa.list_(pa.float64())
    columns = {
        "key": pa.array([row.key for row in listed], pa.string()),
        "query_ids": pa.array([row.query_ids for row in listed], pa.list_(pa.string())),
        "latency_s": pa.array([row.latency_s for row in listed], floats),
        "quantiles_s": pa.array([row.quantiles_s for row in listed], floats),
        **{
            f"measure {measure}": pa.array([row.measures.get(measure, nothing) for row in listed], floats)
            for measure in measures
        },
    }
    pq.write_table(pa.table(columns).replace_schema_metadata({"stamp": stamp}), path, compression="zstd")


def read(path: Path, stamp: str) -> dict[str, PerQuery] | None:
    """Return the rows of a file by their keys; ``None`` if it is missing, damaged or has another stamp."""
    import pyarrow as pa

    try:
        with open_regular(path) as content, parquet_file(content) as file:
            table = file.read()
        if (table.schema.metadata or {}).get(b"stamp") != stamp.encode("ascii"):
            return None
        names = [column for column in table.column_names if column.startswith("measure ")]
        # Rows over the same queries share one tuple.
        samples: dict[tuple[str, ...], tuple[str, ...]] = {}
        rows = {}
        for index, key in enumerate(table.column("key").to_pylist()):
            ids = tuple(table.column("query_ids")[index].as_py())
            measures = {name.removeprefix("measure "): _floats(table, name, index) for name in names}
            rows[key] = PerQuery(
                key,
                samples.setdefault(ids, ids),
                _floats(table, "latency_s", index),
                {measure: values for measure, values in measures.items() if len(values)},
                tuple(_floats(table, "quantiles_s", index).tolist()),
            )
        return rows
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException):
        return None


def _floats(table: object, column: str, index: int) -> Floats:
    import pyarrow as pa

    assert isinstance(table, pa.Table)
    # to_numpy would import pandas.
    return np.from_dlpack(table.column(column)[index].values).astype(np.float64)
