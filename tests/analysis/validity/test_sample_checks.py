"""Findings about a cell from its samples: injected faults raise one, clean simulated data none."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from harness.analysis.causes import MORE_QUERIES
from harness.analysis.table import Cause, Validity
from harness.analysis.timings import Timings
from harness.analysis.validity import sample_checks
from harness.analysis.validity.sample_checks import SampleFacts
from tests.support import sample_records

Floats = NDArray[np.float64]


def simulated(
    seed: int,
    *,
    jobs: int = 5,
    trials: int = 1,
    queries: int = 200,
    median_s: float = 0.005,
    spread: float = 1.0,
    noise: float = 0.05,
    stalls: float = 0.002,
    shape: Floats | None = None,
    by_trial: Floats | None = None,
    cache: float = 1.0,
    cache_noise: float = 0.0,
) -> Timings:
    """A system whose queries differ much (lognormal), each asking a little, and some stall for 50 ms.

    Args:
        shape: factor of the n-th query that a fresh process is asked.
        by_trial: factor of each trial, over all jobs.
        cache: what a query takes when it is asked again at once, as a share; ``cache_noise`` is its scatter.
    """
    rng = np.random.default_rng(seed)
    level = median_s * rng.lognormal(0.0, spread, queries)
    tables: list[pa.Table] = []
    for job in range(jobs):
        latency = level * rng.lognormal(0.0, noise, (trials, queries)) + 0.05 * (rng.random((trials, queries)) < stalls)
        if by_trial is not None:
            latency *= by_trial[job * trials : (job + 1) * trials, None]
        if shape is not None:
            order = np.random.default_rng(seed + job).permutation(queries)  # as ``build.samples`` draws its first
            latency[0, order] *= np.resize(np.append(shape, np.ones(queries)), queries)
        again = cache * latency[0, ::10] * rng.lognormal(0.0, cache_noise, len(latency[0, ::10]))
        repeats = list(zip(range(0, queries, 10), again.tolist(), strict=True))
        tables.append(sample_records.samples(latency, seed=seed + job, first_trial=job * trials, repeats=repeats))
    return sample_records.timed(*tables)


def by_trials(grid: Floats) -> Timings:
    """One job for each trial of a grid of seconds."""
    tables = (sample_records.samples(grid[[trial]], first_trial=trial, seed=trial) for trial in range(len(grid)))
    return sample_records.timed(*tables)


def phases(timings: Timings, between_s: float = 50e-6) -> dict[int, float]:
    jobs = timings.job
    return {
        int(job): float(timings.latency_s[jobs == job].sum()) + between_s * int((jobs == job).sum())
        for job in np.unique(jobs)
    }


def found(timings: Timings, **kind: str) -> set[str]:
    facts = sample_checks.inspect(timings, phases(timings), **kind)
    named = {name for name in ("drift", "start", "repeat") if getattr(facts, name) is not None}
    return named | {doubt.cause.value for doubt in facts.doubts if doubt.cause is Cause.UNACCOUNTED_TIME}


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "trials"), [(5, 1), (1, 5), (3, 2), (1, 1), (2, 1)])
@pytest.mark.parametrize("median_s", [1e-6, 0.005])
def test_a_clean_run_raises_no_alarm(jobs: int, trials: int, median_s: float) -> None:
    alarms = [
        found(simulated(seed, jobs=jobs, trials=trials, median_s=median_s, stalls=0.002 if median_s > 1e-3 else 0.0))
        for seed in range(15)
    ]
    # Of 150 runs in all: an alarm in 5 % of them is missed once in two thousand times.
    assert alarms == [set()] * 15


@pytest.mark.slow
def test_a_clean_run_with_a_very_heavy_tail_raises_no_alarm() -> None:
    # Some queries take a hundred times the median, and stalls come by themselves: trial means differ by chance.
    alarms = [found(simulated(seed, spread=1.8, noise=0.3, stalls=0.01)) for seed in range(30)]
    assert alarms == [set()] * 30


@pytest.mark.slow
def test_changing_machine_speed_is_not_reported_as_a_cold_start() -> None:
    # Each trial is 10 % slower or faster throughout, at random; that is neither a slope nor, yet, a drift.
    for seed in range(20):
        moods = np.random.default_rng(1000 + seed).uniform(0.95, 1.05, 5)
        assert found(simulated(seed, by_trial=moods)) == set()


@pytest.mark.parametrize(("jobs", "trials"), [(5, 1), (1, 1)])
@pytest.mark.parametrize("seed", range(5))
def test_start_that_gets_faster_over_many_queries_is_detected(jobs: int, trials: int, seed: int) -> None:
    # Ten times slower at first, falling to nothing over 100 of 200 queries.
    slope = np.exp(np.log(10) * (1 - np.arange(100) / 100))
    start = sample_checks.start(simulated(seed, jobs=jobs, trials=trials, shape=slope))
    assert start is not None
    assert start.ratio > 2


def test_mild_cold_start_is_detected_although_trials_differ() -> None:
    moods = np.array([0.3, 3.0, 0.5, 2.0, 1.0])
    facts = simulated(2, noise=0.02, by_trial=moods, shape=np.full(20, 1.4), stalls=0)
    start = sample_checks.start(facts)
    assert start is not None
    assert start.ratio == pytest.approx(1.4, abs=0.03)


def test_start_slower_by_microseconds_is_ignored() -> None:
    assert sample_checks.start(simulated(1, median_s=1e-6, stalls=0, shape=np.full(40, 3.0))) is None


@pytest.mark.parametrize(("jobs", "trials"), [(5, 1), (1, 5)])
def test_drift_between_trials_is_detected(jobs: int, trials: int) -> None:
    growing = np.array([1.0, 1.1, 1.2, 1.3, 1.4])
    facts = sample_checks.inspect(simulated(3, jobs=jobs, trials=trials, by_trial=growing, stalls=0), {})
    assert facts.drift is not None
    assert facts.drift.ratio == pytest.approx(1.4, rel=0.05)
    assert facts.drift.slow_s / facts.drift.fast_s == pytest.approx(facts.drift.ratio)
    assert not facts.drift.cold


def test_drift_below_the_limit_is_steady() -> None:
    spread = np.array([1.0, sample_checks.MAX_TRIAL_RATIO - 0.05, 1.1, 1.0, 1.1])
    assert sample_checks.inspect(simulated(3, by_trial=spread, stalls=0), {}).drift is None


def test_single_stall_is_not_reported_as_drift() -> None:
    latency = np.full((5, 200), 0.001)
    latency[2, 7] = 1.0  # the trial's mean is six times the others'
    assert (
        sample_checks.inspect(
            sample_records.timed(*(sample_records.samples(latency[[t]], first_trial=t) for t in range(5))), {}
        ).drift
        is None
    )


def test_slowest_first_trial_is_reported_as_cold() -> None:
    cold = sample_checks.inspect(simulated(4, jobs=1, trials=5, by_trial=np.array([2.0, 1, 1, 1, 1]), stalls=0), {})
    assert cold.drift is not None
    assert cold.drift.cold
    assert cold.trial_means_s[0] == max(cold.trial_means_s)
    fresh = sample_checks.inspect(simulated(4, by_trial=np.array([2.0, 1, 1, 1, 1]), stalls=0), {})
    assert fresh.drift is not None
    assert not fresh.drift.cold


@pytest.mark.parametrize(("jobs", "trials"), [(5, 1), (1, 3)])
def test_result_cache_is_detected(jobs: int, trials: int) -> None:
    repeat = sample_checks.inspect(simulated(5, jobs=jobs, trials=trials, cache=0.02), {}).repeat
    assert repeat is not None
    assert repeat.ratio == pytest.approx(0.02, rel=1e-3)
    assert 5 * jobs <= repeat.queries <= 20 * jobs


def test_cold_start_is_not_reported_as_a_result_cache() -> None:
    slope = np.exp(np.log(10) * (1 - np.arange(120) / 120))
    for seed in range(10):
        latency = 0.002 * np.random.default_rng(seed).lognormal(0.0, 0.3, 200)
        cold = latency.copy()
        order = np.random.default_rng(seed).permutation(200)
        cold[order[:120]] *= slope
        repeats = [(query, float(latency[query])) for query in range(0, 200, 10)]
        timings = sample_records.timed(sample_records.samples(cold[None, :], seed=seed, repeats=repeats))
        assert sample_checks.repeat(timings) is None
        assert sample_checks.start(timings) is not None


@pytest.mark.parametrize("seed", range(20))
def test_repeats_of_a_system_that_gets_faster_are_told_from_a_cache(seed: int) -> None:
    falling = np.linspace(10, 2, 200)
    faster = sample_checks.repeat(simulated(seed, jobs=1, trials=1, spread=0.3, stalls=0, shape=falling, cache=0.2))
    cached = sample_checks.repeat(simulated(seed, jobs=1, trials=1, spread=0.3, stalls=0.002, cache=0.01))
    assert faster is not None and faster.falling
    assert cached is not None and not cached.falling


@pytest.mark.parametrize("busy", [(0, 0.25), (0, 0.5), (0, 0.75), (0.25, 0.75), (0.5, 1)])
def test_load_in_a_part_of_the_trial_does_not_hide_a_cache(busy: tuple[float, float]) -> None:
    """A busy machine makes queries of some time 60 % slower."""
    begin, end = busy
    shape = np.where((np.arange(200) >= 200 * begin) & (np.arange(200) < 200 * end), 1.6, 1.0)
    for seed in range(20):
        cached = sample_checks.repeat(simulated(seed, jobs=1, trials=1, spread=0.1, shape=shape, cache=0.01))
        assert cached is not None and not cached.falling, seed


def test_full_result_cache_is_detected_although_later_trials_are_fast() -> None:
    latency = np.vstack([np.full(100, 0.005), np.full((4, 100), 0.0001)])
    table = sample_records.samples(latency, repeats=[(query, 0.0001) for query in range(20)])
    facts = sample_checks.inspect(sample_records.timed(table), {})
    assert facts.repeat is not None
    assert facts.repeat.first_s == pytest.approx(0.005)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 3, 5])
def test_cache_that_halves_the_latency_is_detected(jobs: int) -> None:
    found = [
        sample_checks.inspect(simulated(seed, jobs=jobs, cache=0.56, cache_noise=0.1, stalls=0), {}).repeat
        for seed in range(50)
    ]
    assert sum(each is None for each in found) <= 2
    assert [each.ratio for each in found if each] == pytest.approx([0.56] * sum(map(bool, found)), abs=0.09)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("median_s", "cache", "scatter"),
    [(20e-6, 0.1, 0.1), (150e-6, 0.6, 0.1), (0.005, 0.8, 0.2), (0.005, 1.0, 0.5), (0.3e-3, 0.75, 0.2)],
)
def test_warm_processor_caches_are_not_reported_as_a_result_cache(
    median_s: float, cache: float, scatter: float
) -> None:
    """Microseconds saved say nothing, nor do a few tenths of a query; scatter is a busy machine's."""
    for seed in range(50):
        timings = simulated(seed, median_s=median_s, spread=0.2, stalls=0, cache=cache, cache_noise=scatter)
        assert sample_checks.inspect(timings, {}).repeat is None


