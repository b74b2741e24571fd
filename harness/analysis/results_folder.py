"""Load the rows of a results folder: from stored jobs (through the cache) or from published tables.

Libraries that compute rows (numpy, scipy, ir_measures) take longer to import than cached rows take to read and price,
so they are imported only to build rows.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from harness.analysis import foreign_quality, passport, published, published_measures, row_pricing
from harness.analysis.row_pricing import Tariff
from harness.analysis.table import Row, Table
from harness.analysis.verdict import QualityDifference
from harness.errors import UsageError
from harness.evaluation import measure_names
from harness.pricing.prices import PriceSelection
from harness.results import attempts, foreign, reader, suite_record

if TYPE_CHECKING:
    from harness.analysis.evaluate_job import Vectors
    from harness.analysis.rejudge import QrelsOverride
    from harness.analysis.row_cache import RowCache, RowSet
    from harness.evaluation.per_query import PerQuery

log = logging.getLogger(__name__)

# From this many jobs on, building rows takes long enough to announce.
_MANY_JOBS = 100


@dataclass(frozen=True)
class Selection:
    """The part of a results folder to read, and how its runs are judged.

    ``measures`` are names as ir_measures writes them; none: the suites' measures, else the default ones (published
    tables have their own). ``keys`` name the jobs that count, if not all do
    (:func:`harness.analysis.rows.build_rows`). ``override`` holds other qrels, or queries to leave out; it is ignored
    with ``keys``. ``distances`` allows Frechet distances among the measures, from the vectors stored with the results.
    """

    measures: Sequence[str] = ()
    keys: Collection[str] | None = None
    override: QrelsOverride | None = None
    distances: bool = False


@dataclass(frozen=True)
class ReadResults:
    """Content of a results folder: its unpriced table, and the values by query of its rows.

    ``cache`` keeps tests of these values (``None``: each is computed).
    """

    table: Table
    read_values: Callable[[], Mapping[str, PerQuery]]
    cache: RowCache | None = None

    @cached_property
    def per_query(self) -> Mapping[str, PerQuery]:
        """Values by query by :attr:`harness.analysis.table.Row.per_query_key`; published rows have none."""
        return self.read_values()

    def compare(self, a: Row, b: Row, measure: str, candidates: int) -> QualityDifference:
        """Compare b with a, the best of some candidates, by the paired test, corrected for their number."""

        def tested() -> QualityDifference:
            from harness.analysis import comparison  # late, and values are read only here: most tests are kept

            (found,) = comparison.paired([(a, b)], self.per_query, measure, candidates)
            return QualityDifference(found.a, found.b, found.interval, found.verdict, found.verdict_text)

        if self.cache is None:
            return tested()
        # All that a test depends on, while the files stay the same.
        sides = [(row.per_query_key, row.measured(measure)) for row in (a, b)]
        return self.cache.test((*sides, measure, candidates), tested)


_WHOLE = Selection()


def read(folder: Path, selection: Selection = _WHOLE, *, cache: Path | None = None) -> ReadResults:
    """Read a results folder once: its stored jobs, its published tables, or passports.

    Args:
        folder: stored jobs, published tables, or passports; or the file of a passport.
        selection: what to read of it.
        cache: folder of cached rows (:mod:`harness.analysis.row_cache`); ``None``: no cache.

    Raises:
        UsageError: the folder holds no job, a measure is unknown, or the override changes nothing.
        FileError: the folder is missing, or a file in it is damaged.
    """
    if published.is_in(folder):
        return ReadResults(_published(folder, selection.override), dict)
    if passport.is_in(folder):
        if selection.override is not None:
            raise UsageError(f"{folder}: a passport has no run to judge again; leave out --qrels and --without-queries")
        return ReadResults(passport.table(passport.read(folder), selection.measures), dict)
    measures = selection.measures or suite_measures(folder, distances=selection.distances)
    found = _measured(folder, replace(selection, measures=measures), cache)
    theirs, faults = foreign.read_if_whole(folder)
    beside = (*suite_record.unreadable(folder), *published.stray(folder), *faults)
    unreadable = (*found.table.unreadable, *map(reader.left_out, beside))
    reader.announce(unreadable)
    table = replace(found.table, rows=_with_told(found.table.rows, folder), unreadable=unreadable)
    return replace(found, table=foreign_quality.with_foreign(table, theirs))


def _with_told(rows: tuple[Row, ...], folder: Path) -> tuple[Row, ...]:
    """Add to rows of services that ran already what their users told of the machines."""
    if not any(row.isolation.attached for row in rows):
        return rows
    told = suite_record.read_told(folder)
    by_suite = {suite: machine for (_, suite), machine in told.items()}

    def of(row: Row) -> Row:
        machine = by_suite.get(row.suite) if row.origin is None else told.get((row.origin, row.suite))
        return replace(row, told=machine) if row.isolation.attached else row

    return tuple(map(of, rows))


def _measured(folder: Path, selection: Selection, cache: Path | None) -> ReadResults:
    """Read stored jobs, from the cache where it holds them; arguments and errors as for :func:`read`."""
    measures, override, keys = selection.measures, selection.override, selection.keys
    vectors: Vectors | None = None
    stored: RowCache | None = None
    jobs: reader.StoredJobs | None = None
    if selection.distances and any(name.startswith("FD") for name in measures):
        from harness.analysis.evaluate_job import Vectors

        vectors = Vectors(folder)
    if cache is not None:
        from harness.analysis.row_cache import RowCache

        judged = f"{override.key if override else ''}{vectors.key if vectors else ''}"
        stored = RowCache(cache, folder, measures, judged)

    def built() -> RowSet:
        from harness.analysis.evaluate_job import JobEvaluator
        from harness.analysis.rows import build_rows

        found = _read_jobs(folder, cache) if jobs is None else jobs
        cells = stored.cells() if stored else {}
        made = _named(build_rows(found, JobEvaluator(measures, override, vectors), cached=cells), found)
        if stored:
            stored.write(made)
        return made

    def cached_values() -> Mapping[str, PerQuery]:
        values = stored.per_query() if stored else None
        return built().per_query if values is None else values

    if keys is not None:
        jobs = _read_jobs(folder, cache)
        if not attempts.are_default(jobs, keys):
            from harness.analysis.evaluate_job import JobEvaluator
            from harness.analysis.rows import build_rows

            return _of_rows(_named(build_rows(jobs, JobEvaluator(measures), keys=keys), jobs))
    if stored and (table := stored.table()):
        return ReadResults(table, cached_values, stored)
    return replace(_of_rows(built()), cache=stored)


def _of_rows(rows: RowSet) -> ReadResults:
    return ReadResults(rows.table, lambda: rows.per_query)


def suite_measures(folder: Path, *, distances: bool = False) -> tuple[str, ...]:
    """Return the measures that the suites of stored results name, else the default ones.

    Args:
        folder: of stored results.
        distances: with Frechet distances, which most commands cannot show: one suite's must not stop them for all.
    """
    named = suite_record.read_measures(folder)
    return tuple(name for name in named if distances or not name.startswith("FD")) or measure_names.DEFAULT


def _named(built: RowSet, jobs: reader.StoredJobs) -> RowSet:
    """Add the records that could not be read to a table."""
    return replace(built, table=replace(built.table, unreadable=tuple(map(reader.left_out, jobs.unreadable))))


def _read_jobs(folder: Path, cache: object | None) -> reader.StoredJobs:
    jobs = reader.read_jobs(folder, f"{folder}: no finished job in it; run a suite first")
    if len(jobs) >= _MANY_JOBS:
        often = "once: rows are kept" if cache else "no --cache to keep them in"
        log.info("%s: making rows of %s stored jobs, which may take minutes (%s)", folder, f"{len(jobs):,}", often)
    return jobs


def may_have_jobs(results: Path) -> bool:
    """Return whether a place may have stored jobs; published tables and passports have none."""
    return not published.is_in(results) and not passport.is_in(results)


def tariff(folder: Path, selection: PriceSelection) -> Tariff:
    """Return the selected prices for a folder of results; a paper's costs take the prices of its own date."""
    return row_pricing.selected_tariff(replace(selection, as_of=selection.as_of or price_date(folder)))


def price_date(folder: Path) -> datetime.date | None:
    """Return the date of the prices behind a paper's costs; ``None``: other results, which take the newest."""
    if not published.is_in(folder) or published.has_measures_alone(folder):
        return None
    return published.read(folder).about.prices.as_of


def _published(folder: Path, override: QrelsOverride | None) -> Table:
    if override is not None:
        raise UsageError(
            f"{folder}: a paper publishes no runs that can be judged again; leave out --qrels and --without-queries"
        )
    if published.has_measures_alone(folder):
        return published_measures.measures_table(published_measures.read(folder))
    paper = published.read(folder)
    return published.published_table(paper, paper.follows())
