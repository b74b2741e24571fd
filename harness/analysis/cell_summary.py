"""Statistics of a cell's pooled jobs: latencies, throughput, stages, and the evidence for its verdict."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from harness import stats
from harness.analysis import timings, update_figures, validity
from harness.analysis.pooling import Pool
from harness.analysis.table import CpuUse, Latency, Timing
from harness.analysis.timings import Timings
from harness.analysis.update_records import UpdateFigures
from harness.analysis.validity import machine_speed, sample_checks
from harness.analysis.validity.findings import covers, trials_s
from harness.driver.records import Outcome
from harness.driver.update_plan import TRIALS
from harness.errors import HarnessError, counted
from harness.estimate import MIN_PROCESSES, Estimate, too_few_processes
from harness.evaluation import trec
from harness.evaluation.per_query import SHARES
from harness.results.reader import FIRST_STAGE, StoredJob, most_hits
from harness.results.samples import cell_budget
from harness.results.schema import Observed, Result, has_probes, measurements
from harness.stats import LatencySummary
from harness.untrusted import reason_of, sha256

# The percentiles that a table shows.
SHOWN = ("p50", "p95", "p99")
_MISSING = Estimate(None)
_NO_CPU = CpuUse()
# This count is a model's size, so it is the same for each query.
_SIZE = "parameters"
# Upper ends of the bands of selectivity.
_BANDS, _BAND_SLACK = (0.001, 0.01, 0.1, 0.5, 1.0), 1.1
_FIXED_RATE = "scenario mixed: queries arrive at a fixed rate, so no throughput was sought; measure scenario server"
_SHARED_CPU = "scenario mixed: queries and updates share the CPU time, which the kernel counts together"
_NEGATIVE = "a sample has a negative time; let the adapter report a duration"


@dataclass(frozen=True)
class CellSummary:
    """Statistics of one cell.  A figure that its scenario does not define is missing, with a reason.

    ``reason`` says why the samples cannot be used.  ``by_query_s`` has each query's mean over its trials,
    ``quantiles_s`` all timed samples at :data:`harness.evaluation.per_query.SHARES`; both are empty where the scenario
    has no latency of single queries.  ``failed`` counts the queries of an open loop, at the rate that it kept, that got
    no answer, if any did.  ``counts`` are means over all timed samples.  ``facts`` and ``disagreements`` are
    evidence for :func:`assess`.
    """

    latency: Latency
    queries: int | None = None
    trials: int | None = None
    reason: str | None = None
    throughput_qps: Estimate = _MISSING
    cpu: CpuUse = _NO_CPU
    counts: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    by_query_s: dict[str, float] = field(default_factory=dict)
    quantiles_s: tuple[float, ...] = ()
    facts: sample_checks.SampleFacts | None = None
    disagreements: int | None = None
    failed: int | None = None
    updates: UpdateFigures | None = None


def summarise(jobs: Sequence[StoredJob], *, rankings: bool = True) -> CellSummary:
    """Describe the samples of a cell's pooled jobs, all of which ended ``ok``.

    Args:
        jobs: of one cell and environment, at least one.
        rankings: compare the runs of different jobs; costs reading them.
    """
    results = tuple(job.result for job in jobs)
    disagreements = _disagreements(jobs) if rankings else None
    facts = None
    try:
        budget = cell_budget()
        timed = timings.read((job.result.spec.job, job.samples(budget)) for job in jobs)
        two_stages = jobs[0].file(FIRST_STAGE) is not None
        is_mixed = results[0].spec.cell.scenario == "mixed"
        scenario = "server" if has_probes(results[0]) or is_mixed else results[0].spec.cell.scenario
        whole, timed = timed, (_during_updates(timed) if is_mixed else timed)
        facts = sample_checks.inspect(timed, _phases_s(results), scenario, two_stages=two_stages)
        timed, holes = _complete(timed)
        shown = confirming_samples(results, timed) if has_probes(results[0]) else timed
        summary = _summary(results, shown)
        summary = replace(summary, cpu=_cpu(results, shown), counts=_counts(timed), notes=(*summary.notes, *holes))
        shares = by_selectivity(shown.answered, results[0].provenance.corpus_documents)
        summary = replace(summary, latency=replace(summary.latency, selectivity_s=shares))
        if is_mixed:
            summary = _with_updates(summary, jobs, whole, timed)
    # ValueError and KeyError are what pyarrow raises for a damaged file and for a missing column.
    except (HarnessError, OSError, ValueError, KeyError) as error:
        reason = f"samples cannot be used: {reason_of(error)}"
        missing = Estimate(None, reason=reason)
        latency = Latency(mean_s=missing, p50_s=missing, p95_s=missing, p99_s=missing)
        return CellSummary(latency, reason=reason, facts=facts, disagreements=disagreements)
    facts = replace(facts, mean_within=_within(summary.latency), failed=summary.failed or 0)
    return replace(summary, facts=facts, disagreements=disagreements)


def assess(
    pool: Pool,
    facts: sample_checks.SampleFacts | None,
    disagreements: int | None,
    levels: machine_speed.Levels | None,
) -> validity.Assessment:
    """Judge how far a cell's numbers can be trusted, by its jobs, its samples and the canary's usual levels."""
    if pool.outcome is not Outcome.OK:
        return validity.assess([pool.lead.result])
    return validity.assess(pool.results, facts, missing=pool.missing, disagreements=disagreements, levels=levels)


def _summary(results: Sequence[Result], timed: Timings) -> CellSummary:
    """Describe latency and throughput; ``timed``: the samples that show the latency."""
    scenario = results[0].spec.cell.scenario
    if scenario == "mixed":
        rate = Estimate(None, reason=_FIXED_RATE)
    elif has_probes(results[0]):
        rate = server_throughput(results) if scenario == "server" else connected_throughput(results)
        if not len(timed.query):
            return _without_latency(timed, "no rate was confirmed, so there is no latency", rate, {})
    elif scenario == "offline":
        reason = "scenario offline: a query's latency is its whole batch's; see the throughput"
        return _without_latency(timed, reason, offline_throughput(timed), _stages(timed))
    else:
        return _with_latency(timed)
    answered = timed.answered
    failed = len(timed.query) - len(answered.query) or None
    if not len(answered.query):
        return replace(_without_latency(answered, "no query was answered", rate, {}), failed=failed)
    service = None if answered.service_s is None else _timing(answered, answered.service_s)
    return replace(_with_latency(answered, rate, service), failed=failed)


def _during_updates(timed: Timings) -> Timings:
    """Return the samples of the queries during updates: the second of each job's three trials."""
    chosen = timed.only((job, number) for job, number in timed.trials if number % TRIALS == 1)
    # Threads that search at once know no stages.
    known = {name: seconds for name, seconds in chosen.stages_s.items() if np.isfinite(seconds).any()}
    return replace(chosen, stages_s=known)


