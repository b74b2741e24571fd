"""Reports of an instance type and of a curve, and the texts that they share with the report on minima."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from operator import attrgetter

from harness.analysis.table import processors
from harness.experiments.viability.curve import Curve, CurvePoint
from harness.experiments.viability.judge import Unconstrained
from harness.experiments.viability.probe import MIB
from harness.experiments.viability.search import ProbeFinding
from harness.experiments.viability.smallest import Evidence, ViabilityVerdict
from harness.experiments.viability.validation import InstanceVerdict
from harness.report.document import Escape, Grid, GridColumn, ReportDocument, Section, Value, grid_of, lines_of
from harness.results.isolation import named


def validation_document(verdict: InstanceVerdict) -> ReportDocument:
    """Return the report on an instance type, with the evidence."""
    instance, subject = verdict.instance, named(verdict.isolation).marked(f"{verdict.system} on {verdict.dataset}")

    def sections(escape: Escape, *, wide: bool) -> Iterable[Section]:
        headline = f"{instance.instance_type} is enough for {subject}."
        if not verdict.holds:
            why = f"{', '.join(verdict.causes)}: {escape(verdict.why)}"
            headline = f"{instance.instance_type} is not enough for {subject} ({why})."
        notes = (
            f"Emulated: {processors(instance.vcpus, 0)} and {mib(verdict.limit_bytes)}, which {instance.instance_type}"
            f" ({mib(instance.memory_bytes)}, {instance.architecture}) leaves after its host's own need.",
            criteria_text(verdict.targets, verdict.least),
            *fault_lines(verdict, escape),
            *(f"Not shown: {text}." for text in verdict.not_shown),
        )
        if wide:
            grids = (evidence_grid(verdict.evidence, escape),)
            yield Section("", (headline,), grids, notes=(*notes, *unconstrained_lines(verdict.unconstrained)))
        else:
            yield Section("", (headline,), notes=(*notes, "every job: --wide"))

    return ReportDocument(
        sections=functools.partial(sections, wide=True),
        lines=lambda: lines_of(verdict.evidence, JOB_COLUMNS),
        content=lambda: asdict(verdict),
        answer=functools.partial(sections, wide=False),
        plain=True,
    )


def curve_document(curve: Curve) -> ReportDocument:
    """Return the report on a curve's points and its knee."""

    def sections(escape: Escape, *, wide: bool) -> Iterable[Section]:
        knee = f"No knee: {curve.why_no_knee or ''}."
        if curve.knee_bytes:
            knee = f"Knee: {mib(curve.knee_bytes)}: from there on every mean is within 25 % of the unconstrained one."
        hardware = named(curve.isolation).marked(processors(curve.cpus, curve.gpus))
        title = f"{curve.system} on {curve.dataset}, {hardware}: latency by memory limit"
        notes = [
            f"{mib(point.limit_bytes)}: measured on a disturbed machine: {escape(point.disturbed)}."
            for point in curve.points
            if point.disturbed
        ]
        notes += [] if wide else ["memory, page cache, jobs: --wide"]
        columns = _POINTS if wide else _POINTS[:5]
        yield Section(title, (), (grid_of(curve.points, columns),), (knee,), notes=tuple(notes))

    return ReportDocument(
        sections=functools.partial(sections, wide=True),
        lines=lambda: lines_of(curve.points, [(field.name, attrgetter(field.name)) for field in fields(CurvePoint)]),
        content=lambda: asdict(curve),
        answer=functools.partial(sections, wide=False),
        plain=True,
    )


