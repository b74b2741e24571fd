"""Assess the results of a cell: clean, noisy or invalid, with findings.

Each finding states the fact, the figure and the next command (measuring rule 22).  Validity is separate from the
outcome: a failed job has no numbers to doubt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.analysis.causes import Again
from harness.analysis.table import Cause, Finding, Validity
from harness.analysis.validity import build_checks, counter_checks, machine_speed
from harness.analysis.validity.findings import (
    Doubt,
    again,
    build_again,
    invalid,
    of_cell,
    remark,
    trials_s,
    warm_longer,
    warm_wider,
)
from harness.analysis.validity.sample_checks import MAX_TRIAL_RATIO, Drift, SampleFacts
from harness.driver.records import Outcome
from harness.errors import counted
from harness.results.schema import PAPERS, Cell, IndexFacts, Result, ResultSpec, measurements

# The least number of queries before the first timed query (measuring rule 8).
MIN_WARMUP_QUERIES = 10

# The largest share of the trials' time that just-in-time compilers may take.
MAX_COMPILING = 0.05

_ORDER = (Validity.CLEAN, Validity.NOISY, Validity.INVALID)


@dataclass(frozen=True)
class Assessment:
    """All findings about a cell or a build, and the worst validity among them."""

    validity: Validity
    findings: tuple[Finding, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Texts of the findings."""
        return tuple(finding.text for finding in self.findings)

    @property
    def transient(self) -> bool:
        """Return whether a reason to doubt may disappear when the cell is measured again."""
        return any(finding.transient for finding in self.findings if finding.validity is Validity.NOISY)


def assess(
    results: Sequence[Result],
    facts: SampleFacts | None = None,
    *,
    missing: int = 0,
    disagreements: int | None = None,
    levels: machine_speed.Levels | None = None,
) -> Assessment:
    """Assess how far a cell's numbers can be trusted.

    Args:
        results: the pooled jobs of the cell, at least one; a job that did not end ``ok`` leaves no numbers.
        facts: facts about the samples; ``None``: they cannot be read.
        missing: the number of jobs that are not stored, or could not be pooled.
        disagreements: queries that different jobs ranked differently; ``None``: not compared.
        levels: the canary's levels of all jobs in the results.
    """
    doubts = [*_isolation(results[0])]
    if all(result.outcome is Outcome.OK for result in results):
        facts = facts or SampleFacts()
        doubts += [
            *counter_checks.check(results, levels or {}, facts),
            *_preparation(results),
            *_completeness(results, facts, missing),
            *_rankings(results, disagreements),
            *_warmth(results, facts),
            *facts.doubts,
            *_failed(facts),
            *_scenario(results),
            *_protocol(results[0].spec),
        ]
    return _with_worst(of_cell(doubts, results[0].spec.cell))


def _failed(facts: SampleFacts) -> Iterator[Doubt]:
    if facts.failed:
        text = f"{counted(facts.failed, 'query')} at the rate that was kept got no answer (an error, or none"
        yield Doubt(Cause.FAILED_QUERIES, f"{text} in time): they count as late, and no latency includes them")


def assess_build(build: IndexFacts | None, cell: Cell, levels: machine_speed.Levels) -> Assessment:
    """Assess how far the time of an index build can be trusted; unknown without readings during the build.

    Args:
        build: facts of the build, if any.
        cell: any cell that uses the index.
        levels: the canary's levels of all jobs in the results.
    """
    if build is None or any(part.environment is None for part in (build, *build.components.values())):
        return Assessment(Validity.UNKNOWN, ())
    command = build_again(cell)
    return _with_worst([doubt.finding(command) for doubt in build_checks.check(build, levels)])


def _with_worst(findings: Sequence[Finding]) -> Assessment:
    worst = max((finding.validity for finding in findings), key=_ORDER.index, default=Validity.CLEAN)
    return Assessment(worst, tuple(findings))


