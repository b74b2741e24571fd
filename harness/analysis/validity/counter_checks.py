"""What the machine says against a cell: steal, other processes, swap, faults, too many threads, canary, GPUs.

Each threshold stands here once.  Figures are shares of the time of the job's CPUs while its trials ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from harness.analysis.table import Cause, Finding
from harness.analysis.validity import machine_speed
from harness.analysis.validity.findings import again, covers, invalid, noisy, of_jobs, remark, trials_s, warm_wider
from harness.analysis.validity.sample_checks import SampleFacts
from harness.records import Isolation
from harness.results.schema import Counters, Result

# MERGED harness.analysis.validity.counter_checks: What a job's GPUs say against a cell: throttling, processes of others,
# a clock that was not the same in every job.


# Clock reasons that hold a GPU back.  The others are at rest (gpu_idle), what somebody set (applications and display
# clocks), or what bounds a GPU at its best (reliability, board_limit).
THROTTLING = frozenset(
    {
        "hw_slowdown",
        "sync_boost",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
    }
)
# Small cards work at their power limit all day: that is their speed, and doubts nothing.
_POWER_LIMIT = "sw_power_cap"
# Share of the readings within the trials in which one may be in force.  At a look, when the GPU rests, none may.
MAX_THROTTLED = 0.05
# Also in force for a moment while the clock changes, on some drivers: once is no throttling.
_FLEETING = "hw_slowdown"
# Fastest / slowest median clock of a cell's jobs, from this many readings on (a second or so).
MAX_CLOCK = 1.15
MIN_READINGS = 4


def check_gpus(results: Sequence[Result]) -> list[Finding]:
    """Judge what NVML said while a cell's jobs ran.

    Args:
        results: the pooled jobs of one cell, all ``ok``.
    """
    asked = [result for result in results if result.spec.envelope.gpus]
    if not asked:
        return []
    return [
        *_gpu_throttled(asked),
        *_gpu_capped(asked),
        *_gpu_shared(asked),
        *_gpu_clocks(asked),
        *_gpu_unread(asked),
        *_gpu_uncovered(asked),
    ]


def energy_j(result: Result) -> float | None:
    """What a job's GPUs took while its trials ran; None where that was not said, or is not of the trials alone."""
    return result.gpu.energy_j if result.gpu and covers(result.gpu.wall_s, result) else None


def _gpu_throttled(results: Sequence[Result]) -> list[Finding]:
    found = [counts for result in results if (counts := _in_force(result, THROTTLING))]
    if not found:
        return []
    worst = max(found, key=lambda counts: max(counts.values()))
    reasons = ", ".join(f"{name} in {share:.0%}" for name, share in sorted(worst.items()))
    cell, where = results[0].spec.cell, of_jobs(len(found), len(results))
    text = (
        f"the GPU was throttled: {reasons} of the moments beside and within the trials{where} "
        f"(steady: up to {MAX_THROTTLED:.0%} of those within, none beside); let it cool "
        f"(nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE shows what holds it back), then "
        f"{again(cell, '--retry-noisy 3')}"
    )
    return [noisy(Cause.GPU_THROTTLING, text, transient=True)]


def _gpu_capped(results: Sequence[Result]) -> list[Finding]:
    found = [counts[_POWER_LIMIT] for result in results if (counts := _in_force(result, frozenset({_POWER_LIMIT})))]
    if not found:
        return []
    text = (
        f"the GPU was at its power limit in {max(found):.0%} of the moments beside and within the trials"
        f"{of_jobs(len(found), len(results))}: another limit (nvidia-smi --power-limit) gives another speed"
    )
    return [remark(Cause.GPU_THROTTLING, text)]


def _in_force(result: Result, reasons: frozenset[str]) -> dict[str, float]:
    """Those of some reasons that held this job's GPUs back, each with its share of all moments."""
    looks = [reading.gpu.clock_reasons for reading in result.canary if reading.gpu and reading.gpu.clock_reasons]
    beside = Counter(name for names in looks for name in names)
    within = Counter(result.gpu.clock_reasons or {}) if result.gpu else Counter[str]()
    readings = result.gpu.readings if result.gpu else 0
    moments = readings + sum(bool(reading.gpu and reading.gpu.clock_reasons is not None) for reading in result.canary)
    return {
        name: (beside[name] + within[name]) / moments
        for name in reasons
        if (beside[name] or within[name] > MAX_THROTTLED * readings)
        and (name != _FLEETING or beside[name] + within[name] > 1)
    }


def _gpu_shared(results: Sequence[Result]) -> list[Finding]:
    shared = [result.gpu for result in results if result.gpu and result.gpu.foreign_processes]
    if not shared:
        return []
    # Both of the same moment: what some had in one job is not what others had in another.
    most, held = max(
        ((use.foreign_processes or 0, use.foreign_bytes) for use in shared), key=lambda pair: (pair[0], pair[1] or 0)
    )
    amount = "an amount of memory that NVML does not say" if held is None else f"{held / 2**20:,.0f} MiB"
    text = (
        f"{most} {'process' if most == 1 else 'processes'} of others had {amount} on the job's GPUs"
        f"{of_jobs(len(shared), len(results))} (expected: none), so neither its time nor its GPU memory is the job's "
        f"alone; end them (nvidia-smi lists them), then {again(results[0].spec.cell)}"
    )
    # Not transient: a display server is there for good, and measuring again would meet it again.
    return [noisy(Cause.GPU_SHARED, text)]


