"""Judge a job under a limit against the unconstrained system: whether it passes, and what failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.analysis import cell_summary, pooling, row_pricing, timings
from harness.analysis.validity import machine_speed
from harness.driver.records import Outcome
from harness.errors import JobError, StoreError, UsageError
from harness.estimate import MIN_QUERIES, Estimate
from harness.evaluation import evaluate, trec
from harness.experiments.viability.acceptance import MEAN, SLOWER, Criteria
from harness.experiments.viability.search import ProbeFinding, Purpose
from harness.results.reader import StoredJob, judges_hits_alone, read_job_run
from harness.results.schema import DataFault, Result, ResultSpec
from harness.stats import median, percentile

# Number of undisturbed containers without a limit, and of attempts at them: a disturbed one is measured again.
CONTAINERS = 3
ATTEMPTS = 5
# A latency that misses its target by less than this factor is in doubt: machines slowed down by 1.4 to 1.9 for some
# seconds.
DOUBTFUL = 2.0

OOM, LATENCY, RANKING, MEASURE, LOAD = "oom", "latency", "ranking", "measure", "load time-out"

Rankings = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Observation:
    """One container life under a limit.

    ``latency_s`` maps ``mean`` and the percentiles that the sample can show to seconds; empty if the job did not end
    ``ok``.  ``mean`` includes the mean's interval.  ``disturbed`` is the first finding against the machine, in the
    verdict's words.
    """

    job: StoredJob
    latency_s: dict[str, float] = field(default_factory=dict)
    measures: dict[str, float] = field(default_factory=dict)
    rankings: Rankings = field(default_factory=dict)
    disturbed: str | None = None
    mean: Estimate = Estimate(None)

    @property
    def result(self) -> Result:
        """Return the stored record."""
        return self.job.result

    @property
    def limit(self) -> int:
        """Return the memory limit in bytes."""
        return self.result.spec.envelope.memory_bytes

    @property
    def folder(self) -> str:
        """Return the job's folder within the results."""
        return "/".join(self.job.folder.parts[-6:])


def inspect(job: StoredJob, measures: Sequence[Any], levels: machine_speed.Levels | None = None) -> Observation:
    """Read a stored job of any outcome.

    Args:
        job: the job to read.
        measures: from ``measure_names.parse``.
        levels: the canary's levels of the unconstrained jobs.

    Raises:
        FileError, StoreError: a file of an ``ok`` job is missing or damaged.
    """
    if job.result.outcome is not Outcome.OK:
        return Observation(job)
    summary = cell_summary.summarise([job], rankings=False)
    if summary.reason is not None:
        raise StoreError(f"{job.folder}: {summary.reason}; move the folder away and measure again")
    latency = timings.read([(0, job.samples())]).latency_s
    figures = {MEAN: summary.latency.mean_s}
    figures |= {name: percentile(latency, name, summary.queries or 0) for name in MIN_QUERIES}
    run = read_job_run(job) if job.run_path else trec.Run({}, ())
    values: dict[str, float | None] = {}
    if measures:
        path = job.qrels_path()
        qrels, hits_alone = trec.read_stored_qrels(path), judges_hits_alone(path)
        values = evaluate.evaluate(run, qrels, job.sample_ids(), measures, hits_alone=hits_alone).values
    verdict = cell_summary.assess(pooling.pool([job]), summary.facts, None, levels)
    doubts = [finding.text for finding in verdict.findings if finding.transient]
    return Observation(
        job,
        {name: figure.value for name, figure in figures.items() if figure.value is not None},
        {name: value for name, value in values.items() if value is not None},
        run.rankings,
        doubts[0].partition(";")[0] if doubts else None,
        summary.latency.mean_s,
    )


