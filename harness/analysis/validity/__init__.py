"""Assess the results of a cell: clean, noisy or invalid, with findings.

Each finding states the fact, the figure and the next command (measuring rule 22).  Validity is separate from the
outcome: a failed job has no numbers to doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis.table import Cause, Finding, Validity
from harness.analysis.validity import counter_checks, machine_speed
from harness.analysis.validity.findings import again, invalid, noisy, remark, trials_s, warm_longer, warm_wider
from harness.analysis.validity.sample_checks import MAX_TRIAL_RATIO, SampleFacts
from harness.records import Isolation, Outcome
from harness.results.schema import Result, ResultSpec

# The fewest queries before the first timed one (measuring rule 8).
MIN_WARMUP_QUERIES = 10

# The most CPU time that just-in-time compilers may take of the trials' time.
MAX_COMPILING = 0.05

# Figures of a named protocol's paper, by the keys of a suite.
_PAPERS = {"santhanam2023": {"warmup_queries": 10, "trials": 5, "k": 10}}
# Its sample has 1,000 queries, or all queries of a smaller dataset: only a larger one departs from it.
_LARGEST_SAMPLES = {"santhanam2023": 1000}

_ORDER = (Validity.CLEAN, Validity.NOISY, Validity.INVALID)


@dataclass(frozen=True)
class Assessment:
    """All findings of a cell, and the worst validity among them."""

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
        results: the pooled jobs of the cell, at least one; if one did not end ``ok`` there are no numbers.
        facts: of the samples; ``None``: they cannot be read.
        missing: the number of jobs that are not stored, or could not be pooled.
        disagreements: queries that different jobs ranked differently; ``None``: not compared.
        levels: the canary's levels of all jobs in the results.
    """
    findings = _isolation(results[0])
    if all(result.outcome is Outcome.OK for result in results):
        facts = facts or SampleFacts()
        findings += (
            counter_checks.check(results, levels or {}, facts)
            + _preparation(results)
            + _completeness(results, facts, missing)
            + _rankings(results, disagreements)
            + _steadiness(results, facts)
            + _scenario(results)
        )
        findings += _protocol(results[0].spec)
    worst = max((finding.validity for finding in findings), key=_ORDER.index, default=Validity.CLEAN)
    return Assessment(worst, tuple(findings))


def _isolation(result: Result) -> list[Finding]:
    isolation = result.spec.isolation
    if isolation is Isolation.PROCESS:
        text = (
            "isolation: process: CPUs are pinned, but the memory limit of "
            f"{result.spec.envelope.memory_bytes / 2**20:,.0f} MiB and the network were not enforced; "
            f"not comparable with container results; {again(result.spec.cell, '--launcher docker')}"
        )
        return [remark(Cause.ISOLATION, text)]
    if isolation is Isolation.FAKE:
        text = f"isolation: fake: scripted times, nothing was measured; {again(result.spec.cell, '--launcher docker')}"
        return [invalid(Cause.ISOLATION, text)]
    return []


def _preparation(results: Sequence[Result]) -> list[Finding]:
    """Check the preparation: warm-up (rule 8), thread counts read back (rule 3)."""
    findings, spec = [], results[0].spec
    warmup = max(spec.warmup_queries, min(result.warmup_done for result in results))  # in several passes, where few
    if warmup < MIN_WARMUP_QUERIES:
        text = f"{warmup} warm-up queries ran, the minimum is {MIN_WARMUP_QUERIES}; {warm_longer(spec)}"
        findings.append(noisy(Cause.WARMUP, text))
    if any(result.effective is not None and not result.effective.threads for result in results):
        text = (
            "the adapter reports no thread counts, so its libraries may use more threads than "
            f"{spec.envelope.cpus} CPUs; return the counts from threads(), then {again(spec.cell)}"
        )
        findings.append(noisy(Cause.THREADS_UNSAID, text))
    return findings


