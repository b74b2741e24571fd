"""A planned job -> what the driver is told; what came of it -> what is stored."""

from __future__ import annotations

from dataclasses import replace

from harness.datasets import Dataset, QuerySample
from harness.jobs.collect import Collected
from harness.jobs.indexes import Index
from harness.jobs.plan import Planned
from harness.launch.base import Ended, Prepared
from harness.records import MAX_PROBES, JobSpec, Outcome
from harness.results.schema import Environment, Memory, Result, job_key


def job_spec(job: Planned, prepared: Prepared, dataset: Dataset, sample: QuerySample) -> JobSpec:
    """What the driver inside the container is told."""
    return JobSpec(
        kind="search",
        system=job.cell.system,
        params=prepared.system.params,
        envelope=job.spec.envelope,
        isolation=job.spec.isolation,
        scenario=job.cell.scenario,
        k=job.spec.k,
        trials=job.spec.trials,
        first_trial=job.spec.job * (MAX_PROBES if job.cell.scenario == "server" else job.spec.trials),
        repeats=min(job.spec.repeats, job.spec.timed_queries),
        pause=True,
        scenario_params=job.spec.scenario_params,
        seed=job.spec.seed,
        corpus_size=dataset.corpus.size,
        fewer_hits_ok=prepared.system.fewer_hits_ok,
        warmup_cap=job.spec.warmup_cap or 0,
        warmup=sample.warmup,
        sample=sample.timed,
    )


def nothing(outcome: Outcome, detail: str) -> Collected:
    """What came of a job that was never launched."""
    return Collected(outcome, detail, None, Memory(), ())


def assemble(
    job: Planned,
    started_at: str,
    collected: Collected,
    ended: Ended | None,
    index: Index | None,
    environment: Environment,
    corpus_documents: int | None = None,
) -> Result:
    """Join what was planned, what the job says, and how it was seen to end."""
    measured = collected.measurement
    memory = collected.memory
    if measured and measured.peak_cgroup_bytes and ended:
        # The kernel's own mark, read from inside at the very end, is at least what was seen from outside.
        memory = replace(memory, peak_cgroup_bytes=_most(measured.peak_cgroup_bytes, memory.peak_cgroup_bytes))
    return Result(
        key=job_key(job.spec),
        spec=job.spec,
        outcome=collected.outcome,
        detail=collected.detail,
        started_at=started_at,
        wall_s=ended.wall_s if ended else 0.0,
        environment=environment,
        effective=measured.effective if measured else None,
        index=index.facts if index else None,
        corpus_documents=corpus_documents,
        memory=memory,
        load_s=measured.load_s if measured else None,
        first_query_s=collected.first_query_s,
        phases=measured.phases if measured else (),
        throttled_periods=_most(
            ended.throttled_periods if ended else None, measured.throttled_periods if measured else None
        ),
        # A sampler outside may miss the last kill; a dying job inside says nothing.
        oom_kills=_most(ended.oom_kills if ended else None, measured.oom_kills if measured else None),
        exit_code=ended.exit_code if ended else None,
        device=measured.device if measured else None,
        libraries=measured.libraries if measured else {},
        warmup_done=collected.warmup_done,
        warmup_steady=measured.warmup_steady if measured else None,
        trials_finished=collected.trials_finished(job.spec.timed_queries),
        ranking_disagreements=collected.ranking_disagreements(),
        canary=ended.canary if ended else (),
        counters=collected.counters,
        gpu=collected.gpu,
        placement=ended.placement if ended else None,
        probes=measured.probes if measured else (),
        rate_qps=measured.rate_qps if measured else None,
        compiled_s=measured.compiled_s if measured else None,
    )


def _most(*counts: int | None) -> int | None:
    return max((count for count in counts if count is not None), default=None)