@dataclass(frozen=True)
class Unconstrained:
    """The system with all available memory of this host: medians over its containers, largest peaks.

    ``jobs`` are the folders of these containers, ``left_out`` the folders of disturbed ones, which count only for peaks
    and rankings.  ``unstable_queries`` counts the queries that containers ranked differently.
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
    data_faults: tuple[DataFault, ...] = ()


@dataclass(frozen=True)
class Reference:
    """The unconstrained system, the reference for limits.

    ``jobs`` are the undisturbed containers, with the fastest disturbed ones if there are too few.  ``rankings`` holds
    the queries that all containers ranked alike; for the others a limit cannot be blamed.  ``wall_s`` is the longest
    job's time.
    """

    summary: Unconstrained
    jobs: tuple[Observation, ...]
    rankings: Rankings
    wall_s: float

    @property
    def spec(self) -> ResultSpec:
        """Return the spec of the first container."""
        return self.jobs[0].result.spec

    @property
    def architecture(self) -> str:
        """Return the architecture of the host, as instance types name it."""
        return row_pricing.architecture(self.jobs[0].result.environment.architecture)

    @property
    def levels(self) -> machine_speed.Levels:
        """Return the canary's levels, to compare with later jobs."""
        return machine_speed.levels(observation.result for observation in self.jobs)

    def targets(self, criteria: Criteria) -> dict[str, float]:
        """Return the latency targets in seconds by figure: the criteria's, else the mean plus 25 %."""
        return criteria.targets or {MEAN: SLOWER * self.summary.latency_s[MEAN]}


def enough(attempts: Sequence[Observation]) -> bool:
    """Return whether these containers suffice for a reference."""
    calm = sum(observation.disturbed is None for observation in attempts)
    return calm >= CONTAINERS or len(attempts) >= ATTEMPTS


def reference(attempts: Sequence[Observation]) -> Reference:
    """Combine the unconstrained containers, at least one, in the order of measurement.

    Raises:
        JobError: a container did not end ``ok``, or its memory was not measured.
    """
    for observation in attempts:
        _check_attempt(observation)
    memory = [observation.result.observed.memory for observation in attempts]
    queries = set().union(*(observation.rankings for observation in attempts))
    alike = {
        query: attempts[0].rankings.get(query, ())
        for query in sorted(queries)
        if len({observation.rankings.get(query, ()) for observation in attempts}) == 1
    }
    # If too few are undisturbed, take the fastest of the others, because noise only slows.
    ordered = sorted(attempts, key=lambda job: (job.disturbed is not None, job.latency_s[MEAN]))
    used = ordered[:CONTAINERS]
    figures = set.intersection(*(set(job.latency_s) for job in used))
    summary = Unconstrained(
        limit_bytes=attempts[0].limit,
        containers=len(used),
        disturbed=sum(job.disturbed is not None for job in used),
        peak_anon_bytes=max(peaks.peak_anon_bytes or 0 for peaks in memory),
        peak_cgroup_bytes=max(peaks.peak_cgroup_bytes or peaks.peak_anon_bytes or 0 for peaks in memory),
        peak_gpu_bytes=max((peak for job in used if (peak := job.result.observed.memory.peak_gpu_bytes)), default=None),
        latency_s={name: median([job.latency_s[name] for job in used]) for name in sorted(figures)},
        measures={name: median([job.measures[name] for job in used]) for name in used[0].measures},
        unstable_queries=len(queries) - len(alike),
        jobs=tuple(job.folder for job in used),
        left_out=tuple(job.folder for job in ordered[CONTAINERS:]),
        data_faults=used[0].result.provenance.data_faults,
    )
    return Reference(summary, tuple(used), alike, max(job.result.wall_s for job in attempts))


def check_reachable(reference: Reference, criteria: Criteria, where: str) -> None:
    """Raise UsageError for a criterion that even the unconstrained system misses.

    Args:
        reference: the unconstrained system.
        criteria: to check.
        where: system and CPUs, for the message.
    """
    for figure, at_most_s in criteria.targets.items():
        latency_s = reference.summary.latency_s[figure]
        if latency_s > at_most_s:
            raise UsageError(
                f"{where}: {figure} is {latency_s * 1e3:.4g} ms with all the memory of this host, the target is"
                f" {at_most_s * 1e3:.4g} ms: no limit can keep it; raise --max-latency or take more --cpus"
            )
    for measure, least in criteria.least.items():
        value = reference.summary.measures.get(measure)
        if value is None or value < least:
            text = "not known" if value is None else f"{value:.4g}"
            raise UsageError(
                f"{where}: {measure} is {text} with all the memory of this host, at least {least:g} is"
                " asked: no limit can reach it; lower --min"
            )


