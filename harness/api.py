"""Stored results in notebooks: ``harness.load(results)`` and ``harness.load_samples(results)``."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from harness import config
from harness.analysis import results_folder, row_pricing
from harness.analysis.table import Table
from harness.aws import is_s3
from harness.errors import UsageError
from harness.pricing.prices import DEFAULT_PRICES, PriceSelection
from harness.report.export import rows_frame, samples_frame
from harness.results import reader

Location = str | Path


def load(
    results: Location,
    measures: Sequence[str] | str | None = None,
    *,
    as_of: datetime.date | str | None = None,
    region: str | None = None,
    term: str | None = None,
    architecture: str = DEFAULT_PRICES.architecture,
    generation: str = DEFAULT_PRICES.generation,
    cheapest_machine: bool = False,
    cache: Location | None = None,
) -> pd.DataFrame:
    """Return the priced table of stored results, one row for each cell, as ``harness report --format csv``.

    Args:
        results: a results folder, the name of published results such as ``"santhanam2023"``, or
            ``"s3://bucket/prefix"``.
        measures: names as ir_measures writes them; ``None``: the suite's, else RR@10, Success@10 and nDCG@10
            (published tables have their own).
        as_of: prices of this date (text: ``YYYY-MM-DD``) or the last before it; ``None``: the newest, for published
            tables the paper's.
        region: prices of this region; ``None``: the default.
        term: on-demand, reserved-1y, reserved-3y or spot; ``None``: the default.
        architecture: measured, any, x86_64 or arm64: price on types of this architecture, if one provides the profile.
        generation: current or any: price on types of this generation, if one provides the profile.
        cheapest_machine: price measured rows on the cheapest type that provides the profile, not on the type that
            measured them.
        cache: folder for computed rows, which make later calls quick; ``None``: as the command line.

    Returns:
        A frame whose ``attrs`` hold ``units`` and ``meanings`` by column, the ``prices``, and the table's ``notes``.

    Raises:
        UsageError: the folder has no job, or a measure, the prices or the types are unknown.
        FileError: the results are not a folder, or a file is damaged.
        RemoteError: results in S3 cannot be read.
    """
    selection = PriceSelection(_date(as_of), region, term, architecture, generation, cheapest_machine=cheapest_machine)
    return rows_frame(table(results, measures, selection, cache))


def load_samples(results: Location, *, cache: Location | None = None) -> pd.DataFrame:
    """Return the raw samples of all stored jobs, failed ones too: one row for each query of each trial.

    Args:
        results: a results folder, or ``"s3://bucket/prefix"``.
        cache: folder for the mirror of results in S3; ``None``: as the command line.

    Raises:
        UsageError: the folder has no stored job (published tables have no samples).
        FileError: the results are not a folder, or a file is damaged.
        RemoteError: results in S3 cannot be read.
    """
    none = f"{results}: no stored job in it, so no samples; published tables have rows alone"
    return samples_frame(reader.read_jobs(_folder(results, _cache(cache)), none))


def table(
    results: Location,
    measures: Sequence[str] | str | None = None,
    selection: PriceSelection = DEFAULT_PRICES,
    cache: Location | None = None,
) -> Table:
    """Return the table of :func:`load`."""
    names = measures.split() if isinstance(measures, str) else measures
    cache = _cache(cache)
    folder = _folder(results, cache)
    measured = results_folder.read(folder, results_folder.Selection(tuple(names or ())), cache=cache).table
    return row_pricing.price(measured, results_folder.tariff(folder, selection))


def _cache(cache: Location | None) -> Path:
    return config.cache_folder() if cache is None else config.absolute_folder(cache)


def _folder(results: Location, cache: Path) -> Path:
    """Return the folder of results, or the mirror of results in S3."""
    if not isinstance(results, str) or not is_s3(results):
        if str(results).startswith("s3:/") and not Path(results).is_dir():
            raise UsageError(f'{results}: a path keeps one of the two slashes; give the text "s3://..." instead')
        return config.results_by_name(Path(results))
    from harness.aws.results import open_to_read
    from harness.aws.results.mirror import FileSelection

    return open_to_read(results, cache, FileSelection.FIGURES)


def _date(text: datetime.date | str | None) -> datetime.date | None:
    if not isinstance(text, str):
        return text
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"as_of {text!r} is not a date; write YYYY-MM-DD") from error
