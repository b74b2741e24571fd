"""Validity checks on an index build: the machine's behaviour meanwhile.

An index is built once, so a doubtful time cannot be compared with another; thresholds are as for searches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harness.analysis.table import Cause, Validity
from harness.analysis.validity import counter_checks, machine_speed
from harness.analysis.validity.findings import Doubt, covers, invalid, remark
from harness.errors import counted
from harness.results.isolation import named
from harness.results.schema import Counters, IndexFacts

# A shorter build may end before the second reading of the counters (every 0.25 s).
_COUNTED_FROM_S = 1.0
_ONCE = "and one build is one measurement, without an interval"
_LARGER = "switch swap off (swapoff -a) or take a larger build_profile, then"
_READABLE = "use an engine on this host whose cgroups harness doctor can read, then"


def check(build: IndexFacts, levels: machine_speed.Levels) -> list[Doubt]:
    """Judge the counters, the canary, the GPUs and the host during the build of a cell's index.

    Args:
        build: facts about a build, with known environments of it and its components.
        levels: the canary's levels of all jobs in the results.
    """
    isolation = named(build.isolation) if build.isolation else None
    if isolation and isolation.scripted:
        return [invalid(Cause.ISOLATION, f"isolation: {isolation.name}: {isolation.sentence}")]
    doubts = [
        *counter_checks.limits("build", [build.observed], _LARGER),
        *_counted(build),
        *_speed(build, levels),
        *counter_checks.gpu_throttled("build", [build.observed]),
        *counter_checks.gpu_shared("build", [build.observed]),
    ]
    if build.observed.shared_host:
        doubts.append(Doubt(Cause.SHARED_HOST, "other jobs of AWS Batch may have run on the same host"))
    doubts = [
        replace(doubt, text=f"{doubt.text}, {_ONCE}") if doubt.validity is Validity.NOISY else doubt for doubt in doubts
    ]
    for name, part in build.components.items():
        doubts += [replace(doubt, text=f"{name}: {doubt.text}") for doubt in check(part, levels)]
    return doubts


def _counted(build: IndexFacts) -> Iterator[Doubt]:
    """Find CPU time that other processes took, or missing counters; waiting threads are a remark."""
    counters, length_s = build.observed.counters, build.watched_s
    if counters == Counters() and length_s < _COUNTED_FROM_S:
        yield remark(
            Cause.COUNTERS,
            f"the build took {length_s:.2g} s, too short for the kernel's counters: steal and other processes were "
            "not judged",
        )
    elif counters == Counters():
        yield Doubt(Cause.COUNTERS, "the kernel's counters of this build could not be read", _READABLE)
    if not covers(counters.wall_s, length_s):
        yield remark(
            Cause.COUNTERS,
            f"the kernel's counters cover {counters.wall_s:.2g} s for {length_s:.2g} s of the build, too far off to "
            "judge steal or other processes",
        )
        return
    yield from counter_checks.taken("build", [(build.observed, build.envelope)])
    waited = counter_checks.waiting(counters)
    if waited is not None and waited > counter_checks.MAX_WAIT:
        # The number of threads is the system's choice, and its build time includes the cost of that choice.
        yield remark(
            Cause.OVERSUBSCRIPTION,
            f"more runnable threads than CPUs: they waited {waited:.2f} s for one another in each second of the "
            f"build's CPU time ({counted(build.envelope.cpus, 'CPU')})",
        )


def _speed(build: IndexFacts, levels: machine_speed.Levels) -> Iterator[Doubt]:
    """Find a machine that changed its speed, or was slower than for other jobs."""
    if changed := machine_speed.changed(build.observed):
        yield Doubt(Cause.CANARY, changed)
    if slower := machine_speed.slower([build.observed], machine_speed.others(build, levels)):
        yield Doubt(Cause.SLOW_MACHINE, f"the machine was slow for this build: {slower}")
