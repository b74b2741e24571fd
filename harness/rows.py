"""Stored jobs -> measured rows, without money: prices are applied to these by :mod:`harness.pricing`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness import attempts, machine_speed, measure_names, measured, one_row, per_query, rejudged, remembered, validity
from harness.attempts import Job
from harness.judge import Judge
from harness.measured import Measured
from harness.plan import NULL
from harness.records import Isolation
from harness.rejudged import Instead
from harness.remembered import Computed, Made, Recall, Remembered
from harness.result import Cell, Result
from harness.row_distances import Vectors
from harness.table import Figure, Measurements, Overhead, Row


def measure(
    jobs: Iterable[Job],
    *,
    measures: Sequence[str] = measure_names.DEFAULT,
    keys: Collection[str] | None = None,
) -> Measurements:
    """The rows alone; see :func:`measure_all`."""
    return measure_all(jobs, measures=measures, keys=keys).rows


def measure_all(
    jobs: Iterable[Job],
    *,
    measures: Sequence[str] = measure_names.DEFAULT,
    keys: Collection[str] | None = None,
    recall: Recall = remembered.nothing,
    instead: Instead | None = None,
    vectors: Vectors | None = None,
) -> Made:
    """Make the rows: one for each cell, isolation and origin; and what they are made of, by query.

    Which of several attempts is shown, :func:`harness.attempts.choose` says; which jobs of a cell are put together,
    :func:`harness.pooling.pool`.  The null system is no row but a note, unless there is no other system.  A file of
    one job that cannot be read costs that cell's numbers only, and the row says why.

    Args:
        jobs: stored jobs, in any order.
        measures: names as ir_measures writes them.
        keys: jobs to show in their cells, whatever else is stored of those; the other cells choose as ever.
        recall: what is remembered of a cell, by the same measures and judgements; of no use with ``keys``.
        instead: by what else than by what was stored runs are judged.
        vectors: what Frechet distances among the measures are made of; ``None``: there may be none.

    Raises:
        UsageError: a measure is unknown, or ``instead`` changes nothing.
        FileError: a result's start time cannot be read.
    """
    judge = Judge(measure_names.parse(measures, distances=vectors is not None), instead, vectors)
    stored = list(jobs)
    levels = _levels(stored)
    grouped = attempts.by_place(stored)
    aside = _aside(grouped)
    cells = {
        place: _cell(tries, keys, levels[place.origin], recall)
        for place, tries in grouped.items()
        if place not in aside
    }
    made = [
        (*one_row.make(cell, len(grouped[place]), judge, earlier), cell, grouped[place])
        for place, (cell, earlier) in cells.items()
    ]
    if instead is not None:
        rejudged.check((row.rejudged for row, *_ in made), instead)
    overhead = sorted(
        (_overhead(measured.measure(grouped[place], keys, levels[place.origin])) for place in aside),
        key=lambda item: (item.suite, item.profile, item.isolation, item.origin or ""),
    )
    return Made(
        Measurements(
            tuple(sorted((row for row, *_ in made), key=_reading_order)),
            tuple(str(measure) for measure in judge.measures),
            tuple(overhead),
        ),
        tuple(found for _, found, *_ in made if found is not None),
        tuple(
            Computed(per_query.name(row), tuple(tries), cell.facts, cell.disagreements)
            for row, found, cell, tries in made
            if found is not None
        ),
    )


def _aside(grouped: Mapping[attempts.Place, Sequence[Job]]) -> set[attempts.Place]:
    """The null system's cells, unless there is no other system."""
    null = {place for place in grouped if place.cell.system == NULL}
    return null if len(null) < len(grouped) else set()


def _cell(
    tries: Sequence[Job], keys: Collection[str] | None, levels: machine_speed.Levels, recall: Recall
) -> tuple[Measured[Job], Remembered | None]:
    earlier = recall(tries) if keys is None else None
    if earlier is None:
        return measured.measure(tries, keys, levels), None
    return measured.judge_again(tries, earlier.facts, earlier.disagreements, levels), earlier


def shows_what_it_would(jobs: Iterable[Job], keys: Collection[str]) -> bool:
    """Whether :func:`measure` gives the same rows with these ``keys`` as without.

    Raises:
        FileError: a result's start time cannot be read.
    """
    return all(attempts.choose(tries, keys) == attempts.choose(tries) for tries in attempts.by_place(jobs).values())


def verdicts(
    jobs: Iterable[Job], keys: Collection[str] | None = None
) -> dict[tuple[Cell, Isolation], validity.Verdict]:
    """How far the numbers of each cell and isolation can be trusted, without judging or comparing its rankings.

    Args:
        jobs: stored jobs, in any order.
        keys: as for :func:`measure`.

    Raises:
        FileError: a result's start time cannot be read.
    """
    stored = list(jobs)
    levels = _levels(stored)
    return {
        (place.cell, place.isolation): measured.measure(tries, keys, levels[place.origin], rankings=False).verdict
        for place, tries in attempts.by_place(stored).items()
    }


def _levels(jobs: Iterable[Job]) -> dict[str | None, machine_speed.Levels]:
    """The canary's levels by origin: machines of two origins are two, however alike."""
    found: dict[str | None, list[Result]] = defaultdict(list)
    for job in jobs:
        found[job.origin].append(job.result)
    return {origin: machine_speed.levels(results) for origin, results in found.items()}


def _reading_order(row: Row) -> tuple[Any, ...]:
    place = (row.dataset, row.cpus, row.memory_limit_bytes, row.gpus, row.profile)
    return (*place, row.system, row.isolation, row.suite, row.scenario, row.origin or "")


def _overhead(cell: Measured[Job]) -> Overhead:
    """What the null system says: the harness's own share of every latency."""
    result, latency = cell.pool.lead.result, cell.latency
    found = Overhead(
        suite=result.spec.cell.suite,
        profile=result.spec.cell.profile,
        isolation=result.spec.isolation,
        outcome=cell.pool.outcome,
        detail=cell.pool.detail,
        validity=cell.verdict.validity,
        reasons=cell.verdict.reasons,
        key=result.key,
        origin=cell.pool.lead.origin,
    )
    if latency is None:
        return replace(found, latency_mean_s=Figure(None, reason=cell.why_not))
    percentiles = latency.percentiles_s
    return replace(found, latency_mean_s=latency.mean_s, p50_s=percentiles["p50"], p99_s=percentiles["p99"])
