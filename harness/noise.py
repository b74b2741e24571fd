"""What the machine says against a cell: steal, other processes, swap, faults, too many threads, a canary that slows.

Each threshold stands here once.  Figures are shares of the time of the job's CPUs while its trials ran.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from harness.findings import Finding, again, noisy, remark
from harness.records import Isolation, Outcome
from harness.result import CanaryReading, Counters, Environment, Result
from harness.table import Validity

MAX_STEAL = 0.01
# The harness's own sampling must stay well below this where it shares the job's CPUs.
MAX_FOREIGN = 0.05
# What was counted / the trials' own length: beyond, the readings lie too far from short trials to say anything.
COVERED = (0.5, 2.0)
# The kernel counts both in ticks of up to 10 ms: a few of them in a short trial are no share to speak of.
MIN_TAKEN_S = 0.05
# Time that the job's threads waited for one another, as a share of the CPU time that they had; needs some of that to
# mean anything.
MAX_WAIT = 0.25
MIN_CPU_S = 0.2
# A page read from disk takes some 0.1 to 10 ms: from one in ten queries on, the mean holds the disk.
MAX_FAULTS_PER_QUERY = 0.1
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


def look(results: Sequence[Result], known: Levels, queries: int | None) -> list[Finding]:
    """Judge the counters, the canary and the placement of a cell's jobs.

    Args:
        results: the pooled jobs of one cell, all ``ok``.
        known: the canary's levels of all jobs in the results.
        queries: timed in each trial.
    """
    told = [result for result in results if _covered(result)]
    return [
        *_throttled(results),
        *_swapped(results),
        *_unknown(results),
        *_uncovered(results),
        *_stolen(told),
        *_foreign(told),
        *_crowded(told),
        *_faults(told, queries),
        *_canary(results, known),
        *_placed(results),
        *_pages(results),
    ]


def _worst(results: Sequence[Result], share: Callable[[Result], float | None], most: float) -> tuple[float, str] | None:
    """The largest share above ``most``, and in how many of several jobs there is one."""
    shares = [value for result in results if (value := share(result)) is not None]
    above = [value for value in shares if value > most]
    if not above:
        return None
    return max(above), _of_jobs(len(above), results)


def _of_jobs(count: int, results: Sequence[Result]) -> str:
    return f" (in {count} of {len(results)} jobs)" if len(results) > 1 else ""


def _of_cpus(result: Result, seconds: float | None) -> float | None:
    """Seconds as a share of what the job's CPUs had to give while its trials ran."""
    wall = result.counters.wall_s
    cpus = len(result.placement.cpus) if result.placement else result.spec.envelope.cpus
    return None if seconds is None or seconds < MIN_TAKEN_S or not wall or not cpus else seconds / (wall * cpus)


def _throttled(results: Sequence[Result]) -> list[Finding]:
    periods = sum(result.throttled_periods or 0 for result in results)
    seconds = sum(result.counters.throttled_s or 0.0 for result in results)
    if not periods and not seconds:
        return []
    text = (
        f"the kernel throttled the job in {periods:,} periods{f' ({seconds:.3g} s)' if seconds else ''}, so a CPU "
        "quota was in force and every latency is wrong; remove the quota (harness doctor shows the cgroups), then "
        f"{again(results[0].spec.cell)}"
    )
    return [Finding(Validity.INVALID, text)]


def _swapped(results: Sequence[Result]) -> list[Finding]:
    most = max((result.counters.swap_bytes or 0 for result in results), default=0)
    if not most:
        return []
    text = (
        f"{most / 2**20:.3g} MiB of the job were swapped out, so its memory limit was none and times hold the disk; "
        f"switch swap off (swapoff -a) or take a larger profile, then {again(results[0].spec.cell)}"
    )
    return [Finding(Validity.INVALID, text)]


def _unknown(results: Sequence[Result]) -> list[Finding]:
    """Results before schema 2 counted nothing; only a container's counters can lie out of reach (a remote engine)."""
    silent = [
        result
        for result in results
        if result.counters == Counters() and result.schema_version >= 2 and result.spec.isolation is Isolation.CONTAINER
    ]
    if not silent:
        return []
    if all(result.memory.samples for result in silent):
        # The cgroup was there to be read; the trials were over sooner than that.
        short = f"the trials were too short for the kernel's counters{_of_jobs(len(silent), results)}"
        return [remark(f"{short}: steal, other processes, waiting and faults were not judged there")]
    text = (
        f"the kernel's counters of this job could not be read{_of_jobs(len(silent), results)}, so nothing shows that "
        "the machine was quiet; measure with an engine on this host whose cgroups harness doctor can see, in trials "
        f"of some seconds, then {again(results[0].spec.cell)}"
    )
    return [noisy(text)]


def _covered(result: Result) -> bool:
    """Was what was counted about the trials?  Yes where the result does not say how long they took."""
    counted_s, trials_s = result.counters.wall_s, _trials_s(result)
    return counted_s is None or not trials_s or COVERED[0] * trials_s <= counted_s <= COVERED[1] * trials_s