def unconstrained_lines(free: Unconstrained) -> Iterable[str]:
    """Yield what the system took with all the memory of this host."""
    latency = ", ".join(f"{name} {_ms(seconds)} ms" for name, seconds in free.latency_s.items())
    disturbed = f", {free.disturbed} of them disturbed" if free.disturbed else ""
    yield (
        f"Unconstrained ({mib(free.limit_bytes)}; {free.containers} containers{disturbed}): anonymous peak"
        f" {mib(free.peak_anon_bytes)}, cgroup peak {mib(free.peak_cgroup_bytes)}; {latency}."
    )
    yield f"Its jobs: {', '.join(_key(job) for job in (*free.jobs, *free.left_out))}."
    if free.unstable_queries:
        yield (
            f"{free.unstable_queries:,} queries are ranked differently from container to container even so, and their"
            " rankings were not compared."
        )


def criteria_text(targets: Mapping[str, float], least: Mapping[str, float], *more: str) -> str:
    """Return the sentence on what a system had to keep."""
    latencies = (f"{name} <= {_ms(seconds)} ms" for name, seconds in targets.items())
    criteria = (*latencies, *more, *(f"{name} >= {value:g}" for name, value in least.items()))
    return f"Asked: every query answered and ranked as unconstrained, {', '.join(criteria)}."


def fault_lines(verdict: ViabilityVerdict | InstanceVerdict, escape: Escape) -> Iterable[str]:
    """Return the faults of a verdict's dataset."""
    return (escape(f"{verdict.dataset}: {fault.text}.") for fault in verdict.unconstrained.data_faults)


def _mean_and_interval(point: CurvePoint) -> str:
    if point.mean_s is None or point.mean_low_s is None or point.mean_high_s is None:
        return _ms(point.mean_s)
    return f"{_ms(point.mean_s)} ({_ms(point.mean_low_s)} to {_ms(point.mean_high_s)})"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.4g}"


def mib(size: int | None) -> str:
    """Format a size in MiB; None: missing."""
    if size is None:
        return "-"
    exact = size / MIB
    return f"{exact:,.0f} MiB" if exact == int(exact) else f"{exact:,.1f} MiB"


def _key(job: str) -> str:
    return job.rpartition("/")[2]


def evidence_grid(jobs: Sequence[Evidence], escape: Escape) -> Grid:
    """Return the jobs of a verdict, in their order."""
    columns: tuple[GridColumn[Evidence], ...] = (
        ("limit", False, lambda job: mib(job.limit_bytes)),
        ("for", False, lambda job: job.purpose),
        ("outcome", False, lambda job: job.outcome),
        ("finding", False, lambda job: job.finding + (f" ({','.join(job.causes)})" if job.causes else "")),
        ("mean, ms", True, lambda job: _ms(job.mean_s)),
        ("anonymous", True, lambda job: mib(job.peak_anon_bytes)),
        ("job", False, lambda job: _key(job.job)),
        ("why", False, lambda job: escape(job.why) or "-"),
    )
    tones = tuple("good" if job.finding == ProbeFinding.PASS.value else "bad" for job in jobs)
    return replace(grid_of(jobs, columns), tones=tones)


JOB_COLUMNS: tuple[tuple[str, Callable[[Evidence], Value]], ...] = (
    *((name, attrgetter(name)) for name in ("purpose", "limit_bytes", "outcome", "finding")),
    ("causes", lambda job: " ".join(job.causes)),
    *((name, attrgetter(name)) for name in ("why", "mean_s", "peak_anon_bytes", "major_faults", "job")),
)
# The first five columns are on the first screen.
_POINTS: tuple[GridColumn[CurvePoint], ...] = (
    ("limit", False, lambda point: mib(point.limit_bytes) + (" (unconstrained)" if point.unconstrained else "")),
    ("outcome", False, lambda point: point.outcome),
    ("mean, ms (95 %)", True, _mean_and_interval),
    ("p95, ms", True, lambda point: _ms(point.p95_s)),
    ("major faults a query", True, lambda p: "-" if p.faults_per_query is None else f"{p.faults_per_query:.3g}"),
    ("anonymous", True, lambda point: mib(point.peak_anon_bytes)),
    ("page cache", True, lambda point: mib(point.page_cache_bytes)),
    ("job", False, lambda point: _key(point.job)),
)
