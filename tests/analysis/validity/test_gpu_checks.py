"""Findings about a cell from the GPUs of its jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.analysis.table import Cause, Finding, Validity
from harness.analysis.validity import counter_checks
from harness.analysis.validity.sample_checks import SampleFacts
from harness.records import Envelope, Phase
from harness.results.schema import GpuReading, GpuUse, Result
from tests.support import sample_records
from tests.support.sample_records import canary

ENVELOPE = Envelope("cpu1-mem1", 1, 2**30, gpus=1)
RETRY = "run its suite again with --retry-noisy 3 --only 'bm25/scifact/single_stream/cpu1-mem1'"
RESTING = GpuReading(345, ("gpu_idle",), 36)


def result(*looks: GpuReading, gpu: GpuUse | None = None, job: int = 0, **changes: Any) -> Result:
    """A job with a GPU to itself, but for what is changed."""
    readings = tuple(replace(canary(), gpu=look) for look in looks or (RESTING, RESTING))
    changes.setdefault("jobs", 5)
    return sample_records.result(
        envelope=ENVELOPE, canary=readings, gpu=gpu or sample_records.gpu(), job=job, **changes
    )


def look(*results: Result) -> list[Finding]:
    return counter_checks.check_gpus(results)


def test_exclusive_gpu_raises_no_alarm() -> None:
    set_by_somebody = ("applications_clocks_setting", "display_clock_setting", "gpu_idle", "reliability")
    woken = GpuReading(1980, set_by_somebody, 60)
    within = sample_records.gpu(clock_reasons=dict.fromkeys(set_by_somebody, 40))
    assert look(result(RESTING, woken, RESTING), result(RESTING, woken, gpu=within, job=1)) == []


def test_job_without_gpus_is_not_checked_for_gpus() -> None:
    assert look(sample_records.result(canary=(canary(),))) == []


@pytest.mark.parametrize(
    "reason",
    ["hw_power_brake_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "sync_boost"],
)
def test_gpu_throttled_outside_the_trials_is_reported(reason: str) -> None:
    (finding,) = look(result(RESTING, GpuReading(900, ("gpu_idle", reason), 90)))
    assert (finding.cause, finding.validity, finding.transient) == (Cause.GPU_THROTTLING, Validity.NOISY, True)
    assert (
        f"the GPU was throttled: {reason} in 2% of the moments beside and within the trials (steady: " in finding.text
    )
    assert "nvidia-smi -q" in finding.text and RETRY in finding.text


@pytest.mark.parametrize(("readings", "told"), [(1, False), (2, False), (3, True), (40, True)])
def test_gpu_throttled_within_the_trials_is_reported(readings: int, told: bool) -> None:
    found = look(
        result(gpu=sample_records.gpu(clock_reasons={"gpu_idle": 1, "sw_thermal_slowdown": readings})), result(job=1)
    )
    assert [finding.cause for finding in found] == [Cause.GPU_THROTTLING] * told
    if told:
        assert f"sw_thermal_slowdown in {readings / 42:.0%} of the moments" in found[0].text
        assert "(in 1 of 2 jobs)" in found[0].text


def test_a_gpu_at_its_power_limit_is_a_remark() -> None:
    (finding,) = look(result(gpu=sample_records.gpu(clock_reasons={"sw_power_cap": 40})))
    assert (finding.cause, finding.validity) == (Cause.GPU_THROTTLING, Validity.CLEAN)
    assert f"at its power limit in {40 / 42:.0%} of the moments" in finding.text


def test_slowdown_read_once_may_be_a_clock_change() -> None:
    changing = GpuReading(900, ("hw_slowdown",), 50)
    assert look(result(RESTING, changing)) == []
    assert look(result(gpu=sample_records.gpu(readings=4, clock_reasons={"hw_slowdown": 1}))) == []
    (finding,) = look(result(changing, changing))
    assert finding.cause is Cause.GPU_THROTTLING


@pytest.mark.parametrize(
    ("processes", "held", "said"),
    [
        (1, 3 << 30, "1 process of others had 3,072 MiB on the job's GPUs (in 1 of 2 jobs) (expected: none)"),
        (2, None, "2 processes of others had an amount of memory that NVML does not say on the job's GPUs"),
    ],
)
def test_processes_of_others_are_reported(processes: int, held: int | None, said: str) -> None:
    shared = sample_records.gpu(foreign_processes=processes, foreign_bytes=held)
    (finding,) = look(result(gpu=shared), result(job=1))
    assert (finding.cause, finding.validity) == (Cause.GPU_SHARED, Validity.NOISY)
    assert not finding.transient, "a display server is there for good: measuring again meets it again"
    assert said in finding.text and "nvidia-smi" in finding.text
    assert "run its suite again with --fresh --only" in finding.text


def test_foreign_processes_are_reported_with_their_own_memory() -> None:
    several, large = (
        sample_records.gpu(foreign_processes=3, foreign_bytes=None),
        sample_records.gpu(foreign_bytes=7, foreign_processes=1),
    )
    (finding,) = look(result(gpu=large), result(gpu=several, job=1), result(job=2))
    assert "3 processes of others had an amount of memory that NVML does not say" in finding.text
    assert "(in 2 of 3 jobs)" in finding.text
    (finding,) = look(
        result(gpu=large), result(gpu=sample_records.gpu(foreign_bytes=8 << 20, foreign_processes=1), job=1)
    )
    assert "1 process of others had 8 MiB" in finding.text, "of as many processes, those with the most"


def test_a_clock_that_differs_between_jobs_is_a_remark() -> None:
    slow = result(gpu=sample_records.gpu(sm_clock_mhz=1410.0), job=1)
    (finding,) = look(result(), slow)
    assert (finding.cause, finding.validity, finding.transient) == (Cause.GPU_CLOCK, Validity.CLEAN, False)
    assert "the GPU's clock was 1,410 to 1,980 MHz in different jobs" in finding.text
    assert look(result(), result(gpu=sample_records.gpu(sm_clock_mhz=1750.0), job=1)) == []
    assert look(result(), result(gpu=sample_records.gpu(sm_clock_mhz=345.0, readings=3), job=1)) == [], (
        "too few to tell"
    )
    assert look(result(), result(gpu=sample_records.gpu(sm_clock_mhz=None), job=1)) == []


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        (GpuUse(), "no reading of throttling and of processes of others and of energy on the job's GPUs (in 1 of 2 "),
        (
            sample_records.gpu(wall_s=None, energy_j=None),
            "no reading of energy on the job's GPUs (in 1 of 2 jobs): NVML does",
        ),
        (
            sample_records.gpu(foreign_processes=None),
            "no reading of processes of others on the job's GPUs (in 1 of 2 jobs)",
        ),
        (sample_records.gpu(clock_reasons=None), "no reading of throttling on the job's GPUs (in 1 of 2 jobs)"),
    ],
)
def test_missing_gpu_readings_are_a_remark(gpu: GpuUse, said: str) -> None:
    (finding,) = look(result(), result(gpu=gpu, job=1))
    assert (finding.cause, finding.validity) == (Cause.GPU_UNSAID, Validity.CLEAN)
    assert said in finding.text


@pytest.mark.parametrize(("counted_s", "covered"), [(0.6, True), (1.9, True), (0.4, False), (5.0, False)])
def test_energy_measured_outside_the_trials_is_missing(counted_s: float, covered: bool) -> None:
    gpu = sample_records.gpu(wall_s=counted_s)
    one_second = replace(result(gpu=gpu), phases=(Phase("load", 0, 5 * 10**9), Phase("trial-0", 5 * 10**9, 6 * 10**9)))
    assert counter_checks.energy_j(one_second) == (700.0 if covered else None)
    found = look(one_second)
    assert [(each.cause, each.validity) for each in found] == [(Cause.GPU_UNSAID, Validity.CLEAN)] * (not covered)
    if not covered:
        assert f"the GPUs' energy was counted over {counted_s:.2g} s for 1 s of trials, too far off" in found[0].text


def test_job_without_gpu_readings_has_a_remark() -> None:
    (finding,) = look(replace(result(), gpu=None))
    assert finding.cause is Cause.GPU_UNSAID


def test_gpu_checks_are_part_of_the_machine_checks() -> None:
    (finding,) = counter_checks.check([result(gpu=sample_records.gpu(foreign_processes=1))], {}, SampleFacts(300))
    assert finding.cause is Cause.GPU_SHARED