def _uncovered(results: Sequence[Result]) -> list[Finding]:
    others = [result for result in results if not _covered(result)]
    if not others:
        return []
    first = others[0]
    text = (
        f"the kernel's counters cover {first.counters.wall_s:.2g} s for {_trials_s(first):.2g} s of trials"
        f"{_of_jobs(len(others), results)}, too far off to tell steal, other processes or faults; ask more queries"
    )
    return [remark(text)]


def _trials_s(result: Result) -> float:
    return sum(phase.end_ns - phase.start_ns for phase in result.phases if phase.name.startswith("trial-")) / 1e9


def _stolen(results: Sequence[Result]) -> list[Finding]:
    found = _worst(results, lambda result: _of_cpus(result, result.counters.steal_s), MAX_STEAL)
    if found is None:
        return []
    text = (
        f"the hypervisor took {found[0]:.1%} of the job's CPU time{found[1]} (steady: up to {MAX_STEAL:.0%}); take a "
        f"machine with CPUs of its own, or {again(results[0].spec.cell, '--retry-noisy 3')}"
    )
    return [noisy(text, transient=True)]


def _foreign(results: Sequence[Result]) -> list[Finding]:
    found = _worst(results, lambda result: _of_cpus(result, result.counters.foreign_cpu_s), MAX_FOREIGN)
    if found is None:
        return []
    text = (
        f"other processes had {found[0]:.1%} of the job's CPUs{found[1]} (steady: up to {MAX_FOREIGN:.0%}); quieten "
        f"the machine (harness doctor shows its load), then {again(results[0].spec.cell, '--retry-noisy 3')}"
    )
    return [noisy(text, transient=True)]


def _crowded(results: Sequence[Result]) -> list[Finding]:
    """More runnable threads than CPUs; told apart from a busy machine, which makes threads wait as well.

    A thread that waits for a CPU waits for somebody who has it.  While no more threads are runnable than CPUs, that
    is another process or the hypervisor; waiting beyond what those took is for threads of the job itself.
    """

    def waiting(result: Result) -> float | None:
        counters = result.counters
        if counters.wait_s is None or counters.foreign_cpu_s is None:
            return None
        if counters.cpu_s is None or counters.cpu_s < MIN_CPU_S:
            return None
        return (counters.wait_s - counters.foreign_cpu_s - (counters.steal_s or 0.0)) / counters.cpu_s

    found = _worst(results, waiting, MAX_WAIT)
    if found is None:
        return []
    spec = results[0].spec
    text = (
        f"more runnable threads than CPUs: they waited {found[0]:.2f} s for one another in each second of "
        f"CPU time{found[1]} ({spec.envelope.cpus} CPUs; expected: "
        f"up to {MAX_WAIT}); let the system keep to the thread count that it is given (a JVM that still compiles needs "
        "a longer warm-up: protocol.warmup_queries), "
        f"then {again(spec.cell)}"
    )
    return [noisy(text)]


def _faults(results: Sequence[Result], queries: int | None) -> list[Finding]:
    def per_query(result: Result) -> float | None:
        faults, asked = result.counters.major_faults, (queries or 0) * max(result.trials_finished, 1)
        return None if faults is None or not asked else faults / asked

    found = _worst(results, per_query, MAX_FAULTS_PER_QUERY)
    if found is None:
        return []
    text = (
        f"{found[0]:.2g} major page faults a query{found[1]} (expected: up to {MAX_FAULTS_PER_QUERY}): the index does "
        "not fit into memory, or its pages were not yet read; take a larger profile or raise protocol.warmup_queries, "
        f"then {again(results[0].spec.cell)}"
    )
    return [noisy(text)]


def _canary(results: Sequence[Result], known: Levels) -> list[Finding]:
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
            found.append(remark(text))
        else:
            text += "; quieten the machine (harness doctor shows its load), then " + again(cell, "--retry-noisy 3")
            found.append(noisy(text, transient=True))
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
    return [noisy(text, transient=True)]


def _machine(result: Result) -> tuple[Environment, int]:
    return result.environment, result.spec.envelope.cpus


def _level(results: Sequence[Result]) -> float:
    return statistics.median(reading.cpu_s for result in results for reading in result.canary)


def _placed(results: Sequence[Result]) -> list[Finding]:
    placements = [result.placement for result in results if result.placement is not None]
    spec, found = results[0].spec, []
    if any(not placement.apart for placement in placements):
        text = (
            f"the harness had to share the job's CPUs ({spec.envelope.cpus} of {results[0].environment.host_cpus}); "
            f"measure on a machine with more CPUs, or on a smaller profile: {again(spec.cell)} there"
        )
        found.append(noisy(text))
    if any(placement.whole_cores is False for placement in placements):
        found.append(remark("others could run on the same physical cores; a profile of whole cores keeps them off"))
    return found


def _pages(results: Sequence[Result]) -> list[Finding]:
    """Only results since schema 2 say what was done to the page cache."""
    kept = [result for result in results if result.schema_version >= 2 and result.page_cache is None]
    if not kept:
        return []
    return [remark("the index's pages were not dropped from the host's page cache first, so load may be a warm one")]
