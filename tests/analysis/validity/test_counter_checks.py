"""Findings about a cell from the counters of its machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.analysis.causes import MORE_QUERIES
from harness.analysis.table import Cause, Finding, Validity
from harness.analysis.validity import counter_checks, machine_speed
from harness.analysis.validity.findings import of_cell
from harness.analysis.validity.sample_checks import SampleFacts
from harness.driver.records import Envelope, Phase
from harness.results.isolation import PROCESS
from harness.results.schema import CPU_OF_PROCESSES, Counters, GpuReading, GpuUse, Placement, Result
from tests.support import sample_records
from tests.support.job_fixtures import SEEN
from tests.support.sample_records import canary, quiet, result

FRESH = "run `harness run SUITE --fresh --only bm25/scifact/single_stream/cpu1-mem1`"
RETRY = FRESH.replace("--fresh", "--retry-noisy 3")


def findings(*results: Result, queries: int = 300) -> list[Finding]:
    return of_cell(counter_checks.check(results, {}, SampleFacts(queries)), results[0].spec.cell)


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
    assert findings(result(placement=None)) == []


def test_job_without_counters_is_not_clean() -> None:
    (finding,) = findings(result(counters=Counters()))
    assert finding.validity is Validity.NOISY and not finding.transient
    assert "the kernel's counters of this job could not be read; use an engine on this host" in finding.text
    assert FRESH in finding.text
    (finding,) = findings(result(), result(job=1, counters=Counters()))
    assert "could not be read (in 1 of 2 jobs)" in finding.text
    assert findings(result(counters=Counters(), isolation=PROCESS.name)) == []


def test_cpu_time_that_no_cgroup_counts_is_a_remark() -> None:
    summed = result(memory=replace(result().observed.memory, source=f"cgroup v1{CPU_OF_PROCESSES}"))
    (finding,) = findings(summed)
    assert finding.validity is Validity.CLEAN and finding.cause is Cause.COUNTERS
    assert "no cgroup counts the job's CPU time, so it is the sum over processes" in finding.text
    (finding,) = findings(summed, result(job=1))
    assert "CPU time (in 1 of 2 jobs), so it is" in finding.text


@pytest.mark.parametrize(("trials_s", "expected"), [(4.9, False), (5.1, True), (19.9, True), (20.1, False)])
def test_counters_that_do_not_cover_the_trials_are_ignored(trials_s: float, expected: bool) -> None:
    """Ten seconds were counted, in two trials."""
    half_ns = int(trials_s * 0.5e9)
    phases = (Phase("load", 0, 5), *(Phase(f"trial-{n}", 2 * n * half_ns, (2 * n + 1) * half_ns) for n in range(2)))
    loud = quiet(foreign_cpu_s=4.0, steal_s=3.0, wait_s=40.0, major_faults=9999)
    found = findings(result(counters=loud, phases=phases))
    if expected:
        assert {finding.validity for finding in found} == {Validity.NOISY} and len(found) == 4
    else:
        assert [finding.validity for finding in found] == [Validity.CLEAN]
        assert f"the kernel's counters cover 10 s for {trials_s:.2g} s of trials" in found[0].text
    (worst, *_) = findings(result(counters=quiet(throttled_s=1.0), phases=phases))
    assert worst.validity is Validity.INVALID, "a quota is one whenever it is seen"


@pytest.mark.parametrize(
    ("cause", "counters", "text"),
    [
        (Cause.THROTTLING, {"throttled_s": 0.5}, "throttled the job for 0.5 s; remove the quota"),
        (Cause.SWAP, {"swap_bytes": 3 << 20}, "3 MiB of the job were swapped out"),
        (Cause.STEAL, {"steal_s": 0.2}, "took 2.0% of the job's CPU time (steady: up to 1%)"),
        (Cause.FOREIGN_CPU, {"foreign_cpu_s": 1.2}, "other processes had 12.0% of the job's CPU time"),
        (
            Cause.OVERSUBSCRIPTION,
            {"wait_s": 28.61},
            "3.00 s for one another in each second of CPU time (1 CPU; expected: up to",
        ),
        (Cause.PAGE_FAULTS, {"major_faults": 600}, "0.4 major page faults a query (expected: up to 0.1)"),
    ],
)
def test_counter_findings_state_the_fact_the_figure_and_the_command(
    cause: Cause, counters: dict[str, Any], text: str
) -> None:
    (finding,) = findings(result(counters=quiet(**counters)))
    invalid = cause in (Cause.THROTTLING, Cause.SWAP)
    assert (finding.cause, finding.validity) == (cause, Validity.INVALID if invalid else Validity.NOISY)
    assert finding.transient is (cause in (Cause.STEAL, Cause.FOREIGN_CPU))
    assert text in finding.text and (RETRY if finding.transient else FRESH) in finding.text


def test_shares_are_of_all_cpus_of_the_job() -> None:
    two = replace(sample_records.PLACEMENT, cpus=(0, 1))
    assert findings(result(counters=quiet(foreign_cpu_s=0.8), placement=two)) == []
    assert len(findings(result(counters=quiet(foreign_cpu_s=0.8)))) == 1


def test_few_ticks_of_a_short_trial_are_ignored() -> None:
    assert findings(result(counters=quiet(wall_s=0.25, cpu_s=0.2, wait_s=0.0, foreign_cpu_s=0.02, steal_s=0.02))) == []
    assert len(findings(result(counters=quiet(wall_s=0.25, cpu_s=0.2, wait_s=0.0, foreign_cpu_s=0.06)))) == 1


def test_one_disturbed_job_of_five_is_reported() -> None:
    jobs = [result(job=number, jobs=5, trials=1, counters=quiet()) for number in range(5)]
    jobs[3] = sample_records.nested(jobs[3], {"counters": quiet(foreign_cpu_s=4.0)})
    (finding,) = findings(*jobs)
    assert "40.0% of the job's CPU time (in 1 of 5 jobs)" in finding.text


def test_busy_machine_is_not_reported_as_oversubscription() -> None:
    (finding,) = findings(result(counters=quiet(cpu_s=5.0, wait_s=5.0, foreign_cpu_s=5.0)))
    assert "other processes" in finding.text
    (finding,) = findings(result(counters=quiet(cpu_s=8.0, wait_s=2.0, steal_s=2.0)))
    assert "hypervisor" in finding.text
    assert findings(result(counters=quiet(wait_s=9.0, foreign_cpu_s=None))) == []


def test_oversubscription_is_detected_on_a_busy_machine() -> None:
    # Four threads share half a CPU: three of them wait all the time, and the fourth half of it.
    busy, crowded = findings(result(counters=quiet(cpu_s=5.0, wait_s=35.01, foreign_cpu_s=5.0)))
    assert "other processes" in busy.text
    assert "more runnable threads than CPUs: they waited 6.00 s for one another" in crowded.text


def test_sleeping_system_has_no_oversubscription() -> None:
    assert findings(result(counters=quiet(cpu_s=0.1, wait_s=0.09))) == []


@pytest.mark.parametrize(
    ("changes", "cause", "text"),
    [
        (
            {"placement": Placement((0, 1), (0,), True, (0, 1), False)},
            Cause.PLACEMENT,
            "had to share the job's CPUs (1 of 4)",
        ),
        ({"shared_host": True}, Cause.SHARED_HOST, "other jobs of AWS Batch may have run on the same host"),
    ],
)
def test_shared_cpus_and_hosts_are_not_transient(changes: dict[str, Any], cause: Cause, text: str) -> None:
    (finding,) = findings(result(**changes))
    assert (finding.cause, finding.validity, finding.transient) == (cause, Validity.NOISY, False)
    assert text in finding.text and "--fresh" in finding.text


def test_half_cores_and_undropped_page_cache_are_remarks() -> None:
    half, unknown = (replace(sample_records.PLACEMENT, whole_cores=whole) for whole in (False, None))
    for changes in ({"placement": half}, {"page_cache": None}):
        assert [finding.validity for finding in findings(result(**changes))] == [Validity.CLEAN]
    assert findings(result(placement=unknown)) == []


GPU_ENVELOPE = Envelope("cpu1-mem1", 1, 2**30, gpus=1)
RESTING = GpuReading(345, ("gpu_idle",), 36)


def gpu_result(*looks: GpuReading, gpu: GpuUse | None = None, job: int = 0, **changes: Any) -> Result:
    """Return the result of a job with a GPU to itself, but for some changes."""
    readings = tuple(replace(canary(), gpu=look) for look in looks or (RESTING, RESTING))
    changes.setdefault("jobs", 5)
    return sample_records.result(
        envelope=GPU_ENVELOPE, canary=readings, gpu=gpu or sample_records.gpu(), job=job, **changes
    )


def gpu_findings(*results: Result) -> list[Finding]:
    return of_cell(counter_checks.check_gpus(results), results[0].spec.cell)


def test_exclusive_gpu_raises_no_alarm() -> None:
    set_by_somebody = ("applications_clocks_setting", "display_clock_setting", "gpu_idle", "reliability")
    woken = GpuReading(1980, set_by_somebody, 60)
    within = sample_records.gpu(clock_reasons=dict.fromkeys(set_by_somebody, 40))
    assert gpu_findings(gpu_result(RESTING, woken, RESTING), gpu_result(RESTING, woken, gpu=within, job=1)) == []


def test_job_without_gpus_is_not_checked_for_gpus() -> None:
    assert gpu_findings(sample_records.result(canary=(canary(),))) == []


@pytest.mark.parametrize(
    "reason", ["hw_power_brake_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "sync_boost"]
)
def test_gpu_throttled_outside_the_trials_is_reported(reason: str) -> None:
    (finding,) = gpu_findings(gpu_result(RESTING, GpuReading(900, ("gpu_idle", reason), 90)))
    assert (finding.cause, finding.validity, finding.transient) == (Cause.GPU_THROTTLING, Validity.NOISY, True)
    assert (
        f"the GPU was throttled: {reason} in 2% of the readings during and around the trials (steady: " in finding.text
    )
    assert "nvidia-smi -q" in finding.text and RETRY in finding.text


@pytest.mark.parametrize(("readings", "expected"), [(1, False), (2, False), (3, True), (40, True)])
def test_gpu_throttled_within_the_trials_is_reported(readings: int, expected: bool) -> None:
    found = gpu_findings(
        gpu_result(gpu=sample_records.gpu(clock_reasons={"gpu_idle": 1, "sw_thermal_slowdown": readings})),
        gpu_result(job=1),
    )
    assert [finding.cause for finding in found] == [Cause.GPU_THROTTLING] * expected
    if expected:
        assert f"sw_thermal_slowdown in {readings / 42:.0%} of the readings" in found[0].text
        assert "(in 1 of 2 jobs)" in found[0].text


def test_a_gpu_at_its_power_limit_is_a_remark() -> None:
    (finding,) = gpu_findings(gpu_result(gpu=sample_records.gpu(clock_reasons={"sw_power_cap": 40})))
    assert (finding.cause, finding.validity) == (Cause.GPU_THROTTLING, Validity.CLEAN)
    assert f"at its power limit in {40 / 42:.0%} of the readings" in finding.text


def test_slowdown_read_once_may_be_a_clock_change() -> None:
    changing = GpuReading(900, ("hw_slowdown",), 50)
    assert gpu_findings(gpu_result(RESTING, changing)) == []
    assert gpu_findings(gpu_result(gpu=sample_records.gpu(readings=4, clock_reasons={"hw_slowdown": 1}))) == []
    (finding,) = gpu_findings(gpu_result(changing, changing))
    assert finding.cause is Cause.GPU_THROTTLING


def test_reasons_without_readings_of_a_forged_record_are_no_error() -> None:
    forged = sample_records.gpu(readings=0, clock_reasons={"sw_thermal_slowdown": 3})
    assert any(finding.cause is Cause.GPU_THROTTLING for finding in gpu_findings(gpu_result(gpu=forged)))


@pytest.mark.parametrize(
    ("processes", "held", "message"),
    [
        (1, 3 << 30, "1 process of others had 3,072 MiB on the job's GPUs (in 1 of 2 jobs) (expected: none)"),
        (2, None, "2 processes of others had an amount of memory that NVML does not say on the job's GPUs"),
    ],
)
def test_processes_of_others_are_reported(processes: int, held: int | None, message: str) -> None:
    shared = sample_records.gpu(foreign_processes=processes, foreign_bytes=held)
    (finding,) = gpu_findings(gpu_result(gpu=shared), gpu_result(job=1))
    assert (finding.cause, finding.validity) == (Cause.GPU_SHARED, Validity.NOISY)
    assert not finding.transient, "a display server is there for good: measuring again meets it again"
    assert message in finding.text and "nvidia-smi" in finding.text
    assert "run `harness run SUITE --fresh --only" in finding.text


def test_foreign_processes_are_reported_with_their_own_memory() -> None:
    several, large = (
        sample_records.gpu(foreign_processes=3, foreign_bytes=None),
        sample_records.gpu(foreign_bytes=7, foreign_processes=1),
    )
    (finding,) = gpu_findings(gpu_result(gpu=large), gpu_result(gpu=several, job=1), gpu_result(job=2))
    assert "3 processes of others had an amount of memory that NVML does not say" in finding.text
    assert "(in 2 of 3 jobs)" in finding.text
    (finding,) = gpu_findings(
        gpu_result(gpu=large), gpu_result(gpu=sample_records.gpu(foreign_bytes=8 << 20, foreign_processes=1), job=1)
    )
    assert "1 process of others had 8 MiB" in finding.text, "of as many processes, those with the most"


def test_a_clock_that_differs_between_jobs_is_a_remark() -> None:
    slow = gpu_result(gpu=sample_records.gpu(sm_clock_mhz=1410.0), job=1)
    (finding,) = gpu_findings(gpu_result(), slow)
    assert (finding.cause, finding.validity, finding.transient) == (Cause.GPU_CLOCK, Validity.CLEAN, False)
    assert "the GPU's clock was 1,410 to 1,980 MHz in different jobs" in finding.text
    assert gpu_findings(gpu_result(), gpu_result(gpu=sample_records.gpu(sm_clock_mhz=1750.0), job=1)) == []
    assert (
        gpu_findings(gpu_result(), gpu_result(gpu=sample_records.gpu(sm_clock_mhz=345.0, readings=3), job=1)) == []
    ), "too few to tell"
    assert gpu_findings(gpu_result(), gpu_result(gpu=sample_records.gpu(sm_clock_mhz=None), job=1)) == []


@pytest.mark.parametrize(
    ("gpu", "message"),
    [
        (None, "no reading of throttling and of processes of others and of energy on the job's GPUs (in 1 of 2 "),
        (sample_records.gpu(wall_s=None, energy_j=None), "no reading of energy on the job's GPUs (in 1 of 2 jobs)"),
        (sample_records.gpu(foreign_processes=None), "no reading of processes of others on the job's GPUs"),
        (sample_records.gpu(clock_reasons=None), "no reading of throttling on the job's GPUs (in 1 of 2 jobs)"),
    ],
)
def test_missing_gpu_readings_are_a_remark(gpu: GpuUse | None, message: str) -> None:
    (finding,) = gpu_findings(gpu_result(), sample_records.nested(gpu_result(job=1), {"gpu": gpu}))
    assert (finding.cause, finding.validity) == (Cause.GPU_UNSAID, Validity.CLEAN)
    assert message in finding.text


@pytest.mark.parametrize(("counted_s", "covered"), [(0.6, True), (1.9, True), (0.4, False), (5.0, False)])
def test_energy_measured_outside_the_trials_is_missing(counted_s: float, covered: bool) -> None:
    gpu = sample_records.gpu(wall_s=counted_s)
    phases = (Phase("load", 0, 5 * 10**9), Phase("trial-0", 5 * 10**9, 6 * 10**9))
    one_second = sample_records.nested(gpu_result(gpu=gpu), {"phases": phases})
    assert counter_checks.energy_j(one_second) == (700.0 if covered else None)
    found = gpu_findings(one_second)
    assert [(each.cause, each.validity) for each in found] == [(Cause.GPU_UNSAID, Validity.CLEAN)] * (not covered)
    if not covered:
        assert f"the GPUs' energy was counted over {counted_s:.2g} s for 1 s of trials, too far off" in found[0].text
        assert found[0].text.endswith(f"trials that last longer give one: {MORE_QUERIES}")


def test_gpu_checks_are_part_of_the_machine_checks() -> None:
    (finding,) = counter_checks.check([gpu_result(gpu=sample_records.gpu(foreign_processes=1))], {}, SampleFacts(300))
    assert finding.cause is Cause.GPU_SHARED


def served(scenario: str = "single_stream", client_cpus: tuple[int, ...] = (0,), **counters: Any) -> Result:
    """A job of a service whose server has CPU 1."""
    placement = Placement((1,), (), True, (0,), True, client_cpus)
    cell = replace(sample_records.SPEC.cell, scenario=scenario)
    return result(cell=cell, placement=placement, counters=quiet(**counters), effective=SEEN)


def test_a_client_on_cpus_of_its_own_raises_no_doubt() -> None:
    assert findings(served(client_cpu_s=9.0)) == []


def test_a_client_beside_its_server_is_noisy() -> None:
    (finding,) = findings(served(client_cpus=(1,)))
    assert finding.cause is Cause.CLIENT and finding.validity is Validity.NOISY
    assert finding.text.startswith("client beside server: both had CPUs 1; take a smaller profile")


@pytest.mark.parametrize(("share", "invalid"), [(0.79, False), (0.81, True)])
@pytest.mark.parametrize("scenario", ["server", "offline"])
def test_a_client_without_time_for_more_queries_makes_the_row_invalid(
    scenario: str, share: float, invalid: bool
) -> None:
    """In a closed loop of one it rests while the server works, so its time is no limit there."""
    wall_s = quiet().wall_s
    found = findings(served(scenario, client_cpu_s=share * wall_s))
    assert [(each.cause, each.validity) for each in found] == [(Cause.CLIENT, Validity.INVALID)] * invalid
    assert not found or "the client used 81% of the one CPU that it can use" in found[0].text
    assert findings(served(client_cpu_s=share * wall_s)) == []


def test_a_published_server_is_a_remark() -> None:
    made = served()
    (finding,) = findings(replace(made, measured=replace(made.measured, effective=None)))
    assert finding.validity is Validity.CLEAN and "a published image, were read from outside alone" in finding.text
