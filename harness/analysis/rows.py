"""Stored jobs -> measured rows, without money: prices are applied to these by :mod:`harness.analysis.row_pricing`."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from harness.analysis import cell_cache, cell_summary, rejudge, validity
from harness.analysis.cell_cache import Computed, Made, Recall, Remembered
from harness.analysis.cell_summary import Measured
from harness.analysis.evaluate_job import Judge, Worth
from harness.analysis.rejudge import Instead
from harness.analysis.row_distances import Vectors
from harness.analysis.table import Machine, Measurements, Overhead, Row, per_query_key
from harness.analysis.validity import counter_checks, machine_speed
from harness.errors import HarnessError
from harness.evaluation import evaluate, measure_names, per_query
from harness.evaluation.evaluate_runs import measure_notes
from harness.evaluation.per_query import PerQuery
from harness.records import Isolation, Outcome
from harness.results import attempts
from harness.results.attempts import Job
from harness.results.schema import NULL_SYSTEM, Cell, Result
from harness.stats import Estimate

# MERGED harness.analysis.rows: A cell's pooled jobs -> its row: what was limited, timed, judged and used, each missing
# figure with its reason.


def make(cell: Measured[Job], tries: int, judge: Judge, earlier: Remembered | None) -> tuple[Row, PerQuery | None]:
    """The row of a cell and what it is made of by query; a cell that failed has no figures.

    Args:
        cell: its pool and verdict.
        tries: how many jobs of it are stored.
        judge: evaluates its run.
        earlier: what is remembered of it, where its files have not changed.
    """
    pool, found, verdict = cell.pool, None, cell.verdict
    if earlier is not None:
        row, found = replace(earlier.row, validity=verdict.validity, transient=verdict.transient), earlier.queries
    else:
        row = replace(_outline(cell, tries), notes=pool.notes)
        if pool.outcome is Outcome.OK:
            row, found = _with_measures(_with_latency(row, cell), cell, judge)
    return replace(row, findings=verdict.findings, notes=(*row.notes, *verdict.reasons)), found


def _outline(cell: Measured[Job], tries: int) -> Row:
    """The row without what must be computed from samples and runs; a failed cell's row ends here."""
    pool, result = cell.pool, cell.pool.lead.result
    spec, environment, done = result.spec, result.environment, pool.outcome is Outcome.OK
    results = pool.results if done else ()
    treatments = {each.page_cache for each in results}
    apart = [each.placement.apart for each in results if each.placement is not None]
    return Row(
        suite=spec.cell.suite,
        system=spec.cell.system,
        dataset=spec.cell.dataset,
        scenario=spec.cell.scenario,
        profile=spec.cell.profile,
        isolation=spec.isolation,
        outcome=pool.outcome,
        detail=pool.detail,
        validity=cell.verdict.validity,
        transient=cell.verdict.transient,
        key=result.key,
        keys=tuple(job.result.key for job in pool.jobs),
        jobs=len(pool.jobs),
        started_at=result.started_at,
        machine=Machine(**{item.name: getattr(environment, item.name) for item in fields(Machine)}),
        cpus=spec.envelope.cpus,
        memory_limit_bytes=spec.envelope.memory_bytes,
        gpus=spec.envelope.gpus,
        price=None,
        price_note=None,
        k=spec.k,
        sample_sha256=spec.sample_sha256,
        corpus_sha256=spec.corpus_sha256,
        qrels_sha256=spec.qrels_sha256,
        peak_anon_bytes=_most(each.memory.peak_anon_bytes for each in results),
        peak_mapped_bytes=_most(each.memory.peak_mapped_bytes for each in results),
        peak_cgroup_bytes=_most(each.memory.peak_cgroup_bytes for each in results),
        peak_gpu_bytes=_most(each.memory.peak_gpu_bytes for each in results),
        gpu_energy_j=_all(counter_checks.energy_j(each) for each in results) if done else None,
        index_bytes=result.index.index_bytes if done and result.index else None,
        index_build_s=result.index.build_s if done and result.index else None,
        build_envelope=result.index.envelope if done and result.index else None,
        corpus_documents=result.corpus_documents,
        latency_target_s=spec.scenario_params.latency_target_s,
        latency_percentile=spec.scenario_params.latency_percentile,
        load_s=_middle(each.load_s for each in results),
        first_query_s=_middle(each.first_query_s for each in results),
        one_pass_warmup=result.warmup_done if done and spec.warmup_cap is None else None,
        page_cache=treatments.pop() if len(treatments) == 1 else None,
        harness_apart=all(apart) if apart else None,
        attempts=tries,
        stand_in=result.stand_in,
        origin=pool.lead.origin,
    )


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _all(values: Iterable[float | None]) -> float | None:
    """A sum that lacks nothing."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _with_latency(row: Row, cell: Measured[Job]) -> Row:
    latency = cell.latency
    if latency is None:
        missing = Estimate(None, reason=cell.why_not)
        names = ("latency_mean_s", "p50_s", "p95_s", "p99_s")
        return replace(row, **dict.fromkeys(names, missing))  # type: ignore[arg-type]
    return replace(
        row,
        queries=latency.queries,
        trials=latency.trials,
        latency_mean_s=latency.mean_s,
        like_queries_s=latency.like_queries_s,
        these_queries_s=latency.these_queries_s,
        p50_s=latency.percentiles_s["p50"],
        p95_s=latency.percentiles_s["p95"],
        p99_s=latency.percentiles_s["p99"],
        at_most_s=latency.at_most_s,
        throughput_qps=latency.throughput_qps,
        service_s=latency.service_s,
        stages_s=latency.stages_s,
        spread_s=latency.spread_s,
        trial_means_s=latency.trial_means_s,
        trial_spread_s=latency.trial_spread_s,
        notes=(*row.notes, *latency.notes),
    )


def _with_measures(row: Row, cell: Measured[Job], judge: Judge) -> tuple[Row, PerQuery]:
    names = [str(measure) for measure in judge.measures]
    latency, worth = cell.latency, None
    try:
        worth = judge(cell.pool.lead)
    except HarnessError as error:
        missing = Estimate(None, reason=f"the run cannot be judged: {error}")
        row = replace(row, measures=dict.fromkeys(names, missing))
    else:
        row = _worth(row, worth, judge)
    found = per_query.collect(
        per_query_key(row),
        latency.by_query_s if latency else {},
        latency.quantiles_s if latency else (),
        worth.judged.per_query if worth else {},
    )
    return row, found


def _worth(row: Row, worth: Worth, judge: Judge) -> Row:
    judged, looked, now = worth.judged, worth.unjudged, worth.stand
    figures = {name: evaluate.estimate(judged, name) for name in judged.values}
    figures |= {name: found.figure for name, found in worth.distances.items()}
    deep = [str(measure) for measure in judge.measures if measure_names.looks_deeper(measure, row.k)]
    of_distances = dict.fromkeys(found.note for found in worth.distances.values() if found.note)
    return replace(
        row,
        measures={name: figures[name] for name in map(str, judge.measures)},
        queries_judged=judged.queries,
        queries_unjudged=judged.unjudged,
        qrels_sha256=now.sha256 or row.qrels_sha256,
        rejudged=now.said,
        unjudged_depth=looked.depth if looked else None,
        unjudged_share=looked.share if looked else None,
        notes=(*row.notes, *now.notes, *worth.notes, *measure_notes(judged, deep, row.k), *of_distances),
    )


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
    recall: Recall = cell_cache.nothing,
    instead: Instead | None = None,
    vectors: Vectors | None = None,
) -> Made:
    """Make the rows: one for each cell, isolation and origin; and what they are made of, by query.

    Which of several attempts is shown, :func:`harness.results.attempts.choose` says; which jobs of a cell are put together,
    :func:`harness.analysis.pooling.pool`.  The null system is no row but a note, unless there is no other system.  A file of
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
        (*make(cell, len(grouped[place]), judge, earlier), cell, grouped[place])
        for place, (cell, earlier) in cells.items()
    ]
    if instead is not None:
        rejudge.check((row.rejudged for row, *_ in made), instead)
    overhead = sorted(
        (_overhead(cell_summary.measure(grouped[place], keys, levels[place.origin])) for place in aside),
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
            Computed(per_query_key(row), tuple(tries), cell.facts, cell.disagreements)
            for row, found, cell, tries in made
            if found is not None
        ),
    )