def test_slow_moment_of_the_machine_is_not_reported_as_a_result_cache() -> None:
    """Three of five queries were disturbed in the first trial; the repeats came when all was quiet."""
    latency = 0.005 * np.resize([8.0, 8.0, 8.0, 1.0, 1.0], 200)
    table = sample_records.samples(latency[None, :], repeats=[(query, 0.005) for query in range(0, 200, 9)])
    assert sample_checks.inspect(sample_records.timed(table), {}).repeat is None


def test_time_outside_all_latencies_is_detected() -> None:
    timings = simulated(6, jobs=2, stalls=0)
    mean = float(timings.latency_s.mean())
    (found,) = sample_checks.inspect(timings, phases(timings, between_s=2 * mean)).doubts
    text = f"{2e3 * mean:.3g} ms a query passed outside the reported latencies, 67% of the trials"
    assert (found.cause, found.text, found.validity) == (Cause.UNACCOUNTED_TIME, text, Validity.NOISY)
    assert sample_checks.between(timings, phases(timings, between_s=0.5 * mean)) is None
    # A system of a microsecond spends nearly all time in the harness; that is little.
    fast = simulated(6, median_s=1e-6, stalls=0)
    assert sample_checks.between(fast, phases(fast, between_s=1e-3)) is None
    assert sample_checks.between(timings, {}) is None