def _gpu_clocks(results: Sequence[Result]) -> list[Finding]:
    """A remark only: a GPU sets its clock by what it is asked to do, so another clock may be the system's own doing.

    What holds it back from outside has a reason of its own.  Looks are not compared: a GPU that nobody has woken yet
    and one that waits for the next trial differ by more than anything that disturbs.
    """
    clocks = [
        result.gpu.sm_clock_mhz
        for result in results
        if result.gpu and result.gpu.sm_clock_mhz and result.gpu.readings >= MIN_READINGS
    ]
    if len(clocks) < 2 or max(clocks) <= MAX_CLOCK * min(clocks):
        return []
    text = (
        f"the GPU's clock was {min(clocks):,.0f} to {max(clocks):,.0f} MHz in different jobs (medians while the trials "
        f"ran; alike: up to {MAX_CLOCK:g} times); nvidia-smi --lock-gpu-clocks holds it"
    )
    return [remark(Cause.GPU_CLOCK, text)]


def _gpu_unread(results: Sequence[Result]) -> list[Finding]:
    """What was not measured is said, so that silence is not taken for a quiet GPU."""
    unsaid = {
        "throttling": [result for result in results if not result.gpu or result.gpu.clock_reasons is None],
        "processes of others": [result for result in results if not result.gpu or result.gpu.foreign_processes is None],
        "energy": [result for result in results if not result.gpu or result.gpu.energy_j is None],
    }
    missing = [what for what, silent in unsaid.items() if silent]
    if not missing:
        return []
    count = max(len(silent) for silent in unsaid.values())
    text = (
        f"no reading of {' and of '.join(missing)} on the job's GPUs{of_jobs(count, len(results))}: NVML does not say "
        "it on this device, the trials were over too soon, or the harness runs in a container, where processes have "
        "other numbers than NVML's; not judged there"
    )
    return [remark(Cause.GPU_UNSAID, text)]


def _gpu_uncovered(results: Sequence[Result]) -> list[Finding]:
    """Energy that was counted, and is not that of the trials."""
    others = [result for result in results if result.gpu and not covers(result.gpu.wall_s, result)]
    if not others:
        return []
    first = others[0]
    text = (
        f"the GPUs' energy was counted over {first.gpu.wall_s if first.gpu else 0:.2g} s for {trials_s(first):.2g} s "
        f"of trials{of_jobs(len(others), len(results))}, too far off to be theirs: no energy is given; ask more queries"
    )
    return [remark(Cause.GPU_UNSAID, text)]


MAX_STEAL = 0.01
# The harness's own sampling must stay well below this where it shares the job's CPUs.
MAX_FOREIGN = 0.05
# The kernel counts both in ticks of up to 10 ms: a few of them in a short trial are no share to speak of.
MIN_TAKEN_S = 0.05
# Time that the job's threads waited for one another, as a share of the CPU time that they had; needs some of that to
# mean anything.
MAX_WAIT = 0.25
MIN_CPU_S = 0.2
# A page read from disk takes some 0.1 to 10 ms: from one in ten queries on, the mean holds the disk.
MAX_FAULTS_PER_QUERY = 0.1


def check(results: Sequence[Result], known: machine_speed.Levels, facts: SampleFacts) -> list[Finding]:
    """Judge the counters, the canary, the GPUs and the placement of a cell's jobs.

    Args:
        results: the pooled jobs of one cell, all ``ok``.
        known: the canary's levels of all jobs in the results.
        facts: what the cell's samples say.
    """
    told = [result for result in results if _covered(result)]
    return [
        *_throttled(results),
        *_swapped(results),
        *_unknown(results),
        *_uncovered(results),
        *_taken(told),
        *_crowded(told),
        *_faults(told, facts.queries),
        *machine_speed.check(results, known, facts),
        *check_gpus(results),
        *_placed(results),
        *_shared(results),
        *_pages(results),
    ]


def _worst(results: Sequence[Result], share: Callable[[Result], float | None], most: float) -> tuple[float, str] | None:
    """The largest share above ``most``, and in how many of several jobs there is one."""
    shares = [value for result in results if (value := share(result)) is not None]
    above = [value for value in shares if value > most]
    if not above:
        return None
    return max(above), of_jobs(len(above), len(results))


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
    return [invalid(Cause.THROTTLING, text)]


def _swapped(results: Sequence[Result]) -> list[Finding]:
    most = max((result.counters.swap_bytes or 0 for result in results), default=0)
    if not most:
        return []
    text = (
        f"{most / 2**20:.3g} MiB of the job were swapped out, so its memory limit was none and times hold the disk; "
        f"switch swap off (swapoff -a) or take a larger profile, then {again(results[0].spec.cell)}"
    )
    return [invalid(Cause.SWAP, text)]