def _with_updates(summary: CellSummary, jobs: Sequence[StoredJob], whole: Timings, timed: Timings) -> CellSummary:
    """Add what became of the updates of scenario ``mixed``; ``timed``: the samples during them."""
    before = whole.only((job, number) for job, number in whole.trials if number % TRIALS == 0)
    idle, answered, rates = _timing(before, before.latency_s), timed.answered, []
    if timed.end_s is not None:
        for place in range(len(timed.trials)):
            last_s = float(timed.end_s[timed.trial == place].max(initial=0.0))
            rates += [int((answered.trial == place).sum()) / last_s] if last_s else []
    figures = update_figures.read(jobs, timed.queries, idle, statistics.fmean(rates) if rates else None)
    return replace(summary, updates=figures, notes=(*summary.notes, *update_figures.describe(figures)))


def _within(latency: Latency) -> float | None:
    """Return half the width of the mean's interval as a share of the mean; with few processes, over queries alone."""
    mean = latency.mean_s if latency.mean_s.low is not None else latency.like_queries_s["mean"]
    if not mean.value or mean.low is None or mean.high is None:
        return None
    return (mean.high - mean.low) / 2 / mean.value


def _with_latency(timed: Timings, throughput_qps: Estimate = _MISSING, service_s: Timing | None = None) -> CellSummary:
    found = stats.summarise(timed.query, timed.trial, timed.latency_s, jobs=timed.job, shown=SHOWN)
    spread_s = stats.variance_components(timed.whole(), [job for job, _ in timed.whole_trials()])
    return CellSummary(
        replace(_latency(found), service_s=service_s, stages_s=_stages(timed), spread_s=spread_s),
        found.queries,
        found.trials,
        throughput_qps=throughput_qps,
        by_query_s=_by_query(timed),
        quantiles_s=stats.quantiles(timed.latency_s, SHARES) if len(timed.latency_s) else (),
    )