def test_other_scenarios_are_not_judged_by_single_queries() -> None:
    growing = simulated(3, by_trial=np.array([1.0, 1.1, 1.2, 1.3, 1.4]), cache=0.02, stalls=0)
    assert found(growing, scenario="offline") == {"drift"}
    assert sample_checks.inspect(growing, {}, "server") == SampleFacts(200)


def test_empty_samples_raise_no_finding() -> None:
    assert sample_checks.inspect(sample_records.timed(sample_records.samples(np.zeros((0, 5)))), {}) == SampleFacts(0)


def few_slow(seed: int, slow: int, held: float, trials: int = 3) -> Timings:
    """Trials of 300 queries in which a few samples, others in each trial, hold a share of the time."""
    rng = np.random.default_rng(seed)
    grid = rng.lognormal(np.log(4e-4), 0.3, 300) * rng.lognormal(0, 0.1, (trials, 300))
    for trial in grid:
        places, spread = rng.choice(300, slow, replace=False), rng.lognormal(0, 0.35, slow)
        trial[places] = spread / spread.sum() * np.delete(trial, places).sum() * held / (1 - held)
    return by_trials(grid)


@pytest.mark.slow
@pytest.mark.parametrize(("slow", "held"), [(37, 0.6), (45, 0.6), (6, 0.68)])
def test_few_slow_samples_that_dominate_the_mean_are_detected(slow: int, held: float) -> None:
    for seed in range(20):
        found = sample_checks.carried(few_slow(seed, slow, held))
        told = re.match(
            r"(\d+) of 900 samples hold (\d+)% of the time, and their queries are fast", found.text if found else ""
        )
        assert told is not None and int(told[1]) <= 900 / 8 and 20 <= int(told[2]) <= 100 * held


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "within"), [(1.0, 0.1), (1.0, 0.3), (0.0, 0.5)])
def test_lognormal_latencies_have_no_few_slow_samples(sigma: float, within: float) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        grid = 1e-3 * rng.lognormal(0, sigma, 300) * rng.lognormal(0, within, (3, 300))
        timings = by_trials(grid)
        assert sample_checks.carried(timings) is None and sample_checks.tail(timings) is None
        one = sample_records.timed(sample_records.samples(grid[[0]], seed=0))
        assert sample_checks.carried(one) is None and sample_checks.tail(one) is None


