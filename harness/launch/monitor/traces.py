"""Traces of a running job, and their sums over its trials: memory, the kernel's counters, GPUs."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from harness.driver.records import Phase
from harness.launch.monitor.instructions import CountedEvents
from harness.results.schema import Counters, GpuReading, GpuUse, Memory, TrialCpu, TrialEnergy


@dataclass(frozen=True)
class MemoryNow:
    """Anonymous plus shared memory, and mapped file pages; the kernel's peak of all charged memory, and its kills."""

    anon_bytes: int
    mapped_bytes: int | None
    peak_bytes: int | None = None
    oom_kills: int | None = None


@dataclass(frozen=True)
class MemoryTrace:
    """Memory over time: ``anon`` holds (monotonic nanoseconds, bytes) pairs, ``interval_s`` apart at most.

    ``fullest_gpu_share`` is the largest share of one of the job's GPUs' memory in use, by any process.
    """

    anon: tuple[tuple[int, int], ...] = ()
    peak_mapped_bytes: int | None = None
    peak_cgroup_bytes: int | None = None
    peak_gpu_bytes: int | None = None
    fullest_gpu_share: float | None = None
    source: str | None = None
    interval_s: float | None = None

    def summary(self, phases: tuple[Phase, ...] = ()) -> Memory:
        """Return the peaks, in all and by phase; a phase shorter than the interval may have none."""
        by_phase = {}
        for phase in phases:
            inside = [value for t_ns, value in self.anon if phase.start_ns <= t_ns <= phase.end_ns]
            if inside:
                by_phase[phase.name] = max(inside)
        return Memory(
            peak_anon_bytes=max((value for _, value in self.anon), default=None),
            peak_mapped_bytes=self.peak_mapped_bytes,
            peak_cgroup_bytes=self.peak_cgroup_bytes,
            peak_gpu_bytes=self.peak_gpu_bytes,
            peak_anon_by_phase_bytes=by_phase,
            source=self.source,
            samples=len(self.anon),
            sample_interval_s=self.interval_s,
        )


@dataclass(frozen=True)
class CounterReading:
    """The kernel's running totals at one moment; only ``swap_bytes`` is not a total but the bytes in swap now.

    ``busy_ns`` and ``steal_ns`` count the job's CPUs, for all processes, in the ticks of ``/proc/stat`` (mostly
    10 ms), ``package_uj`` the energy of its CPU packages, ``client_cpu_ns`` the CPU time of a service's client.  The
    others are the job's own.
    """

    t_ns: int
    cpu_ns: int | None = None
    busy_ns: int | None = None
    steal_ns: int | None = None
    wait_ns: int | None = None
    throttled_ns: int | None = None
    swap_bytes: int | None = None
    major_faults: int | None = None
    throttled_periods: int | None = None
    package_uj: int | None = None
    client_cpu_ns: int | None = None
    instructions: CountedEvents | None = None