def _check_attempt(observation: Observation) -> None:
    result = observation.result
    if result.outcome is not Outcome.OK:
        raise JobError(
            result.outcome,
            f"{result.spec.cell.system} does not run even with {result.spec.envelope.memory_bytes >> 20:,} MiB: it"
            f" ended {result.outcome.value} ({result.detail}); its log is in {observation.job.folder}, --fresh tries"
            " again",
        )
    if result.observed.memory.peak_anon_bytes is None:
        raise JobError(
            result.outcome,
            "this host does not show the memory of a container, so the search has no starting point;"
            " see `harness doctor`",
        )


@dataclass(frozen=True)
class Judgement:
    """The judgement of a job under its limit.

    ``causes`` names every failure, ``why`` gives the figures.  ``slack`` is the largest ratio of a latency to its
    target: above 1, a target is missed.  ``purpose``: why the job ran.
    """

    observation: Observation
    finding: ProbeFinding
    causes: tuple[str, ...] = ()
    why: str = ""
    slack: float = 0.0
    purpose: Purpose = Purpose.OTHER

    @property
    def limit(self) -> int:
        """Return the memory limit in bytes."""
        return self.observation.limit


def judge(observation: Observation, reference: Reference, criteria: Criteria) -> Judgement:
    """Compare a job with all criteria.

    Only latency can be in doubt: a busy machine changes neither memory, rankings nor measures.
    """
    result, rankings = observation.result, reference.rankings
    if result.outcome is not Outcome.OK:
        why = str(result.detail or result.outcome.value)
        return Judgement(observation, ProbeFinding.FAIL, (_cause(result),), why)
    missed: dict[str, list[str]] = {}
    other = [query for query, ids in rankings.items() if observation.rankings.get(query, ()) != ids]
    if other:
        missed[RANKING] = [f"{len(other):,} of {len(rankings):,} queries are ranked otherwise, e.g. {other[0]}"]
    for measure, least in criteria.least.items():
        value = observation.measures.get(measure, 0.0)
        if value < least:
            missed.setdefault(MEASURE, []).append(f"{measure} is {value:.4g}, at least {least:g}")
    slack = 0.0
    for figure, at_most_s in reference.targets(criteria).items():
        latency_s = observation.latency_s[figure]
        slack = max(slack, latency_s / at_most_s)
        if latency_s > at_most_s:
            text = f"{figure} {latency_s * 1e3:.4g} ms, target {at_most_s * 1e3:.4g} ms"
            missed.setdefault(LATENCY, []).append(text)
    finding = ProbeFinding.FAIL if missed else ProbeFinding.PASS
    reasons = [", ".join(texts) for texts in missed.values()]
    if list(missed) == [LATENCY] and (slack < DOUBTFUL or observation.disturbed):
        finding = ProbeFinding.DOUBT
        reasons += [observation.disturbed] if observation.disturbed else []
    return Judgement(observation, finding, tuple(missed), "; ".join(reasons), slack)


def against_control(judgement: Judgement, control: Judgement) -> Judgement | None:
    """Decide a doubtful job by the unconstrained job right after it; ``None``: the machine was too slow to tell."""
    if judgement.slack >= DOUBTFUL * max(control.slack, 1.0):  # too slow even for a slow machine
        return replace(judgement, finding=ProbeFinding.FAIL)
    return judgement if control.slack <= 1 else None


def _cause(result: Result) -> str:
    """Name the cause of an end that is not ``ok``."""
    if result.outcome is Outcome.TIMEOUT:
        # Before the end of warm-up, only a query's time-out shows that it was slow.
        return LATENCY if result.answers.warmup_done or (result.detail or "").startswith("a query") else LOAD
    return OOM if result.outcome is Outcome.OOM else result.outcome.value
