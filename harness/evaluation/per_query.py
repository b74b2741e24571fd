"""What a row's numbers are made of, by query: what paired comparisons, resampling and distributions need.

Kept apart from the rows, which are read far more often.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The shares of all timed samples that ``quantiles_s`` holds: 0, 2 %, ... 100 %.
SHARES = np.linspace(0.0, 1.0, 51)


@dataclass(frozen=True)
class PerQuery:
    """One row's queries, in the order of their ids.

    ``latency_s`` has a query's mean over its trials, ``measures`` its value of each measure; both have the shape
    (queries,), ``nan`` where a query was not timed or is not judged.  ``latency_s`` is empty where the scenario has no
    latency of single queries.  ``quantiles_s`` are those of all timed samples at ``SHARES``, none where there are none.
    """

    key: str
    query_ids: tuple[str, ...]
    latency_s: Floats
    measures: dict[str, Floats] = field(default_factory=dict)
    quantiles_s: tuple[float, ...] = ()

    def on(self, query_ids: tuple[str, ...]) -> PerQuery:
        """The same on other queries, in their order; ``nan`` for one that is not here."""
        if query_ids == self.query_ids:
            return self
        places = {query: place for place, query in enumerate(self.query_ids)}
        chosen = np.asarray([places.get(query, -1) for query in query_ids], dtype=np.int64)

        def take(values: Floats) -> Floats:
            return np.append(values, np.nan)[chosen] if len(values) else values

        taken = {name: take(values) for name, values in self.measures.items()}
        return PerQuery(self.key, query_ids, take(self.latency_s), taken, self.quantiles_s)


def collect(
    key: str,
    latencies_s: Mapping[str, float],
    quantiles_s: tuple[float, ...],
    values: Mapping[str, Mapping[str, float]],
) -> PerQuery:
    """Put together what is known of each query.

    Args:
        key: see :func:`name`.
        latencies_s: by query, or empty.
        quantiles_s: see :class:`PerQuery`.
        values: by measure, then by query; judged queries alone.
    """
    ids = tuple(sorted(set(latencies_s).union(*values.values())))

    def column(of: Mapping[str, float]) -> Floats:
        return np.asarray([of.get(query, np.nan) for query in ids], dtype=np.float64)

    latency = column(latencies_s) if latencies_s else np.zeros(0)
    return PerQuery(key, ids, latency, {measure: column(of) for measure, of in values.items()}, quantiles_s)


def write(path: Path, found: Iterable[PerQuery], stamp: str) -> None:
    """Write a Parquet file with one line for each row.

    Raises:
        OSError: it cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    listed = list(found)
    measures = sorted({measure for each in listed for measure in each.measures})
    nothing = np.zeros(0)
    floats = pa.list_(pa.float64())
    columns = {
        "key": pa.array([each.key for each in listed], pa.string()),
        "query_ids": pa.array([each.query_ids for each in listed], pa.list_(pa.string())),
        "latency_s": pa.array([each.latency_s for each in listed], floats),
        "quantiles_s": pa.array([each.quantiles_s for each in listed], floats),
        **{
            f"measure {measure}": pa.array([each.measures.get(measure, nothing) for each in listed], floats)
            for measure in measures
        },
    }
    pq.write_table(pa.table(columns).replace_schema_metadata({"stamp": stamp}), path, compression="zstd")


def read(path: Path, stamp: str) -> dict[str, PerQuery] | None:
    """What is kept there under that stamp, by :func:`name`; ``None``: nothing, or not what was written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        if (table.schema.metadata or {}).get(b"stamp") != stamp.encode("ascii"):
            return None
        names = [column for column in table.column_names if column.startswith("measure ")]
        # Each sample of queries is one tuple, however many rows share it.
        samples: dict[tuple[str, ...], tuple[str, ...]] = {}
        found = {}
        for place, key in enumerate(table.column("key").to_pylist()):
            ids = tuple(table.column("query_ids")[place].as_py())
            measures = {each.removeprefix("measure "): _floats(table, each, place) for each in names}
            found[key] = PerQuery(
                key,
                samples.setdefault(ids, ids),
                _floats(table, "latency_s", place),
                {measure: values for measure, values in measures.items() if len(values)},
                tuple(_floats(table, "quantiles_s", place).tolist()),
            )
        return found
    except (OSError, ValueError, KeyError, pa.ArrowException):
        return None


def _floats(table: object, column: str, place: int) -> Floats:
    import pyarrow as pa

    assert isinstance(table, pa.Table)
    return np.asarray(table.column(column)[place].values.to_numpy(zero_copy_only=False), dtype=np.float64)
