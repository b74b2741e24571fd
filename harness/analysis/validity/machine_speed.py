"""Validity checks by the canary: the machine changed its speed, or was slow for this cell."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from harness import stats
from harness.analysis.table import Cause
from harness.analysis.validity.findings import Doubt, remark
from harness.analysis.validity.sample_checks import SampleFacts
from harness.driver.records import Outcome
from harness.results.schema import CanaryReading, Environment, IndexFacts, Observed, Result
from harness.stats import Floats

# Chance of a false alarm if the machine's speed is constant.
CHANCE = 0.003
# A mean that moved by less than the first value is steady; one that moved by more than the second is not, whatever its
# interval, because a slow trial also widens the interval.
MIN_MOVED = 0.03
MAX_MOVED = 0.10
# A cell's level relative to all jobs on the same machine.
MAX_LEVEL = 1.15
_LEVEL_JOBS = 3

# Canary levels: environment and number of CPUs -> mean log of the processor seconds of each of its jobs.
Levels = dict[tuple[Environment, int], list[float]]


@dataclass(frozen=True)
class _Kind:
    """A piece of fixed work; ``scatter`` is the standard deviation of its log time on a machine at rest."""

    name: str
    scatter: float
    of: Callable[[CanaryReading], float | None]


_CPU = _Kind("processor", 0.04, lambda reading: reading.cpu_s)
_MEMORY = _Kind("memory", 0.08, lambda reading: reading.memory_s)
_DISK = _Kind("disk", 0.46, lambda reading: reading.disk_s)


def levels(results: Iterable[Result]) -> Levels:
    """Return the canary's levels of all jobs and index builds, by machine."""
    by_machine: Levels = defaultdict(list)
    builds: dict[tuple[str | None, str], IndexFacts] = {}  # many results show one build
    for result in results:
        if result.observed.canary and result.outcome is Outcome.OK:
            by_machine[result.environment, result.spec.envelope.cpus].append(level([result.observed]))
        for build in (result.index, *result.index.components.values()) if result.index else ():
            builds[build.started_at, build.content_sha256] = build
    for build in builds.values():
        if build.environment is not None and build.observed.canary:
            by_machine[build.environment, build.envelope.cpus].append(level([build.observed]))
    return dict(by_machine)


def others(build: IndexFacts, all_levels: Levels) -> Sequence[float]:
    """Return the levels of a build's machine, with its number of CPUs."""
    return all_levels.get((build.environment, build.envelope.cpus), []) if build.environment else []


def check(results: Sequence[Result], all_levels: Levels, facts: SampleFacts) -> list[Doubt]:
    """Judge the canary's readings around a cell's trials.

    Args:
        results: the pooled jobs of one cell.
        all_levels: the canary's levels of all jobs in the results.
        facts: of the cell's samples.
    """
    limit = MAX_MOVED if facts.mean_within is None else min(max(facts.mean_within, MIN_MOVED), MAX_MOVED)
    findings, seen = [], [result.observed for result in results]
    for kind in (_CPU, _MEMORY, _DISK):
        speeds = _speeds(seen, kind)
        if speeds is None:
            continue
        text = f"{_changed_speed(kind, speeds)} the trials"
        moved = _moved(speeds, facts.trial_means_s)
        if kind is _DISK:
            findings.append(remark(Cause.CANARY, text))
        elif moved > limit:
            text += f" and may have moved the mean by {moved:.1%} (steady: up to {limit:.1%})"
            findings.append(Doubt(Cause.CANARY, text))
        elif moved > MIN_MOVED:
            text += f" and may have moved the mean by {moved:.1%}, less than its interval"
            findings.append(remark(Cause.CANARY, text))
    machine = results[0].environment, results[0].spec.envelope.cpus
    if slow := slower(seen, all_levels.get(machine, [])):
        text = f"the machine was slow for this cell: {slow}"
        findings.append(Doubt(Cause.SLOW_MACHINE, text))
    return findings


