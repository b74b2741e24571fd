"""Find the smallest memory limit that passes, and store the verdict; prices are added when it is read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from harness import filesystem
from harness.driver.records import digest
from harness.experiments.viability.judge import OOM, Judgement, Unconstrained
from harness.experiments.viability.probe import LEAST_BYTES, MIB
from harness.experiments.viability.search import (
    LimitSearch,
    ProbeFinding,
    Purpose,
    Search,
    SearchResult,
    bounds,
    wrong_side,
)
from harness.experiments.viability.session import Question, Session
from harness.jobs.plan import identity
from harness.results import seals
from harness.results.isolation import CONTAINER
from harness.results.reader import VERDICTS
from harness.results.schema import Environment, IsolationName
from harness.untrusted import to_json

# In addition to anonymous memory: page tables, other kernel memory, and the file pages that every program needs.
ALLOWANCE_BYTES = 8 * MIB
# The version of a verdict's JSON.
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Evidence:
    """One stored job: its purpose, limit, judgement, and folder in the results.

    Controls and discarded jobs (on a slow machine) are not evidence about their limit (``counts``).
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
        """Return whether the job is evidence about its limit."""
        return self.purpose not in (Purpose.CONTROL.value, Purpose.DISCARDED.value)


@dataclass(frozen=True)
class ViabilityVerdict:
    """The smallest memory limit with which a system does its work.

    ``limit_bytes`` is ``None`` if confirmation failed at every limit.  ``below_bytes`` is the next smaller limit that
    was tried, ``binding`` the failures there, most frequent first (empty if it passed without confirmation).  Without
    ``below_bytes``, either a smaller limit cannot be tried (``lowest``), or all probes were used and passed.
    ``margin_bytes`` is the limit less the anonymous peak of the unconstrained system.  ``sharp``: all jobs at the limit
    and above passed, and all jobs below it failed.  ``jobs`` counts all jobs behind the verdict, including
    unconstrained ones; ``machine`` is where they ran.  ``seal`` is the digest of all other fields
    (:mod:`harness.results.seals`).
    """

    system: str
    dataset: str
    image_digest: str | None
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
    probes: int
    jobs: int
    unconstrained: Unconstrained
    evidence: tuple[Evidence, ...]
    isolation: IsolationName = CONTAINER.name
    schema_version: int = SCHEMA_VERSION
    seal: str | None = None


def make_verdict(settled: SearchResult, session: Session) -> ViabilityVerdict:
    """Return a search's verdict from the jobs of its session; :func:`_store` seals it."""
    base, question = session.base, session.question
    spec = base.spec
    targets = base.targets(question.criteria)
    jobs = tuple(map(evidence, session.tried))
    edge = settled.limit is not None and (settled.lowest or settled.below is not None)
    return ViabilityVerdict(
        system=spec.cell.system,
        dataset=spec.cell.dataset,
        image_digest=base.jobs[0].result.provenance.image_digest,
        architecture=base.architecture,
        isolation=spec.isolation,
        cpus=spec.envelope.cpus,
        gpus=spec.envelope.gpus,
        corpus_sha256=spec.corpus_sha256,
        sample_sha256=spec.sample_sha256,
        sample_size=spec.sample_size,
        machine=base.jobs[0].result.environment.machine,
        step_bytes=question.step,
        targets=targets,
        least=question.criteria.least,
        limit_bytes=settled.limit,
        below_bytes=settled.below,
        lowest=settled.lowest,
        binding=_binding(jobs, settled.below),
        sharp=edge and not against_edge(jobs, settled.limit, settled.below),
        margin_bytes=None if settled.limit is None else settled.limit - base.summary.peak_anon_bytes,
        probes=settled.probes,
        jobs=len(base.summary.jobs) + len(base.summary.left_out) + len(jobs),
        unconstrained=base.summary,
        evidence=jobs,
    )


def against_edge(jobs: Sequence[Evidence], limit: int | None, below: int | None) -> list[int]:
    """Return the limits (bytes) of jobs that contradict the verdict's limit, ascending."""
    wrong = {
        job.limit_bytes
        for job in jobs
        if job.counts and wrong_side(job.limit_bytes, ProbeFinding(job.finding), limit, below)
    }
    return sorted(wrong)