def _isolation(result: Result) -> Iterator[Doubt]:
    isolation = result.isolation
    text = f"isolation: {isolation.name}: {isolation.sentence}"
    if isolation.scripted:
        yield invalid(Cause.ISOLATION, text)
    elif isolation.attached:
        yield remark(Cause.ISOLATION, f"{text}; compare it with rows of this kind alone, asked from the same machine")
        yield from _pace(result)
    elif isolation.mark:
        docker = again(result.spec.cell, launcher="docker")
        held = "memory_bytes" in isolation.enforced
        what = "compare it with rows of this isolation" if held else f"not comparable with container results; {docker}"
        yield remark(Cause.ISOLATION, f"{text}; {what}")


def _pace(result: Result) -> Iterator[Doubt]:
    """Say which limit of queries a second a job kept, and whether it ended the search."""
    measured = result.measured
    if measured is None or measured.max_qps is None:
        return
    limit = f"max_qps: at most {measured.max_qps:g} queries a second were sent"
    if measured.capped:
        limit += "; this limit, not the service, ended the search, so the service may answer more"
    yield remark(Cause.ISOLATION, limit)


def _preparation(results: Sequence[Result]) -> Iterator[Doubt]:
    """Check the preparation: warm-up (rule 8), thread counts read back (rule 3)."""
    spec = results[0].spec
    # A small collection has fewer queries, which then run in several passes.
    warmup = max(spec.warmup_queries, min(result.answers.warmup_done for result in results))
    if warmup < MIN_WARMUP_QUERIES:
        yield Doubt(
            Cause.WARMUP, f"{warmup} warm-up queries ran, the minimum is {MIN_WARMUP_QUERIES}", warm_longer(spec)
        )
    if any(one.effective is not None and not one.effective.threads for one in measurements(results)):
        yield Doubt(
            Cause.THREADS_UNSAID, f"the adapter reports no thread counts for {counted(spec.envelope.cpus, 'CPU')}"
        )


def _completeness(results: Sequence[Result], facts: SampleFacts, missing: int) -> Iterator[Doubt]:
    spec = results[0].spec
    if missing:
        unit = "trial" if spec.trials == 1 else "job"
        yield Doubt(Cause.INCOMPLETE, f"only {spec.jobs - missing} of {spec.jobs} {unit}s are in these numbers")
    finished, planned = sum(result.answers.trials_finished for result in results), spec.trials * len(results)
    if spec.scenario_params.latency_target_s is None and finished < planned:
        yield Doubt(Cause.INCOMPLETE, f"only {finished} of {planned} trials finished", again=Again.FRESH)
    if facts.queries is not None and facts.queries != spec.timed_queries:
        text = f"{facts.queries:,} of {spec.timed_queries:,} sample queries were timed"
        yield Doubt(Cause.INCOMPLETE, text, again=Again.FRESH)


def _rankings(results: Sequence[Result], between_jobs: int | None) -> Iterator[Doubt]:
    """Check that queries are ranked alike within and between jobs; a query counts once."""
    spec = results[0].spec
    differing = max(*(result.answers.ranking_disagreements or 0 for result in results), between_jobs or 0)
    if differing:
        yield Doubt(
            Cause.RANKINGS, f"{differing:,} of {spec.sample_size:,} queries were ranked differently in different trials"
        )


