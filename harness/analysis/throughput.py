"""Queries per second of the ``offline`` and ``server`` scenarios.  Never 1 / latency (measuring rule 12)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from harness import stats
from harness.analysis.timings import Timings
from harness.results.schema import Result
from harness.stats import Estimate


def batches(timings: Timings) -> list[tuple[tuple[int, int], int, float]]:
    """Each batch once: its trial, how many queries it held, and its seconds."""
    if timings.batch is None:
        return []
    pairs = np.stack([timings.trial, timings.batch])
    found, first, sizes = np.unique(pairs, axis=1, return_index=True, return_counts=True)
    return [
        (timings.trials[int(trial)], int(size), float(timings.latency_s[place]))
        for trial, place, size in zip(found[0], first, sizes, strict=True)
    ]


def offline(timings: Timings) -> Estimate:
    """Queries answered per second of work: all queries over the summed durations of their batches.

    The interval comes from repeated measurements (jobs, or the trials of one job: Student on their durations); with
    one trial alone from its batches.
    """
    found = batches(timings)
    if not found:
        return Estimate(None, reason="no batches were timed")
    taken = sum(seconds for _, _, seconds in found)
    if taken <= 0:
        return Estimate(None, reason="the batches took no time")
    queries = len(timings.query)
    value = queries / taken
    whole = timings.whole_trials()
    seconds = {pair: sum(each for trial, _, each in found if trial == pair) for pair in whole}
    jobs = {job for job, _ in whole}
    by_job = [statistics.fmean(each for pair, each in seconds.items() if pair[0] == job) for job in sorted(jobs)]
    units = np.asarray(by_job if len(jobs) > 1 else list(seconds.values()))
    low, high = stats.student(units)
    if low is not None and high is not None:
        size, word = len(timings.queries), "jobs" if len(jobs) > 1 else "trials"
        fastest = size / low if low > 0 else None
        return Estimate(value, size / high, fastest, reason=f"interval for these queries, over {len(units)} {word}")
    mean = stats.mean(np.asarray([each for _, _, each in found]), floor=0.0)
    if mean.low is None or mean.high is None:
        return Estimate(value, reason=f"an interval needs 2 trials or {stats.INTERVAL_MIN_QUERIES} batches")
    each = queries / len(found)
    return Estimate(value, each / mean.high, each / mean.low, reason=f"interval over {len(found)} batches of one trial")


def server(results: Sequence[Result]) -> Estimate:
    """The highest rate that kept the latency target: the median over the jobs, between the lowest and the highest.

    A job in which no rate was believed counts as the lowest; where that is the median, there is no figure.
    """
    rates = [result.rate_qps for result in results]
    believed = sorted(rate for rate in rates if rate is not None)
    none = len(rates) - len(believed)
    said = f"in {none} of {len(rates)} jobs no rate kept the latency target and kept it again" if none else None
    place = (len(rates) - 1) / 2 - none  # the median's place among the believed ones, rounded towards the slower
    if not believed or place < 0:
        return Estimate(None, reason=said or "no rate was tried")
    value = statistics.median(believed) if not none else believed[int(place)]
    extremes = f"lowest and highest of {len(rates)} jobs" if len(rates) > 1 else "one job: no interval"
    own = "latencies are of each job's own believed rate" if len(set(believed)) > 1 else None
    found = [result for result in results if result.rate_qps is not None]
    failed = sum(probe.check and not probe.passed for result in found for probe in result.probes)
    checks = f"{failed} {'check' if failed == 1 else 'checks'} failed before" if failed else None
    low = believed[0] if len(rates) > 1 and not none else None
    high = believed[-1] if len(rates) > 1 else None
    return Estimate(value, low, high, reason="; ".join(part for part in (extremes, said, own, checks) if part))


def believed(results: Sequence[Result], timings: Timings) -> Timings:
    """The samples of the probes that confirmed each job's believed rate; no others say what that rate costs."""
    wanted = []
    for result in results:
        checks = [probe for probe in result.probes if probe.check and probe.passed]
        same = [probe.trial for probe in checks if result.rate_qps is not None and probe.rate_qps == result.rate_qps]
        wanted += [(result.spec.job, trial) for trial in same[-1:]]
    return timings.only(wanted)
