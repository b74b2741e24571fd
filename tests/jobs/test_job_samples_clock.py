"""Times that a job claims are checked against the host's clock and kernel counters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.driver.records import JobSpec, Query, ScenarioParams
from harness.jobs.job_samples import Sample, clock_contradiction
from harness.launch.base import TrialTimes
from harness.launch.monitor.traces import CounterReading
from harness.results.isolation import CONTAINER
from tests.support import job_fixtures

MS = 1_000_000
QUERIES = 100
SPEC = job_fixtures.spec(
    envelope=replace(job_fixtures.ASKED, cpus=1),
    enforced=CONTAINER.enforced,
    pause=True,
    trials=1,
    k=10,
    sample=tuple(Query(f"q{n}", "x") for n in range(QUERIES)),
)


class Trial:
    """One trial of 100 queries, seen by an idle host; 50 microseconds of the driver's own work each."""

    def __init__(self, latency_ms: float, spec: JobSpec = SPEC, **extra: Any) -> None:
        self.spec = spec
        latency_ns = round(latency_ms * MS)
        self.samples = [Sample(0, f"q{n}", latency_ns, {}, b"", [], **extra) for n in range(QUERIES)]
        self.lasts(latency_ms + 0.05)

    def lasts(self, query_ms: float, claimed_ms: float | None = None, waited_ms: float = 0) -> None:
        """Let each query take so long, the driver count so much of it, and the job wait so long for a CPU in all."""
        span_ns, go_ns = round(QUERIES * query_ms * MS), 10**9
        claimed_ns = sum(sample.latency_ns for sample in self.samples) if claimed_ms is None else round(claimed_ms * MS)
        self.handed = TrialTimes("trial-0", go_ns, go_ns + span_ns + 15 * MS, span_ns + 5 * MS, span_ns, claimed_ns)
        waited_ns = round(waited_ms * MS)
        first = CounterReading(go_ns - MS, cpu_ns=7, steal_ns=0, wait_ns=7, throttled_ns=0, major_faults=0)
        used = replace(first, cpu_ns=7 + span_ns - waited_ns, wait_ns=7 + waited_ns)
        self.readings = (replace(first, t_ns=0, cpu_ns=0), first, replace(used, t_ns=go_ns + span_ns + 16 * MS))

    def contradiction(self, **change: Any) -> str | None:
        handed = () if change.get("handed", ...) is None else (replace(self.handed, **change),)
        return clock_contradiction(self.spec, handed, self.samples, self.readings)


@pytest.mark.parametrize("latency_ms", [0.001, 0.4, 5, 200])
def test_honest_trial_is_accepted(latency_ms: float) -> None:
    assert Trial(latency_ms).contradiction() is None


@pytest.mark.parametrize("latency_ms", [1.5, 5, 200])
def test_latencies_of_a_tenth_of_the_time_are_refused(latency_ms: float) -> None:
    """Only the host's clock exposes an image that forges samples and driver messages."""
    trial = Trial(latency_ms / 10)
    trial.lasts(latency_ms + 0.05)
    message = trial.contradiction()
    span_s, claimed_s = QUERIES * (latency_ms + 0.05) / 1e3, QUERIES * latency_ms / 1e4
    assert message == (
        f"trial 0: the image claims {claimed_s:.3f} of {span_s:.3f} s; checking answers explains 0.035 s at most"
    )


def test_samples_the_driver_did_not_count_are_refused() -> None:
    trial = Trial(5)
    trial.samples = [replace(sample, latency_ns=1000) for sample in trial.samples]
    assert trial.contradiction() == (
        "trial 0: its samples add up to 0.000100 s, the driver counted 0.500000 s as they came"
    )