def _without_latency(timed: Timings, reason: str, rate: Estimate, stages_s: dict[str, Timing]) -> CellSummary:
    """Describe a cell whose scenario gives no latency of single queries."""
    latency = replace(_latency(stats.nothing(reason, SHOWN)), stages_s=stages_s)
    return CellSummary(latency, len(timed.queries), len(timed.trials), throughput_qps=rate)


def _latency(found: LatencySummary) -> Latency:
    """Return a summary as a row's record, without the times of other clocks."""
    p50_s, p95_s, p99_s = (found.percentiles_s[name] for name in SHOWN)
    return Latency(
        mean_s=found.mean_s,
        p50_s=p50_s,
        p95_s=p95_s,
        p99_s=p99_s,
        like_queries_s=found.like_queries_s,
        these_queries_s=found.these_queries_s,
        at_most_s=found.at_most_s,
        trial_means_s=found.trial_means_s,
        trial_spread_s=found.trial_spread_s,
    )


def _by_query(timed: Timings) -> dict[str, float]:
    """Return each timed query's mean over its trials."""
    counts = np.bincount(timed.query, minlength=len(timed.queries))
    sums = np.bincount(timed.query, weights=timed.latency_s, minlength=len(timed.queries))
    return {name: float(sums[place] / counts[place]) for place, name in enumerate(timed.queries) if counts[place]}


