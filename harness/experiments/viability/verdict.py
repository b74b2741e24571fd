"""What a search found, as a record that is stored: no money in it, that is put beside it when it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis import row_pricing
from harness.experiments.viability.acceptance import Criteria
from harness.experiments.viability.observation import Seen
from harness.experiments.viability.probe import machine
from harness.experiments.viability.reference import Reference
from harness.experiments.viability.search import CONFIRMATIONS, Finding, Purpose, Settled, wrong_side
from harness.experiments.viability.session import Tried
from harness.results.schema import Environment

# Version of a verdict's JSON.
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Evidence:
    """One stored job: for what it was run, under which limit, what came of it, and its folder in the results.

    Controls, and what was put aside because the machine was slow, say nothing of their limit (``counts``).
    """

    purpose: str
    limit_bytes: int
    outcome: str
    finding: str
    causes: tuple[str, ...]
    why: str
    mean_s: float | None
    peak_anon_bytes: int | None
    major_faults: int | None
    job: str

    @property
    def counts(self) -> bool:
        """Does it say something of its limit?"""
        return self.purpose not in (Purpose.CONTROL.value, Purpose.ASIDE.value)


@dataclass(frozen=True)
class Unconstrained:
    """The system with all the memory that this host has left: medians over so many containers, the largest peaks.

    ``jobs`` are the folders of these containers, ``left_out`` those of disturbed ones: they set no latency and no
    measure, but peaks and rankings are theirs as well.
    """

    limit_bytes: int
    containers: int
    disturbed: int
    peak_anon_bytes: int
    peak_cgroup_bytes: int
    peak_gpu_bytes: int | None
    latency_s: dict[str, float]
    measures: dict[str, float]
    unstable_queries: int
    jobs: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """The smallest memory limit with which a system does its work.

    ``limit_bytes`` is ``None`` where no limit was confirmed.  ``below_bytes`` is the next smaller one that was tried,
    ``binding`` what failed there (the most frequent first; nothing where it passed, and was not confirmed).  Without
    it, either nothing smaller can be tried (``lowest``), or the probes were used up and all had passed.
    ``margin_bytes`` is what the limit leaves beside the anonymous peak of the unconstrained system.  ``headroom`` maps
    each latency target to the share of it that the slowest confirmation left.  ``sharp``: nothing but passes at the
    limit and above, and a limit below it (or none that can be tried) without any pass there and further down.
    ``jobs`` counts all that it rests on, unconstrained ones included; ``machine`` is what they ran on.
    ``seal`` is the digest of all other fields (:mod:`harness.results.seals`).
    """

    system: str
    dataset: str
    image_digest: str
    architecture: str
    cpus: int
    gpus: int
    corpus_sha256: str
    sample_sha256: str
    sample_size: int
    machine: Environment
    step_bytes: int
    targets: dict[str, float]
    least: dict[str, float]
    limit_bytes: int | None
    below_bytes: int | None
    lowest: bool
    binding: tuple[str, ...]
    sharp: bool
    margin_bytes: int | None
    headroom: dict[str, float]
    probes: int
    jobs: int
    unconstrained: Unconstrained
    evidence: tuple[Evidence, ...]
    schema_version: int = SCHEMA_VERSION
    seal: str | None = None

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
    kept = tuple(evidence(each) for each in tried)
    edge = settled.limit is not None and (settled.lowest or settled.below is not None)
    return Verdict(
        system=spec.cell.system,
        dataset=spec.cell.dataset,
        image_digest=spec.image_digest,
        architecture=architecture(reference),
        cpus=spec.envelope.cpus,
        gpus=spec.envelope.gpus,
        corpus_sha256=spec.corpus_sha256,
        sample_sha256=spec.sample_sha256,
        sample_size=spec.sample_size,
        machine=machine(result.environment),
        step_bytes=step,
        targets=targets,
        least={each.measure: each.at_least for each in criteria.least},
        limit_bytes=settled.limit,
        below_bytes=settled.below,
        lowest=settled.lowest,
        binding=_binding(kept, settled.below),
        sharp=edge and not against_edge(kept, settled.limit, settled.below),
        margin_bytes=None if settled.limit is None else settled.limit - reference.anonymous,
        headroom=_headroom(tried, settled.limit, targets),
        probes=settled.probes,
        jobs=len(reference.jobs) + len(reference.left_out) + len(kept),
        unconstrained=unconstrained(reference),
        evidence=kept,
    )


def against_edge(kept: Sequence[Evidence], limit: int | None, below: int | None) -> tuple[int, ...]:
    """The limits (bytes) of which some job is on the wrong side of the edge, ascending."""
    return tuple(
        sorted(
            {
                each.limit_bytes
                for each in kept
                if each.counts and wrong_side(each.limit_bytes, Finding(each.finding), limit, below)
            }
        )
    )


def unconstrained(reference: Reference) -> Unconstrained:
    """What is kept of the unconstrained system."""
    return Unconstrained(
        limit_bytes=reference.limit,
        containers=len(reference.jobs),
        disturbed=sum(seen.disturbed is not None for seen in reference.jobs),
        peak_anon_bytes=reference.anonymous,
        peak_cgroup_bytes=reference.cgroup_peak,
        peak_gpu_bytes=max(
            (peak for seen in reference.jobs if (peak := seen.result.memory.peak_gpu_bytes)), default=None
        ),
        latency_s=reference.latency_s,
        measures=reference.measures,
        unstable_queries=reference.unstable,
        jobs=tuple(_folder(seen) for seen in reference.jobs),
        left_out=tuple(_folder(seen) for seen in reference.left_out),
    )


def architecture(reference: Reference) -> str:
    """What it was measured on, as instance types say it."""
    return row_pricing.architecture(reference.jobs[0].result.environment.architecture)


def evidence(tried: Tried) -> Evidence:
    """What is kept of a job."""
    judgement = tried.judgement
    seen = judgement.seen
    mean = seen.latency_s.get("mean")
    return Evidence(
        purpose=tried.purpose.value,
        limit_bytes=seen.limit,
        outcome=seen.result.outcome.value,
        finding=judgement.finding.value,
        causes=judgement.causes,
        why=judgement.why,
        mean_s=mean.value if mean else None,
        peak_anon_bytes=seen.result.memory.peak_anon_bytes,
        major_faults=seen.result.counters.major_faults,
        job=_folder(seen),
    )


def _folder(seen: Seen) -> str:
    return "/".join(seen.job.folder.parts[-6:])


def _binding(kept: Sequence[Evidence], below: int | None) -> tuple[str, ...]:
    """What failed in the next smaller limit, the most frequent first; a doubtful latency failed as well."""
    causes = [
        cause
        for each in kept
        if each.limit_bytes == below and each.counts and each.finding != Finding.PASS.value
        for cause in each.causes
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