def _warmth(results: Sequence[Result], facts: SampleFacts) -> Iterator[Doubt]:
    """Check that warm-up reached a steady level, and that the first timed queries and compilers confirm it."""
    spec = results[0].spec
    unsteady = [
        result.answers.warmup_done for result in results if result.measured and result.measured.warmup_steady is False
    ]
    if unsteady:
        jobs = f" in {len(unsteady)} of {len(results)} jobs" if len(results) > 1 else ""
        yield Doubt(
            Cause.WARMUP,
            f"warm-up ended at its cap after {max(unsteady):,} queries{jobs} without a steady level",
            warm_longer(spec),
        )
    elif facts.start is not None:
        yield Doubt(
            Cause.WARMUP,
            f"the first {facts.start.queries} queries of a trial took {facts.start.ratio:.2f} times their later "
            f"time: {results[0].answers.warmup_done} warm-up queries are too few for this system",
            (warm_longer if spec.warmup_cap is None else warm_wider)(spec),
        )
    compiled = [
        (result.measured.compiled_s, trials_s(result))
        for result in results
        if result.measured and result.measured.compiled_s is not None
    ]
    compiled_s, lasted_s = (sum(column) for column in zip(*compiled, strict=True)) if compiled else (0.0, 0.0)
    if lasted_s and compiled_s > MAX_COMPILING * lasted_s:
        yield Doubt(
            Cause.WARMUP,
            f"just-in-time compiler threads took {compiled_s / lasted_s:.0%} of the trials' time "
            f"(warm: up to {MAX_COMPILING:.0%}): the system was not warm",
            # After a steady warm-up it is other queries that run other code.
            (warm_longer if spec.warmup_cap is None or unsteady else warm_wider)(spec),
        )
    if facts.drift is not None and not (unsteady and facts.drift.cold):
        yield _drift(results, facts.drift, facts.trial_means_s)
    # A system that still gets faster answers a repeated query sooner even without a cache.
    gets_faster = facts.repeat is not None and facts.repeat.falling and (unsteady or facts.start is not None)
    if facts.repeat is not None and not spec.result_cache and not gets_faster:
        yield Doubt(
            Cause.RESULT_CACHE,
            f"a query repeated at once took {facts.repeat.ratio:.2g} of its first time (median of "
            f"{facts.repeat.queries}, {facts.repeat.first_s * 1e3:.3g} ms at first): the system caches results",
        )


def _drift(results: Sequence[Result], drift: Drift, trial_means_s: Sequence[float]) -> Doubt:
    if drift.cold and len(results) == 1:
        # A busy machine slows any trial; only a cold system slows the first.
        means = ", ".join(f"{mean * 1e3:.3g}" for mean in trial_means_s)
        return Doubt(
            Cause.WARMUP,
            f"the first trial is the slowest (trial means {means} ms): {results[0].answers.warmup_done} warm-up "
            "queries do not warm this system up (a JIT compiler, caches)",
            "set protocol.warmup_cap in the suite (warm-up then goes on until it is steady), then",
        )
    return Doubt(
        Cause.DRIFT,
        f"drift: the slowest trial's mean is {drift.ratio:.2f} times the fastest's (steady: up to {MAX_TRIAL_RATIO}), "
        f"{drift.slow_s * 1e3:.3g} against {drift.fast_s * 1e3:.3g} ms",
    )


def _scenario(results: Sequence[Result]) -> Iterator[Doubt]:
    """Find ``server`` jobs without a confirmed rate, which have no latency."""
    spec = results[0].spec
    without = len(results) - sum(one.rate_qps is not None for one in measurements(results))
    if spec.cell.scenario == "server" and without:
        target, wanted = spec.scenario_params, "the latency target"
        if target.latency_target_s is not None and target.latency_percentile is not None:
            wanted = f"p{target.latency_percentile:g} <= {target.latency_target_s * 1e3:g} ms"
        yield Doubt(Cause.LATENCY_TARGET, f"no rate met {wanted} twice in {without} of {len(results)} jobs")


def _protocol(spec: ResultSpec) -> Iterator[Doubt]:
    """Remark on values of a named protocol that the suite changed."""
    paper = PAPERS.get(spec.protocol, {})
    figures = ((name, getattr(spec, name), figure) for name, figure in paper.items() if figure is not None)
    changed = [
        f"{name} {own:,} (the paper: {figure:,})"
        for name, own, figure in figures
        # The paper samples all queries of a smaller dataset.
        if (own > figure if name == "sample_size" else own != figure)
    ]
    if spec.warmup_cap is not None and paper:
        changed.append(f"warm-up until steady, {spec.warmup_cap:,} queries at most (the paper: one pass)")
    if changed:
        yield remark(Cause.PROTOCOL, f"protocol {spec.protocol} with {', '.join(changed)}")