def evidence(judgement: Judgement) -> Evidence:
    """Summarise a judged job as evidence."""
    observation = judgement.observation
    return Evidence(
        purpose=judgement.purpose.value,
        limit_bytes=observation.limit,
        outcome=observation.result.outcome.value,
        finding=judgement.finding.value,
        causes=judgement.causes,
        why=judgement.why,
        mean_s=observation.mean.value,
        peak_anon_bytes=observation.result.observed.memory.peak_anon_bytes,
        major_faults=observation.result.observed.counters.major_faults,
        job=observation.folder,
    )


def _binding(jobs: Sequence[Evidence], below: int | None) -> tuple[str, ...]:
    """Return the failures at the next smaller limit, most frequent first; a doubtful latency is a failure."""
    causes = [
        cause
        for job in jobs
        if job.limit_bytes == below and job.counts and job.finding != ProbeFinding.PASS.value
        for cause in job.causes
    ]
    return tuple(sorted(dict.fromkeys(causes), key=lambda cause: (-causes.count(cause), cause)))


def smallest(question: Question, cpus: int) -> ViabilityVerdict:
    """Find the smallest limit that passes, confirm it, and store the verdict.

    The verdict depends only on stored jobs: the jobs that the search asks for, and the largest limit at which a job was
    killed.  So an interrupted or repeated search ends with the same verdict.

    Raises:
        UsageError: this host has too few CPUs or GPUs, or even the unconstrained system misses the criteria.
        JobError: the unconstrained system does not run, or a job ended for a reason other than its limit.
        HarnessError: the machine is too busy, or the search does not settle; or as in a run.
    """
    session = first_session = Session(question, cpus)
    free = session.base.summary
    grid = bounds(
        free.peak_anon_bytes, free.peak_cgroup_bytes, free.limit_bytes, question.step, LEAST_BYTES, ALLOWANCE_BYTES
    )
    first = settled = _run_search(session, LimitSearch(grid).run())
    failed = None
    # A limit at which a container was killed is not viable, even if jobs pass below it.
    while first.limit is not None and (killed := session.most_killed(first.limit)) != failed:
        assert killed is not None, "stored jobs are never removed"
        session.log(f"killed with {killed // MIB:,} MiB in another job: moves up", question.jobs.measured > 0)
        session, failed = first_session.again(killed), killed
        higher = _run_search(session, LimitSearch(grid).above(killed), until_killed=True)
        settled = replace(higher, probes=first.probes)
    session.tried += session.contradictions(first.limit, settled)
    verdict = make_verdict(settled, session)
    question.jobs.publish(_store(verdict, session))
    return verdict


def _store(verdict: ViabilityVerdict, session: Session) -> Path:
    """Write a verdict next to its jobs; it replaces an older verdict on the same question.

    Image, sample, corpus, protocol and machine are part of the question.

    Raises:
        StoreError, FileError: the file cannot be written.
    """
    question = session.question
    machine = json.loads(to_json(verdict.machine))
    key = digest([identity(session.base.spec), machine, question.step, asdict(question.criteria)])
    path = question.jobs.folder / VERDICTS / f"cpu{verdict.cpus}-{key[:12]}.json"
    with filesystem.atomic_write(path) as partial:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(to_json(replace(verdict, seal=seals.over(verdict)), indent=2) + "\n", encoding="utf-8")
    return path


def _run_search(session: Session, probes: Search, *, until_killed: bool = False) -> SearchResult:
    """Run a search to its end, or until a container is killed for memory."""
    try:
        request = next(probes)
        while True:
            label = f"{request.purpose.value} {request.number} of at most {request.most}"
            judgement = session.try_once(request.limit, request.purpose, label)
            if until_killed and judgement.causes == (OOM,):
                return SearchResult(None, request.limit, 0)
            request = probes.send(judgement.finding)
    except StopIteration as end:
        settled: SearchResult = end.value
        return settled
