"""Measure and draw the memory-latency curve: one system under a ladder of limits, and its knee."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.driver.records import digest
from harness.errors import UsageError, counted
from harness.experiments.viability.acceptance import SLOWER
from harness.experiments.viability.judge import Observation
from harness.experiments.viability.probe import LEAST_BYTES, MIB
from harness.experiments.viability.search import TRIES, ProbeFinding, Purpose
from harness.experiments.viability.session import MAXIMUM_JOBS, Question, Session
from harness.report.plots import style
from harness.report.plots.style import plain_text
from harness.results.isolation import CONTAINER
from harness.untrusted import ForeignText

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Rungs of the ladder without the unconstrained one, in equal ratios from the first share (of the anonymous peak) to the
# second (of the cgroup peak): below, nothing can load; above, the kernel evicts nothing.
RUNGS = 8
_FROM, _TO = 0.9, 1.1
_GRAIN = 4 * MIB
_BLUE, _ORANGE, _RED, _GREY = "#1f5f99", "#d1812c", "#b3261e", "#666666"


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
    """Points by limit, ascending, the unconstrained anonymous peak, and the knee; ``None`` with ``why_no_knee``."""

    system: str
    dataset: str
    architecture: str
    cpus: int
    gpus: int
    points: tuple[CurvePoint, ...]
    peak_anon_bytes: int
    bar_s: float
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
        peak_anon_bytes=free.peak_anon_bytes,
        bar_s=SLOWER * (points[-1].mean_s or 0.0),
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


def plot_name(cpus: int, gpus: int, queries: int, limits: Sequence[int]) -> str:
    """Return a file name without suffix from the curve's options, so that curves do not overwrite each other."""
    name = f"curve-cpu{cpus}{f'-gpu{gpus}' if gpus else ''}-q{queries}"
    return f"{name}-{digest(sorted(set(limits)))[:8]}" if limits else name


def draw_curve(curve: Curve, stem: Path) -> tuple[Path, ...]:
    """Draw a curve into ``<stem>.png`` and ``<stem>.svg``."""
    with style.settings():
        figure = style.new_figure(8, 4.8)
        axes = figure.add_subplot()
        _draw_points(axes, curve)
        _draw_marks(axes, curve)
        _draw_frame(axes, curve)
        return tuple(style.save(figure, stem.with_name(f"{stem.name}.{form}")) for form in ("png", "svg"))


def _draw_points(axes: Axes, curve: Curve) -> None:
    ran = [point for point in curve.points if point.mean_s is not None and not point.unconstrained]
    sizes = [point.limit_bytes / MIB for point in ran]
    means = [_ms(point.mean_s) for point in ran]
    below = [mean - _ms(point.mean_low_s, mean) for point, mean in zip(ran, means, strict=True)]
    above = [_ms(point.mean_high_s, mean) - mean for point, mean in zip(ran, means, strict=True)]
    axes.errorbar(
        sizes, means, yerr=(below, above), color=_BLUE, marker="o", capsize=3, label="mean, with 95 % interval"
    )
    tails = [(point.limit_bytes / MIB, _ms(point.p95_s)) for point in ran if point.p95_s is not None]
    if tails:
        axes.plot(*zip(*tails, strict=True), color=_ORANGE, marker="s", markersize=4, linestyle=":", label="p95")
    dead = [point for point in curve.points if point.mean_s is None]
    if dead:
        ends = ", ".join(sorted({point.outcome for point in dead}))
        axes.plot(
            [point.limit_bytes / MIB for point in dead],
            [0.04] * len(dead),
            transform=axes.get_xaxis_transform(),
            color=_RED,
            marker="x",
            markersize=9,
            markeredgewidth=2,
            linestyle="none",
            label=f"no answer ({ends})",
        )


def _draw_marks(axes: Axes, curve: Curve) -> None:
    free = curve.points[-1]
    axes.axhline(
        _ms(free.mean_s), color=_GREY, linewidth=1, label=f"unconstrained mean ({free.limit_bytes // MIB:,} MiB)"
    )
    axes.axhline(curve.bar_s * 1e3, color=_GREY, linewidth=1, linestyle="--", label="25 % slower")
    peak = curve.peak_anon_bytes / MIB
    axes.axvline(peak, color=_RED, linewidth=1, linestyle="-.", label=f"anonymous peak, {peak:,.0f} MiB")
    if curve.knee_bytes:
        knee = curve.knee_bytes / MIB
        axes.axvline(knee, color=_BLUE, linewidth=1.5, linestyle="--", label=f"knee, {knee:,.0f} MiB")


def _draw_frame(axes: Axes, curve: Curve) -> None:
    rungs = [point for point in curve.points if not point.unconstrained]
    axes.set_xscale("log", base=2)
    axes.set_xticks([point.limit_bytes / MIB for point in rungs], [f"{point.limit_bytes // MIB:,}" for point in rungs])
    axes.minorticks_off()
    axes.tick_params(axis="x", rotation=45)
    means = [_ms(point.mean_s) for point in curve.points if point.mean_s is not None]
    if max(means) > 10 * min(means):
        axes.set_yscale("log")
        for set_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            set_formatter(lambda value, _: f"{value:g}")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel("memory limit, MiB")
    axes.set_ylabel("latency, ms")
    knee = "" if curve.knee_bytes else " (no knee)"
    name = f"{curve.system} on {curve.dataset}, {counted(curve.cpus, 'CPU')}{knee}"
    axes.set_title(plain_text(name, 90))
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.legend(loc="best", fontsize=8)


def _ms(seconds: float | None, otherwise: float = 0.0) -> float:
    return otherwise if seconds is None else seconds * 1e3
