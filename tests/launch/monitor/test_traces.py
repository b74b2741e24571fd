"""Sums of readings over the trials: the stretches of each trial, energy and clocks of GPUs, foreign processes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from harness.driver.records import Phase
from harness.launch.monitor.traces import (
    CounterReading,
    CounterTrace,
    ForeignProcesses,
    GpuMoment,
    GpuTrace,
    foreign_processes,
    over_trials,
    trials_of,
)
from harness.results.schema import GpuReading, GpuUse, TrialCpu, TrialEnergy


@dataclass(frozen=True)
class At:
    t_ns: int


def over(times: list[int], *phases: Phase) -> list[list[int]]:
    return [[reading.t_ns for reading in stretch] for stretch in over_trials([At(t_ns) for t_ns in times], phases)]


def test_trials_are_separated_from_other_phases_and_sorted() -> None:
    phases = (Phase("load", 0, 1), Phase("trial-1", 30, 40), Phase("trial-0", 10, 20), Phase("trial-x", 50, 60))
    assert [trial.name for trial in trials_of(phases)] == ["trial-0", "trial-1"]


def test_build_counts_as_the_trial_of_a_job_without_trials() -> None:
    build, check = Phase("build", 10, 20), Phase("check", 20, 30)
    assert trials_of((build, check)) == [build]
    assert over([0, 9, 15, 21, 29], build, check) == [[9, 15, 21]]
    assert trials_of((build, Phase("trial-0", 30, 40))) == [Phase("trial-0", 30, 40)], "a search claims no build"


def test_readings_between_two_trials_are_omitted() -> None:
    trials = (Phase("trial-0", 10, 20), Phase("trial-1", 30, 40))
    assert over([0, 9, 15, 21, 29, 41, 50], *trials) == [[9, 15, 21], [29, 41]]


def test_trials_between_two_readings_use_the_surrounding_readings() -> None:
    assert over([0, 100], Phase("trial-0", 10, 20), Phase("trial-1", 30, 40)) == [[0, 100]]


def test_windows_are_empty_without_readings_or_trials() -> None:
    assert over([], Phase("trial-0", 10, 20)) == over([5, 15], Phase("load", 0, 20)) == []
    assert over([15], Phase("trial-0", 10, 20)) == []


S = 1_000_000_000
TRIALS = (Phase("load", 0, S), Phase("trial-0", 2 * S, 3 * S), Phase("trial-1", 5 * S, 6 * S))
BUSY, IDLE = GpuReading(1980, ("sw_power_cap",)), GpuReading(345, ("gpu_idle",))


def counted(*readings: tuple[float, float | None]) -> tuple[TrialCpu, ...]:
    """What the trials used by readings of (time, CPU time), in seconds."""
    trace = (CounterReading(round(t_s * S), None if cpu_s is None else round(cpu_s * S)) for t_s, cpu_s in readings)
    return CounterTrace(tuple(trace)).by_trial(TRIALS)


def test_cpu_time_of_a_trial_is_counted_from_the_last_reading_before_it_to_the_first_after_it() -> None:
    first, second = TrialCpu(0, 0.75, 1.0), TrialCpu(1, 0.5, 1.0)
    assert counted((1.96, 3), (1.99, 3), (2.5, 3.4), (3.01, 3.75), (4.99, 9), (6.0, 9.5)) == (first, second)
    # Between two readings too far from the trial the job may have worked for something else.
    assert counted((1.9, 3), (3.01, 3.75), (4.99, 9), (6.0, 9.5)) == (second,)
    assert counted((1.99, None), (3.01, 3.75), (4.99, 9), (6.2, 9.5)) == ()
    assert CounterTrace((CounterReading(0, 0), CounterReading(S, S))).by_trial((Phase("build", 0, S),)) == ()


def test_energy_of_a_trial_is_counted_between_the_same_readings_as_its_cpu_time() -> None:
    def joules(*readings: tuple[float, int | None]) -> tuple[TrialEnergy, ...]:
        return CounterTrace(
            tuple(CounterReading(round(t_s * S), package_uj=uj) for t_s, uj in readings)
        ).energy_by_trial(TRIALS)

    first, second = TrialEnergy(0, 50.0, 1.02), TrialEnergy(1, 7.0, 1.01)
    assert joules((1.99, 5_000_000), (3.01, 55_000_000), (4.99, 60_000_000), (6.0, 67_000_000)) == (first, second)
    # A counter that was lost in the second trial, and one that stood still.
    assert joules((1.99, 5_000_000), (3.01, 55_000_000), (4.99, 60_000_000), (6.0, None)) == (first,)
    assert joules((1.99, 5_000_000), (3.01, 5_000_000)) == ()


def moment(
    t_s: float, joules: float | None, seen: GpuReading = BUSY, there: ForeignProcesses | None = None
) -> GpuMoment:
    return GpuMoment(int(t_s * S), seen, None if joules is None else int(joules * 1000), there)


def test_energy_covers_the_trials_and_not_the_time_between() -> None:
    moments = (moment(0, 0), moment(2, 100), moment(2.5, 130), moment(3, 170), moment(5, 900), moment(6, 950))
    use = GpuTrace(moments=moments).summary(TRIALS)
    assert (use.energy_j, use.wall_s) == (120.0, 2.0)


@pytest.mark.parametrize("broken", [None, 1.0, 900], ids=["missing", "reset", "not updated"])
def test_energy_is_none_if_missing_or_reset_or_not_updated(broken: float | None) -> None:
    moments = [moment(2, 100), moment(3, 170), moment(5, 900), moment(6, broken)]
    use = GpuTrace(moments=tuple(moments)).summary(TRIALS)
    assert (use.energy_j, use.wall_s) == (None, None)


def test_clocks_and_reasons_cover_the_trials_only() -> None:
    within = [
        (2.1, replace(BUSY, sm_clock_mhz=1755)),
        (2.9, BUSY),
        (5.5, GpuReading(2000, ("gpu_idle", "sw_power_cap"))),
    ]
    moments = [moment(0.5, 0, IDLE), *(moment(t_s, 0, seen) for t_s, seen in within), moment(7, 0, IDLE)]
    use = GpuTrace(moments=tuple(moments)).summary(TRIALS)
    assert (use.readings, use.sm_clock_mhz) == (3, 1980)
    assert use.clock_reasons == {"gpu_idle": 1, "sw_power_cap": 3}


def test_silent_gpu_is_none_and_not_0() -> None:
    assert GpuTrace().summary(TRIALS) == GpuUse()
    silent = tuple(moment(t_s, None, GpuReading()) for t_s in (2.1, 2.9))
    assert GpuTrace(moments=silent).summary(TRIALS) == GpuUse(readings=2)
    calm = GpuTrace(moments=(moment(2.5, 0, GpuReading(1980, ())),)).summary(TRIALS)
    assert calm.clock_reasons == {}, "no reason in force is an answer"


@pytest.mark.parametrize(
    ("before", "during", "kept"),
    [
        (
            ForeignProcesses(1, 5),
            (ForeignProcesses(0, 0), ForeignProcesses(2, None), ForeignProcesses(1, 7)),
            ForeignProcesses(2, None),
        ),
        (ForeignProcesses(1, 5), (ForeignProcesses(1, 7), None), ForeignProcesses(1, 7)),
        (ForeignProcesses(1, 5), (None, None), ForeignProcesses(1, 5)),
        (ForeignProcesses(0, 0), (None, ForeignProcesses(0, 0)), ForeignProcesses(0, 0)),
        (None, (ForeignProcesses(0, 0),), ForeignProcesses(0, 0)),
    ],
)
def test_reading_with_the_most_foreign_processes_is_kept(
    before: ForeignProcesses | None, during: tuple[ForeignProcesses | None, ...], kept: ForeignProcesses
) -> None:
    """Both figures belong to the same reading."""
    use = GpuTrace(before, tuple(moment(t_s, 0, there=there) for t_s, there in enumerate(during))).summary(TRIALS)
    assert (use.foreign_processes, use.foreign_bytes) == (kept.processes, kept.held_bytes)


def test_foreign_processes_are_unknown_without_readings_during_the_job() -> None:
    for before in (None, ForeignProcesses(0, 0)):
        use = GpuTrace(before, (moment(1, 0), moment(2, 0))).summary(TRIALS)
        assert (use.foreign_processes, use.foreign_bytes) == (None, None)


def test_foreign_processes_are_alive_and_not_of_the_job() -> None:
    listed = {7: 10, 8: 20, 9: 40}
    assert foreign_processes(listed, {8}, lambda pid: pid != 9) == ForeignProcesses(1, 10)
    assert foreign_processes({7: None, 8: 1}, (), lambda _: True) == ForeignProcesses(2, None)
    assert foreign_processes({}, (), lambda _: True) == ForeignProcesses(0, 0)
    assert foreign_processes(None, (), lambda _: True) is None
