"""Reports of verdicts and curves, with current prices: the verdict first, its evidence with --wide."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields, replace
from operator import attrgetter
from typing import Any

from harness.analysis.table import processors
from harness.driver.records import Envelope
from harness.experiments.viability.curve import Curve, CurvePoint
from harness.experiments.viability.judge import Unconstrained
from harness.experiments.viability.probe import MIB
from harness.experiments.viability.search import MOVES, ProbeFinding
from harness.experiments.viability.smallest import Evidence, ViabilityVerdict, against_edge
from harness.experiments.viability.validation import InstanceVerdict
from harness.pricing import offers
from harness.pricing.instances import DEFAULT_CHOICE, TypeChoice
from harness.pricing.offers import Offer
from harness.pricing.prices import Snapshot
from harness.report.document import Escape, Grid, GridColumn, ReportDocument, Section, Value, grid_of, lines_of
from harness.results.isolation import named

# The instance that tables would price, then the cheapest of any generation, then of any architecture.
RentalOffers = dict[str, Offer | None]


def rental_offers(
    verdict: ViabilityVerdict, snapshot: Snapshot, choice: TypeChoice = DEFAULT_CHOICE
) -> RentalOffers | None:
    """Find the cheapest types with enough memory for a verdict's limit; ``None`` without a limit."""
    if verdict.limit_bytes is None:
        return None
    peak = verdict.unconstrained.peak_gpu_bytes
    found = offers.find_offers(
        Envelope("limit", verdict.cpus, offers.host_reserve().needed(verdict.limit_bytes), verdict.gpus),
        snapshot,
        gpu_memory_bytes=None if peak is None or not verdict.gpus else -(-peak // verdict.gpus),  # of each GPU
    )
    choices = {
        "chosen": choice,
        "any_generation": replace(choice, generation="any"),
        "any_architecture": TypeChoice("any", "any"),
    }
    return {name: found.chosen(types, verdict.architecture) for name, types in choices.items()}


def verdicts_document(
    verdicts: Sequence[ViabilityVerdict], snapshot: Snapshot, choice: TypeChoice = DEFAULT_CHOICE
) -> ReportDocument:
    """Return the report on verdicts, with instances to rent."""
    rented = [(verdict, rental_offers(verdict, snapshot, choice)) for verdict in verdicts]

    def whole(escape: Escape) -> Iterable[Section]:
        for verdict, rent in rented:
            yield verdict_section(verdict, rent, snapshot, escape)

    def answer(escape: Escape) -> Iterable[Section]:
        doubts = [
            f"With {processors(verdict.cpus, verdict.gpus)}: {line}"
            for verdict in verdicts
            for line in _unsharp_lines(verdict)
        ]
        yield Section(
            lead=tuple(f"{_title(verdict)}: {_headline(verdict)}" for verdict in verdicts),
            grids=(grid_of(rented, _ANSWER),) if any(rent for _, rent in rented) else (),
            notes=(
                *map(_criteria_line, verdicts[:1]),
                *(line for verdict in verdicts[:1] for line in _fault_lines(verdict, escape)),
                *doubts[:2],
                f"every probe: --wide   prices of {snapshot}",
            ),
        )

    return ReportDocument(
        sections=whole,
        lines=lambda: lines_of(
            ((verdict, rent, job) for verdict, rent in rented for job in verdict.evidence), CSV_COLUMNS
        ),
        content=lambda: {
            "verdicts": [{**asdict(verdict), "rent": rent and rent_json(rent, snapshot)} for verdict, rent in rented]
        },
        answer=answer,
        plain=True,
    )


def verdict_section(
    verdict: ViabilityVerdict, rent: RentalOffers | None, snapshot: Snapshot, escape: Escape
) -> Section:
    """Return a verdict with all evidence and the instances to rent."""
    lines = (
        *_unconstrained_lines(verdict.unconstrained),
        _criteria_line(verdict),
        *_fault_lines(verdict, escape),
        *_edge_lines(verdict),
        *_rent_lines(rent, verdict, snapshot),
    )
    return Section(_title(verdict), (_headline(verdict),), (_evidence_grid(verdict.evidence, escape),), notes=lines)


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
            _criteria_line(verdict),
            *_fault_lines(verdict, escape),
            *(f"Not shown: {text}." for text in verdict.not_shown),
        )
        if wide:
            grids = (_evidence_grid(verdict.evidence, escape),)
            yield Section("", (headline,), grids, notes=(*notes, *_unconstrained_lines(verdict.unconstrained)))
        else:
            yield Section("", (headline,), notes=(*notes, "every job: --wide"))

    return ReportDocument(
        sections=functools.partial(sections, wide=True),
        lines=lambda: lines_of(verdict.evidence, _JOB_COLUMNS),
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
        disturbed = [point for point in curve.points if point.disturbed]
        if wide:
            notes = [
                f"{mib(point.limit_bytes)}: measured on a disturbed machine: {escape(point.disturbed or '')}."
                for point in disturbed
            ]
        else:
            limits = ", ".join(mib(point.limit_bytes) for point in disturbed)
            notes = [f"Measured on a disturbed machine: {limits}."] if disturbed else []
            notes.append("memory, page cache, jobs: --wide")
        columns = _POINTS if wide else _POINTS[:5]
        yield Section(title, (), (grid_of(curve.points, columns),), (knee,), notes=tuple(notes))

    return ReportDocument(
        sections=functools.partial(sections, wide=True),
        lines=lambda: lines_of(curve.points, [(field.name, attrgetter(field.name)) for field in fields(CurvePoint)]),
        content=lambda: asdict(curve),
        answer=functools.partial(sections, wide=False),
        plain=True,
    )


def _title(verdict: ViabilityVerdict) -> str:
    hardware = named(verdict.isolation).marked(processors(verdict.cpus, verdict.gpus))
    return f"{verdict.system} on {verdict.dataset}, {hardware}"


def _headline(verdict: ViabilityVerdict) -> str:
    if verdict.limit_bytes is None:
        return (
            f"No limit was confirmed: the last that was tried is {mib(verdict.below_bytes)}; quieten the machine"
            " (harness doctor shows its load) and try again with --fresh, or take a larger --step."
        )
    limit, below = mib(verdict.limit_bytes), mib(verdict.below_bytes)
    if verdict.below_bytes is None:
        less = "less than that starts no container"
        if verdict.lowest and not verdict.sharp:
            less += ", but not all jobs passed there"
        elif not verdict.lowest:
            less = f"less may be enough too: all {verdict.probes} probes passed; take a larger --step"
        return f"{limit} is enough, and {less}."
    if not verdict.binding:
        return (
            f"{limit} is the smallest limit that was confirmed; {below} passed as well, and after {MOVES} moves the"
            " search ended: the edge is not sharp."
        )
    passed = any(
        job.counts and job.limit_bytes == verdict.below_bytes and job.finding == ProbeFinding.PASS.value
        for job in verdict.evidence
    )
    text = f"{limit} is the smallest limit that passes; what binds is {' and '.join(verdict.binding)}: {below} fails"
    text += f"{' at times' if passed else ''}{'' if verdict.sharp else ', but the edge is not sharp'}."
    if verdict.limit_bytes - verdict.below_bytes > verdict.step_bytes:
        text += f" The {verdict.probes} probes leave the edge between these two, coarser than --step."
    return text


def _unconstrained_lines(free: Unconstrained) -> Iterable[str]:
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


def _criteria_line(verdict: ViabilityVerdict | InstanceVerdict) -> str:
    latencies = [f"{name} <= {_ms(seconds)} ms" for name, seconds in verdict.targets.items()]
    criteria = ", ".join(latencies + [f"{name} >= {value:g}" for name, value in verdict.least.items()])
    return f"Asked: every query answered and ranked as unconstrained, {criteria}."


def _fault_lines(verdict: ViabilityVerdict | InstanceVerdict, escape: Escape) -> Iterable[str]:
    return (escape(f"{verdict.dataset}: {fault.text}.") for fault in verdict.unconstrained.data_faults)


def _edge_lines(verdict: ViabilityVerdict) -> Iterable[str]:
    """Yield the margin of a confirmed limit, and jobs that contradict the edge, by limit."""
    if verdict.margin_bytes is not None:
        left = ", ".join(f"{share:.0%} of the {name} target" for name, share in verdict.headroom.items())
        margin = mib(verdict.margin_bytes)
        yield f"Margin: {margin} above the anonymous peak; the slowest confirmation leaves {left}."
    yield from _unsharp_lines(verdict)


def _unsharp_lines(verdict: ViabilityVerdict) -> Iterable[str]:
    if verdict.limit_bytes is None:
        return
    for limit in against_edge(verdict.evidence, verdict.limit_bytes, verdict.below_bytes):
        jobs = [job for job in verdict.evidence if job.counts and job.limit_bytes == limit]
        passed = sum(job.finding == ProbeFinding.PASS.value for job in jobs)
        causes = ", ".join(sorted({cause for job in jobs for cause in job.causes}))
        others = f"; the others: {causes}" if causes else ""
        yield f"Not sharp: {passed} of {len(jobs)} jobs with {mib(limit)} passed{others}."


def _rent_lines(rent: RentalOffers | None, verdict: ViabilityVerdict, snapshot: Snapshot) -> Iterable[str]:
    if rent is None:
        return
    beside = f"with the host's own {offers.host_reserve()}"
    if not any(rent.values()):
        yield f"To rent: the prices of {snapshot} list no type that provides it {beside}."
    titles = (f"To rent ({snapshot}, {beside})", "Of any generation", "Of any generation and architecture")
    distinct: dict[Offer, str] = {}
    for title, offer in zip(titles, rent.values(), strict=True):
        if offer is not None:
            distinct.setdefault(offer, title)
    for offer, title in distinct.items():
        yield f"{title}: {_offer_text(offer, verdict.architecture)}."


def _offer_text(offer: Offer, measured: str) -> str:
    instance = offer.instance
    text = (
        f"{instance.instance_type} ({instance.vcpus} vCPU, {instance.memory_bytes / 2**30:g} GiB,"
        f" {instance.architecture}), US$ {offer.usd_per_hour:g} per hour"
    )
    return text if instance.architecture == measured else f"{text}; not measured: this was {measured}"


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


def _evidence_grid(jobs: Sequence[Evidence], escape: Escape) -> Grid:
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


_Rented = tuple[ViabilityVerdict, RentalOffers | None]


def _chosen(rented: _Rented) -> Offer | None:
    return (rented[1] or {}).get("chosen")


_ANSWER: tuple[GridColumn[_Rented], ...] = (
    ("CPUs", True, lambda each: str(each[0].cpus)),
    ("smallest limit", True, lambda each: mib(each[0].limit_bytes)),
    ("margin", True, lambda each: mib(each[0].margin_bytes)),
    ("to rent", False, lambda each: offer.instance.instance_type if (offer := _chosen(each)) else "-"),
    ("architecture", False, lambda each: offer.instance.architecture if (offer := _chosen(each)) else "-"),
    ("US$/hour", True, lambda each: f"{offer.usd_per_hour:g}" if (offer := _chosen(each)) else "-"),
)
_JOB_COLUMNS: tuple[tuple[str, Callable[[Evidence], Value]], ...] = (
    *((name, attrgetter(name)) for name in ("purpose", "limit_bytes", "outcome", "finding")),
    ("causes", lambda job: " ".join(job.causes)),
    *((name, attrgetter(name)) for name in ("why", "mean_s", "peak_anon_bytes", "major_faults", "job")),
)
CSV_COLUMNS: tuple[tuple[str, Callable[[tuple[ViabilityVerdict, RentalOffers | None, Evidence]], Value]], ...] = (
    *((name, lambda line, name=name: getattr(line[0], name)) for name in ("system", "dataset", "cpus", "gpus")),
    *(
        (f"verdict_{name}", lambda line, name=name: getattr(line[0], name))
        for name in ("limit_bytes", "below_bytes", "sharp", "margin_bytes")
    ),
    ("verdict_binding", lambda line: " ".join(line[0].binding)),
    ("instance_type", lambda line: offer.instance.instance_type if (offer := _chosen(line[:2])) else None),
    ("usd_per_hour", lambda line: offer.usd_per_hour if (offer := _chosen(line[:2])) else None),
    *((name, lambda line, get=get: get(line[2])) for name, get in _JOB_COLUMNS),
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


def rent_json(rent: RentalOffers, snapshot: Snapshot) -> dict[str, Any]:
    """Return the instances to rent for JSON."""
    return {
        **{"region": snapshot.region, "term": snapshot.term, "as_of": str(snapshot.as_of)},
        "reserve": str(offers.host_reserve()),
        **{name: offer and _offer_json(offer) for name, offer in rent.items()},
    }


def _offer_json(offer: Offer) -> dict[str, Any]:
    names = ("instance_type", "architecture", "vcpus", "memory_bytes")
    return {**{name: getattr(offer.instance, name) for name in names}, "usd_per_hour": offer.usd_per_hour}
