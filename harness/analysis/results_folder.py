"""Load the rows of a results folder: from stored jobs (through the cache) or from published tables.

Libraries that compute rows (numpy, scipy, ir_measures) take longer to import than cached rows take to read and price,
so they are imported only to build rows.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.analysis import published, published_measures
from harness.analysis.table import Table
from harness.errors import UsageError
from harness.evaluation import measure_names
from harness.evaluation.per_query import PerQuery
from harness.results import reader, suite_record

if TYPE_CHECKING:
    from harness.analysis.evaluate_job import Vectors
    from harness.analysis.rejudge import QrelsOverride
    from harness.analysis.row_cache import RowCache, RowSet

log = logging.getLogger(__name__)

# From this many jobs on, building rows takes long enough to announce.
_MANY_JOBS = 100


def load_rows(
    folder: Path,
    measures: Sequence[str] = (),
    *,
    keys: Collection[str] | None = None,
    cache: Path | None = None,
    columns: Collection[str] | None = None,
    override: QrelsOverride | None = None,
    distances: bool = False,
) -> Table:
    """Return the unpriced table of a results folder, from its stored jobs or its published tables.

    Args:
        folder: stored jobs, or published tables, which have their own measures.
        measures: names as ir_measures writes them; empty: the suites' measures, else the default ones.
        keys: see :func:`harness.analysis.rows.build_rows`.
        cache: folder of cached rows (:mod:`harness.analysis.row_cache`); ``None``: no cache.
        columns: records in a row to read from the cache; other records, not plain values, may be missing.
        override: other qrels, or queries to leave out; ignored with ``keys``.
        distances: allow Frechet distances among the measures, from the vectors stored beside the results.

    Raises:
        UsageError: the folder holds no job, a measure is unknown, or ``override`` changes nothing.
        FileError: the folder is missing, or a file in it is damaged.
    """
    if published.is_in(folder):
        return _published(folder, override)
    measures = measures or suite_measures(folder, distances=distances)
    table = _measured(folder, measures, keys, cache, columns, override, distances)
    beside = (*suite_record.unreadable(folder), *published.stray(folder))
    unreadable = (*table.unreadable, *map(reader.left_out, beside))
    reader.announce(unreadable)
    return replace(table, unreadable=unreadable)


def _measured(
    folder: Path,
    measures: Sequence[str],
    keys: Collection[str] | None,
    cache: Path | None,
    columns: Collection[str] | None,
    override: QrelsOverride | None,
    distances: bool,
) -> Table:
    """Return the table of stored jobs; arguments and errors as for :func:`load_rows`."""
    vectors = None
    if distances and any(name.startswith("FD") for name in measures):
        from harness.analysis.evaluate_job import Vectors

        vectors = Vectors(folder)
    stored = _row_cache(cache, folder, measures, override, vectors)
    if keys is None and stored and (table := stored.table(columns)):
        return table
    from harness.analysis.evaluate_job import JobEvaluator
    from harness.analysis.rows import are_default, build_rows

    jobs = _read_jobs(folder, cache)
    if keys is not None:
        if not are_default(jobs, keys):
            return _named(build_rows(jobs, JobEvaluator(measures), keys=keys), jobs).table
        if stored and (table := stored.table(columns)):
            return table
    cells = stored.cells() if stored else {}
    built = _named(build_rows(jobs, JobEvaluator(measures, override, vectors), cached=cells), jobs)
    if stored:
        stored.write(built)
    return built.table


def load_per_query(
    folder: Path,
    measures: Sequence[str] = (),
    *,
    cache: Path | None = None,
    override: QrelsOverride | None = None,
) -> dict[str, PerQuery]:
    """Return the values by query of each row, by :attr:`Row.per_query_key`; published rows have none.

    Arguments and errors as for :func:`load_rows`.
    """
    if published.is_in(folder):
        return {}
    measures = measures or suite_measures(folder)
    stored = _row_cache(cache, folder, measures, override, None)
    if stored and (values := stored.per_query()) is not None:
        return values
    if stored:
        load_rows(folder, measures, cache=cache, override=override)  # fills the cache
        if (values := stored.per_query()) is not None:
            return values
    from harness.analysis.evaluate_job import JobEvaluator
    from harness.analysis.rows import build_rows

    return build_rows(_read_jobs(folder, cache), JobEvaluator(measures, override, None)).per_query


def suite_measures(folder: Path, *, distances: bool = False) -> tuple[str, ...]:
    """Return the measures that the suites of stored results name, else the default ones.

    Args:
        folder: of stored results.
        distances: with Frechet distances, which most commands cannot show: one suite's must not stop them for all.
    """
    named = suite_record.read_measures(folder)
    return tuple(name for name in named if distances or not name.startswith("FD")) or measure_names.DEFAULT


def load_firstp(folder: Path) -> dict[str, str]:
    """Return the FirstP of each system, as the suites of stored results name it."""
    return suite_record.read_pairs(folder, suite_record.FIRSTP)


def load_seeds(folder: Path) -> dict[str, str]:
    """Return the model of each system that is one of its seeds, as the suites of stored results name it."""
    return suite_record.read_pairs(folder, suite_record.SEEDS)


def load_exact(folder: Path) -> dict[str, str]:
    """Return the exact search of each approximate system, as the suites of stored results name it."""
    return suite_record.read_pairs(folder, suite_record.EXACT)


def _named(built: RowSet, jobs: reader.StoredJobs) -> RowSet:
    """Add the records that could not be read to a table."""
    return replace(built, table=replace(built.table, unreadable=tuple(map(reader.left_out, jobs.unreadable))))


def _read_jobs(folder: Path, cache: object | None) -> reader.StoredJobs:
    jobs = reader.read_jobs(folder, f"{folder}: no finished job in it; run a suite first")
    if len(jobs) >= _MANY_JOBS:
        often = "once: rows are kept" if cache else "no --cache to keep them in"
        log.info("%s: making rows of %s stored jobs, which may take minutes (%s)", folder, f"{len(jobs):,}", often)
    return jobs


def _row_cache(
    cache: Path | None,
    folder: Path,
    measures: Sequence[str],
    override: QrelsOverride | None,
    vectors: Vectors | None,
) -> RowCache | None:
    """Return the cache of rows with these judgements."""
    if cache is None:
        return None
    from harness.analysis.row_cache import RowCache

    judged = f"{override.key if override else ''}{vectors.key if vectors else ''}"
    return RowCache(cache, folder, measures, judged)


def price_date(folder: Path) -> datetime.date | None:
    """Return the date of the prices behind a paper's costs; ``None``: other results, which take the newest."""
    if not published.is_in(folder) or published_measures.holds(folder):
        return None
    return published.read(folder).about.prices.as_of


def _published(folder: Path, override: QrelsOverride | None) -> Table:
    if override is not None:
        raise UsageError(
            f"{folder}: a paper's figures have no runs to judge again; leave --qrels, --without-queries out"
        )
    if published_measures.holds(folder):
        return published_measures.measures_table(published_measures.read(folder))
    paper = published.read(folder)
    return published.published_table(paper, paper.follows())