@pytest.mark.parametrize("slower", [10, 100])
def test_slow_clock_is_refused(slower: int) -> None:
    trial = Trial(0.4 * 10 / slower)
    trial.lasts(4.05)
    assert "clock says that it lasted 0.0" in (trial.contradiction(span_ns=trial.handed.span_ns // slower) or "")


def test_fast_clock_is_refused() -> None:
    trial = Trial(5)
    assert "clock says that it lasted 1.010 s, the host's 0.510 to 0.520 s" in (
        trial.contradiction(span_ns=2 * trial.handed.span_ns) or ""
    )


def test_latencies_longer_than_the_trial_are_refused() -> None:
    trial = Trial(50)
    trial.lasts(5)
    assert trial.contradiction() == "trial 0: the image claims 5.000 s of work in the 0.500 s that it lasted"


def test_trial_the_host_did_not_observe_is_refused() -> None:
    assert Trial(5).contradiction(handed=None) == "trial 0: the host did not see it begin and end"


def test_job_with_all_its_queries_from_the_start_has_no_marks() -> None:
    trial = Trial(5, replace(SPEC, pause=False))
    assert trial.contradiction(handed=None) is None


def test_kernel_counters_explain_a_gap() -> None:
    """Accept gaps caused by CPU contention, steal time, a quota or memory pressure."""
    trial = Trial(0.4)
    trial.lasts(4, waited_ms=360)
    assert trial.contradiction() is None
    first, before, after = trial.readings
    for counter in ("steal_ns", "throttled_ns", "wait_ns"):
        counted = {"wait_ns": 7, counter: 360 * MS}
        trial.readings = (first, before, replace(after, **counted))
        assert trial.contradiction() is None, counter
    trial.readings = (first, before, replace(after, wait_ns=7, major_faults=36))
    assert trial.contradiction() is None
    trial.readings = (first, before, replace(after, wait_ns=7))
    assert trial.contradiction() is not None


def test_waiting_takes_no_processor_time() -> None:
    """An adapter can have threads that wait for each other; they cannot have used the time that they waited."""
    trial = Trial(0.4)
    trial.lasts(4, waited_ms=360)
    first, before, after = trial.readings
    trial.readings = (first, before, replace(after, cpu_ns=390 * MS))
    assert trial.contradiction() == "trial 0: the image claims 0.040 s and used 0.390 s of each of its CPUs"


def test_slow_disk_explains_a_gap() -> None:
    trial = Trial(0.4)
    trial.lasts(4)
    _, before, after = trial.readings
    trial.readings = (before, replace(after, cpu_ns=60 * MS))
    assert trial.contradiction() is not None
    assert trial.contradiction(written_ns=360 * MS) is None


def test_gap_is_accepted_if_the_host_polls_too_rarely() -> None:
    trial = Trial(5)
    assert trial.contradiction(least_ns=0, end_ns=trial.handed.end_ns + 10**10) is None


def test_only_gaps_beyond_a_busy_machine_are_refused_without_counters() -> None:
    trial = Trial(5)
    trial.lasts(10)
    trial.readings = ()
    assert trial.contradiction() is None
    trial.lasts(100)
    trial.readings = ()
    assert trial.contradiction() is not None
    trial.lasts(10)
    trial.readings = tuple(replace(reading, wait_ns=None) for reading in trial.readings)
    assert trial.contradiction() is not None, "time on a CPU was no waiting"


def test_long_lists_take_the_driver_longer() -> None:
    trial = Trial(0.4, replace(SPEC, k=1000))
    trial.lasts(4)
    assert trial.contradiction() is None


def test_a_batch_counts_once() -> None:
    trial = Trial(500, replace(SPEC, scenario="offline", scenario_params=ScenarioParams(batch_size=100)), batch=0)
    trial.lasts(5, claimed_ms=500)
    assert trial.contradiction() is None


def test_open_loop_uses_the_last_answer_and_not_the_busy_time() -> None:
    """Ten queries a second, a millisecond each; threads behind it may use the CPU as they like."""
    trial = Trial(1, replace(SPEC, scenario="server"))
    trial.samples = [replace(sample, scheduled_ns=n * 100 * MS) for n, sample in enumerate(trial.samples)]
    trial.lasts(100, claimed_ms=100)
    assert trial.contradiction() is None
    trial.lasts(200, claimed_ms=100)
    assert trial.contradiction() is not None


def test_the_pause_of_a_limited_rate_is_explained_and_nothing_beyond_it() -> None:
    trial = Trial(5, replace(SPEC, max_qps=10.0))
    for query_ms, wrong in ((100.05, None), (120, "the image claims 0.500 of 12.000 s")):
        trial.lasts(query_ms)
        # It sleeps meanwhile: it neither works nor waits for a CPU.
        trial.readings = tuple(replace(reading, cpu_ns=7, wait_ns=7) for reading in trial.readings)
        found = trial.contradiction()
        assert found is None if wrong is None else wrong in str(found)
