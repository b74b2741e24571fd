"""Findings about the build of an index, from what the machine did meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.analysis import validity
from harness.analysis.table import Cause, Finding, Validity
from harness.analysis.validity import Assessment, machine_speed
from harness.driver.records import Envelope
from harness.results.isolation import FAKE
from harness.results.schema import Counters, GpuReading, IndexFacts
from tests.support import sample_records
from tests.support.sample_records import SPEC, build, canary, gpu, quiet, result

AGAIN = "run `harness run SUITE --fresh-index --only 'bm25/scifact/*'`"
ONCE = "one build is one measurement, without an interval"


def assess(made: IndexFacts | None, levels: machine_speed.Levels | None = None) -> Assessment:
    return validity.assess_build(made, SPEC.cell, levels or {})


def finding(**changes: Any) -> Finding:
    (found,) = assess(build(**changes)).findings
    return found


@pytest.mark.parametrize("seed", range(25))
def test_build_on_a_quiet_machine_is_clean(seed: int) -> None:
    rng = np.random.default_rng(seed)
    readings = tuple(canary(0.010 * rng.uniform(1, 1.08), 0.020 * rng.uniform(1, 1.15)) for _ in range(2))
    counters = quiet(foreign_cpu_s=rng.uniform(0, 0.3), steal_s=rng.uniform(0, 0.05), wait_s=rng.uniform(0, 1.0))
    made = build(canary=readings, counters=counters)
    assert assess(made, machine_speed.levels([result(index=made)])) == Assessment(Validity.CLEAN, ())


def test_build_of_an_unknown_machine_is_unknown() -> None:
    assert assess(None) == assess(build(environment=None)) == Assessment(Validity.UNKNOWN, ())


@pytest.mark.parametrize(
    ("counters", "cause", "worth", "fact"),
    [
        ({"throttled_s": 0.5}, Cause.THROTTLING, Validity.INVALID, "throttled the build for 0.5 s; remove the quota"),
        ({"swap_bytes": 3 << 20}, Cause.SWAP, Validity.INVALID, "3 MiB of the build were swapped out"),
        ({"steal_s": 0.2}, Cause.STEAL, Validity.NOISY, "took 2.0% of the build's CPU time (steady: up to 1%), and "),
        ({"foreign_cpu_s": 1.2}, Cause.FOREIGN_CPU, Validity.NOISY, "had 12.0% of the build's CPU time (steady: up t"),
    ],
)
def test_counter_finding_has_the_fact_the_figure_and_the_command(
    counters: dict[str, float], cause: Cause, worth: Validity, fact: str
) -> None:
    found = finding(counters=quiet(**counters))
    assert (found.cause, found.validity, found.transient) == (cause, worth, worth is Validity.NOISY)
    assert fact in found.text and found.text.endswith(AGAIN)
    assert (ONCE in found.text) == (worth is Validity.NOISY)


@pytest.mark.parametrize(("build_s", "worth"), [(0.9, Validity.CLEAN), (1.1, Validity.NOISY)])
def test_missing_counters_are_a_doubt_unless_the_build_was_short(build_s: float, worth: Validity) -> None:
    found = finding(build_s=build_s, counters=Counters())
    assert (found.cause, found.validity) == (Cause.COUNTERS, worth)
    assert ("too short for the kernel's counters" in found.text) == (worth is Validity.CLEAN)


@pytest.mark.parametrize(("earlier_s", "judged"), [(0.0, False), (31.0, True)])
def test_counters_are_compared_with_the_last_attempt_alone(earlier_s: float, judged: bool) -> None:
    """Ten seconds were counted of a build of 41, most of which an earlier attempt may have spent."""
    found = finding(build_s=41.0, resumed_s=earlier_s or None, counters=quiet(foreign_cpu_s=4.0))
    assert found.cause is (Cause.FOREIGN_CPU if judged else Cause.COUNTERS)


def test_threads_that_waited_are_a_remark() -> None:
    found = finding(counters=quiet(wait_s=28.61))
    assert (found.cause, found.validity) == (Cause.OVERSUBSCRIPTION, Validity.CLEAN)
    assert "they waited 3.00 s for one another in each second of the build's CPU time (1 CPU)" in found.text


@pytest.mark.parametrize(("after_s", "named"), [(0.0114, None), (0.0125, "processor"), (0.007, "processor")])
def test_speed_change_between_the_two_readings_is_a_doubt(after_s: float, named: str | None) -> None:
    findings = assess(build(canary=(canary(0.010), canary(after_s)))).findings
    assert [found.cause for found in findings] == ([Cause.CANARY] if named else [])
    if named:
        assert f"fixed {named} work took " in findings[0].text and "(steady: up to 1.15), and one" in findings[0].text
        assert ONCE in findings[0].text and findings[0].transient


def test_memory_speed_counts_and_disk_speed_does_not() -> None:
    assert "fixed memory work" in finding(canary=(canary(), canary(memory_s=0.030))).text
    assert assess(build(canary=(canary(), canary(disk_s=0.060)))).findings == ()


def test_build_on_a_slower_machine_than_other_jobs_is_a_doubt() -> None:
    slow = build(canary=(canary(0.012), canary(0.0121)))
    levels = machine_speed.levels([*(result(job=n, canary=(canary(0.010),)) for n in range(8)), result(index=slow)])
    (found,) = assess(slow, levels).findings
    assert found.cause is Cause.SLOW_MACHINE and found.transient and ONCE in found.text
    assert "1.20 times the median of 9 jobs on it (steady: up to 1.15)" in found.text
    assert assess(build(), levels).findings == ()


def test_many_results_of_one_build_count_it_once() -> None:
    made = [result(job=number, index=build()) for number in range(5)]
    assert [len(levels) for levels in machine_speed.levels(made).values()] == [1]
    two = [*made, result(index=build(started_at=sample_records.at(7)))]
    assert [len(levels) for levels in machine_speed.levels(two).values()] == [2]


def test_builds_with_other_cpus_have_levels_of_their_own() -> None:
    wide = build(envelope=Envelope("wide", 2, 1 << 30))
    levels = machine_speed.levels([result(canary=(canary(),), index=wide)])
    assert sorted(cpus for _, cpus in levels) == [1, 2]


def test_scripted_build_is_invalid() -> None:
    found = finding(isolation=FAKE.name)
    assert (found.cause, found.validity) == (Cause.ISOLATION, Validity.INVALID)


def test_throttled_or_shared_gpus_are_a_doubt() -> None:
    hot = GpuReading(900, ("hw_thermal_slowdown",), 90)
    found = finding(gpu=gpu(), canary=(replace(canary(), gpu=hot), canary()))
    assert found.cause is Cause.GPU_THROTTLING and "hw_thermal_slowdown in 2%" in found.text
    assert "2 processes of others had " in finding(gpu=gpu(foreign_processes=2)).text


def test_shared_host_is_a_doubt() -> None:
    assert finding(shared_host=True).cause is Cause.SHARED_HOST


def test_doubts_of_components_are_the_hybrids_and_name_them() -> None:
    loud = build(counters=quiet(foreign_cpu_s=4.0), build_s=10.0)
    hybrid = build(build_s=30.0, components={"bm25": loud, "minilm": build(build_s=10.0)})
    (found,) = assess(hybrid).findings
    assert found.validity is Validity.NOISY and found.text.startswith("bm25: other processes had 40.0% of the build's")
    assert assess(replace(hybrid, components={"bm25": replace(loud, environment=None)})).validity is Validity.UNKNOWN


def test_counters_of_a_hybrid_are_compared_with_its_own_part_alone() -> None:
    """Ten seconds were counted: of 50, components took 40, a part of it in an earlier attempt."""
    part = build(build_s=40.0, resumed_s=30.0)
    assert assess(build(build_s=50.0, resumed_s=30.0, components={"bm25": part})).findings == ()
