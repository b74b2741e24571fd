"""Find the smallest memory limit that passes, and store the verdict; prices are added when it is read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from harness.analysis import row_pricing
from harness.errors import StoreError, UsageError
from harness.experiments.viability import search
from harness.experiments.viability.acceptance import Criteria
from harness.experiments.viability.judge import OOM, Reference
from harness.experiments.viability.probe import LEAST_BYTES, MIB, identity, machine
from harness.experiments.viability.search import (
    CONFIRMATIONS,
    ProbeFinding,
    ProbeRequest,
    Purpose,
    Search,
    SearchResult,
    wrong_side,
)
from harness.experiments.viability.session import Session, SessionJob, Viability
from harness.records import digest, to_json
from harness.results import seals
from harness.results.reader import VERDICTS
from harness.results.schema import Environment

# Beside anonymous memory: page tables and other kernel memory, and those file pages without which nothing runs.
ALLOWANCE_BYTES = 8 * MIB
# Version of a verdict's JSON.
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Evidence:
    """One stored job: its purpose, limit, judgement, and folder in the results.

    Controls, and jobs discarded because the machine was slow, are no evidence of their limit (``counts``).
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
        """Return whether the job is evidence of its limit."""
        return self.purpose not in (Purpose.CONTROL.value, Purpose.DISCARDED.value)


@dataclass(frozen=True)
class Unconstrained:
    """The system with all the memory that this host has left: medians over its containers, largest peaks.

    ``jobs`` are the folders of these containers, ``left_out`` those of disturbed ones, which count for peaks and
    rankings only.
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
class ViabilityVerdict:
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
        """Return how far below the limit the true edge can lie: a step, or more where the probes ran out."""
        if self.limit_bytes is None or self.below_bytes is None:
            return self.step_bytes
        return self.limit_bytes - self.below_bytes


def make_verdict(
    settled: SearchResult,
    tried: Sequence[SessionJob],
    reference: Reference,
    criteria: Criteria,
    step: int,
) -> ViabilityVerdict:
    """Make the verdict of a search that ended; ``step`` (bytes) is that of its grid."""
    result = reference.jobs[0].result
    spec = result.spec
    targets = {target.figure: target.at_most_s for target in reference.targets(criteria)}
    kept = tuple(evidence(each) for each in tried)
    edge = settled.limit is not None and (settled.lowest or settled.below is not None)
    return ViabilityVerdict(
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
    """Return the limits (bytes) of jobs on the wrong side of the edge, ascending."""
    return tuple(
        sorted(
            {
                each.limit_bytes
                for each in kept
                if each.counts and wrong_side(each.limit_bytes, ProbeFinding(each.finding), limit, below)
            }
        )
    )


def unconstrained(reference: Reference) -> Unconstrained:
    """Summarise the unconstrained system."""
    return Unconstrained(
        limit_bytes=reference.limit,
        containers=len(reference.jobs),
        disturbed=sum(observation.disturbed is not None for observation in reference.jobs),
        peak_anon_bytes=reference.anonymous,
        peak_cgroup_bytes=reference.cgroup_peak,
        peak_gpu_bytes=max(
            (peak for observation in reference.jobs if (peak := observation.result.memory.peak_gpu_bytes)), default=None
        ),
        latency_s=reference.latency_s,
        measures=reference.measures,
        unstable_queries=reference.unstable,
        jobs=tuple(observation.folder for observation in reference.jobs),
        left_out=tuple(observation.folder for observation in reference.left_out),
    )


def architecture(reference: Reference) -> str:
    """Return the architecture of the host, as instance types name it."""
    return row_pricing.architecture(reference.jobs[0].result.environment.architecture)


def evidence(tried: SessionJob) -> Evidence:
    """Summarise a job."""
    judgement = tried.judgement
    observation = judgement.observation
    mean = observation.latency_s.get("mean")
    return Evidence(
        purpose=tried.purpose.value,
        limit_bytes=observation.limit,
        outcome=observation.result.outcome.value,
        finding=judgement.finding.value,
        causes=judgement.causes,
        why=judgement.why,
        mean_s=mean.value if mean else None,
        peak_anon_bytes=observation.result.memory.peak_anon_bytes,
        major_faults=observation.result.counters.major_faults,
        job=observation.folder,
    )


def _binding(kept: Sequence[Evidence], below: int | None) -> tuple[str, ...]:
    """Return what failed in the next smaller limit, most frequent first; a doubtful latency failed too."""
    causes = [
        cause
        for each in kept
        if each.limit_bytes == below and each.counts and each.finding != ProbeFinding.PASS.value
        for cause in each.causes
    ]
    return tuple(sorted(dict.fromkeys(causes), key=lambda cause: (-causes.count(cause), cause)))


def _headroom(tried: Sequence[SessionJob], limit: int | None, targets: dict[str, float]) -> dict[str, float]:
    passed = [
        each.judgement.observation
        for each in tried
        if each.judgement.observation.limit == limit
        and each.purpose is Purpose.CONFIRMATION
        and each.judgement.finding is ProbeFinding.PASS
    ][-CONFIRMATIONS:]
    if not passed:
        return {}
    slowest = {name: max(observation.latency_s[name].value or 0.0 for observation in passed) for name in targets}
    return {name: 1 - slowest[name] / at_most_s for name, at_most_s in targets.items()}


def check_step(viability: Viability, cpus: int) -> None:
    """Raise UsageError for a step larger than this host's memory, or for more CPUs or GPUs than it has."""
    most, step = viability.everything(cpus).memory_bytes, viability.question.step
    if step > most:
        raise UsageError(
            f"--step {step // MIB:,} MiB: this host leaves {most // MIB:,} MiB to a job, less than one step; name a"
            " smaller one"
        )


