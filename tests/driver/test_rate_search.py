"""Tests of arrivals, LoadGen's allowance and the rate search, on simulated queues."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable

import pytest
from scipy.stats import binom, kstest

from harness.driver.rate_search import (
    ServedQuery,
    Unreachable,
    arrivals_ns,
    highest_rate,
    judge_probe,
    late_allowed,
    out_of_reach,
)
from harness.driver.records import MAX_PROBES, Probe, ScenarioParams
from harness.estimate import MIN_QUERIES

P95 = ScenarioParams(latency_target_s=0.05, latency_percentile=95.0)


def test_arrivals_are_poisson_and_seeded() -> None:
    times = arrivals_ns(7, 0, 4000, 250.0)
    gaps = [(later - earlier) / 1e9 for earlier, later in itertools.pairwise([0, *times])]
    assert statistics.fmean(gaps) == pytest.approx(1 / 250, rel=0.05)
    assert kstest(gaps, "expon", args=(0, 1 / 250)).pvalue > 0.01
    assert times == sorted(times) == arrivals_ns(7, 0, 4000, 250.0)
    assert times != arrivals_ns(7, 1, 4000, 250.0) and times != arrivals_ns(8, 0, 4000, 250.0)


def test_another_rate_is_the_same_arrivals_on_another_scale() -> None:
    slow, fast = arrivals_ns(1, 2, 50, 10.0), arrivals_ns(1, 2, 50, 100.0)
    assert all(later == pytest.approx(10 * earlier, abs=10) for earlier, later in zip(fast, slow, strict=True))


@pytest.mark.parametrize("percentile", [50, 90, 95, 99])
def test_late_allowed_is_loadgens(percentile: int) -> None:
    floor = MIN_QUERIES[f"p{percentile}"]
    assert late_allowed(floor - 1, percentile) is None
    assert late_allowed(floor, percentile) == 1
    for queries in (floor, floor + 7, 1000, 5000):
        allowed = late_allowed(queries, percentile)
        share = 1 - percentile / 100
        assert binom.cdf(allowed, queries, share) <= 0.01 < binom.cdf(allowed + 1, queries, share)


@pytest.mark.parametrize("percentile", [0.0, 100.0])
def test_late_allowed_is_none_without_a_percentile(percentile: float) -> None:
    assert late_allowed(1000, percentile) is None


def queue(service_s: Callable[[int], float], arrivals: list[int], streams: int = 1) -> list[ServedQuery]:
    """Simulate a first-come, first-served queue with ``streams`` servers."""
    free, served = [0] * streams, []
    for number, scheduled in enumerate(arrivals):
        stream = free.index(min(free))
        start = max(scheduled, free[stream])
        end = start + round(1e9 * service_s(number))
        served.append(ServedQuery(scheduled, free[stream], start, end))
        free[stream] = end
    return served


class Bench:
    """A simulated system that records its probes."""

    def __init__(
        self, service_s: Callable[[int], float], target: ScenarioParams = P95, *, queries: int = 1000, streams: int = 1
    ) -> None:
        self.service_s, self.target, self.queries, self.streams = service_s, target, queries, streams
        self.probes: list[Probe] = []

    def serve(self, arrivals: list[int]) -> list[ServedQuery]:
        return queue(self.service_s, arrivals, self.streams)

    def __call__(self, rate_qps: float, check: bool) -> bool:
        trial = len(self.probes)
        served = self.serve(arrivals_ns(2023, trial, self.queries, rate_qps))
        self.probes.append(judge_probe(served, trial, rate_qps, self.target, streams=self.streams, check=check))
        if out_of_reach(served, self.target):
            raise Unreachable
        return self.probes[-1].passed


def test_the_highest_rate_of_a_queue_is_found() -> None:
    """M/D/1 with 10 ms of service: 95 % within 50 ms holds up to a load of some 0.8 (Erlang's formula)."""
    bench = Bench(lambda _: 0.010)
    rate = highest_rate(bench, 100.0, MAX_PROBES)
    assert rate is not None and 65 <= rate <= 85
    assert len(bench.probes) <= 12, "a probe costs minutes"
    assert bench.probes[-1].check and bench.probes[-1].passed and bench.probes[-1].rate_qps == rate
    assert min(probe.rate_qps for probe in bench.probes if not probe.passed) > rate


def test_two_streams_double_the_rate() -> None:
    one = highest_rate(Bench(lambda _: 0.010), 100.0, MAX_PROBES)
    two = highest_rate(Bench(lambda _: 0.010, streams=2), 200.0, MAX_PROBES)
    assert one and two and 1.8 < two / one < 2.4


@pytest.mark.slow
def test_search_recovers_from_a_wrong_first_rate() -> None:
    right = highest_rate(Bench(lambda _: 0.010), 100.0, MAX_PROBES)
    for guess in (20.0, 800.0):
        assert highest_rate(Bench(lambda _: 0.010), guess, MAX_PROBES) == pytest.approx(
            right, rel=0.25
        )  # ten seconds of traffic tell no more


def test_rate_that_passed_by_luck_is_rejected() -> None:
    tried: list[tuple[float, bool]] = []

    def lucky(rate_qps: float, check: bool) -> bool:
        tried.append((rate_qps, check))
        return rate_qps < (60 if check else 80)

    rate = highest_rate(lucky, 100.0, MAX_PROBES)
    assert rate is not None and 54 <= rate < 60
    checks = [rate for rate, check in tried if check]
    assert all(later == pytest.approx(0.9 * earlier) for earlier, later in itertools.pairwise(checks))


@pytest.mark.parametrize("answer", [True, False])
def test_search_ends_for_any_answers(answer: bool) -> None:
    calls = []

    def probe(rate_qps: float, check: bool) -> bool:
        calls.append(rate_qps)
        return answer

    rate = highest_rate(probe, 100.0, MAX_PROBES)
    assert len(calls) <= MAX_PROBES
    assert (rate is None) is (answer is False)
    assert min(calls) >= 100 / 64, "hours at a crawl would tell nothing"


def test_checks_that_always_fail_leave_no_rate() -> None:
    calls = []

    def probe(rate_qps: float, check: bool) -> bool:
        calls.append(check)
        return not check and rate_qps < 80

    assert highest_rate(probe, 100.0, MAX_PROBES) is None and len(calls) == MAX_PROBES


def test_a_service_beyond_the_target_ends_the_search_at_once() -> None:
    bench = Bench(lambda _: 0.060)
    assert highest_rate(bench, 1 / 0.060, MAX_PROBES) is None and len(bench.probes) == 1


def shared(service_s: float, arrivals: list[int], streams: int) -> list[ServedQuery]:
    """Streams that share one engine: each query takes its time for every one that is served when it starts."""
    free, served = [0] * streams, []
    for scheduled in arrivals:
        stream = free.index(min(free))
        start = max(scheduled, free[stream])
        beside = sum(end > start for end in free)
        end = start + round(1e9 * service_s * (1 + beside))
        served.append(ServedQuery(scheduled, free[stream], start, end))
        free[stream] = end
    return served


class SharedBench(Bench):
    """A system whose streams together are no faster than one."""

    def serve(self, arrivals: list[int]) -> list[ServedQuery]:
        return shared(self.service_s(0), arrivals, self.streams)


@pytest.mark.slow
@pytest.mark.parametrize("streams", [2, 8, 64])
def test_target_is_reachable_if_streams_slow_each_other_down(streams: int) -> None:
    """At the first rates every query misses the target; at a low rate none does."""
    bench = SharedBench(lambda _: 0.010, streams=streams)
    found = highest_rate(bench, streams * 100.0, MAX_PROBES, streams)
    assert found is not None and 10 < found < 100
    assert not bench.probes[0].passed or streams == 2


def test_slow_service_misses_the_target_with_any_number_of_streams() -> None:
    bench = Bench(lambda _: 0.060, streams=8)
    assert highest_rate(bench, 8 / 0.060, MAX_PROBES, 8) is None
    assert len(bench.probes) < 8, "seen once queries are served alone"


def test_disturbed_probe_does_not_reject_a_passed_rate() -> None:
    calls: list[float] = []

    def disturbed(rate_qps: float, check: bool) -> bool:
        calls.append(rate_qps)
        if len(calls) == 2:
            raise Unreachable
        return rate_qps < 70

    found = highest_rate(disturbed, 100.0, MAX_PROBES)
    assert found is not None and 50 <= found < 75


def test_too_few_queries_prove_nothing() -> None:
    bench = Bench(lambda _: 0.001, queries=129)
    assert highest_rate(bench, 1000.0, MAX_PROBES) is None and len(bench.probes) == 1
    assert highest_rate(Bench(lambda _: 0.001, queries=130), 1000.0, MAX_PROBES) is not None


def test_a_sample_shorter_than_the_target_does_not_pass_any_rate() -> None:
    """Two hundred queries of 0.1 ms finish in 20 ms at any rate."""
    bench = Bench(lambda _: 0.0001, queries=200)
    rate = highest_rate(bench, 10_000.0, MAX_PROBES)
    assert rate is not None and rate < 12_000
    assert any(probe.late == 0 and not probe.passed for probe in bench.probes)


def test_probe_has_its_figures() -> None:
    chance = random.Random(1)
    served = queue(lambda _: chance.uniform(0.005, 0.015), arrivals_ns(1, 0, 200, 60.0))
    probe = judge_probe(served, 4, 60.0, P95, streams=1, check=True)
    latencies = sorted(query.end_ns - query.scheduled_ns for query in served)
    assert probe.latency_s == latencies[189] / 1e9, "nearest rank: 190 of 200"
    assert probe.late == sum(latency > 50_000_000 for latency in latencies)
    assert (probe.trial, probe.rate_qps, probe.queries, probe.check) == (4, 60.0, 200, True)
    assert math.isfinite(probe.latency_s)


def test_no_rate_above_the_limit_is_tried_and_one_that_passes_there_ends_the_search() -> None:
    tried: list[tuple[float, bool]] = []

    def probe(rate_qps: float, check: bool) -> bool:
        tried.append((rate_qps, check))
        return True

    assert highest_rate(probe, 100.0, MAX_PROBES, most_qps=80.0) == 80.0
    assert [rate for rate, _ in tried] == [50.0, 75.0, 80.0, 80.0] and tried[-1][1]
    tried.clear()
    assert highest_rate(probe, 1000.0, MAX_PROBES, most_qps=80.0) == 80.0 and tried == [(80.0, False), (80.0, True)]
    below = highest_rate(lambda rate_qps, _: rate_qps < 60, 100.0, MAX_PROBES, most_qps=80.0)
    assert below is not None and below < 60