def test_slow_queries_are_reported_as_a_tail_and_not_as_slow_samples() -> None:
    rng = np.random.default_rng(1)
    level = 1e-3 * rng.lognormal(0, 0.3, 300)
    level[rng.choice(300, 15, replace=False)] *= 40
    grid = level * rng.lognormal(0, 0.05, (3, 300))
    timings = by_trials(grid)
    assert sample_checks.carried(timings) is None
    (found,) = sample_checks.inspect(timings, {}).doubts
    told = re.match(r"(\d+) of 300 queries hold half of the time, in each of 3 trials: the mean depends", found.text)
    assert told is not None and int(told[1]) <= 15 and found.validity is Validity.CLEAN
    assert found.text.endswith(f"take p50 instead, or {MORE_QUERIES}")
    once = sample_checks.tail(sample_records.timed(sample_records.samples(grid[[0]], seed=0)))
    assert once is not None and "in the only trial, which cannot tell whether they always do" in once.text


def test_slow_trial_is_reported_as_drift_and_not_as_slow_samples() -> None:
    facts = sample_checks.inspect(simulated(3, by_trial=np.array([1.0, 1.0, 3.0, 1.0, 1.0]), stalls=0), {})
    assert facts.drift is not None and facts.doubts == ()


def test_interrupt_of_a_few_microseconds_does_not_dominate_the_mean() -> None:
    grid = np.full((3, 300), 3e-7)
    grid[1, 7] = 2e-3
    timings = by_trials(grid)
    assert sample_checks.carried(timings) is None
    slower = by_trials(100 * grid)
    assert sample_checks.carried(slower) is not None
