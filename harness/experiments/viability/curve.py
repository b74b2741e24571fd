"""The memory-latency curve: the same system under a ladder of limits, and where it bends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import UsageError
from harness.experiments.viability.acceptance import MEAN, SLOWER
from harness.experiments.viability.observation import Seen
from harness.experiments.viability.probe import LEAST_BYTES, MIB
from harness.experiments.viability.reference import Reference
from harness.experiments.viability.search import TRIES, Finding, Purpose
from harness.experiments.viability.session import MOST_JOBS, Session, Viability
from harness.experiments.viability.verdict import architecture
from harness.records import Outcome

# Rungs of the ladder beside the unconstrained one, evenly in ratio from so much of the anonymous peak to so much of the
# cgroup's: below the first nothing can load, above the second nothing is ever evicted.
RUNGS = 8
_FROM, _TO = 0.9, 1.1
_GRAIN = 4 * MIB


@dataclass(frozen=True)
class Point:
    """One limit of the curve.

    Times in seconds, sizes in bytes.  ``mean_low_s`` and ``mean_high_s`` bound the mean (95 %, over queries).
    ``faults_per_query`` are pages read from disk while the trials ran; ``page_cache`` is the peak of all that was
    charged less the anonymous peak.  ``None``: not measured.
    """

    limit_bytes: int
    unconstrained: bool
    outcome: str
    detail: str | None
    mean_s: float | None
    mean_low_s: float | None
    mean_high_s: float | None
    p95_s: float | None
    faults_per_query: float | None
    peak_anon_bytes: int | None
    page_cache_bytes: int | None
    disturbed: str | None
    job: str


@dataclass(frozen=True)
class Curve:
    """Points by limit, ascending, the unconstrained anonymous peak, and the knee; ``None`` with ``why_no_knee``."""

    system: str
    dataset: str
    architecture: str
    cpus: int
    gpus: int
    points: tuple[Point, ...]
    peak_anon_bytes: int
    bar_s: float
    knee_bytes: int | None
    why_no_knee: str | None


def ladder(anonymous: int, cgroup_peak: int, most: int) -> tuple[int, ...]:
    """The limits (bytes) to try where none are named, ascending, without the unconstrained one."""
    low = max(_FROM * anonymous, LEAST_BYTES)
    high = max(_TO * cgroup_peak, low + RUNGS * _GRAIN)
    rungs = (low * (high / low) ** (step / (RUNGS - 1)) for step in range(RUNGS))
    return tuple(sorted({min(round(rung / _GRAIN) * _GRAIN, most) for rung in rungs} - {most}))


def measure(asked: Viability, cpus: int, limits: Sequence[int] = ()) -> Curve:
    """Measure each rung once, or take what is stored.

    Args:
        asked: the subject, without criteria of its own.
        cpus: how many.
        limits: in bytes; by default :func:`ladder`.

    Raises:
        UsageError: a limit is too small to start anything, or larger than this host.
        JobError, EngineError, StoreError: as from a search.
    """
    for limit in limits:
        if limit < LEAST_BYTES:
            raise UsageError(f"--limits: {limit // MIB} MiB start no container; name {LEAST_BYTES // MIB} MiB or more")
    session = Session(asked, cpus, MOST_JOBS + 2 * TRIES * len(limits))
    base = session.base
    for limit in limits:
        if limit >= base.limit:
            raise UsageError(
                f"--limits: {limit // MIB:,} MiB constrain nothing here: this host leaves {base.limit // MIB:,} MiB"
                " to a job; name smaller ones"
            )
    rungs = sorted(set(limits)) or ladder(base.anonymous, base.cgroup_peak, base.limit)
    points = [_point(_rung(session, limit)) for limit in rungs]
    points.append(_unconstrained(base))
    knee, why = find_knee(points)
    spec = base.jobs[0].result.spec
    return Curve(
        system=spec.cell.system,
        dataset=spec.cell.dataset,
        architecture=architecture(base),
        cpus=cpus,
        gpus=spec.envelope.gpus,
        points=tuple(points),
        peak_anon_bytes=base.anonymous,
        bar_s=SLOWER * (points[-1].mean_s or 0.0),
        knee_bytes=knee,
        why_no_knee=why,
    )


def find_knee(points: Sequence[Point]) -> tuple[int | None, str | None]:
    """The smallest limit from which on all run, with a mean within 25 % of the unconstrained one; below, one is slower.

    Args:
        points: ascending, the last one unconstrained.

    Returns:
        The limit in bytes, or why there is none.
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


def _rung(session: Session, limit: int) -> Seen:
    """One attempt under a limit; others where it is slow and in doubt, and then the fastest: noise only ever slows."""
    seen: list[Seen] = []
    for _ in range(TRIES):
        judged = session.try_once(limit, Purpose.PROBE, "curve")
        seen.append(judged.seen)
        if judged.finding is not Finding.DOUBT:
            break
    return min(seen, key=_mean)


def _mean(seen: Seen) -> float:
    mean = seen.latency_s[MEAN].value if MEAN in seen.latency_s else None
    return float("inf") if mean is None else mean


def _unconstrained(base: Reference) -> Point:
    """The container with the median mean."""
    ordered = sorted(base.jobs, key=_mean)
    return _point(ordered[(len(ordered) - 1) // 2], unconstrained=True)


def _point(seen: Seen, *, unconstrained: bool = False) -> Point:
    result, memory = seen.result, seen.result.memory
    mean, p95 = seen.latency_s.get(MEAN), seen.latency_s.get("p95")
    faults, asked = result.counters.major_faults, result.spec.timed_queries * result.trials_finished
    known = memory.peak_cgroup_bytes is not None and memory.peak_anon_bytes is not None
    return Point(
        limit_bytes=seen.limit,
        unconstrained=unconstrained,
        outcome=result.outcome.value,
        detail=result.detail,
        mean_s=mean.value if mean and result.outcome is Outcome.OK else None,
        mean_low_s=mean.low if mean else None,
        mean_high_s=mean.high if mean else None,
        p95_s=p95.value if p95 else None,
        faults_per_query=None if faults is None or not asked else faults / asked,
        peak_anon_bytes=memory.peak_anon_bytes,
        page_cache_bytes=(memory.peak_cgroup_bytes or 0) - (memory.peak_anon_bytes or 0) if known else None,
        disturbed=seen.disturbed,
        job="/".join(seen.job.folder.parts[-6:]),
    )