@dataclass(frozen=True)
class CounterTrace:
    """Readings over time, in their order."""

    readings: tuple[CounterReading, ...] = ()

    def summary(self, phases: tuple[Phase, ...] = ()) -> Counters:
        """Sum the counters over the trials (:func:`over_trials`); all ``None`` without readings or trials."""
        stretches = over_trials(self.readings, phases)
        if not stretches:
            return Counters()

        def total(get: Callable[[CounterReading], int | None]) -> int | None:
            return _sum(_less(get(readings[-1]), get(readings[0])) for readings in stretches)

        own, busy = total(lambda reading: reading.cpu_ns), total(lambda reading: reading.busy_ns)
        swapped = [value for readings in stretches for reading in readings if (value := reading.swap_bytes) is not None]
        return Counters(
            wall_s=_seconds(total(lambda reading: reading.t_ns)),
            cpu_s=_seconds(own),
            # Ticks against nanoseconds: a job alone on its CPUs may seem to have used more than there was.
            foreign_cpu_s=None if own is None or busy is None else max(0, busy - own) / 1e9,
            steal_s=_seconds(total(lambda reading: reading.steal_ns)),
            wait_s=_seconds(total(lambda reading: reading.wait_ns)),
            throttled_s=_seconds(total(lambda reading: reading.throttled_ns)),
            swap_bytes=max(swapped, default=None),
            major_faults=total(lambda reading: reading.major_faults),
            client_cpu_s=_seconds(total(lambda reading: reading.client_cpu_ns)),
        )

    def by_trial(self, phases: Sequence[Phase]) -> tuple[TrialCpu, ...]:
        """Return the CPU time of each trial that has a reading just before its start and just after its end."""
        followed = self._all_followed()
        return tuple(
            TrialCpu(
                number,
                used_ns / 1e9,
                (trial.end_ns - trial.start_ns) / 1e9,
                _executed(before.instructions, after.instructions) if followed else None,
            )
            for number, trial, before, after in self._read_trials(phases)
            if (used_ns := _less(after.cpu_ns, before.cpu_ns)) is not None
        )

    def energy_by_trial(self, phases: Sequence[Phase]) -> tuple[TrialEnergy, ...]:
        """Return the joules of the job's packages in each trial that has such readings."""
        return tuple(
            TrialEnergy(number, used_uj / 1e6, (after.t_ns - before.t_ns) / 1e9)
            for number, _, before, after in self._read_trials(phases)
            if (used_uj := _grown(before.package_uj, after.package_uj)) is not None
        )

    def _all_followed(self) -> bool:
        """Return whether instructions were counted in all threads of the job, by its CPU time from first to last.

        Not by trial: the kernel adds to a cgroup's CPU time once a tick while a thread runs.
        """
        read = [(one.instructions, one.cpu_ns) for one in self.readings]
        known = [(counted.followed_ns, cpu_ns) for counted, cpu_ns in read if counted and cpu_ns is not None]
        if not known:
            return False
        followed_ns, used_ns = (last - first for first, last in zip(known[0], known[-1], strict=True))
        return followed_ns >= (1 - _UNFOLLOWED) * used_ns - _TICK_NS

    def _read_trials(self, phases: Sequence[Phase]) -> Iterator[tuple[int, Phase, CounterReading, CounterReading]]:
        """Yield each trial with its number, the reading just before its start and the one just after its end."""
        for trial in trials_of(phases):
            if not (numbered := _TRIAL.fullmatch(trial.name)):
                continue
            slack_ns = max(_LEAST_SLACK_NS, round(_SLACK * (trial.end_ns - trial.start_ns)))
            before = [one for one in self.readings if 0 <= trial.start_ns - one.t_ns <= slack_ns]
            after = [one for one in self.readings if 0 <= one.t_ns - trial.end_ns <= slack_ns]
            if before and after:
                yield int(numbered[1]), trial, before[-1], after[0]


@dataclass(frozen=True)
class ForeignProcesses:
    """Processes of others on the job's GPUs, and the memory that they hold (None: unknown)."""

    processes: int
    held_bytes: int | None


@dataclass(frozen=True)
class GpuMoment:
    """State of the job's GPUs at one moment; ``energy_mj`` is a running total."""

    t_ns: int
    seen: GpuReading
    energy_mj: int | None = None
    others: ForeignProcesses | None = None


@dataclass(frozen=True)
class GpuTrace:
    """Moments in their order; ``before`` counts the processes on the GPUs before the job."""

    before: ForeignProcesses | None = None
    moments: tuple[GpuMoment, ...] = ()

    def summary(self, phases: Sequence[Phase] = ()) -> GpuUse:
        """Sum energy, clocks and their reasons over the trials, and count others at any time; None: unknown.

        Energy is counted over the stretches of :func:`over_trials`; clocks only at moments within trials, because a
        GPU rests between them.
        """
        trials = trials_of(phases)
        inside = [
            moment for moment in self.moments if any(trial.start_ns <= moment.t_ns <= trial.end_ns for trial in trials)
        ]
        clocks = [clock for moment in inside if (clock := moment.seen.sm_clock_mhz) is not None]
        named = [reasons for moment in inside if (reasons := moment.seen.clock_reasons) is not None]
        strangers = self._strangers()
        wall_s, energy_j = self._energy(phases)
        return GpuUse(
            wall_s=wall_s,
            energy_j=energy_j,
            readings=len(inside),
            sm_clock_mhz=statistics.median_low(clocks) if clocks else None,
            clock_reasons=dict(sorted(Counter(name for reasons in named for name in reasons).items()))
            if named
            else None,
            foreign_processes=strangers.processes if strangers else None,
            foreign_bytes=strangers.held_bytes if strangers else None,
        )

    def _strangers(self) -> ForeignProcesses | None:
        """Return the most foreign processes seen at once; none before the job proves nothing about its time."""
        during = [moment.others for moment in self.moments if moment.others is not None]
        before = [self.before] if self.before and (during or self.before.processes) else []
        return max((*before, *during), key=lambda seen: (seen.processes, seen.held_bytes or 0), default=None)

    def _energy(self, phases: Sequence[Phase]) -> tuple[float | None, float | None]:
        """Return seconds and joules; both None without two moments, or where the GPUs' counter tells nothing."""
        ends = [(stretch[0], stretch[-1]) for stretch in over_trials(self.moments, phases)]
        used_mj = _sum(_grown(first.energy_mj, last.energy_mj) for first, last in ends)
        if not ends or used_mj is None:
            return None, None
        return sum(last.t_ns - first.t_ns for first, last in ends) / 1e9, used_mj / 1e3


