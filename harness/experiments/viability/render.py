"""Render verdicts and curves as Markdown or JSON, with prices of the day they are read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.experiments.viability.curve import Curve, CurvePoint
from harness.experiments.viability.probe import MIB, envelope
from harness.experiments.viability.search import MOVES, ProbeFinding
from harness.experiments.viability.smallest import Evidence, Unconstrained, ViabilityVerdict, against_edge
from harness.experiments.viability.validation import InstanceVerdict
from harness.pricing import offers
from harness.pricing.offers import HostReserve, Offer
from harness.pricing.prices import Snapshot
from harness.report.writers import markdown_escape, markdown_grid

# Columns that hold numbers.
_NUMBERS = ("mean, ms", "anonymous", "mean, ms (95 %)", "p95, ms", "major faults a query", "page cache")


@dataclass(frozen=True)
class RentalOffers:
    """The cheapest instances that provide a verdict's limit: on the measured architecture, and on any.

    ``current`` is the cheapest of the provider's current generation on the measured architecture.
    """

    snapshot: Snapshot
    reserve: HostReserve
    measured: Offer | None
    current: Offer | None
    anywhere: Offer | None


def rental_offers(verdict: ViabilityVerdict, snapshot: Snapshot) -> RentalOffers | None:
    """Find the cheapest types that provide a verdict's limit beside the reserve; ``None`` without a limit."""
    if verdict.limit_bytes is None:
        return None
    reserve, needed = offers.host_reserve(), envelope(verdict.cpus, verdict.limit_bytes, verdict.gpus)
    peak = verdict.unconstrained.peak_gpu_bytes
    memory = None if peak is None or not verdict.gpus else -(-peak // verdict.gpus)  # of each GPU
    same = offers.find_offers(
        needed, snapshot, architecture=verdict.architecture, reserve=reserve, gpu_memory_bytes=memory
    ).fitting
    return RentalOffers(
        snapshot,
        reserve,
        measured=next(iter(same), None),
        current=next((offer for offer in same if offer.instance.current_generation), None),
        anywhere=offers.cheapest_offer(needed, snapshot, None, reserve, gpu_memory_bytes=memory),
    )


def render_verdicts(verdicts: Sequence[ViabilityVerdict], snapshot: Snapshot, form: str) -> str:
    """Render verdicts with the instances to rent for them."""
    rented = [(verdict, rental_offers(verdict, snapshot)) for verdict in verdicts]
    if form == "json":
        return _json([{**asdict(verdict), "rent": rent and _rent_json(rent)} for verdict, rent in rented])
    return "\n".join(_verdict_markdown(verdict, rent) for verdict, rent in rented)


def render_validation(verdict: InstanceVerdict, form: str) -> str:
    """Render the verdict on an instance type."""
    return _json(asdict(verdict)) if form == "json" else _validation_markdown(verdict)


def render_curve(curve: Curve, form: str) -> str:
    """Render a curve."""
    return _json(asdict(curve)) if form == "json" else _curve_markdown(curve)


def _verdict_markdown(verdict: ViabilityVerdict, rent: RentalOffers | None) -> str:
    """Render a verdict with its evidence; ``rent`` where there is a limit to rent for."""
    return "\n".join(
        [
            f"## {verdict.system} on {verdict.dataset}, {_cpus(verdict.cpus, verdict.gpus)}",
            "",
            _headline(verdict),
            "",
            *_unconstrained_lines(verdict.unconstrained),
            _criteria_line(verdict.targets, verdict.least),
            *_margin_lines(verdict),
            *_unsharp_lines(verdict),
            *_rent_lines(rent, verdict),
            "",
            *_evidence_table(verdict.evidence),
            "",
        ]
    )


def _validation_markdown(verdict: InstanceVerdict) -> str:
    """Render the verdict on an instance type, with the evidence."""
    instance = verdict.instance
    says = (
        "does its work"
        if verdict.holds
        else f"**does not do its work** ({', '.join(verdict.causes)}: {markdown_escape(verdict.why)})"
    )
    return "\n".join(
        [
            f"## {verdict.system} on {verdict.dataset}: {instance.instance_type}",
            "",
            f"With {_cpus(instance.vcpus, 0)} and {_mib(verdict.limit_bytes)}, which is what {instance.instance_type}"
            f" ({_mib(instance.memory_bytes)}, {instance.architecture}) leaves beside its host's own need, it {says}.",
            "",
            *_unconstrained_lines(verdict.unconstrained),
            _criteria_line(verdict.targets, verdict.least),
            *(f"- Not shown: {each}." for each in verdict.not_shown),
            "",
            *_evidence_table(verdict.evidence),
            "",
        ]
    )


def _curve_markdown(curve: Curve) -> str:
    """Render a curve's points and its knee."""
    knee = (
        f"Knee: {_mib(curve.knee_bytes)}: from there on every mean is within 25 % of the unconstrained one."
        if curve.knee_bytes
        else f"No knee: {(curve.why_no_knee or '')}."
    )
    head = ("limit", "outcome", "mean, ms (95 %)", "p95, ms", "major faults a query", "anonymous", "page cache", "job")
    notes = [
        f"- {_mib(each.limit_bytes)}: {markdown_escape(each.disturbed)}." for each in curve.points if each.disturbed
    ]
    return "\n".join(
        [
            f"## {curve.system} on {curve.dataset}, {_cpus(curve.cpus, curve.gpus)}: latency by memory limit",
            "",
            *_table(head, [_curve_row(point) for point in curve.points]),
            "",
            knee,
            *(["", "Measured on a disturbed machine:", "", *notes] if notes else []),
            "",
        ]
    )


def _headline(verdict: ViabilityVerdict) -> str:
    if verdict.limit_bytes is None:
        return (
            f"**No limit was confirmed**: the last that was tried is {_mib(verdict.below_bytes)}; quieten the machine"
            " (harness doctor shows its load) and try again with --fresh, or take a larger --step."
        )
    if verdict.below_bytes is None:
        less = "less than that starts no container"
        if verdict.lowest and not verdict.sharp:
            less += ", but not all jobs passed there"
        elif not verdict.lowest:
            less = f"less may be: none of {verdict.probes} probes failed; take a larger --step"
        return f"**{_mib(verdict.limit_bytes)}** is enough, and {less}."
    if not verdict.binding:
        return (
            f"**{_mib(verdict.limit_bytes)}** is the smallest limit that was confirmed; {_mib(verdict.below_bytes)}"
            f" passed as well, and after {MOVES} moves the search ended: the edge is not sharp."
        )
    fails = " and ".join(verdict.binding)
    said = f"**{_mib(verdict.limit_bytes)}** is the smallest limit that passes; what binds is **{fails}**: "
    passed = any(
        each.counts and each.limit_bytes == verdict.below_bytes and each.finding == ProbeFinding.PASS.value
        for each in verdict.evidence
    )
    edge = f"{_mib(verdict.below_bytes)} fails{' at times' if passed else ''}"
    edge += "" if verdict.sharp else ", but the edge is not sharp"
    resolution = verdict.resolution_bytes
    coarse = f" The {verdict.probes} probes leave the edge between these two" if resolution > verdict.step_bytes else ""
    return f"{said}{edge}.{coarse}{', coarser than --step.' if coarse else ''}"


def _unconstrained_lines(free: Unconstrained) -> list[str]:
    latency = ", ".join(f"{name} {seconds * 1e3:.4g} ms" for name, seconds in free.latency_s.items())
    disturbed = f", {free.disturbed} of them disturbed" if free.disturbed else ""
    lines = [
        f"- Unconstrained ({_mib(free.limit_bytes)}; {free.containers} containers{disturbed}): anonymous peak"
        f" {_mib(free.peak_anon_bytes)}, cgroup peak {_mib(free.peak_cgroup_bytes)}; {latency}."
    ]
    lines.append(f"- Its jobs: {', '.join(_key(job) for job in (*free.jobs, *free.left_out))}.")
    if free.unstable_queries:
        lines.append(
            f"- {free.unstable_queries:,} queries are ranked differently from container to container even so, and"
            " their rankings were not compared."
        )
    return lines


def _criteria_line(targets: dict[str, float], least: dict[str, float]) -> str:
    latencies = [f"{name} <= {seconds * 1e3:.4g} ms" for name, seconds in targets.items()]
    criteria = ", ".join(latencies + [f"{name} >= {value:g}" for name, value in least.items()])
    return f"- Asked: every query answered and ranked as unconstrained, {criteria}."


def _unsharp_lines(verdict: ViabilityVerdict) -> Iterable[str]:
    """Yield the passes and failures on the wrong side of the edge, by limit."""
    if verdict.limit_bytes is None:
        return
    for limit in against_edge(verdict.evidence, verdict.limit_bytes, verdict.below_bytes):
        here = [each for each in verdict.evidence if each.counts and each.limit_bytes == limit]
        passed = sum(each.finding == ProbeFinding.PASS.value for each in here)
        why = ", ".join(sorted({cause for each in here for cause in each.causes}))
        others = f"; the others: {why}" if why else ""
        yield f"- Not sharp: {passed} of {len(here)} jobs with {_mib(limit)} passed{others}."


def _margin_lines(verdict: ViabilityVerdict) -> Iterable[str]:
    if verdict.margin_bytes is None:
        return
    left = ", ".join(f"{share:.0%} of the {name} target" for name, share in verdict.headroom.items())
    yield (f"- Margin: {_mib(verdict.margin_bytes)} beside the anonymous peak; the slowest confirmation leaves {left}.")


def _rent_lines(rent: RentalOffers | None, verdict: ViabilityVerdict) -> Iterable[str]:
    if rent is None:
        return
    beside = f"beside the host's own {rent.reserve}"
    if rent.measured is None:
        yield f"- To rent: no {verdict.architecture} type in the prices of {rent.snapshot} provides it {beside}."
    else:
        yield f"- To rent ({rent.snapshot}, {beside}): {_offer_text(rent.measured)}."
    if rent.current is not None and rent.current != rent.measured:
        yield f"- Of the current generation: {_offer_text(rent.current)}."
    if rent.anywhere is not None and rent.anywhere != rent.measured:
        yield (f"- On any architecture: {_offer_text(rent.anywhere)}; not measured: this was {verdict.architecture}.")


def _offer_text(offer: Offer) -> str:
    instance = offer.instance
    return (
        f"**{instance.instance_type}** ({instance.vcpus} vCPU, {instance.memory_bytes / 2**30:g} GiB,"
        f" {instance.architecture}), US$ {offer.usd_per_hour:g} per hour"
    )


def _evidence_table(evidence: Sequence[Evidence]) -> list[str]:
    head = ("limit", "for", "outcome", "finding", "mean, ms", "anonymous", "why", "job")
    rows = [
        (
            _mib(each.limit_bytes),
            each.purpose,
            each.outcome,
            f"{each.finding}{f' ({chr(44).join(each.causes)})' if each.causes else ''}",
            "-" if each.mean_s is None else f"{each.mean_s * 1e3:.4g}",
            _mib(each.peak_anon_bytes),
            markdown_escape(each.why) or "-",
            _key(each.job),
        )
        for each in evidence
    ]
    return _table(head, rows)


def _curve_row(point: CurvePoint) -> tuple[str, ...]:
    mean = "-"
    if point.mean_s is not None:
        mean = f"{point.mean_s * 1e3:.4g}"
        if point.mean_low_s is not None and point.mean_high_s is not None:
            mean += f" ({point.mean_low_s * 1e3:.4g} to {point.mean_high_s * 1e3:.4g})"
    return (
        _mib(point.limit_bytes) + (" (unconstrained)" if point.unconstrained else ""),
        point.outcome,
        mean,
        "-" if point.p95_s is None else f"{point.p95_s * 1e3:.4g}",
        "-" if point.faults_per_query is None else f"{point.faults_per_query:.3g}",
        _mib(point.peak_anon_bytes),
        _mib(point.page_cache_bytes),
        _key(point.job),
    )


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    return markdown_grid(head, tuple(name in _NUMBERS for name in head), rows, padded=True)


def _key(job: str) -> str:
    return job.rpartition("/")[2]


def _cpus(cpus: int, gpus: int) -> str:
    said = f"{cpus} CPU{'s' if cpus > 1 else ''}"
    return f"{said}, {gpus} GPU{'s' if gpus > 1 else ''}" if gpus else said


def _mib(size: int | None) -> str:
    if size is None:
        return "-"
    mib = size / MIB
    return f"{mib:,.0f} MiB" if mib == int(mib) else f"{mib:,.1f} MiB"


def _rent_json(rent: RentalOffers) -> dict[str, Any]:
    snapshot = rent.snapshot
    return {
        "region": snapshot.region,
        "term": snapshot.term,
        "as_of": str(snapshot.as_of),
        "reserve": str(rent.reserve),
        "same_architecture": _offer_json(rent.measured),
        "current_generation": _offer_json(rent.current),
        "any_architecture": _offer_json(rent.anywhere),
    }


def _offer_json(offer: Offer | None) -> dict[str, Any] | None:
    if offer is None:
        return None
    return {
        "instance_type": offer.instance.instance_type,
        "architecture": offer.instance.architecture,
        "vcpus": offer.instance.vcpus,
        "memory_bytes": offer.instance.memory_bytes,
        "usd_per_hour": offer.usd_per_hour,
    }


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, allow_nan=False) + "\n"
