"""A result -> clean, noisy or invalid, with reasons.

Each reason states the fact, the figure and the next command (measuring rule 22).  Validity is apart from the
outcome: a failed job has no numbers to doubt.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from harness.records import Cell, Isolation, Outcome, Result, ResultSpec
from harness.table import Validity

# Largest slowest / fastest trial mean that is still called steady.  The same task was seen to drift 1.49-fold while
# another job shared the machine (measuring rule 21); we doubt from about half of that on.
MAX_TRIAL_RATIO = 1.25

# What a named protocol's paper says, by the names of the suite's keys.
# The fewest queries before the first timed one (measuring rule 8).
MIN_WARMUP_QUERIES = 10

_PAPERS = {"santhanam2023": {"warmup_queries": 10, "trials": 5, "k": 10}}
# Its sample is 1,000 queries, or all that a smaller dataset has: only a larger one departs from it.
_LARGEST_SAMPLES = {"santhanam2023": 1000}

_ORDER = (Validity.CLEAN, Validity.NOISY, Validity.INVALID)


@dataclass(frozen=True)
class Finding:
    """One reason.  ``validity`` is what it does to the result; ``clean`` makes it a remark."""

    validity: Validity
    text: str


@dataclass(frozen=True)
class Verdict:
    """The worst of the findings, and what each of them says."""

    validity: Validity
    reasons: tuple[str, ...]


def assess(result: Result, *, trial_means_s: Sequence[float] = (), queries_timed: int | None = None) -> Verdict:
    """Judge how far a result's numbers can be trusted.

    Args:
        result: the stored job.
        trial_means_s: mean latency of each whole trial, seconds.
        queries_timed: queries that have at least one timed sample; ``None`` if that is not known.
    """
    findings = _isolation(result)
    if result.outcome is Outcome.OK:
        findings += (
            _envelope(result)
            + _preparation(result)
            + _completeness(result, queries_timed)
            + _steadiness(result, trial_means_s)
        )
        findings += _protocol(result.spec)
    worst = max((finding.validity for finding in findings), key=_ORDER.index, default=Validity.CLEAN)
    return Verdict(worst, tuple(finding.text for finding in findings))


def again(cell: Cell, option: str = "--fresh") -> str:
    """What measures a cell again, in words: a result knows its suite's name, not where the file lies."""
    return f"run its suite again with {option} --only '{cell.system}/{cell.dataset}/{cell.scenario}/{cell.profile}'"


def _isolation(result: Result) -> list[Finding]:
    isolation = result.spec.isolation
    if isolation is Isolation.PROCESS:
        text = (
            "isolation: process: CPUs are pinned, but the memory limit of "
            f"{result.spec.envelope.memory_bytes / 2**20:,.0f} MiB and the network were not enforced; "
            f"not comparable with container results; {again(result.spec.cell, '--launcher docker')}"
        )
        return [Finding(Validity.CLEAN, text)]
    if isolation is Isolation.FAKE:
        text = f"isolation: fake: scripted times, nothing was measured; {again(result.spec.cell, '--launcher docker')}"
        return [Finding(Validity.INVALID, text)]
    return []


def _envelope(result: Result) -> list[Finding]:
    if not result.throttled_periods:
        return []
    text = (
        f"the kernel throttled the job in {result.throttled_periods:,} periods, so a CPU quota was in force and every "
        "latency is wrong; remove the quota (harness doctor shows the cgroups), then "
        f"{again(result.spec.cell)}"
    )
    return [Finding(Validity.INVALID, text)]


def _preparation(result: Result) -> list[Finding]:
    """What must have been done before the clock ran: warm-up (rule 8), thread counts read back (rule 3)."""
    found = []
    if result.spec.warmup_queries < MIN_WARMUP_QUERIES:
        text = (
            f"{result.spec.warmup_queries} warm-up queries, the least is {MIN_WARMUP_QUERIES}; raise "
            f"protocol.warmup_queries in the suite, then {again(result.spec.cell)}"
        )
        found.append(Finding(Validity.NOISY, text))
    if result.effective is not None and not result.effective.threads:
        text = (
            "the adapter says no library's thread count, so nothing shows that they keep to "
            f"{result.spec.envelope.cpus} CPUs; let its threads() say them, then {again(result.spec.cell)}"
        )
        found.append(Finding(Validity.NOISY, text))
    return found


def _completeness(result: Result, queries_timed: int | None) -> list[Finding]:
    spec, found = result.spec, []
    if result.trials_finished < spec.trials:
        text = f"only {result.trials_finished} of {spec.trials} trials finished; {again(spec.cell)}"
        found.append(Finding(Validity.NOISY, text))
    if queries_timed is not None and queries_timed != spec.sample_size:
        text = f"{queries_timed:,} of {spec.sample_size:,} sample queries were timed; {again(spec.cell)}"
        found.append(Finding(Validity.NOISY, text))
    if result.ranking_disagreements:
        text = (
            f"{result.ranking_disagreements:,} of {spec.sample_size:,} queries were ranked differently in different "
            "trials; the measures judge the first trial's run; look for threads, ties or approximate search, then "
            f"{again(spec.cell)}"
        )
        found.append(Finding(Validity.NOISY, text))
    return found


def _steadiness(result: Result, trial_means_s: Sequence[float]) -> list[Finding]:
    if result.warmup_steady is False:
        text = (
            f"warm-up ended at its cap after {result.warmup_done:,} queries without a steady level; raise "
            f"protocol.warmup_cap in the suite, then {again(result.spec.cell)}"
        )
        return [Finding(Validity.NOISY, text)]
    if len(trial_means_s) < 2 or min(trial_means_s) <= 0:
        return []
    ratio = max(trial_means_s) / min(trial_means_s)
    if ratio <= MAX_TRIAL_RATIO:
        return []
    first, later = trial_means_s[0], statistics.median(trial_means_s[1:])
    if first == max(trial_means_s) and first > MAX_TRIAL_RATIO * later:
        # A busy machine slows any trial; only a cold system slows the first.
        means = ", ".join(f"{mean * 1e3:.3g}" for mean in trial_means_s)
        text = (
            f"the first trial is the slowest (trial means {means} ms): {result.warmup_done} warm-up queries do not "
            "warm this system up (a JIT compiler, caches), and the mean holds that; set protocol.warmup_cap in the "
            f"suite (warm-up then goes on until it is steady), then {again(result.spec.cell)}"
        )
    else:
        text = (
            f"the slowest trial's mean is {ratio:.2f} times the fastest's (steady: up to {MAX_TRIAL_RATIO}), "
            f"{max(trial_means_s) * 1e3:.3g} against {min(trial_means_s) * 1e3:.3g} ms; quieten the machine "
            f"(harness doctor shows its load), then {again(result.spec.cell)}"
        )
    return [Finding(Validity.NOISY, text)]


def _protocol(spec: ResultSpec) -> list[Finding]:
    """A suite may change a named protocol's figures; the name must not hide that."""
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
    return [Finding(Validity.CLEAN, f"protocol {spec.protocol} with {', '.join(changed)}")] if changed else []