def foreign_processes(
    listed: Mapping[int, int | None] | None, own: Collection[int], alive: Callable[[int], bool]
) -> ForeignProcesses | None:
    """Count the processes on the GPUs that are not the job's.

    Args:
        listed: pid -> bytes held; None where NVML reports none.
        own: pids of the job, all that it ever had.
        alive: tells whether a process exists; one that ended meanwhile may have been the job's.
    """
    if listed is None:
        return None
    held = [size for pid, size in listed.items() if pid not in own and alive(pid)]
    return ForeignProcesses(len(held), _sum(held))


def _grown(first: int | None, last: int | None) -> int | None:
    """Return the growth of a total of energy; None where it fell, because the driver was reloaded, or stood still.

    GPUs and CPUs draw power at rest too: a total that stood still was not updated within the trial.
    """
    if first is None or last is None or last <= first:
        return None
    return last - first


def _executed(first: CountedEvents | None, last: CountedEvents | None) -> int | None:
    """Return the instructions between two readings; None where they were not counted all the time."""
    if first is None or last is None:
        return None
    if last.counted_ns - first.counted_ns < (1 - _UNCOUNTED) * (last.followed_ns - first.followed_ns):
        return None
    return last.events - first.events


# Shares of a job's CPU time that may be missing.
_UNFOLLOWED, _UNCOUNTED = 0.02, 0.001
_TICK_NS = 10_000_000
_TRIAL = re.compile(r"trial-(\d+)")
# How long before a trial and after it its counter may be read: there the job waits for queries and does nothing.
_LEAST_SLACK_NS, _SLACK = 50_000_000, 0.005


AnyReading = TypeVar("AnyReading", CounterReading, GpuMoment)


def trials_of(phases: Sequence[Phase]) -> list[Phase]:
    """Return the timed trials among a job's phases, by start; of a job without trials, its index build."""
    trials = [phase for phase in phases if _TRIAL.fullmatch(phase.name)]
    trials = trials or [phase for phase in phases if phase.name == "build"]
    return sorted(trials, key=lambda trial: trial.start_ns)


def over_trials(readings: Sequence[AnyReading], phases: Sequence[Phase]) -> list[Sequence[AnyReading]]:
    """Return the stretches of readings over the trials, of two readings each at least.

    A stretch goes from the reading nearest to a trial's start to the one nearest to its end.  The time between two
    trials is left out: there the harness itself works on the job's CPUs, to look at the machine.  Where all trials ran
    between two readings, the stretch is these two.

    Args:
        readings: in the order of their time.
        phases: of the job, trials and others.
    """
    trials = trials_of(phases)
    return _by_trial(readings, trials) or _around(readings, trials)


def _by_trial(readings: Sequence[AnyReading], trials: list[Phase]) -> list[Sequence[AnyReading]]:
    """Return the readings of each trial; a trial between two readings has none."""
    stretches, least = [], 0
    for trial in trials:
        # No stretch is counted twice, also where a reading is the nearest of two trials.
        first, last = max(least, _nearest(readings, trial.start_ns)), _nearest(readings, trial.end_ns, late=True)
        if first < last:
            stretches.append(readings[first : last + 1])
            least = last
    return stretches


def _around(readings: Sequence[AnyReading], trials: list[Phase]) -> list[Sequence[AnyReading]]:
    """Return the last reading before all trials and the first after them, else within."""
    start_ns = min((trial.start_ns for trial in trials), default=0)
    end_ns = max((trial.end_ns for trial in trials), default=0)
    before = [reading for reading in readings if reading.t_ns <= start_ns]
    later = [reading for reading in readings if reading.t_ns > start_ns]
    # The job may be gone before the next reading; then its last one has to do.
    after = [reading for reading in later if reading.t_ns >= end_ns] or later[-1:]
    return [(before[-1], after[0])] if trials and before and after else []


def _nearest(readings: Sequence[AnyReading], t_ns: int, *, late: bool = False) -> int:
    """Return the index of the reading nearest to a moment; of two equally near, the earlier or the later."""
    order = range(len(readings))
    return min(reversed(order) if late else order, key=lambda n: abs(readings[n].t_ns - t_ns), default=0)


def _less(later: int | None, earlier: int | None) -> int | None:
    return None if later is None or earlier is None else max(0, later - earlier)


def _sum(values: Iterable[int | None]) -> int | None:
    """Return the sum, None where a value is unknown."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return sum(known) if len(known) == len(listed) else None


def _seconds(value_ns: int | None) -> float | None:
    return None if value_ns is None else value_ns / 1e9