def _complete(timed: Timings) -> tuple[Timings, tuple[str, ...]]:
    """Give every sample all stages and counts of its cell: a missing one is 0, and a note says so.

    An adapter leaves out work that a query did not cause, such as reranking when the first stage found nothing.  The
    latency is a mean over all queries, so the stages only sum to it if their means include these.
    """
    holes: dict[int, list[str]] = {}

    def filled(name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
        missing = np.isnan(values)
        if missing.all() or not missing.any():
            return values
        if name == _SIZE:
            return np.where(missing, np.nanmax(values), values)
        holes.setdefault(int(missing.sum()), []).append(name)
        return np.where(missing, 0.0, values)

    complete = replace(
        timed,
        stages_s={name: filled(name, seconds) for name, seconds in timed.stages_s.items()},
        counts={name: filled(name, values) for name, values in timed.counts.items()},
    )
    return complete, tuple(
        f"{number:,} of {len(timed.query):,} samples have no {', '.join(names)}; the means count 0 for them"
        for number, names in holes.items()
    )


def _timing(timed: Timings, seconds: NDArray[np.float64], negative: str = _NEGATIVE) -> Timing:
    """Return mean and median of another clock over the samples that have it; ``negative`` explains a value below 0."""
    known = np.isfinite(seconds)
    reason = "" if known.any() else "no sample has it"
    if (seconds[known] < 0).any():
        reason = negative
    if reason:
        missing = Estimate(None, reason=reason)
        return Timing(missing, missing)
    latency = stats.summarise(
        timed.query[known], timed.trial[known], seconds[known], jobs=timed.job[known], shown=("p50",)
    )
    return Timing(latency.mean_s, latency.percentiles_s["p50"])


def _stages(timed: Timings) -> dict[str, Timing]:
    """Return the stages that the adapter reports, and the time outside all of them."""
    found = {name: _timing(timed, seconds) for name, seconds in timed.stages_s.items()}
    overlap = "the stages of a sample sum to more than its time"
    return found | {name: _timing(timed, seconds, overlap) for name, seconds in timed.other_s.items()}


def by_selectivity(timed: Timings, documents: int | None) -> dict[str, Timing]:
    """Return the latency of filtered queries by the share of documents that their filters let through.

    The shares are bands up to 0.1, 1, 10, 50 and 100 %; a name is its band's upper end.
    """
    if timed.matching is None or not documents:
        return {}
    share = timed.matching / documents
    # A field of 100 values gives 51 or 52 of 5,183 documents: both are 1 %.
    band = np.searchsorted(np.asarray(_BANDS) * _BAND_SLACK, share)
    filtered = timed.matching >= 0
    found = {f"{100 * end:g} %": timed.where(filtered & (band == place)) for place, end in enumerate(_BANDS)}
    return {name: _timing(samples, samples.latency_s) for name, samples in found.items() if len(samples.query)}


def _counts(timed: Timings) -> dict[str, float]:
    """Return the mean of each count over all samples; a count that no sample has is left out."""
    return {name: float(values.mean()) for name, values in timed.counts.items() if np.isfinite(values).any()}


def _phases_s(results: Sequence[Result]) -> dict[int, float]:
    """Return how long each job's trials lasted, for jobs that say so; a limited rate rests between queries."""
    return {
        result.spec.job: trials_s(result)
        for result in results
        if result.measured
        and result.measured.max_qps is None
        and sum(phase.name.startswith("trial-") for phase in result.measured.phases) == result.spec.trials
    }


def _disagreements(jobs: Sequence[StoredJob]) -> int | None:
    """Count queries whose ranked ids differ between jobs; None: fewer than two runs exist."""
    paths = [path for job in jobs if (path := job.run_path) is not None]
    if len(paths) < 2:
        return None
    try:
        if len({sha256(path) for path in paths}) == 1:
            return 0  # nearly always; reading them as rankings takes a hundred times as long
        most = max(most_hits(job.result.spec) for job in jobs)
        rankings = [trec.read_run(path, most).rankings for path in paths]
    except (HarnessError, OSError):
        return None  # the evaluation says why the run cannot be read
    queries = set(itertools.chain.from_iterable(rankings))
    first = rankings[0]
    return sum(any(other.get(query) != first.get(query) for other in rankings[1:]) for query in queries)


def _cpu(results: Sequence[Result], timed: Timings) -> CpuUse:
    """Return the CPU time and the energy of a query over the trials of some samples.

    The intervals are Student's over the jobs, for these queries.
    """
    if results[0].spec.cell.scenario == "mixed":
        return CpuUse(per_query_s=Estimate(None, reason=_SHARED_CPU), package_j=Estimate(None, reason=_SHARED_CPU))
    answered = dict(zip(timed.trials, np.bincount(timed.trial, minlength=len(timed.trials)).tolist(), strict=True))
    used = _by_job(results, answered, lambda seen: [(one.trial, one.cpu_s, one.wall_s) for one in seen.trial_cpu])
    if used is None:
        return CpuUse(per_query_s=Estimate(None, reason="the CPU time of its trials was not stored; measure it again"))
    cpu_s, wall_s, _ = used.sum(axis=0).tolist()
    return CpuUse(
        per_query_s=_of_query(used),
        busy_cpus=cpu_s / wall_s if wall_s > 0 else None,
        package_j=_package_j(results, answered, wall_s),
        instructions=_instructions(results, answered),
    )


def _instructions(results: Sequence[Result], answered: dict[tuple[int, int], int]) -> Estimate:
    """Return the instructions of a query, if they were counted in all trials."""
    used = _by_job(
        results,
        answered,
        lambda seen: [
            (one.trial, math.nan if one.instructions is None else one.instructions, one.wall_s)
            for one in seen.trial_cpu
        ],
    )
    if used is None or np.isnan(used).any():
        return Estimate(None, reason="the instructions of some trials were not counted (harness doctor says why)")
    return _of_query(used)


def _package_j(results: Sequence[Result], answered: dict[tuple[int, int], int], wall_s: float) -> Estimate:
    """Return the energy of a query in trials of ``wall_s`` seconds."""
    used = _by_job(
        results,
        answered,
        lambda seen: [(one.trial, one.package_j, one.wall_s) for one in seen.trial_energy if one.package_j > 0],
    )
    if used is None:
        return Estimate(None, reason="the energy of its CPU packages was not counted (harness doctor says why)")
    counted_s = float(used.sum(axis=0)[1])
    if not covers(counted_s, wall_s):
        why = f"the energy was counted over {counted_s:.2g} s for {wall_s:.2g} s of trials; measure longer trials"
        return Estimate(None, reason=why)
    return _of_query(used)


def _by_job(
    results: Sequence[Result],
    answered: dict[tuple[int, int], int],
    read: Callable[[Observed], Sequence[tuple[int, float, float]]],
) -> NDArray[np.float64] | None:
    """Return the sums of each job's answered trials: an amount, seconds and queries; ``None``: a job has none.

    Args:
        results: the jobs.
        answered: queries by job and trial.
        read: returns trials with their amounts and seconds.
    """
    totals = []
    for result in results:
        trials = [(*one, answered.get((result.spec.job, one[0]), 0)) for one in read(result.observed)]
        totals.append(np.sum([amounts for _, *amounts in trials if amounts[-1]], axis=0))
    return np.asarray(totals) if all(np.ndim(total) for total in totals) else None


def _of_query(used: NDArray[np.float64]) -> Estimate:
    """Return an amount by query."""
    amount, _, queries = used.sum(axis=0).tolist()
    return stats.these_queries(amount / queries, (used[:, 0] / used[:, 2]).tolist())


# Why a service that runs already may answer more than was measured.
_CAPPED = "the limit max_qps, not the service, ended the search"


# Queries per second are never 1 / latency (measuring rule 10).
def offline_throughput(timed: Timings) -> Estimate:
    """Return queries per second of work: all queries over the summed durations of their batches.

    The interval is Student's over the jobs' durations.
    """
    if timed.batch is None or not len(timed.batch):
        return Estimate(None, reason="no batches were timed")
    # Each query of a batch has the batch's duration: count it once.
    first = np.unique(np.stack([timed.trial, timed.batch]), axis=1, return_index=True)[1]
    by_trial = np.bincount(timed.trial[first], weights=timed.latency_s[first], minlength=len(timed.trials))
    taken = float(by_trial.sum())
    if taken <= 0:
        return Estimate(None, reason="the batches took no time")
    value, whole = len(timed.query) / taken, timed.whole_trials()
    by_job: dict[int, list[float]] = {}
    for pair, seconds in zip(timed.trials, by_trial.tolist(), strict=True):
        if pair in whole:
            by_job.setdefault(pair[0], []).append(seconds)
    if len(by_job) < MIN_PROCESSES:
        return Estimate(value, reason=too_few_processes(len(by_job)))
    low, high = stats.student(np.asarray([statistics.fmean(seconds) for seconds in by_job.values()]))
    size = len(timed.queries)
    fastest = size / low if low > 0 else None
    return Estimate(value, size / high, fastest, reason=f"interval for these queries, over {len(by_job)} jobs")


def server_throughput(results: Sequence[Result]) -> Estimate:
    """Return the highest rate that kept the latency target: the median over the jobs, between lowest and highest.

    A job without a confirmed rate counts as the lowest; if the median is such a job, there is no figure.
    """
    searched = measurements(results)
    believed = sorted(one.rate_qps for one in searched if one.rate_qps)
    jobs, none = len(results), len(results) - len(believed)
    failures = f"in {none} of {jobs} jobs no rate kept the latency target and kept it again" if none else None
    place = (jobs - 1) / 2 - none  # the median's place among the confirmed rates, rounded towards the slower
    if not believed or place < 0:
        return Estimate(None, reason=failures or "no rate was tried")
    value = stats.median(believed) if not none else believed[int(place)]
    bounded = jobs >= MIN_PROCESSES
    extremes = f"lowest and highest of {jobs} jobs" if bounded else too_few_processes(jobs)
    capped = _CAPPED if any(one.capped for one in searched) else None
    own = "latencies were measured at each job's own confirmed rate" if len(set(believed)) > 1 else None
    probes = [probe for one in searched if one.rate_qps is not None for probe in one.probes]
    failed = sum(probe.check and not probe.passed for probe in probes)
    checks = f"{counted(failed, 'check')} failed before" if failed else None
    low = believed[0] if bounded and not none else None
    high = believed[-1] if bounded else None
    return Estimate(
        value, low, high, reason="; ".join(part for part in (extremes, failures, capped, own, checks) if part)
    )


def connected_throughput(results: Sequence[Result]) -> Estimate:
    """Return what a service answered by its best number of connections: the median over jobs, and their extremes."""
    answered = sorted(one.rate_qps for one in measurements(results) if one.rate_qps is not None)
    if not answered:
        return Estimate(None, reason="no number of connections was tried")
    chosen = sorted({one.probes[-1].streams or 0 for one in measurements(results) if one.probes})
    by = f"by {' or '.join(map(str, chosen))} connections at once"
    by += f"; {_CAPPED}" if any(one.capped for one in measurements(results)) else ""
    value = stats.median(answered)
    if not value:
        return Estimate(None, reason=f"no query was answered {by}")
    if len(answered) < MIN_PROCESSES:
        return Estimate(value, reason=f"{by}; {too_few_processes(len(answered))}")
    extremes = f"{by}; lowest and highest of {counted(len(answered), 'job')}"
    # A job that answered nothing is the slowest, and bounds nothing.
    return Estimate(value, answered[0] or None, answered[-1], reason=extremes)


def confirming_samples(results: Sequence[Result], timed: Timings) -> Timings:
    """Return the samples of the probes that confirmed each job's rate; only they show its latency."""
    trials = []
    for result in results:
        if (measured := result.measured) is None or measured.rate_qps is None:
            continue
        passed = [probe for probe in measured.probes if probe.check and probe.passed]
        same = [probe.trial for probe in passed if probe.rate_qps == measured.rate_qps]
        trials += [(result.spec.job, trial) for trial in same[-1:]]
    return timed.only(trials)
