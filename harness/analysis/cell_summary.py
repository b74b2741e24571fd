"""The stored jobs of one cell -> what was measured: latencies, throughput, stages, and how far they can be trusted."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from harness import stats
from harness.analysis import pooling, throughput, timings, validity
from harness.analysis.table import Timing
from harness.analysis.timings import Timings
from harness.analysis.validity import machine_speed, sample_checks
from harness.errors import HarnessError
from harness.evaluation import trec
from harness.evaluation.per_query import SHARES
from harness.records import Outcome
from harness.results.attempts import AnyJob
from harness.results.reader import most_hits
from harness.results.schema import Result
from harness.stats import Estimate
from harness.untrusted import sha256

# The percentiles that a table shows.
SHOWN = ("p50", "p95", "p99")
_MISSING = Estimate(None)


@dataclass(frozen=True)
class Latency(stats.Summary):
    """All that the samples of a cell say.  A figure that its scenario does not have is missing with a reason.

    ``by_query_s`` has each query's mean over its trials, ``quantiles_s`` all timed samples at
    :data:`harness.evaluation.per_query.SHARES`; both are empty where the scenario has no latency of single queries.
    """

    throughput_qps: Estimate = _MISSING
    service_s: Timing | None = None
    stages_s: dict[str, Timing] = field(default_factory=dict)
    spread_s: dict[str, Estimate] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    by_query_s: dict[str, float] = field(default_factory=dict)
    quantiles_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class Measured(Generic[AnyJob]):
    """A cell: its pooled jobs, what they say, and the verdict.  ``why_not``: why there are no latencies.

    ``facts`` and ``disagreements`` are what the verdict was made of beside the results.
    """

    pool: pooling.Pool[AnyJob]
    latency: Latency | None
    why_not: str | None
    verdict: validity.Assessment
    facts: sample_checks.SampleFacts | None = None
    disagreements: int | None = None


def measure(
    stored: Iterable[AnyJob],
    keys: Collection[str] | None = None,
    levels: machine_speed.Levels | None = None,
    *,
    rankings: bool = True,
) -> Measured[AnyJob]:
    """Pool a cell's jobs and describe them.

    Args:
        stored: jobs of one cell and isolation, at least one.
        keys: see :func:`harness.results.attempts.choose`.
        levels: the canary's levels of all jobs in the results.
        rankings: compare the runs of different jobs; costs reading them.

    Raises:
        FileError: a result's start time cannot be read.
    """
    pool = pooling.pool(stored, keys)
    if pool.outcome is not Outcome.OK:
        return Measured(pool, None, None, validity.assess([pool.lead.result]))
    results = pool.results
    latency, facts, why_not = None, None, None
    try:
        timed = timings.read((job.result.spec.job, job.samples()) for job in pool.jobs)
        facts = sample_checks.inspect(timed, _phases_s(results), results[0].spec.cell.scenario)
        latency = _latency(results, timed)
        facts = replace(facts, mean_within=_within(latency.mean_s))
    # ValueError and KeyError are what pyarrow raises for a damaged file and for a missing column.
    except (HarnessError, OSError, ValueError, KeyError) as error:
        why_not = f"samples cannot be used: {error}"
    disagreements = _disagreements(pool.jobs) if rankings else None
    return _judged(pool, latency, why_not, facts, disagreements, levels)


def judge_again(
    stored: Iterable[AnyJob],
    facts: sample_checks.SampleFacts | None,
    disagreements: int | None,
    levels: machine_speed.Levels | None,
) -> Measured[AnyJob]:
    """A cell whose samples and rankings were looked at before: its pool and its verdict, without latencies."""
    return _judged(pooling.pool(stored), None, None, facts, disagreements, levels)


def _judged(
    pool: pooling.Pool[AnyJob],
    latency: Latency | None,
    why_not: str | None,
    facts: sample_checks.SampleFacts | None,
    disagreements: int | None,
    levels: machine_speed.Levels | None,
) -> Measured[AnyJob]:
    verdict = validity.assess(pool.results, facts, missing=pool.missing, disagreements=disagreements, levels=levels)
    return Measured(pool, latency, why_not, verdict, facts, disagreements)


def _latency(results: Sequence[Result], timed: Timings) -> Latency:
    spec = results[0].spec
    if spec.cell.scenario == "offline":
        return _offline(timed)
    if spec.cell.scenario == "server":
        rate = throughput.server(results)
        timed = throughput.believed(results, timed)
        if not len(timed.query):
            return _none(timed, "no rate was believed, so no latency belongs to it", rate)
        service = None if timed.service_s is None else _timing(timed, timed.service_s)
        return _described(timed, throughput_qps=rate, service_s=service)
    return _described(timed)


def _within(mean: Estimate) -> float | None:
    """Return half the width of an interval as a share of its mean; None without one."""
    if not mean.value or mean.low is None or mean.high is None:
        return None
    return (mean.high - mean.low) / 2 / mean.value


def _described(timed: Timings, throughput_qps: Estimate = _MISSING, service_s: Timing | None = None) -> Latency:
    names = np.asarray(timed.queries, dtype=np.str_)[timed.query]
    jobs = timed.job if timed.trials else np.zeros(0, dtype=np.int64)
    summary = stats.summarise(names, timed.trial, timed.latency_s, jobs=jobs, shown=SHOWN)  # type: ignore[arg-type]
    split = pooling.components(timed.whole(), [job for job, _ in timed.whole_trials()])
    stages = {name: _timing(timed, seconds) for name, seconds in timed.stages_s.items()}
    return Latency(
        **vars(summary),
        throughput_qps=throughput_qps,
        service_s=service_s,
        stages_s=stages,
        spread_s={name: getattr(split, f"{name}_s") for name in ("query", "trial", "job", "residual")},
        notes=_too_long(timed),
        by_query_s=_by_query(timed),
        quantiles_s=tuple(np.quantile(timed.latency_s, SHARES).tolist()) if len(timed.latency_s) else (),
    )


def _by_query(timed: Timings) -> dict[str, float]:
    """Each timed query's mean over its trials."""
    counts = np.bincount(timed.query, minlength=len(timed.queries))
    sums = np.bincount(timed.query, weights=timed.latency_s, minlength=len(timed.queries))
    return {name: float(sums[place] / counts[place]) for place, name in enumerate(timed.queries) if counts[place]}


