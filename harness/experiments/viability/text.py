"""What was found, for people: Markdown that reads well on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.experiments.viability.curve import Curve, Point
from harness.experiments.viability.probe import MIB
from harness.experiments.viability.search import MOVES, Finding
from harness.experiments.viability.validation import Claim
from harness.experiments.viability.verdict import Evidence, Unconstrained, Verdict, against_edge
from harness.pricing.offers import Offer, Reserve
from harness.pricing.prices import Snapshot
from harness.report.writers import markdown_escape, markdown_grid

# Columns that hold numbers.
_NUMBERS = ("mean, ms", "anonymous", "mean, ms (95 %)", "p95, ms", "major faults a query", "page cache")


@dataclass(frozen=True)
class Rent:
    """What provides a verdict's limit at a date: on the measured architecture, and on any.

    ``current`` is the cheapest of the provider's current generation on the measured architecture.
    """

    snapshot: Snapshot
    reserve: Reserve
    measured: Offer | None
    current: Offer | None
    anywhere: Offer | None


def verdict(found: Verdict, rent: Rent | None) -> str:
    """A verdict with its evidence; ``rent`` where there is a limit to rent for."""
    return "\n".join(
        [
            f"## {found.system} on {found.dataset}, {_cpus(found.cpus, found.gpus)}",
            "",
            _headline(found),
            "",
            *_unconstrained(found.unconstrained),
            f"- Asked: every query answered and ranked as unconstrained, {_asked(found.targets, found.least)}.",
            *_margins(found),
            *_flaky(found),
            *_rent(rent, found),
            "",
            *_evidence(found.evidence),
            "",
        ]
    )


def claim(found: Claim) -> str:
    """Whether a type is enough, with the evidence."""
    instance = found.instance
    says = (
        "does its work"
        if found.holds
        else f"**does not do its work** ({', '.join(found.causes)}: {markdown_escape(found.why)})"
    )
    return "\n".join(
        [
            f"## {found.system} on {found.dataset}: {instance.instance_type}",
            "",
            f"With {_cpus(instance.vcpus, 0)} and {_mib(found.limit_bytes)}, which is what {instance.instance_type}"
            f" ({_mib(instance.memory_bytes)}, {instance.architecture}) leaves beside its host's own need, it {says}.",
            "",
            *_unconstrained(found.unconstrained),
            f"- Asked: every query answered and ranked as unconstrained, {_asked(found.targets, found.least)}.",
            *(f"- Not shown: {each}." for each in found.not_shown),
            "",
            *_evidence(found.evidence),
            "",
        ]
    )


def curve(found: Curve) -> str:
    """The curve's points, and its knee."""
    knee = (
        f"Knee: {_mib(found.knee_bytes)}: from there on every mean is within 25 % of the unconstrained one."
        if found.knee_bytes
        else f"No knee: {(found.why_no_knee or '')}."
    )
    head = ("limit", "outcome", "mean, ms (95 %)", "p95, ms", "major faults a query", "anonymous", "page cache", "job")
    notes = [
        f"- {_mib(each.limit_bytes)}: {markdown_escape(each.disturbed)}." for each in found.points if each.disturbed
    ]
    return "\n".join(
        [
            f"## {found.system} on {found.dataset}, {_cpus(found.cpus, found.gpus)}: latency by memory limit",
            "",
            *_table(head, [_row(point) for point in found.points]),
            "",
            knee,
            *(["", "Measured on a disturbed machine:", "", *notes] if notes else []),
            "",
        ]
    )


def _headline(found: Verdict) -> str:
    if found.limit_bytes is None:
        return (
            f"**No limit was confirmed**: the last that was tried is {_mib(found.below_bytes)}; quieten the machine"
            " (harness doctor shows its load) and try again with --fresh, or take a larger --step."
        )
    if found.below_bytes is None:
        less = "less than that starts no container"
        if found.lowest and not found.sharp:
            less += ", but not all jobs passed there"
        elif not found.lowest:
            less = f"less may be: none of {found.probes} probes failed; take a larger --step"
        return f"**{_mib(found.limit_bytes)}** is enough, and {less}."
    if not found.binding:
        return (
            f"**{_mib(found.limit_bytes)}** is the smallest limit that was confirmed; {_mib(found.below_bytes)} passed"
            f" as well, and after {MOVES} moves the search ended: the edge is not sharp."
        )
    fails = " and ".join(found.binding)
    said = f"**{_mib(found.limit_bytes)}** is the smallest limit that passes; what binds is **{fails}**: "
    passed = any(
        each.counts and each.limit_bytes == found.below_bytes and each.finding == Finding.PASS.value
        for each in found.evidence
    )
    edge = f"{_mib(found.below_bytes)} fails{' at times' if passed else ''}"
    edge += "" if found.sharp else ", but the edge is not sharp"
    resolution = found.resolution_bytes
    coarse = f" The {found.probes} probes leave the edge between these two" if resolution > found.step_bytes else ""
    return f"{said}{edge}.{coarse}{', coarser than --step.' if coarse else ''}"


def _unconstrained(free: Unconstrained) -> list[str]:
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


def _asked(targets: dict[str, float], least: dict[str, float]) -> str:
    latencies = [f"{name} <= {seconds * 1e3:.4g} ms" for name, seconds in targets.items()]
    return ", ".join(latencies + [f"{name} >= {value:g}" for name, value in least.items()])


def _flaky(found: Verdict) -> Iterable[str]:
    """Passes and failures on the wrong side of the edge, by limit."""
    if found.limit_bytes is None:
        return
    for limit in against_edge(found.evidence, found.limit_bytes, found.below_bytes):
        here = [each for each in found.evidence if each.counts and each.limit_bytes == limit]
        passed = sum(each.finding == Finding.PASS.value for each in here)
        why = ", ".join(sorted({cause for each in here for cause in each.causes}))
        others = f"; the others: {why}" if why else ""
        yield f"- Not sharp: {passed} of {len(here)} jobs with {_mib(limit)} passed{others}."


def _margins(found: Verdict) -> Iterable[str]:
    if found.margin_bytes is None:
        return
    left = ", ".join(f"{share:.0%} of the {name} target" for name, share in found.headroom.items())
    yield (f"- Margin: {_mib(found.margin_bytes)} beside the anonymous peak; the slowest confirmation leaves {left}.")


def _rent(rent: Rent | None, found: Verdict) -> Iterable[str]:
    if rent is None:
        return
    beside = f"beside the host's own {rent.reserve}"
    if rent.measured is None:
        yield f"- To rent: no {found.architecture} type in the prices of {rent.snapshot} provides it {beside}."
    else:
        yield f"- To rent ({rent.snapshot}, {beside}): {_offer(rent.measured)}."
    if rent.current is not None and rent.current != rent.measured:
        yield f"- Of the current generation: {_offer(rent.current)}."
    if rent.anywhere is not None and rent.anywhere != rent.measured:
        yield (f"- On any architecture: {_offer(rent.anywhere)}; not measured: this was {found.architecture}.")


def _offer(offer: Offer) -> str:
    instance = offer.instance
    return (
        f"**{instance.instance_type}** ({instance.vcpus} vCPU, {instance.memory_bytes / 2**30:g} GiB,"
        f" {instance.architecture}), US$ {offer.usd_per_hour:g} per hour"
    )


def _evidence(evidence: Sequence[Evidence]) -> list[str]:
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


def _row(point: Point) -> tuple[str, ...]:
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
