"""Failed criteria, and doubtful ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.driver.records import Envelope, Outcome
from harness.errors import JobError
from harness.estimate import Estimate
from harness.experiments.viability.acceptance import Criteria
from harness.experiments.viability.judge import (
    CONTAINERS,
    Observation,
    Reference,
    against_control,
    enough,
    judge,
    reference,
)
from harness.experiments.viability.search import ProbeFinding
from harness.results.reader import StoredJob
from harness.results.schema import Memory
from tests.support import sample_records

RANKED = {"q1": ("d1", "d2"), "q2": ("d3",)}
DEFAULT = Criteria()


def observation(mean_ms: float = 10.0, outcome: Outcome = Outcome.OK, **changes: Any) -> Observation:
    result = sample_records.result(
        outcome, envelope=Envelope("cpu1-mem100m", 1, 100 << 20), memory=Memory(peak_anon_bytes=90 << 20)
    )
    facts = {key: changes.pop(key) for key in list(changes) if key in ("detail", "warmup_done", "memory")}
    job = StoredJob(Path("/results/viable/s/d/single_stream/p/key"), sample_records.nested(result, facts))
    if outcome is not Outcome.OK:
        return Observation(job)
    latency_s = {"mean": mean_ms / 1e3, "p95": 2 * mean_ms / 1e3}
    return replace(Observation(job, latency_s, {"RR@10": 0.5}, RANKED, mean=Estimate(mean_ms / 1e3)), **changes)


@pytest.fixture
def base() -> Reference:
    return reference([observation()] * CONTAINERS)


def test_default_target_is_125_percent_of_the_mean(base: Reference) -> None:
    assert judge(observation(12.4), base, DEFAULT).finding is ProbeFinding.PASS
    slow = judge(observation(12.6), base, DEFAULT)
    assert (slow.finding, slow.causes) == (ProbeFinding.DOUBT, ("latency",))
    assert slow.slack == pytest.approx(1.008) and slow.why == "mean 12.6 ms, target 12.5 ms"
    assert judge(observation(25.1), base, DEFAULT).finding is ProbeFinding.FAIL, "twice the target is no machine's mood"
    assert judge(observation(25.1, disturbed="steal"), base, DEFAULT).finding is ProbeFinding.DOUBT, (
        "of a machine at rest"
    )


def test_requested_targets_replace_the_default(base: Reference) -> None:
    criteria = Criteria({"p95": 0.05})
    assert judge(observation(24.9), base, criteria).finding is ProbeFinding.PASS
    assert judge(observation(25.1), base, criteria).why == "p95 50.2 ms, target 50 ms"


@pytest.mark.parametrize(
    ("probe", "control", "held"),
    [
        (18, 10, ProbeFinding.DOUBT),  # the machine is itself: tried again, and a failure if it stays so
        (18, 18, None),  # the machine is slow
        (60, 18, ProbeFinding.FAIL),  # slow even for that machine
        (30, 10, ProbeFinding.FAIL),
        (34, 18, None),
    ],
)
def test_doubtful_probe_is_compared_with_a_control_of_that_moment(
    base: Reference, probe: float, control: float, held: ProbeFinding | None
) -> None:
    doubtful = judge(observation(probe, disturbed="steal"), base, DEFAULT)
    assert doubtful.finding is ProbeFinding.DOUBT
    judgement = against_control(doubtful, judge(observation(control), base, DEFAULT))
    assert (judgement.finding if judgement else None) is held


def test_rankings_and_measures_fail_at_once_on_any_machine(base: Reference) -> None:
    other = judge(observation(18, disturbed="steal", rankings={"q1": ("d2", "d1"), "q2": ("d3",)}), base, DEFAULT)
    assert (other.finding, other.causes) == (ProbeFinding.FAIL, ("ranking", "latency"))
    assert "1 of 2 queries are ranked otherwise, e.g. q1" in other.why
    lost = judge(observation(rankings={"q1": RANKED["q1"]}), base, DEFAULT)
    assert lost.causes == ("ranking",), "a query without hits that had some"
    poor = judge(observation(measures={"RR@10": 0.2}), base, Criteria(least={"RR@10": 0.3}))
    assert poor.causes == ("measure",) and poor.why == "RR@10 is 0.2, at least 0.3"


@pytest.mark.parametrize(
    ("outcome", "facts", "cause"),
    [
        (Outcome.OOM, {"detail": "killed"}, "oom"),
        (Outcome.CRASH, {"detail": "gone"}, "crash"),
        (Outcome.BAD_OUTPUT, {}, "bad_output"),
        (Outcome.TIMEOUT, {"detail": "load took more than 90 s"}, "load time-out"),
        (Outcome.TIMEOUT, {"detail": "the job took more than 90 s"}, "load time-out"),
        (Outcome.TIMEOUT, {"detail": "the job took more than 90 s", "warmup_done": 3}, "latency"),
        (Outcome.TIMEOUT, {"detail": "a query took more than 60 s"}, "latency"),
    ],
)
def test_failed_outcome_names_its_constraint(
    base: Reference, outcome: Outcome, facts: dict[str, Any], cause: str
) -> None:
    judgement = judge(observation(outcome=outcome, **facts), base, DEFAULT)
    assert (judgement.finding, judgement.causes) == (ProbeFinding.FAIL, (cause,))


def test_the_reference_takes_medians_and_the_largest_peaks() -> None:
    judgement = reference(
        [
            observation(10),
            observation(11, memory=Memory(peak_anon_bytes=95 << 20, peak_cgroup_bytes=99 << 20)),
            observation(30),
        ]
    )
    assert judgement.summary.latency_s == {"mean": pytest.approx(0.011), "p95": pytest.approx(0.022)}
    assert (judgement.summary.peak_anon_bytes, judgement.summary.peak_cgroup_bytes) == (95 << 20, 99 << 20)
    assert (
        judgement.rankings == RANKED
        and judgement.summary.unstable_queries == 0
        and judgement.summary.measures == {"RR@10": 0.5}
    )


def test_disturbed_containers_are_left_out_unless_too_many() -> None:
    noisy = observation(30, disturbed="steal")
    assert (
        not enough([observation(), noisy, observation()])
        and enough([observation(), noisy, observation(), observation()])
        and enough([noisy] * 5)
    )
    assert reference([noisy, observation(), observation(), observation()]).summary.latency_s["mean"] == pytest.approx(
        0.010
    )
    assert reference([noisy] * 5).summary.latency_s["mean"] == pytest.approx(0.030)
    mixed = [replace(noisy, latency_s=observation(mean).latency_s) for mean in (90, 20, 80, 12)]
    assert reference([*mixed, observation()]).summary.latency_s["mean"] == pytest.approx(0.012), (
        "the calm one, and the two fastest"
    )


def test_queries_ranked_differently_by_the_references_are_not_compared() -> None:
    other = observation(30, rankings={"q1": ("d2",), "q2": ("d3",)}, disturbed="steal")
    base = reference([observation(), other, observation(), observation()])
    assert len(base.jobs) == 3
    assert base.summary.unstable_queries == 1 and base.rankings == {"q2": ("d3",)}
    assert judge(observation(rankings={"q1": ("d9",), "q2": ("d3",)}), base, DEFAULT).finding is ProbeFinding.PASS


def test_host_without_memory_readings_is_one_line() -> None:
    with pytest.raises(JobError, match="does not show the memory of a container"):
        reference([observation(memory=Memory())])
