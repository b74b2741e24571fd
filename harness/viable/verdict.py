"""What a search found, as a record that is stored: no money in it, that is put beside it when it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.viable.asked import Criteria
from harness.viable.reference import Reference
from harness.viable.search import CONFIRMATIONS, Finding, Purpose, Settled
from harness.viable.session import Tried

# Version of a verdict's JSON.
SCHEMA_VERSION = 1

_ARCHITECTURES = {"aarch64": "arm64", "amd64": "x86_64"}


@dataclass(frozen=True)
class Evidence:
    """One stored job: for what it was run, under which limit, and what came of it.

    ``aside``: the machine was slow, so it says nothing.  ``job``: its folder in the results.
    """

    purpose: str
    aside: bool
    limit_bytes: int
    outcome: str
    finding: str
    causes: tuple[str, ...]
    why: str
    mean_s: float | None
    peak_anon_bytes: int | None
    major_faults: int | None
    job: str


@dataclass(frozen=True)
class Unconstrained:
    """The system with all the memory that this host has left: medians over so many containers, the largest peaks."""

    limit_bytes: int
    containers: int
    disturbed: int
    peak_anon_bytes: int
    peak_cgroup_bytes: int
    latency_s: dict[str, float]
    measures: dict[str, float]
    unstable_queries: int


@dataclass(frozen=True)
class Verdict:
    """The smallest memory limit with which a system does its work.

    ``limit_bytes`` is ``None`` where no limit was confirmed.  ``below_bytes`` is the next smaller one that was tried,
    ``binding`` what failed there (the most frequent first); both empty where nothing smaller can be tried (``sharp``),
    or nothing that was tried failed (not ``sharp``).
    ``margin_bytes`` is what the limit leaves beside the anonymous peak of the unconstrained system.  ``headroom`` maps
    each latency target to the share of it that the slowest confirmation left.  ``sharp``: nothing but passes at the
    limit, and none below it.
    """

    system: str
    dataset: str
    image_digest: str
    architecture: str
    cpus: int
    gpus: int
    step_bytes: int
    targets: dict[str, float]
    least: dict[str, float]
    limit_bytes: int | None
    below_bytes: int | None
    binding: tuple[str, ...]
    sharp: bool
    margin_bytes: int | None
    headroom: dict[str, float]
    probes: int
    unconstrained: Unconstrained
    evidence: tuple[Evidence, ...]
    schema_version: int = SCHEMA_VERSION

    @property
    def resolution_bytes(self) -> int:
        """How far the true edge can lie below the limit: a step, or more where the probes were used up before."""
        if self.limit_bytes is None or self.below_bytes is None:
            return self.step_bytes
        return self.limit_bytes - self.below_bytes


def verdict(
    settled: Settled,
    tried: Sequence[Tried],
    reference: Reference,
    criteria: Criteria,
    step: int,
) -> Verdict:
    """Write down what a search found.

    Args:
        settled: its end.
        tried: its jobs, in order.
        reference: the unconstrained system.
        criteria: what was asked.
        step: of the grid, in bytes.
    """
    result = reference.jobs[0].result
    spec = result.spec
    targets = {target.figure: target.at_most_s for target in reference.targets(criteria)}
    return Verdict(
        system=spec.cell.system,
        dataset=spec.cell.dataset,
        image_digest=spec.image_digest,
        architecture=architecture(reference),
        cpus=spec.envelope.cpus,
        gpus=spec.envelope.gpus,
        step_bytes=step,
        targets=targets,
        least={each.measure: each.at_least for each in criteria.least},
        limit_bytes=settled.limit,
        below_bytes=settled.below,
        binding=_binding(tried, settled.below),
        sharp=settled.sharp,
        margin_bytes=None if settled.limit is None else settled.limit - reference.anonymous,
        headroom=_headroom(tried, settled.limit, targets),
        probes=settled.probes,
        unconstrained=unconstrained(reference),
        evidence=tuple(evidence(each) for each in tried),
    )


def unconstrained(reference: Reference) -> Unconstrained:
    """What is kept of the unconstrained system."""
    return Unconstrained(
        limit_bytes=reference.limit,
        containers=len(reference.jobs),
        disturbed=sum(seen.disturbed is not None for seen in reference.jobs),
        peak_anon_bytes=reference.anonymous,
        peak_cgroup_bytes=reference.cgroup_peak,
        latency_s=reference.latency_s,
        measures=reference.measures,
        unstable_queries=reference.unstable,
    )


def architecture(reference: Reference) -> str:
    """What it was measured on, as instance types say it."""
    machine = reference.jobs[0].result.environment.architecture
    return _ARCHITECTURES.get(machine, machine)


def evidence(tried: Tried) -> Evidence:
    """What is kept of a job."""
    judgement = tried.judgement
    seen = judgement.seen
    mean = seen.latency_s.get("mean")
    return Evidence(
        purpose=tried.purpose.value,
        aside=tried.aside,
        limit_bytes=seen.limit,
        outcome=seen.result.outcome.value,
        finding=judgement.finding.value,
        causes=judgement.causes,
        why=judgement.why,
        mean_s=mean.value if mean else None,
        peak_anon_bytes=seen.result.memory.peak_anon_bytes,
        major_faults=seen.result.counters.major_faults,
        job="/".join(seen.job.folder.parts[-6:]),
    )


def _binding(tried: Sequence[Tried], below: int | None) -> tuple[str, ...]:
    """What failed in the next smaller limit, the most frequent first; a doubtful latency failed as well."""
    causes = [
        cause
        for each in tried
        if each.judgement.seen.limit == below and not each.aside and each.judgement.finding is not Finding.PASS
        for cause in each.judgement.causes
    ]
    return tuple(sorted(dict.fromkeys(causes), key=lambda cause: (-causes.count(cause), cause)))


def _headroom(tried: Sequence[Tried], limit: int | None, targets: dict[str, float]) -> dict[str, float]:
    passed = [
        each.judgement.seen
        for each in tried
        if each.judgement.seen.limit == limit
        and each.purpose is Purpose.CONFIRMATION
        and each.judgement.finding is Finding.PASS
    ][-CONFIRMATIONS:]
    if not passed:
        return {}
    slowest = {name: max(seen.latency_s[name].value or 0.0 for seen in passed) for name in targets}
    return {name: 1 - slowest[name] / at_most_s for name, at_most_s in targets.items()}
