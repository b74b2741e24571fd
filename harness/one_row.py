"""A cell's pooled jobs -> its row: what was limited, timed, judged and used, each missing figure with its reason."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import fields, replace

from harness import (
    gpu_noise,
    measure_figures,
    measure_names,
    notes,
    per_query,
)
from harness.attempts import Job
from harness.errors import HarnessError
from harness.judge import Judge, Worth
from harness.measured import Measured
from harness.per_query import PerQuery
from harness.records import Outcome
from harness.remembered import Remembered
from harness.table import Figure, Machine, Row


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
        gpu_energy_j=_all(gpu_noise.energy_j(each) for each in results) if done else None,
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
        missing = Figure(None, reason=cell.why_not)
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
        missing = Figure(None, reason=f"the run cannot be judged: {error}")
        row = replace(row, measures=dict.fromkeys(names, missing))
    else:
        row = _worth(row, worth, judge)
    found = per_query.collect(
        per_query.name(row),
        latency.by_query_s if latency else {},
        latency.quantiles_s if latency else (),
        worth.judged.per_query if worth else {},
    )
    return row, found


def _worth(row: Row, worth: Worth, judge: Judge) -> Row:
    judged, looked, now = worth.judged, worth.unjudged, worth.stand
    figures = {name: measure_figures.figure(judged, name) for name in judged.values}
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
        notes=(*row.notes, *now.notes, *worth.notes, *notes.of_measures(judged, deep, row.k), *of_distances),
    )
