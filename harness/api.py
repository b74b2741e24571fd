"""Stored results in notebooks: ``harness.load(results)`` and ``harness.load_samples(results)``."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from harness import config
from harness.analysis import results_folder, row_pricing
from harness.analysis.table import Table
from harness.aws.clients import is_s3
from harness.errors import UsageError
from harness.evaluation import measure_names
from harness.pricing import prices
from harness.report.export import rows_frame, samples_frame
from harness.results import reader
from harness.results.reader import StoredJob

Place = str | Path


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
    return rows_frame(table(results, measures, as_of=as_of, region=region, term=term, cache=cache))


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
    return samples_frame(stored(results, cache=cache))


def table(
    results: Place,
    measures: Sequence[str] | str | None = None,
    *,
    as_of: datetime.date | str | None = None,
    region: str | None = None,
    term: str | None = None,
    cache: Place | None = None,
) -> Table:
    """The table that :func:`load` makes a frame of."""
    names = measures.split() if isinstance(measures, str) else measures
    place = _cache(cache)
    snapshot = prices.snapshot(_date(as_of), region=region, term=term)
    measured = results_folder.load_rows(_folder(results, place), tuple(names or measure_names.DEFAULT), cache=place)
    return row_pricing.price(measured, row_pricing.tariff(snapshot))


def stored(results: Place, *, cache: Place | None = None) -> tuple[StoredJob, ...]:
    """The jobs of a results folder; errors as :func:`load_samples`."""
    jobs = reader.read_jobs(_folder(results, _cache(cache)))
    if not jobs:
        raise UsageError(f"{results}: no stored job in it, so no samples; published tables have rows alone")
    return jobs


def _cache(cache: Place | None) -> Path:
    return config.cache_folder() if cache is None else Path(cache).expanduser().absolute()


def _folder(results: Place, cache: Path) -> Path:
    """The folder of results, which for those in S3 is their mirror."""
    if not isinstance(results, str) or not is_s3(results):
        if str(results).startswith("s3:/") and not Path(results).is_dir():
            raise UsageError(f'{results}: a path keeps one of the two slashes; give the text "s3://..." instead')
        return Path(results)
    from harness.aws.results import open_to_read
    from harness.aws.results.mirror import FileSelection

    return open_to_read(results, cache, FileSelection.FIGURES)


def _date(text: datetime.date | str | None) -> datetime.date | None:
    if not isinstance(text, str):
        return text
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"as_of {text!r} is no date; write YYYY-MM-DD") from error