def _completeness(results: Sequence[Result], facts: SampleFacts, missing: int) -> list[Finding]:
    spec, findings = results[0].spec, []
    if missing:
        text = f"only {spec.jobs - missing} of {spec.jobs} {_unit(spec)}s are in these numbers; {again(spec.cell, '')}"
        findings.append(noisy(Cause.INCOMPLETE, text))
    finished, planned = sum(result.trials_finished for result in results), spec.trials * len(results)
    if spec.scenario_params.latency_target_s is None and finished < planned:
        findings.append(noisy(Cause.INCOMPLETE, f"only {finished} of {planned} trials finished; {again(spec.cell)}"))
    if facts.queries is not None and facts.queries != spec.timed_queries:
        findings.append(
            noisy(
                Cause.INCOMPLETE,
                f"{facts.queries:,} of {spec.timed_queries:,} sample queries were timed; {again(spec.cell)}",
            )
        )
    return findings


def _rankings(results: Sequence[Result], between_jobs: int | None) -> list[Finding]:
    """Check that queries are ranked alike; a query counts once, within a job or between jobs."""
    spec = results[0].spec
    differing = max([result.ranking_disagreements or 0 for result in results] + [between_jobs or 0])
    if not differing:
        return []
    text = (
        f"{differing:,} of {spec.sample_size:,} queries were ranked differently in different "
        "trials; the measures judge the first trial's run; look for threads, ties or approximate search, then "
        f"{again(spec.cell)}"
    )
    return [noisy(Cause.RANKINGS, text)]


def _steadiness(results: Sequence[Result], facts: SampleFacts) -> list[Finding]:
    spec, findings = results[0].spec, []
    unsteady = [result.warmup_done for result in results if result.warmup_steady is False]
    if unsteady:
        jobs = f" in {len(unsteady)} of {len(results)} jobs" if len(results) > 1 else ""
        text = (
            f"warm-up ended at its cap after {max(unsteady):,} queries{jobs} without a steady level; "
            f"{warm_longer(spec)}"
        )
        findings.append(noisy(Cause.WARMUP, text))
    elif facts.start is not None:
        text = (
            f"the first {facts.start.queries} queries of a trial took {facts.start.ratio:.2f} times their later "
            f"time: {results[0].warmup_done} warm-up queries are too few for this system; "
            f"{(warm_longer if spec.warmup_cap is None else warm_wider)(spec)}"
        )
        findings.append(noisy(Cause.WARMUP, text))
    findings += _compiling(results)
    if facts.drift is not None and not (unsteady and facts.drift.cold):
        findings.append(_drift(results, facts))
    # A system that still gets faster answers a repeated query sooner even without a cache.
    if facts.repeat is not None and not spec.result_cache and not unsteady and facts.start is None:
        text = (
            f"a query repeated at once took {facts.repeat.ratio:.2g} of its first time (median of "
            f"{facts.repeat.queries}, {facts.repeat.first_s * 1e3:.3g} ms at first): the system caches results, and "
            "real queries seldom repeat (measuring rule 14); switch its result cache off, or declare "
            f"result_cache = true in the system's TOML, then {again(spec.cell)}"
        )
        findings.append(noisy(Cause.RESULT_CACHE, text))
    findings += _concentration(results[0], facts)
    if facts.between is not None:
        text = (
            f"{facts.between.per_query_s * 1e3:.3g} ms a query passed outside the reported latencies, "
            f"{facts.between.share:.0%} of the trials: the image reports too little time; let search() return "
            f"only when its work is done, then {again(spec.cell)}"
        )
        findings.append(noisy(Cause.UNACCOUNTED_TIME, text))
    return findings


def _compiling(results: Sequence[Result]) -> list[Finding]:
    """Check the share of the trials' time that just-in-time compilers took."""
    compiled = [(result.compiled_s, trials_s(result)) for result in results if result.compiled_s is not None]
    compiled_s, lasted_s = (sum(column) for column in zip(*compiled, strict=True)) if compiled else (0.0, 0.0)
    if not lasted_s or compiled_s <= MAX_COMPILING * lasted_s:
        return []
    cold = results[0].spec.warmup_cap is None
    remedy = "set protocol.warmup_cap" if cold else "raise protocol.warmup_cap, or give the engine other options"
    text = (
        f"just-in-time compiler threads took {compiled_s / lasted_s:.0%} of the trials' time "
        f"(warm: up to {MAX_COMPILING:.0%}): the system was not warm; {remedy}, then {again(results[0].spec.cell)}"
    )
    return [noisy(Cause.WARMUP, text)]