def changed(build: Observed) -> str | None:
    """Describe how the processor's or the memory's speed changed during a build; None: by no more than at rest.

    The two readings do not cover the time between them, so a build may have met either speed.
    """
    for kind in (_CPU, _MEMORY):
        speeds = _speeds([build], kind)
        if speeds is not None and (ratio := float(np.exp(np.ptp(speeds)))) > MAX_LEVEL:
            times = f"{ratio:.2f} times as long (steady: up to {MAX_LEVEL:g})"
            return f"{_changed_speed(kind, speeds)} the build, {times}"
    return None


def _changed_speed(kind: _Kind, speeds: Floats) -> str:
    low, high = 1e3 * np.exp(speeds.min()), 1e3 * np.exp(speeds.max())
    return f"the machine changed its speed: fixed {kind.name} work took {low:.3g} to {high:.3g} ms around"


def _speeds(observed: Sequence[Observed], kind: _Kind) -> Floats | None:
    """Return the mean log of the readings around each trial; ``None``: they scatter as at rest.

    A single trial's two readings are compared with each other.
    """
    from scipy.special import chdtrc

    looks = _looks(observed, kind)
    if not len(looks):
        return None
    speeds, readings = (looks[0], 1) if len(looks) == 1 else (looks.mean(axis=1), 2)
    squares = readings * float(np.sum((speeds - speeds.mean()) ** 2)) / kind.scatter**2
    return speeds if chdtrc(len(speeds) - 1, squares) < CHANCE else None


def _moved(speeds: Floats, trial_means_s: Sequence[float]) -> float:
    """Return the share by which the machine may have moved the mean over trials, against the median trial.

    A trial's own mean decides if its readings agree in direction: a neighbour that comes and goes within a trial moves
    the readings more than the mean.  Without means of trials only the readings decide.
    """
    apart = speeds - stats.median(speeds)
    if len(trial_means_s) == len(speeds) > 1:
        means = np.log(np.maximum(trial_means_s, 1e-9))
        means -= stats.median(means)
        apart = np.where(apart * means > 0, means, 0.0)
    return abs(float(np.mean(np.exp(apart))) - 1)


def _looks(observed: Sequence[Observed], kind: _Kind) -> Floats:
    """Return the logs of the work before and after each trial, shape (trials, 2)."""
    pairs: list[tuple[float, float]] = []
    for seen in observed:
        taken = [value for reading in seen.canary if (value := kind.of(reading)) is not None and value > 0]
        pairs += itertools.pairwise(taken)
    return np.log(np.asarray(pairs, dtype=np.float64).reshape(-1, 2))


def slower(observed: Sequence[Observed], others: Sequence[float]) -> str | None:
    """Describe by how much the machine was slower for some jobs than for its others; None: it was not.

    Args:
        observed: of jobs on one machine.
        others: levels of all jobs on that machine, including these.
    """
    from scipy.special import ndtr

    with_canary = [seen for seen in observed if seen.canary]
    if not with_canary or len(others) < _LEVEL_JOBS:
        return None
    here, apart = level(with_canary), level(with_canary) - stats.median(others)
    looks = _looks(with_canary, _CPU)
    # If a neighbour comes and goes, a trial's two readings differ by more than on a machine at rest.
    within = float(np.mean(np.diff(looks) ** 2)) / 2 if len(looks) > 1 else 0.0
    error = (max(within, _CPU.scatter**2) * (1 / max(looks.size, 1) + 1 / len(others))) ** 0.5
    if apart <= np.log(MAX_LEVEL) or ndtr(-apart / error) >= CHANCE:
        return None
    return (
        f"fixed processor work took {np.exp(here) * 1e3:.3g} ms, {np.exp(apart):.2f} times the median of {len(others)} "
        f"jobs on it (steady: up to {MAX_LEVEL:g})"
    )


def level(observed: Sequence[Observed]) -> float:
    """Return the mean log seconds of fixed processor work; a median of few readings would jump between two speeds."""
    return statistics.fmean(float(np.log(max(reading.cpu_s, 1e-9))) for seen in observed for reading in seen.canary)
