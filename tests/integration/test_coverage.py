"""The printed intervals cover the truth as often as they say, with queries correlated across trials (issue 3)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats

from benchmarks import coverage
from benchmarks.coverage import Population
from harness import stats
from harness.analysis import paired_differences
from harness.estimate import MIN_QUERIES
from harness.evaluation import evaluate

Draw = Callable[[np.random.Generator, int], np.ndarray]
REPEATS, TRIALS = 200, 5
# A query's own level carries nearly all of the spread; asking it again changes little.
BETWEEN, WITHIN = 0.6, 0.05


@pytest.mark.slow
@pytest.mark.parametrize("queries", [300, 2000])
def test_printed_intervals_cover(queries: int) -> None:
    rng = np.random.default_rng(2023 + queries)
    sigma = math.hypot(BETWEEN, WITHIN)
    truth = {name: math.exp(sigma * scipy.stats.norm.ppf(float(name[1:]) / 100)) for name in ("p50", "p95", "p99")}
    truth["mean"] = math.exp(sigma**2 / 2)
    covered = dict.fromkeys(truth, 0)
    bounded = dict.fromkeys(truth.keys() - {"mean"}, 0)
    for _ in range(REPEATS):
        latency = rng.lognormal(0.0, BETWEEN, queries)[:, None] * rng.lognormal(0.0, WITHIN, (queries, TRIALS))
        figures = {name: stats.percentile(latency.ravel(), name, queries) for name in bounded}
        figures["mean"] = stats.latency_mean(latency.mean(axis=1))
        for name, figure in figures.items():
            low, high = figure.low or 0.0, math.inf if figure.high is None else figure.high
            covered[name] += figure.value is not None and low <= truth[name] <= high
            if name in bounded:
                bounded[name] += truth[name] <= (stats.at_most(latency.ravel(), name, queries).value or 0.0)
    shown = [name for name in truth if name == "mean" or queries >= MIN_QUERIES[name]]
    assert len(shown) == (4 if queries == 2000 else 3)
    for name in shown:
        print(f"{queries} queries, {name}: {covered[name] / REPEATS:.1%}", end=" ")
        assert covered[name] / REPEATS >= 0.93, name
        if name in bounded:
            print(f"(at most: {bounded[name] / REPEATS:.1%})", end=" ")
            assert bounded[name] / REPEATS >= 0.975, name


@pytest.mark.slow
@pytest.mark.parametrize("differ", [0.05, 0.2])
def test_combined_interval_covers_other_queries_in_fresh_processes(differ: float) -> None:
    held = coverage.covered_again(REPEATS, 3, 300, 1.0, differ)
    print(held)
    assert all(held[name] >= 0.93 for name in ("mean", "p50", "p95"))
    assert held["over queries"] < (0.8 if differ == 0.2 else 0.96), "the queries alone know nothing of processes"


@pytest.mark.slow
@pytest.mark.parametrize("queries", [11, 30, 50, 300])
@pytest.mark.parametrize("population", coverage.MEASURES, ids=lambda each: each.name)
def test_intervals_of_measures_cover(population: Population, queries: int) -> None:
    assert coverage.covered_measure(np.random.default_rng(queries), population, queries, REPEATS) >= 0.92


@pytest.mark.slow
@pytest.mark.parametrize("queries", [30, 50, 300])
@pytest.mark.parametrize("population", coverage.DIFFERENCES, ids=lambda each: each.name)
def test_intervals_of_differences_cover(population: Population, queries: int) -> None:
    """Mostly equal systems and 30 queries are the hardest: a handful of queries differ."""
    held = coverage.covered_measure(np.random.default_rng(queries), population, queries, 5 * REPEATS)
    assert 0.90 <= held <= 0.98


def test_all_means_use_the_same_interval_method() -> None:
    values = np.random.default_rng(3).choice([-1, -0.5, 0.5, 1, 0], 60)
    of_zero = (values * 0, values)
    worth, times = (
        paired_differences.difference(name, (0.0, 0.1), of_zero).over_queries for name in ("RR@10", "latency")
    )
    assert times == stats.mean(values)
    assert worth.low is None, "a measure's is that of its test"
    few = paired_differences.difference("latency", (0.0, 0.1), (values[:29] * 0, values[:29])).over_queries
    assert few.reason == "an interval needs 30 queries, there are 29"
    by_query = {f"q{n:02}": abs(float(value)) for n, value in enumerate(values)}
    assert evaluate.mean_estimate(by_query) == stats.mean(np.abs(values), floor=0.0, ceiling=1.0)


def test_no_measure_has_a_zero_width_interval() -> None:
    for value in (0.0, 0.25, 0.5, 1.0):
        for others in range(5):
            found = evaluate.mean_estimate({f"q{n:02}": value if n >= others else 0.75 for n in range(30)})
            assert found.value is not None and found.low is not None and found.high is not None
            assert found.high - found.low > 0.05 and found.low <= found.value <= found.high
    counts = evaluate.mean_estimate({f"q{n:02}": 3.0 for n in range(30)})
    assert (counts.low, counts.high, counts.reason) == (None, None, "every query has the same value: no interval")