def _aside(grouped: Mapping[attempts.Place, Sequence[Job]]) -> set[attempts.Place]:
    """The null system's cells, unless there is no other system."""
    null = {place for place in grouped if place.cell.system == NULL_SYSTEM}
    return null if len(null) < len(grouped) else set()


def _cell(
    tries: Sequence[Job], keys: Collection[str] | None, levels: machine_speed.Levels, recall: Recall
) -> tuple[Measured[Job], Remembered | None]:
    earlier = recall(tries) if keys is None else None
    if earlier is None:
        return cell_summary.measure(tries, keys, levels), None
    return cell_summary.judge_again(tries, earlier.facts, earlier.disagreements, levels), earlier


def shows_what_it_would(jobs: Iterable[Job], keys: Collection[str]) -> bool:
    """Whether :func:`measure` gives the same rows with these ``keys`` as without.

    Raises:
        FileError: a result's start time cannot be read.
    """
    return all(attempts.choose(tries, keys) == attempts.choose(tries) for tries in attempts.by_place(jobs).values())


def verdicts(
    jobs: Iterable[Job], keys: Collection[str] | None = None
) -> dict[tuple[Cell, Isolation], validity.Assessment]:
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
        (place.cell, place.isolation): cell_summary.measure(tries, keys, levels[place.origin], rankings=False).verdict
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
        return replace(found, latency_mean_s=Estimate(None, reason=cell.why_not))
    percentiles = latency.percentiles_s
    return replace(found, latency_mean_s=latency.mean_s, p50_s=percentiles["p50"], p99_s=percentiles["p99"])
