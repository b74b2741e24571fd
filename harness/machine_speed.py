"""What the canary says against a cell: a machine that changed its speed, or was slow for this cell.

Each threshold stands here once.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from harness.findings import again, noisy, remark
from harness.records import Outcome
from harness.result import CanaryReading, Environment, Result
from harness.table import Cause, Finding

# Slowest / fastest canary reading of one cell; and a cell's median against that of all jobs on the same machine.
MAX_CANARY_CPU = 1.15
MAX_CANARY_MEMORY = 1.30
MAX_CANARY_DISK = 5.0
MAX_LEVEL = 1.15
_LEVEL_JOBS = 3

# Canary levels: environment and number of CPUs -> median CPU seconds of each of its jobs.
Levels = dict[tuple[Environment, int], list[float]]


def levels(results: Iterable[Result]) -> Levels:
    """The canary's level in every job that has one, by machine."""
    found: Levels = defaultdict(list)
    for result in results:
        if result.canary and result.outcome is Outcome.OK:
            found[_machine(result)].append(_level([result]))
    return dict(found)


def look(results: Sequence[Result], known: Levels) -> list[Finding]:
    """Judge the looks at the machine beside a cell's trials.

    Args:
        results: the pooled jobs of one cell.
        known: the canary's levels of all jobs in the results.
    """
    readings = [reading for result in results for reading in result.canary]
    cell, found = results[0].spec.cell, []
    for what, most, get in (
        ("processor", MAX_CANARY_CPU, _cpu_s),
        ("memory", MAX_CANARY_MEMORY, _memory_s),
        ("disk", MAX_CANARY_DISK, _disk_s),
    ):
        values = [value for reading in readings if (value := get(reading)) is not None and value > 0]
        if len(values) < 2 or max(values) <= most * min(values):
            continue
        text = (
            f"the machine changed its speed: fixed {what} work took {min(values) * 1e3:.3g} to "
            f"{max(values) * 1e3:.3g} ms beside the trials, "
            f"{max(values) / min(values):.2f} times (steady: up to {most:g})"
        )
        if get is _disk_s:
            found.append(remark(Cause.CANARY, text))
        else:
            text += "; quieten the machine (harness doctor shows its load), then " + again(cell, "--retry-noisy 3")
            found.append(noisy(Cause.CANARY, text, transient=True))
    return [*found, *_slower(results, known)]


def _cpu_s(reading: CanaryReading) -> float | None:
    return reading.cpu_s


def _memory_s(reading: CanaryReading) -> float | None:
    return reading.memory_s


def _disk_s(reading: CanaryReading) -> float | None:
    return reading.disk_s


def _slower(results: Sequence[Result], known: Levels) -> list[Finding]:
    """The whole cell met a slower machine than the others did."""
    others = known.get(_machine(results[0]), [])
    with_canary = [result for result in results if result.canary]
    if not with_canary or len(others) < _LEVEL_JOBS:
        return []
    here, usual = _level(with_canary), statistics.median(others)
    if usual <= 0 or here <= MAX_LEVEL * usual:
        return []
    text = (
        f"the machine was slow for this cell: fixed processor work took {here * 1e3:.3g} ms, {here / usual:.2f} times "
        f"the median of {len(others)} jobs on it (steady: up to {MAX_LEVEL:g}); "
        f"{again(results[0].spec.cell, '--retry-noisy 3')}"
    )
    return [noisy(Cause.SLOW_MACHINE, text, transient=True)]


def _machine(result: Result) -> tuple[Environment, int]:
    return result.environment, result.spec.envelope.cpus


def _level(results: Sequence[Result]) -> float:
    return statistics.median(reading.cpu_s for result in results for reading in result.canary)
