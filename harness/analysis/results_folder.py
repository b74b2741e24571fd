"""A results folder -> measured rows -> the table.  The one module that joins the free half's stages.

What rows and notes are computed with (numpy, scipy, ir_measures) takes longer to import than kept rows take to read and
to price: it is imported where it is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.analysis import row_cache, row_pricing
from harness.analysis.cell_cache import Made, Recall
from harness.analysis.row_pricing import Tariff
from harness.analysis.table import Measurements, Table
from harness.errors import UsageError
from harness.evaluation import measure_names
from harness.evaluation.per_query import PerQuery
from harness.pricing.prices import Snapshot
from harness.results import reader
from harness.results.attempts import Job

if TYPE_CHECKING:
    from harness.analysis.rejudge import Instead
    from harness.analysis.row_distances import Vectors

log = logging.getLogger(__name__)

# From so many jobs on, making rows takes long enough to say so.
_MANY = 100


def rows_of(
    folder: Path,
    measures: Sequence[str] = measure_names.DEFAULT,
    *,
    keys: Collection[str] | None = None,
    cache: Path | None = None,
    for_prices: bool = False,
    instead: Instead | None = None,
    distances: bool = False,
) -> Measurements:
    """The measured rows of a results folder, of whatever kind it is (published tables have their own measures).

    Args:
        folder: stored jobs.
        measures: names as ir_measures writes them.
        keys: see :func:`harness.analysis.rows.measure`.
        cache: where rows are kept (:mod:`harness.analysis.row_cache`); ``None``: nowhere.
        for_prices: see :func:`harness.analysis.row_cache.rows`.
        instead: by what else than by what was stored runs are judged; of no use with ``keys``.
        distances: Frechet distances may be among the measures, by the vectors that are kept beside the results.

    Raises:
        UsageError: there is no job in it, a measure is unknown, or ``instead`` changes nothing.
        FileError: it is no folder, or something in it is damaged.
    """
    # Results of another kind than stored jobs are told apart here, and give the same rows.
    if instead is not None and _is_published(folder):
        raise _as_printed(folder)
    return _published(folder) or _measured(
        folder, measures, keys, cache, for_prices, instead, _vectors(folder, measures) if distances else None
    )


def _published(folder: Path) -> Measurements | None:
    """The rows of a paper; ``None``: the folder holds none."""
    if not _is_published(folder):
        return None
    from harness.analysis import published

    paper = published.read(folder)
    return published.measurements(paper, paper.follows())


def _as_printed(folder: Path) -> UsageError:
    return UsageError(f"{folder}: a paper's figures have no runs to judge again; leave --qrels, --without-queries out")


def _is_published(folder: Path) -> bool:
    from harness.analysis import published

    return published.is_in(folder)


def priced(measured: Measurements, tariff: Tariff) -> Table:
    """The table of what was measured, at these prices."""
    from harness.analysis import notes

    table = row_pricing.table(measured, tariff)
    return replace(table, notes=notes.of_table(table.rows, measured.overhead, tariff.snapshot, tariff.storage))


def build(
    jobs: Iterable[Job],
    *,
    snapshot: Snapshot,
    measures: Sequence[str] = measure_names.DEFAULT,
    keys: Collection[str] | None = None,
) -> Table:
    """The table of some jobs at these prices; see :func:`harness.analysis.rows.measure`."""
    from harness.analysis import rows

    return priced(rows.measure(jobs, measures=measures, keys=keys), row_pricing.tariff(snapshot))


def per_query_of(
    folder: Path,
    measures: Sequence[str] = measure_names.DEFAULT,
    *,
    cache: Path | None = None,
    instead: Instead | None = None,
) -> dict[str, PerQuery]:
    """What the rows of a results folder are made of, by :func:`harness.evaluation.per_query.per_query_key`; published rows have none.

    Arguments and errors as for :func:`rows_of`.
    """
    if _is_published(folder):
        return {}
    compute = _maker(folder, measures, cache, instead)
    return row_cache.by_query(folder, measures, compute, cache=_apart(cache, instead))


def _measured(
    folder: Path,
    measures: Sequence[str],
    keys: Collection[str] | None,
    cache: Path | None,
    for_prices: bool,
    instead: Instead | None,
    vectors: Vectors | None,
) -> Measurements:
    compute = _maker(folder, measures, cache, instead, vectors)
    if keys is None:
        apart = _apart(cache, instead, vectors)
        return row_cache.rows(folder, measures, compute, cache=apart, for_prices=for_prices)
    jobs = _jobs(folder, cache)
    from harness.analysis import rows

    if rows.shows_what_it_would(jobs, keys):
        return row_cache.rows(
            folder,
            measures,
            lambda recall: rows.measure_all(jobs, measures=measures, recall=recall),
            cache=cache,
        )
    return rows.measure(jobs, measures=measures, keys=keys)


def _vectors(folder: Path, measures: Sequence[str]) -> Vectors | None:
    """What distances are made of, where any are asked for."""
    if not any(name.startswith("FD") for name in measures):
        return None
    from harness.analysis.row_distances import Vectors

    return Vectors(folder)


def _apart(cache: Path | None, instead: Instead | None, vectors: Vectors | None = None) -> Path | None:
    """Rows by other judgements, or with distances, are kept apart: they do not follow from the stored files alone."""
    if cache is not None and instead is not None:
        cache = cache / "rejudged" / instead.key[:32]
    if cache is not None and vectors is not None:
        cache = cache / "distances" / vectors.key[:32]
    return cache


def _maker(
    folder: Path,
    measures: Sequence[str],
    cache: Path | None,
    instead: Instead | None,
    vectors: Vectors | None = None,
) -> row_cache.Compute:
    """Makes rows of what is stored, when what is kept does not hold."""

    def make(recall: Recall) -> Made:
        jobs = _jobs(folder, cache)
        from harness.analysis import rows

        return rows.measure_all(jobs, measures=measures, recall=recall, instead=instead, vectors=vectors)

    return make


def _jobs(folder: Path, cache: Path | None) -> tuple[reader.StoredJob, ...]:
    jobs = reader.read_jobs(folder)
    if not jobs:
        raise UsageError(f"{folder}: no finished job in it; run a suite first")
    if len(jobs) >= _MANY:
        kept = "once: rows are kept" if cache else "no --cache to keep them in"
        log.info("%s: making rows of %s stored jobs, which may take minutes (%s)", folder, f"{len(jobs):,}", kept)
    return jobs
