"""Stored results as pandas data frames, for notebooks and for what is exported.

Columns, units and meanings are those of ``docs/reference/columns.md``.  What is missing is ``<NA>`` (``NaT`` for times), never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.analysis.table import Table
from harness.report import columns
from harness.report.job_columns import JOBS, SAMPLES, Described, Kind, stage
from harness.results.reader import StoredJob

if TYPE_CHECKING:
    import pyarrow as pa


_DTYPES = {Kind.TEXT: "string", Kind.NUMBER: "Float64", Kind.COUNT: "Int64", Kind.FLAG: "boolean"}


def of_table(table: Table) -> pd.DataFrame:
    """A priced table as a frame; see :func:`load`."""
    shown = columns.of(table)
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


def of_jobs(jobs: Sequence[StoredJob]) -> pd.DataFrame:
    """One row for each stored job, in the order given."""
    return _frame((column, [column.get(job) for job in jobs]) for column in JOBS)


def of_samples(jobs: Sequence[StoredJob]) -> pd.DataFrame:
    """One row for each sample of some jobs, at least one, in the order in which each measured them.

    Raises:
        FileError: a job's samples are damaged.
    """
    import pyarrow as pa

    parts = [_samples(job) for job in jobs]
    whole = pa.concat_tables(parts, promote_options="default")
    stages = sorted(name for name in whole.column_names if name.startswith("stage_"))
    described = (*SAMPLES, *(stage(name) for name in stages))
    # A column that no job has is missing throughout.
    return _frame(
        (each, whole.column(each.name).to_pandas() if each.name in whole.column_names else [None] * len(whole))
        for each in described
    )


def _samples(job: StoredJob) -> pa.Table:
    """The samples of one job, with the names of the job beside them and times in seconds."""
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


# The first columns of the jobs' table are texts that name a job; samples have them too.
_NAMES = next(place for place, each in enumerate(JOBS) if each.kind is not Kind.TEXT)


def _frame(found: Iterable[tuple[Described, Any]]) -> pd.DataFrame:
    listed = list(found)
    frame = pd.DataFrame({each.name: _typed(values, each.kind) for each, values in listed})
    frame.attrs["units"] = {each.name: each.unit for each, _ in listed}
    frame.attrs["meanings"] = {each.name: each.meaning for each, _ in listed}
    return frame


def _typed(values: Any, kind: Kind) -> Any:
    """A column of the type that its kind has, with room for what is missing."""
    if kind in (Kind.TIME, Kind.DATE):
        # A row of published tables has no time: it is missing, and so is what is no time.
        return pd.to_datetime(
            pd.Series(values, dtype="string"), format="ISO8601", utc=kind is Kind.TIME, errors="coerce"
        )
    return pd.array(values, dtype=_DTYPES[kind])