def _unknown(results: Sequence[Result]) -> list[Finding]:
    """Find containers without counters: theirs can lie out of reach (a remote engine)."""
    silent = [
        result for result in results if result.counters == Counters() and result.spec.isolation is Isolation.CONTAINER
    ]
    if not silent:
        return []
    if all(result.memory.samples for result in silent):
        # The cgroup was there to be read; the trials were over sooner than that.
        short = f"the trials were too short for the kernel's counters{of_jobs(len(silent), len(results))}"
        return [remark(Cause.COUNTERS, f"{short}: steal, other processes, waiting and faults were not judged there")]
    text = (
        f"the kernel's counters of this job could not be read{of_jobs(len(silent), len(results))}, so nothing shows "
        "that the machine was quiet; measure with an engine on this host whose cgroups harness doctor can see, in "
        f"trials of some seconds, then {again(results[0].spec.cell)}"
    )
    return [noisy(Cause.COUNTERS, text)]


def _covered(result: Result) -> bool:
    return covers(result.counters.wall_s, result)


def _uncovered(results: Sequence[Result]) -> list[Finding]:
    others = [result for result in results if not _covered(result)]
    if not others:
        return []
    first = others[0]
    text = (
        f"the kernel's counters cover {first.counters.wall_s:.2g} s for {trials_s(first):.2g} s of trials"
        f"{of_jobs(len(others), len(results))}, too far off to tell steal, other processes or faults; ask more queries"
    )
    return [remark(Cause.COUNTERS, text)]


def _taken(results: Sequence[Result]) -> list[Finding]:
    """CPU time of the job's CPUs that somebody else had: the hypervisor, or other processes."""
    steal = _worst(results, lambda result: _of_cpus(result, result.counters.steal_s), MAX_STEAL)
    foreign = _worst(results, lambda result: _of_cpus(result, result.counters.foreign_cpu_s), MAX_FOREIGN)
    quieten = "quieten the machine (harness doctor shows its load), then"
    return [
        noisy(
            cause,
            f"{who} {worst[0]:.1%} of the job's CPU time{worst[1]} (steady: up to {most:.0%}); {remedy} "
            f"{again(results[0].spec.cell, '--retry-noisy 3')}",
            transient=True,
        )
        for cause, worst, most, who, remedy in (
            (Cause.STEAL, steal, MAX_STEAL, "the hypervisor took", "take a machine with CPUs of its own, or"),
            (Cause.FOREIGN_CPU, foreign, MAX_FOREIGN, "other processes had", quieten),
        )
        if worst is not None
    ]


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
        "a longer warm-up: protocol.warmup_cap), "
        f"then {again(spec.cell)}"
    )
    return [noisy(Cause.OVERSUBSCRIPTION, text)]


def _faults(results: Sequence[Result], queries: int | None) -> list[Finding]:
    def per_query(result: Result) -> float | None:
        faults, asked = result.counters.major_faults, (queries or 0) * max(result.trials_finished, 1)
        return None if faults is None or not asked else faults / asked

    found = _worst(results, per_query, MAX_FAULTS_PER_QUERY)
    if found is None:
        return []
    text = (
        f"{found[0]:.2g} major page faults a query{found[1]} (expected: up to {MAX_FAULTS_PER_QUERY}): the index does "
        "not fit into memory, or its pages were not yet read; take a larger profile, or "
        f"{warm_wider(results[0].spec)}"
    )
    return [noisy(Cause.PAGE_FAULTS, text)]


def _placed(results: Sequence[Result]) -> list[Finding]:
    placements = [result.placement for result in results if result.placement is not None]
    spec, found = results[0].spec, []
    if any(not placement.apart for placement in placements):
        text = (
            f"the harness had to share the job's CPUs ({spec.envelope.cpus} of {results[0].environment.host_cpus}); "
            f"measure on a machine with more CPUs, or on a smaller profile: {again(spec.cell)} there"
        )
        found.append(noisy(Cause.PLACEMENT, text))
    if any(placement.whole_cores is False for placement in placements):
        found.append(
            remark(
                Cause.PLACEMENT, "others could run on the same physical cores; a profile of whole cores keeps them off"
            )
        )
    return found


def _shared(results: Sequence[Result]) -> list[Finding]:
    shared = sum(result.shared_host for result in results)
    if not shared:
        return []
    text = (
        f"other jobs of AWS Batch may have run on the same host{of_jobs(shared, len(results))}, which takes caches and "
        "memory bandwidth whatever the limits; make its queues again without --shared (harness batch up), then "
        f"{again(results[0].spec.cell)}"
    )
    return [noisy(Cause.SHARED_HOST, text)]


def _pages(results: Sequence[Result]) -> list[Finding]:
    """Find jobs whose index pages stayed in the page cache."""
    if all(result.page_cache is not None for result in results):
        return []
    return [
        remark(
            Cause.PAGE_CACHE,
            "the index's pages were not dropped from the host's page cache first, so load may be a warm one",
        )
    ]