def _offline(timed: Timings) -> Latency:
    stages = {name: _timing(timed, seconds) for name, seconds in timed.stages_s.items()}
    return _none(
        timed,
        "scenario offline: a query's latency is its whole batch's; see the throughput",
        throughput.offline(timed),
        stages,
    )


def _none(timed: Timings, reason: str, rate: Estimate, stages: dict[str, Timing] | None = None) -> Latency:
    """A cell whose scenario gives no latency of single queries."""
    summary = stats.nothing(reason, SHOWN, len(timed.queries), len(timed.trials))
    return Latency(**vars(summary), throughput_qps=rate, stages_s=stages or {})


def _timing(timed: Timings, seconds: NDArray[np.float64]) -> Timing:
    """Mean and median of one more clock, over the samples that have it."""
    known = np.isfinite(seconds)
    if not known.any():
        missing = Estimate(None, reason="no sample has it")
        return Timing(missing, missing)
    if (seconds[known] < 0).any():
        missing = Estimate(None, reason="a sample has less than 0 s; let the adapter say seconds since a start")
        return Timing(missing, missing)
    names = np.asarray(timed.queries, dtype=np.str_)[timed.query[known]]
    found = stats.summarise(names, timed.trial[known], seconds[known], jobs=timed.job[known], shown=("p50",))  # type: ignore[arg-type]
    return Timing(found.mean_s, found.percentiles_s["p50"])


def _too_long(timed: Timings) -> tuple[str, ...]:
    """Stages lie within the query that the clock runs around; where they do not, something else is timed."""
    # A stage of a stage (``bm25.retrieve`` of ``bm25``) lies in that one already.
    outer = {name: seconds for name, seconds in timed.stages_s.items() if name.rpartition(".")[0] not in timed.stages_s}
    if not outer:
        return ()
    total = np.nansum(np.stack(list(outer.values())), axis=0)
    over = int(np.sum(total > timed.latency_s * 1.001 + 1e-6))
    if not over:
        return ()
    names = ", ".join(outer)
    return (
        f"the stages ({names}) sum to more than the end-to-end latency in {over:,} of {len(total):,} samples: they "
        "overlap or are not this query's; let stages_s() of the adapter say the last query's alone",
    )


def _phases_s(results: Sequence[Result]) -> dict[int, float]:
    """How long each job's trials lasted, for jobs that say so."""
    found = {}
    for result in results:
        trials = [phase for phase in result.phases if phase.name.startswith("trial-")]
        if len(trials) == result.spec.trials:
            found[result.spec.job] = sum(phase.end_ns - phase.start_ns for phase in trials) / 1e9
    return found


def _disagreements(jobs: Sequence[AnyJob]) -> int | None:
    """Queries whose ranked ids differ between jobs; ``None`` where there is nothing to compare."""
    paths = [job.run_path for job in jobs]
    known = [path for path in paths if path is not None]
    if len(known) < 2:
        return None
    try:
        if len({sha256(path) for path in known}) == 1:
            return 0  # nearly always; reading them as rankings takes a hundred times as long
        most = max(most_hits(job.result.spec) for job in jobs)
        rankings = [trec.read_run(path, most).rankings for path in known]
    except (HarnessError, OSError):
        return None  # the measures will say what is wrong with the run
    queries = set(itertools.chain.from_iterable(rankings))
    first = rankings[0]
    return sum(any(other.get(query) != first.get(query) for other in rankings[1:]) for query in queries)
