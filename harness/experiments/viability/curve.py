"""Measure the memory-latency curve: one system under a ladder of limits, and its knee."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.errors import UsageError
from harness.experiments.viability.acceptance import SLOWER
from harness.experiments.viability.judge import Observation
from harness.experiments.viability.probe import LEAST_BYTES, MIB
from harness.experiments.viability.search import TRIES, ProbeFinding, Purpose
from harness.experiments.viability.session import MAXIMUM_JOBS, Question, Session
from harness.results.isolation import CONTAINER
from harness.untrusted import ForeignText

# Rungs of the ladder without the unconstrained one, in equal ratios from the first share (of the anonymous peak) to the
# second (of the cgroup peak): below, nothing can load; above, the kernel evicts nothing.
RUNGS = 8
_FROM, _TO = 0.9, 1.1
_GRAIN = 4 * MIB


@dataclass(frozen=True)
class CurvePoint:
    """One limit of the curve.

    Times in seconds, sizes in bytes.  ``mean_low_s`` and ``mean_high_s`` bound the mean (95 %, over queries).
    ``faults_per_query``: pages read from disk during the trials; ``page_cache``: the peak of all charged memory less
    the anonymous peak.  ``None``: not measured.
    """

    limit_bytes: int
    unconstrained: bool
    outcome: str
    detail: ForeignText | None = None
    mean_s: float | None = None
    mean_low_s: float | None = None
    mean_high_s: float | None = None
    p95_s: float | None = None
    faults_per_query: float | None = None
    peak_anon_bytes: int | None = None
    page_cache_bytes: int | None = None
    disturbed: str | None = None
    job: str = ""


@dataclass(frozen=True)
class Curve:
    """Points by limit, ascending, and the knee; ``None`` with ``why_no_knee``."""

    system: str
    dataset: str
    architecture: str
    cpus: int
    gpus: int
    points: tuple[CurvePoint, ...]
    knee_bytes: int | None
    why_no_knee: str | None
    isolation: str = CONTAINER.name


def ladder(anonymous: int, cgroup_peak: int, most: int) -> tuple[int, ...]:
    """Return the default limits in bytes, ascending, without the unconstrained one."""
    low = max(_FROM * anonymous, LEAST_BYTES)
    high = max(_TO * cgroup_peak, low + RUNGS * _GRAIN)
    rungs = (low * (high / low) ** (step / (RUNGS - 1)) for step in range(RUNGS))
    return tuple(sorted({min(round(rung / _GRAIN) * _GRAIN, most) for rung in rungs} - {most}))


def measure_curve(question: Question, cpus: int, limits: Sequence[int] = ()) -> Curve:
    """Measure each limit once, or take its stored jobs.

    Args:
        question: a question without criteria.
        cpus: number of CPUs.
        limits: limits in bytes; by default :func:`ladder`.

    Raises:
        UsageError: a limit is too small to start anything, or larger than this host.
        JobError, EngineError, StoreError: as in a search.
    """
    for limit in limits:
        if limit < LEAST_BYTES:
            raise UsageError(f"--limits: {limit // MIB} MiB start no container; name {LEAST_BYTES // MIB} MiB or more")
    session = Session(question, cpus, MAXIMUM_JOBS + 2 * TRIES * len(limits))
    base, free = session.base, session.base.summary
    for limit in limits:
        if limit >= free.limit_bytes:
            raise UsageError(
                f"--limits: {limit // MIB:,} MiB constrain nothing here: this host leaves {free.limit_bytes // MIB:,}"
                " MiB to a job; name smaller ones"
            )
    rungs = sorted(set(limits)) or ladder(free.peak_anon_bytes, free.peak_cgroup_bytes, free.limit_bytes)
    points = [_curve_point(_rung(session, limit)) for limit in rungs]
    # The unconstrained container with the median mean.
    points.append(_curve_point(_by_mean(base.jobs)[(len(base.jobs) - 1) // 2], unconstrained=True))
    knee, why = find_knee(points)
    return Curve(
        system=base.spec.cell.system,
        dataset=base.spec.cell.dataset,
        architecture=base.architecture,
        isolation=base.spec.isolation,
        cpus=cpus,
        gpus=question.gpus,
        points=tuple(points),
        knee_bytes=knee,
        why_no_knee=why,
    )


def find_knee(points: Sequence[CurvePoint]) -> tuple[int | None, str | None]:
    """Return the knee in bytes, or the reason why the curve has none.

    At and above the knee every limit works, with a mean within 25 % of unconstrained; below it, a limit is slower.

    Args:
        points: by ascending limit, the last one unconstrained.
    """
    bar = SLOWER * (points[-1].mean_s or 0.0)
    slow = [point for point in points if point.mean_s is not None and point.mean_s > bar]
    dead = [point for point in points if point.mean_s is None]
    if not slow:
        least = min(point.limit_bytes for point in points if point.mean_s is not None) // MIB
        why = f"flat: each that ran, from {least:,} MiB on, is within {SLOWER - 1:.0%} of the unconstrained mean"
        if dead:
            ends = ", ".join(sorted({point.outcome for point in dead}))
            why += f", and up to {dead[-1].limit_bytes // MIB:,} MiB the system ended {ends} before it slowed"
        return None, why
    last = max(point.limit_bytes for point in (*slow, *dead))
    after = next(point for point in points if point.limit_bytes > last)
    if after.unconstrained:
        return None, "no limit that was tried is large enough: name larger --limits"
    return after.limit_bytes, None


def _rung(session: Session, limit: int) -> Observation:
    """Measure a limit, repeatedly while it is in doubt; return the fastest job, because noise only slows."""
    jobs: list[Observation] = []
    for _ in range(TRIES):
        judgement = session.try_once(limit, Purpose.PROBE, "curve")
        jobs.append(judgement.observation)
        if judgement.finding is not ProbeFinding.DOUBT:
            break
    return _by_mean(jobs)[0]


def _by_mean(jobs: Iterable[Observation]) -> list[Observation]:
    return sorted(jobs, key=lambda job: math.inf if job.mean.value is None else job.mean.value)


def _curve_point(job: Observation, *, unconstrained: bool = False) -> CurvePoint:
    result, memory = job.result, job.result.observed.memory
    faults, queries = result.observed.counters.major_faults, result.spec.timed_queries * result.answers.trials_finished
    measured = memory.peak_cgroup_bytes is not None and memory.peak_anon_bytes is not None
    return CurvePoint(
        limit_bytes=job.limit,
        unconstrained=unconstrained,
        outcome=result.outcome.value,
        detail=result.detail,
        mean_s=job.mean.value,
        mean_low_s=job.mean.low,
        mean_high_s=job.mean.high,
        p95_s=job.latency_s.get("p95"),
        faults_per_query=None if faults is None or not queries else faults / queries,
        peak_anon_bytes=memory.peak_anon_bytes,
        page_cache_bytes=(memory.peak_cgroup_bytes or 0) - (memory.peak_anon_bytes or 0) if measured else None,
        disturbed=job.disturbed,
        job=job.folder,
    )
