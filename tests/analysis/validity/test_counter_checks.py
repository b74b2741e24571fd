"""Findings about a cell from the counters of its machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.analysis.table import Cause, Finding, Validity
from harness.analysis.validity import counter_checks, machine_speed
from harness.analysis.validity.sample_checks import SampleFacts
from harness.records import Isolation, Phase
from harness.results.schema import Counters, Placement, Result
from tests.support import sample_records
from tests.support.sample_records import canary, quiet, result

FRESH = "run its suite again with --fresh --only 'bm25/scifact/single_stream/cpu1-mem1'"
RETRY = FRESH.replace("--fresh", "--retry-noisy 3")


def look(*results: Result, queries: int = 300) -> list[Finding]:
    return counter_checks.check(results, {}, SampleFacts(queries))


@pytest.mark.parametrize("seed", range(25))
def test_a_quiet_machine_raises_no_alarm(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = []
    for number in range(5):
        readings = tuple(
            canary(0.010 * rng.uniform(1, 1.08), 0.020 * rng.uniform(1, 1.15), 0.005 * rng.uniform(1, 3))
            for _ in range(3)
        )
        counters = quiet(
            foreign_cpu_s=rng.uniform(0, 0.3), steal_s=rng.uniform(0, 0.05), wait_s=rng.uniform(0, 1.0), major_faults=3
        )
        jobs.append(result(job=number, jobs=5, trials=1, canary=readings, counters=counters))
    assert counter_checks.check(jobs, machine_speed.levels(jobs), SampleFacts(300)) == []


def test_missing_placement_raises_no_finding() -> None:
    assert look(result(placement=None)) == []


def test_job_without_counters_is_not_clean() -> None:
    (finding,) = look(result(counters=Counters()))
    assert finding.validity is Validity.NOISY and not finding.transient
    assert (
        "the kernel's counters of this job could not be read, so nothing shows that the machine was q" in finding.text
    )
    assert FRESH in finding.text
    (finding,) = look(result(), result(job=1, counters=Counters()))
    assert "could not be read (in 1 of 2 jobs)" in finding.text
    assert look(result(counters=Counters(), isolation=Isolation.PROCESS)) == []


@pytest.mark.parametrize(("trials_s", "told"), [(4.9, False), (5.1, True), (19.9, True), (20.1, False)])
def test_counters_that_do_not_cover_the_trials_are_ignored(trials_s: float, told: bool) -> None:
    """Ten seconds were counted, in two trials."""
    half_ns = int(trials_s * 0.5e9)
    phases = (Phase("load", 0, 5), *(Phase(f"trial-{n}", 2 * n * half_ns, (2 * n + 1) * half_ns) for n in range(2)))
    loud = quiet(foreign_cpu_s=4.0, steal_s=3.0, wait_s=40.0, major_faults=9999)
    found = look(result(counters=loud, phases=phases))
    if told:
        assert {finding.validity for finding in found} == {Validity.NOISY} and len(found) == 4
    else:
        assert [finding.validity for finding in found] == [Validity.CLEAN]
        assert f"the kernel's counters cover 10 s for {trials_s:.2g} s of trials" in found[0].text
    (worst, *_) = look(result(counters=quiet(throttled_s=1.0), phases=phases))
    assert worst.validity is Validity.INVALID, "a quota is one whenever it is seen"


@pytest.mark.parametrize(
    ("counters", "cause", "validity", "fact", "command"),
    [
        ({"throttled_s": 0.5}, Cause.THROTTLING, Validity.INVALID, "throttled the job in 0 periods (0.5 s)", FRESH),
        ({"swap_bytes": 3 << 20}, Cause.SWAP, Validity.INVALID, "3 MiB of the job were swapped out", FRESH),
        ({"steal_s": 0.2}, Cause.STEAL, Validity.NOISY, "took 2.0% of the job's CPU time (steady: up to 1%)", RETRY),
        (
            {"foreign_cpu_s": 1.2},
            Cause.FOREIGN_CPU,
            Validity.NOISY,
            "other processes had 12.0% of the job's CPU time",
            RETRY,
        ),
        (
            {"wait_s": 28.61},
            Cause.OVERSUBSCRIPTION,
            Validity.NOISY,
            "they waited 3.00 s for one another in each second of CPU time (1 CPUs; expected: up to 0.25)",
            FRESH,
        ),
        (
            {"major_faults": 600},
            Cause.PAGE_FAULTS,
            Validity.NOISY,
            "0.4 major page faults a query (expected: up to 0.1)",
            FRESH,
        ),
    ],
)
def test_counter_findings_state_the_fact_the_figure_and_the_command(
    counters: dict[str, Any], cause: Cause, validity: Validity, fact: str, command: str
) -> None:
    (finding,) = look(result(counters=quiet(**counters)))
    assert (finding.cause, finding.validity) == (cause, validity)
    assert fact in finding.text
    assert command in finding.text
    assert finding.transient is (command == RETRY)


def test_shares_are_of_all_cpus_of_the_job() -> None:
    two = replace(sample_records.PLACEMENT, cpus=(0, 1))
    assert look(result(counters=quiet(foreign_cpu_s=0.8), placement=two)) == []
    assert len(look(result(counters=quiet(foreign_cpu_s=0.8)))) == 1


def test_few_ticks_of_a_short_trial_are_ignored() -> None:
    assert look(result(counters=quiet(wall_s=0.25, cpu_s=0.2, wait_s=0.0, foreign_cpu_s=0.02, steal_s=0.02))) == []
    assert len(look(result(counters=quiet(wall_s=0.25, cpu_s=0.2, wait_s=0.0, foreign_cpu_s=0.06)))) == 1


def test_one_disturbed_job_of_five_is_reported() -> None:
    jobs = [result(job=number, jobs=5, trials=1, counters=quiet()) for number in range(5)]
    jobs[3] = replace(jobs[3], counters=quiet(foreign_cpu_s=4.0))
    (finding,) = look(*jobs)
    assert "40.0% of the job's CPU time (in 1 of 5 jobs)" in finding.text


def test_busy_machine_is_not_reported_as_oversubscription() -> None:
    (finding,) = look(result(counters=quiet(cpu_s=5.0, wait_s=5.0, foreign_cpu_s=5.0)))
    assert "other processes" in finding.text
    (finding,) = look(result(counters=quiet(cpu_s=8.0, wait_s=2.0, steal_s=2.0)))
    assert "hypervisor" in finding.text
    assert look(result(counters=quiet(wait_s=9.0, foreign_cpu_s=None))) == []


def test_oversubscription_is_detected_on_a_busy_machine() -> None:
    # Four threads share half a CPU: three of them wait all the time, and the fourth half of it.
    busy, crowded = look(result(counters=quiet(cpu_s=5.0, wait_s=35.01, foreign_cpu_s=5.0)))
    assert "other processes" in busy.text
    assert "more runnable threads than CPUs: they waited 6.00 s for one another" in crowded.text


def test_sleeping_system_has_no_oversubscription() -> None:
    assert look(result(counters=quiet(cpu_s=0.1, wait_s=0.09))) == []


def test_shared_cpus_are_not_transient() -> None:
    (finding,) = look(result(placement=Placement((0, 1), (0,), True, (0, 1), False)))
    assert finding.validity is Validity.NOISY
    assert not finding.transient
    assert "the harness had to share the job's CPUs (1 of 4)" in finding.text


def test_shared_batch_host_is_not_transient() -> None:
    (finding,) = look(result(shared_host=True))
    assert (finding.cause, finding.validity, finding.transient) == (Cause.SHARED_HOST, Validity.NOISY, False)
    assert "other jobs of AWS Batch may have run on the same host" in finding.text
    assert "without --shared" in finding.text and "--fresh" in finding.text


def test_half_cores_and_undropped_page_cache_are_remarks() -> None:
    half = result(placement=replace(sample_records.PLACEMENT, whole_cores=False))
    assert [finding.validity for finding in look(half)] == [Validity.CLEAN]
    assert look(result(placement=replace(sample_records.PLACEMENT, whole_cores=None))) == []
    kept = result(page_cache=None)
    assert [finding.validity for finding in look(kept)] == [Validity.CLEAN]
