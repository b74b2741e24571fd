"""Queries per second, by hand and against simulated truth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats

from harness import stats
from harness.analysis import cell_summary
from harness.records import Probe
from harness.results.schema import Result
from tests.support import sample_records


def batched(*durations: float, first_trial: int = 0, size: int = 10) -> pa.Table:
    """One trial: each batch's duration stands at each of its queries."""
    latency = np.repeat(durations, size)[None, :]
    return sample_records.samples(
        latency, first_trial=first_trial, batch=np.repeat(range(len(durations)), size).tolist()
    )


def test_offline_counts_each_batch_once() -> None:
    figure = cell_summary.offline_throughput(sample_records.timed(batched(1.0, 3.0)))
    assert figure.value == pytest.approx(20 / 4.0)
    assert (figure.low, figure.high) == (None, None)
    assert figure.reason == "an interval needs 2 trials or 11 batches"


def test_offline_interval_over_trials_is_students_on_their_durations() -> None:
    jobs = [batched(1.0 + 0.1 * number, 3.0, first_trial=number) for number in range(5)]
    figure = cell_summary.offline_throughput(sample_records.timed(*jobs))
    low, high = scipy.stats.t.interval(0.95, 4, loc=4.2, scale=np.std([4.0, 4.1, 4.2, 4.3, 4.4], ddof=1) / 5**0.5)
    assert figure.value == pytest.approx(20 / 4.2)
    assert (figure.low, figure.high) == pytest.approx((20 / high, 20 / low))
    assert figure.reason == "interval for these queries, over 5 jobs"


def test_offline_interval_over_the_batches_of_one_trial() -> None:
    durations = np.random.default_rng(1).lognormal(0.0, 0.3, 40)
    figure = cell_summary.offline_throughput(sample_records.timed(batched(*durations)))
    assert figure.low is not None and figure.value is not None and figure.high is not None
    assert figure.low < figure.value < figure.high
    mean = stats.mean(np.round(durations * 1e9) / 1e9)
    assert mean.high is not None
    assert figure.low == pytest.approx(10 / mean.high)
    assert "40 batches of one trial" in str(figure.reason)


def test_offline_trials_of_one_job_with_equal_batch_numbers_are_kept_apart() -> None:
    latency = np.array([np.repeat([1.0, 2.0], 10), np.repeat([1.5, 2.5], 10)])
    table = sample_records.samples(latency, batch=np.tile(np.repeat([0, 1], 10), 2).tolist())
    figure = cell_summary.offline_throughput(sample_records.timed(table))
    assert figure.value == pytest.approx(40 / 7.0)
    assert "over 2 trials" in str(figure.reason)


def test_offline_without_batches_has_no_throughput() -> None:
    assert (
        cell_summary.offline_throughput(sample_records.timed(sample_records.samples(np.ones((1, 20))))).reason
        == "no batches were timed"
    )


def served(*rates: float | None, **changes: Any) -> list[Result]:
    return [
        sample_records.result(job=number, jobs=len(rates), trials=1, rate_qps=rate, **changes)
        for number, rate in enumerate(rates)
    ]


@pytest.mark.parametrize(
    ("rates", "value", "low", "high", "reason"),
    [
        ((100.0, 120.0, 90.0), 100.0, 90.0, 120.0, "lowest and highest of 3 jobs"),
        ((100.0, 120.0), 110.0, 100.0, 120.0, "lowest and highest of 2 jobs"),
        ((100.0,), 100.0, None, None, "one job: no interval"),
        ((None,), None, None, None, "in 1 of 1 jobs no rate kept the latency target and kept it again"),
        ((None, 100.0, 120.0), 100.0, None, 120.0, "in 1 of 3 jobs no rate kept"),
        ((None, 100.0), None, None, None, "in 1 of 2 jobs no rate kept"),
        ((None, None, 120.0), None, None, None, "in 2 of 3 jobs no rate kept"),
        ((None, 100.0, 110.0, 120.0), 100.0, None, 120.0, "in 1 of 4 jobs no rate kept"),
    ],
)
def test_server_rate_is_the_median_and_a_job_without_counts_as_the_lowest(
    rates: tuple[float | None, ...], value: float | None, low: float | None, high: float | None, reason: str
) -> None:
    figure = cell_summary.server_throughput(served(*rates))
    assert (figure.value, figure.low, figure.high) == (value, low, high)
    assert reason in str(figure.reason)


def test_server_rate_says_whose_latencies_stand_beside_it() -> None:
    own = "latencies are of each job's own believed rate"
    assert own in str(cell_summary.server_throughput(served(100.0, 120.0)).reason)
    assert own not in str(cell_summary.server_throughput(served(100.0, 100.0)).reason)
    assert own not in str(cell_summary.server_throughput(served(100.0, None, None)).reason)


def test_server_rate_counts_the_checks_that_failed_before_it_was_believed() -> None:
    tried = (Probe(0, 100.0, 10, 0.01, 9, False, False), Probe(1, 50.0, 10, 0.01, 0, True, False))
    failed, passed = Probe(2, 50.0, 10, 0.01, 9, False, True), Probe(3, 45.0, 10, 0.01, 0, True, True)
    assert "failed" not in str(cell_summary.server_throughput(served(45.0, probes=(*tried, passed))).reason)
    assert cell_summary.server_throughput(served(45.0, probes=(*tried, failed, passed))).reason == (
        "one job: no interval; 1 check failed before"
    )
    assert "2 checks failed before" in str(
        cell_summary.server_throughput(served(45.0, 45.0, probes=(*tried, failed, passed))).reason
    )


def test_only_the_probe_that_confirmed_the_believed_rate_is_described() -> None:
    def probe(trial: int, rate: float, *, passed: bool = True, check: bool = False) -> Probe:
        return Probe(trial, rate, 10, 0.01, 0, passed, check)

    probes = (
        probe(0, 50.0),
        probe(1, 100.0),
        probe(2, 200.0, passed=False),
        probe(3, 150.0),
        probe(4, 150.0, passed=False, check=True),
        probe(5, 100.0, check=True),
    )
    latency = np.arange(6.0)[:, None] + np.ones((6, 10))
    results = served(100.0, 100.0, probes=probes)
    results[1] = replace(results[1], rate_qps=None)
    timings = sample_records.timed(sample_records.samples(latency), sample_records.samples(latency))
    found = cell_summary.confirming_samples(results, timings)
    assert found.trials == ((0, 5),)
    assert set(found.latency_s.tolist()) == {6.0}
    unchecked = served(150.0, probes=probes)
    assert (
        cell_summary.confirming_samples(unchecked, sample_records.timed(sample_records.samples(latency))).trials == ()
    )
