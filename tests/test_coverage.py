"""The printed intervals cover the truth as often as they say, with queries correlated across trials (issue 3)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from harness import stats

REPEATS, TRIALS = 200, 5
# A query's own level carries nearly all of the spread; asking it again changes little.
BETWEEN, WITHIN = 0.6, 0.05


@pytest.mark.parametrize("queries", [300, 2000])
def test_printed_intervals_cover(queries: int) -> None:
    rng = np.random.default_rng(2023 + queries)
    sigma = math.hypot(BETWEEN, WITHIN)
    truth = {name: math.exp(sigma * scipy.stats.norm.ppf(float(name[1:]) / 100)) for name in ("p50", "p95", "p99")}
    truth["mean"] = math.exp(sigma**2 / 2)
    covered = dict.fromkeys(truth, 0)
    bounded = dict.fromkeys(truth.keys() - {"mean"}, 0)
    for repeat in range(REPEATS):
        latency = rng.lognormal(0.0, BETWEEN, queries)[:, None] * rng.lognormal(0.0, WITHIN, (queries, TRIALS))
        figures = {name: stats.percentile(latency.ravel(), name, queries) for name in bounded}
        figures["mean"] = stats.bootstrap_mean(latency.mean(axis=1), repeat, resamples=999)
        for name, figure in figures.items():
            low, high = figure.low or 0.0, math.inf if figure.high is None else figure.high
            covered[name] += figure.value is not None and low <= truth[name] <= high
            if name in bounded:
                bounded[name] += truth[name] <= (stats.at_most(latency.ravel(), name, queries).value or 0.0)
    shown = [name for name in truth if name == "mean" or queries >= stats.MIN_QUERIES[name]]
    assert len(shown) == (4 if queries == 2000 else 3)
    for name in shown:
        print(f"{queries} queries, {name}: {covered[name] / REPEATS:.1%}", end=" ")
        assert covered[name] / REPEATS >= 0.93, name
        if name in bounded:
            print(f"(at most: {bounded[name] / REPEATS:.1%})", end=" ")
            assert bounded[name] / REPEATS >= 0.975, name
