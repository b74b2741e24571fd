"""What a job's GPUs were seen to do while it ran."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from harness.launch.monitor.trial_windows import over_trials, trials_of
from harness.records import Phase
from harness.results.schema import GpuReading, GpuUse


@dataclass(frozen=True)
class Others:
    """Processes that are not the job's, and the GPU memory that they hold (None: not said)."""

    processes: int
    held_bytes: int | None


@dataclass(frozen=True)
class Moment:
    """The job's GPUs at one moment; ``energy_mj`` is a running total."""

    t_ns: int
    seen: GpuReading
    energy_mj: int | None = None
    others: Others | None = None


@dataclass(frozen=True)
class GpuTrace:
    """Moments in their order; ``before`` is who was there before the job was."""

    before: Others | None = None
    moments: tuple[Moment, ...] = ()

    def summary(self, phases: Sequence[Phase] = ()) -> GpuUse:
        """Energy, clocks and their reasons while the trials ran, and others at any time; None where not said.

        Energy is counted over the same stretches as the kernel's counters
        (:func:`harness.launch.monitor.trial_windows.over_trials`); clocks are of the moments within the trials alone, because
        between two trials a GPU rests.
        """
        inside = [moment for moment in self.moments if _within(moment, trials_of(phases))]
        clocks = [clock for moment in inside if (clock := moment.seen.sm_clock_mhz) is not None]
        said = [reasons for moment in inside if (reasons := moment.seen.clock_reasons) is not None]
        strangers = self._strangers()
        wall_s, energy_j = self._energy(phases)
        return GpuUse(
            wall_s=wall_s,
            energy_j=energy_j,
            readings=len(inside),
            sm_clock_mhz=statistics.median(clocks) if clocks else None,
            clock_reasons=dict(sorted(Counter(name for reasons in said for name in reasons).items())) if said else None,
            foreign_processes=strangers.processes if strangers else None,
            foreign_bytes=strangers.held_bytes if strangers else None,
        )

    def _strangers(self) -> Others | None:
        """The most that were there at once.  That nobody was there before the job says nothing of its own time."""
        during = [moment.others for moment in self.moments if moment.others is not None]
        before = [self.before] if self.before and (during or self.before.processes) else []
        return max((*before, *during), key=lambda each: (each.processes, each.held_bytes or 0), default=None)

    def _energy(self, phases: Sequence[Phase]) -> tuple[float | None, float | None]:
        """Seconds and joules; both None where the trials have no two moments, or a GPU does not say."""
        ends = [(stretch[0], stretch[-1]) for stretch in over_trials(self.moments, phases)]
        used_mj = [_grown(first.energy_mj, last.energy_mj) for first, last in ends]
        known_mj = [used for used in used_mj if used is not None]
        if not ends or len(known_mj) < len(ends):
            return None, None
        return sum(last.t_ns - first.t_ns for first, last in ends) / 1e9, sum(known_mj) / 1e3


def others(
    listed: Mapping[int, int | None] | None, own: Collection[int], alive: Callable[[int], bool]
) -> Others | None:
    """Who of those on the GPUs is not the job's.

    Args:
        listed: pid -> bytes held; None where NVML does not say.
        own: pids of the job, all that it ever had.
        alive: is there such a process?  One that ended while we looked may have been the job's.
    """
    if listed is None:
        return None
    held = [size for pid, size in listed.items() if pid not in own and alive(pid)]
    known = [size for size in held if size is not None]
    return Others(len(held), sum(known) if len(known) == len(held) else None)


def _within(moment: Moment, trials: Sequence[Phase]) -> bool:
    return any(trial.start_ns <= moment.t_ns <= trial.end_ns for trial in trials)


def _grown(first_mj: int | None, last_mj: int | None) -> int | None:
    """A total that fell was set back meanwhile (the driver was loaded anew), and says nothing."""
    if first_mj is None or last_mj is None or last_mj < first_mj:
        return None
    return last_mj - first_mj