def _concentration(result: Result, facts: SampleFacts) -> list[Finding]:
    """Check whether few samples carry the mean; queries that are slow every time are only a remark."""
    findings, few, tail = [], facts.carried, facts.tail
    if few is not None:
        text = (
            f"{few.few:,} of {few.samples:,} samples hold {few.share:.0%} of the time, and their queries are fast in "
            "other trials: they carry the mean (a JIT compiler, garbage collection, the machine); compare p50, or "
            f"{again(result.spec.cell, '--retry-noisy 3')}"
        )
        findings.append(noisy(Cause.FEW_SAMPLES, text, transient=True))
    if tail is not None:
        every = f"in each of {tail.trials} trials"
        if tail.trials == 1:
            every = "in the only trial, which cannot tell whether they always do"
        text = (
            f"{tail.few:,} of {facts.queries:,} queries hold half of the time, {every}: they carry the mean, and its "
            "interval may be too narrow; raise sample_size, or compare p50"
        )
        findings.append(remark(Cause.FEW_SAMPLES, text))
    return findings


def _drift(results: Sequence[Result], facts: SampleFacts) -> Finding:
    spec, drift = results[0].spec, facts.drift
    assert drift is not None
    if drift.cold and len(results) == 1:
        # A busy machine slows any trial; only a cold system slows the first.
        means = ", ".join(f"{mean * 1e3:.3g}" for mean in facts.trial_means_s)
        text = (
            f"the first trial is the slowest (trial means {means} ms): {results[0].warmup_done} warm-up queries do not "
            "warm this system up (a JIT compiler, caches), and the mean holds that; set protocol.warmup_cap in the "
            f"suite (warm-up then goes on until it is steady), then {again(spec.cell)}"
        )
        return noisy(Cause.WARMUP, text)
    text = (
        f"drift: the slowest trial's mean is {drift.ratio:.2f} times the fastest's (steady: up to {MAX_TRIAL_RATIO}), "
        f"{drift.slow_s * 1e3:.3g} against {drift.fast_s * 1e3:.3g} ms; quieten the machine "
        f"(harness doctor shows its load), then {again(spec.cell, '--retry-noisy 3')}"
    )
    return noisy(Cause.DRIFT, text, transient=True)


def _scenario(results: Sequence[Result]) -> list[Finding]:
    """Find ``server`` jobs without a confirmed rate, which have no latency."""
    spec = results[0].spec
    without = sum(result.rate_qps is None for result in results)
    if spec.cell.scenario != "server" or not without:
        return []
    target = spec.scenario_params
    wanted = "the latency target"
    if target.latency_target_s is not None and target.latency_percentile is not None:
        wanted = f"p{target.latency_percentile:g} <= {target.latency_target_s * 1e3:g} ms"
    text = (
        f"no rate met {wanted} twice in {without} of {len(results)} jobs; raise server.latency_target_s "
        f"in the suite, then {again(spec.cell)}"
    )
    return [noisy(Cause.LATENCY_TARGET, text)]


def _unit(spec: ResultSpec) -> str:
    return "trial" if spec.trials == 1 else "job"


def _protocol(spec: ResultSpec) -> list[Finding]:
    """Remark on figures that the suite changed in a named protocol."""
    paper = dict(_PAPERS.get(spec.protocol, {}))
    largest = _LARGEST_SAMPLES.get(spec.protocol, spec.sample_size)
    if spec.sample_size > largest:
        paper["sample_size"] = largest
    changed = [
        f"{name} {getattr(spec, name):,} (the paper: {figure:,})"
        for name, figure in paper.items()
        if getattr(spec, name) != figure
    ]
    if spec.warmup_cap is not None and spec.protocol in _PAPERS:
        changed.append(f"warm-up until steady, {spec.warmup_cap:,} queries at most (the paper: one pass)")
    return [remark(Cause.PROTOCOL, f"protocol {spec.protocol} with {', '.join(changed)}")] if changed else []
