"""Which readings of running totals belong to the trials."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, TypeVar

from harness.records import Phase

_TRIAL = re.compile(r"trial-\d+")


class TimedReading(Protocol):
    """Something that was read at a moment."""

    @property
    def t_ns(self) -> int:
        """When, as the job's phases count it."""


AnyReading = TypeVar("AnyReading", bound=TimedReading)


def trials_of(phases: Sequence[Phase]) -> list[Phase]:
    """The timed trials among a job's phases, in the order of their start."""
    return sorted((phase for phase in phases if _TRIAL.fullmatch(phase.name)), key=lambda trial: trial.start_ns)


def over_trials(readings: Sequence[AnyReading], phases: Sequence[Phase]) -> list[Sequence[AnyReading]]:
    """Stretches of readings, of at least two each, that lie over the trials; none where no trial was covered.

    Each goes from the reading nearest to a trial's start to the one nearest to its end.  What lies between two trials
    is left out: the harness itself works on the job's CPUs there, to look at the machine.  Where all trials ran
    between two readings, it goes from the one to the other.

    Args:
        readings: in the order of their time.
        phases: of the job, trials and others.
    """
    trials = trials_of(phases)
    return _each(readings, trials) or _around(readings, trials)


def _each(readings: Sequence[AnyReading], trials: list[Phase]) -> list[Sequence[AnyReading]]:
    """The readings of each trial; a trial that ran between two readings has none."""
    found, least = [], 0
    for trial in trials:
        # No stretch is counted twice, whatever is nearest to two trials.
        first, last = max(least, _nearest(readings, trial.start_ns)), _nearest(readings, trial.end_ns, late=True)
        if first < last:
            found.append(readings[first : last + 1])
            least = last
    return found


def _around(readings: Sequence[AnyReading], trials: list[Phase]) -> list[Sequence[AnyReading]]:
    """The last reading before all trials and the first after them, or at least one within; none without two."""
    start_ns = min((trial.start_ns for trial in trials), default=0)
    end_ns = max((trial.end_ns for trial in trials), default=0)
    before = [reading for reading in readings if reading.t_ns <= start_ns]
    later = [reading for reading in readings if reading.t_ns > start_ns]
    # A job may be gone before anybody could read once more; then the last reading has to do.
    after = [reading for reading in later if reading.t_ns >= end_ns] or later[-1:]
    return [(before[-1], after[0])] if trials and before and after else []


def _nearest(readings: Sequence[AnyReading], t_ns: int, *, late: bool = False) -> int:
    """Index of the reading nearest to a moment; of two that are equally near, the earlier, or the later one."""
    order = range(len(readings))
    return min(reversed(order) if late else order, key=lambda n: abs(readings[n].t_ns - t_ns), default=0)