def smallest(viability: Viability, cpus: int) -> ViabilityVerdict:
    """Find the smallest limit that passes, confirm it, and store the verdict.

    The verdict depends on stored jobs alone: those that the search asks for, and the largest limit under which any was
    killed.  So a search that was interrupted, or is repeated, ends like one that was not.

    Raises:
        UsageError: this host has too few CPUs or GPUs, or even the unconstrained system misses the criteria.
        JobError: the unconstrained system does not run, or a job's end has nothing to do with its limit.
        HarnessError: the machine is too busy, or the search does not settle; or as from a run.
    """
    check_step(viability, cpus)
    session, step = Session(viability, cpus), viability.question.step
    base = session.base
    grid = search.bounds(base.anonymous, base.cgroup_peak, base.limit, step, LEAST_BYTES, ALLOWANCE_BYTES)
    first = settled = _run_search(session, search.search(grid))
    begun, failed = session, None
    # Whatever passes below it, a limit under which some container was killed is none to live in.
    while first.limit is not None and (killed := session.most_killed(first.limit)) != failed:
        assert killed is not None, "no job that was stored goes away"
        viability.say(cpus, f"killed with {killed // MIB:,} MiB in another job: moves up", viability.jobs.measured > 0)
        session, failed = begun.again(killed), killed
        higher = _run_search(session, search.above(grid, killed), until_killed=True)
        settled = replace(higher, probes=first.probes)
    session.tried += session.contradictions(first.limit, settled)
    verdict = make_verdict(settled, session.tried, base, session.criteria, step)
    viability.jobs.publish(_store(viability.jobs.folder, verdict, session.criteria, base))
    return verdict


def _store(folder: Path, verdict: ViabilityVerdict, criteria: Criteria, base: Reference) -> Path:
    """Write a verdict beside its jobs; it replaces an older one on the same question.

    Args:
        folder: of the subject's jobs.
        verdict: of the search.
        criteria: of the question.
        base: the unconstrained system; another image, sample, corpus, protocol or machine is another question.

    Raises:
        StoreError: it cannot be written.
    """
    spec = identity(base.jobs[0].result.spec)
    question = digest([spec, asdict(verdict.machine), verdict.step_bytes, asdict(criteria)])
    path = folder / VERDICTS / f"cpu{verdict.cpus}-{question[:12]}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        partial.write_text(to_json(replace(verdict, seal=seals.over(verdict)), indent=2) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}; the jobs themselves are kept") from error
    return path


def _run_search(session: Session, probes: Search, *, until_killed: bool = False) -> SearchResult:
    """Run a search to its end, or until a container is killed for memory, which settles nothing."""
    try:
        request = next(probes)
        while True:
            judged = session.try_once(request.limit, request.purpose, _label(request))
            if until_killed and judged.causes == (OOM,):
                return SearchResult(None, request.limit, 0)
            request = probes.send(judged.finding)
    except StopIteration as end:
        settled: SearchResult = end.value
        return settled


def _label(request: ProbeRequest) -> str:
    return {
        Purpose.PROBE: f"probe {request.number} of at most {request.most}",
        Purpose.CONFIRMATION: f"confirmation {request.number} of {request.most}",
    }.get(request.purpose, "the next step below once more")
