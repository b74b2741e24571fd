"""Stored results as pandas data frames, for notebooks and for what is exported.

Columns, units and meanings are those of ``docs/columns.md``.  What is missing is ``<NA>`` (``NaT`` for times), never 0.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness import cache_folder, measure_names, prices, pricing, stored_jobs, tables
from harness.aws.client import is_s3
from harness.columns import Described, Kind
from harness.errors import UsageError
from harness.job_columns import JOBS, SAMPLES, stage
from harness.report import columns
from harness.stored_jobs import StoredJob
from harness.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

Place = str | Path

_DTYPES = {Kind.TEXT: "string", Kind.NUMBER: "Float64", Kind.COUNT: "Int64", Kind.FLAG: "boolean"}


def load(
    results: Place,
    measures: Sequence[str] | str | None = None,
    *,
    as_of: datetime.date | str | None = None,
    region: str | None = None,
    term: str | None = None,
    cache: Place | None = None,
) -> pd.DataFrame:
    """The table of stored results, priced: one row for each cell, as ``harness report --format csv`` has it.

    Args:
        results: a results folder, or one of published tables; or ``"s3://bucket/prefix"``.
        measures: names as ir_measures writes them; ``None``: RR@10, Success@10 and nDCG@10 (published tables have
            their own).
        as_of: prices of this date (text: ``YYYY-MM-DD``) or the last before it; ``None``: the newest.
        region: prices of this region; ``None``: the usual one.
        term: on-demand, reserved-1y, reserved-3y or spot; ``None``: the usual one.
        cache: where rows are kept, so that only the first call takes its time; ``None``: as the command line.

    Returns:
        A frame whose ``attrs`` hold ``units`` and ``meanings`` by column, the ``prices``, and the table's ``notes``.

    Raises:
        UsageError: there is no job in it, a measure is unknown, or there are no such prices.
        FileError: it is no folder, or something in it is damaged.
        AwsError: it is in S3, and cannot be read.
    """
    return of_table(table(results, measures, as_of=as_of, region=region, term=term, cache=cache))


def load_samples(results: Place, *, cache: Place | None = None) -> pd.DataFrame:
    """Every raw sample of every stored job, failed ones included: one row for each query of each trial.

    Args:
        results: a results folder, or ``"s3://bucket/prefix"``.
        cache: where results in S3 are mirrored; ``None``: as the command line.

    Raises:
        UsageError: there is no stored job in it (published tables have no samples).
        FileError: it is no folder, or something in it is damaged.
        AwsError: it is in S3, and cannot be read.
    """
    return of_samples(stored(results, cache=cache))


def table(
    results: Place,
    measures: Sequence[str] | str | None = None,
    *,
    as_of: datetime.date | str | None = None,
    region: str | None = None,
    term: str | None = None,
    cache: Place | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Table:
    """The table that :func:`load` makes a frame of; ``say`` takes a line on what takes long."""
    names = measures.split() if isinstance(measures, str) else measures
    place = _cache(cache)
    snapshot = prices.snapshot(_date(as_of), region=region, term=term)
    measured = tables.rows_of(_folder(results, place, say), tuple(names or measure_names.DEFAULT), cache=place, say=say)
    return tables.priced(measured, pricing.tariff(snapshot))


def stored(results: Place, *, cache: Place | None = None) -> tuple[StoredJob, ...]:
    """The jobs of a results folder; errors as :func:`load_samples`."""
    jobs = stored_jobs.read_jobs(_folder(results, _cache(cache), lambda _: None))
    if not jobs:
        raise UsageError(f"{results}: no stored job in it, so no samples; published tables have rows alone")
    return jobs


def _cache(cache: Place | None) -> Path:
    return cache_folder.default() if cache is None else Path(cache).expanduser().absolute()


def _folder(results: Place, cache: Path, say: Callable[[str], None]) -> Path:
    """The folder of results, which for those in S3 is their mirror."""
    if not isinstance(results, str) or not is_s3(results):
        if str(results).startswith("s3:/") and not Path(results).is_dir():
            raise UsageError(f'{results}: a path keeps one of the two slashes; give the text "s3://..." instead')
        return Path(results)
    from harness.s3 import open_to_read
    from harness.s3.mirror import Wants, Watch

    return open_to_read(results, cache, Wants.FIGURES, Watch(say))


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


def _date(text: datetime.date | str | None) -> datetime.date | None:
    if not isinstance(text, str):
        return text
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"as_of {text!r} is no date; write YYYY-MM-DD") from error
