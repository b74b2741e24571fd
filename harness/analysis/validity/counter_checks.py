"""Validity checks on the machine: steal, other processes, swap, page faults, too many threads, placement, GPUs.

Shares are relative to the time of the job's CPUs while its trials ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.analysis.causes import MORE_QUERIES
from harness.analysis.table import Cause, Validity
from harness.analysis.validity import machine_speed
from harness.analysis.validity.findings import (
    Doubt,
    covers,
    invalid,
    of_jobs,
    remark,
    throttled,
    trials_s,
    warm_wider,
)
from harness.analysis.validity.sample_checks import SampleFacts
from harness.driver.procfs import format_list
from harness.driver.records import Envelope
from harness.errors import counted
from harness.results.isolation import CounterScope
from harness.results.schema import CPU_OF_PROCESSES, Counters, GpuUse, Observed, Result, is_service

MAX_STEAL = 0.01
# Harness's own sampling must stay well below this if it shares the job's CPUs.
MAX_FOREIGN = 0.05
# Time that the job did not get: its counter, the largest steady share, and who had it.
_TAKEN = (
    (Cause.STEAL, "steal_s", MAX_STEAL, "the hypervisor took"),
    (Cause.FOREIGN_CPU, "foreign_cpu_s", MAX_FOREIGN, "other processes had"),
)
# The kernel counts both in ticks of up to 10 ms, so a few ticks in a short trial are not evidence.
MIN_TAKEN_S = 0.05
# Time that the job's threads waited for one another, as a share of their CPU time, from MIN_CPU_S of it on.
MAX_WAIT = 0.25
MIN_CPU_S = 0.2
# CPU time of a service's client while queries arrive at a rate, as a share of one CPU.
MAX_CLIENT = 0.8
# A page read from disk takes some 0.1 to 10 ms: from one in ten queries on, the mean holds the disk.
MAX_FAULTS_PER_QUERY = 0.1

# Clock reasons that hold a GPU back.  The other reasons are rest (gpu_idle), settings (applications and display
# clocks), and the bounds of an unhindered GPU (reliability, board_limit).
THROTTLING = ("hw_slowdown", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
# Small cards always work at their power limit: it is their normal speed.
_POWER_LIMIT = "sw_power_cap"
# The allowed share of readings during the trials with such a reason.  Outside the trials, at rest, none is allowed.
MAX_THROTTLED = 0.05
# Some drivers also report it for a moment while the clock changes: once is not throttling.
_FLEETING = "hw_slowdown"
# Fastest / slowest median clock of a cell's jobs, from this many readings on (a second or so).
MAX_CLOCK = 1.15
MIN_READINGS = 4


def check(results: Sequence[Result], levels: machine_speed.Levels, facts: SampleFacts) -> list[Doubt]:
    """Judge the counters, the canary, the GPUs and the placement of a cell's jobs.

    Args:
        results: the pooled jobs of one cell, all ``ok``.
        levels: the canary's levels of all jobs in the results.
        facts: facts about the cell's samples.
    """
    covered = [result for result in results if covers(result.observed.counters.wall_s, trials_s(result))]
    return [
        *limits("job", [result.observed for result in results]),
        *_unread(results),
        *_summed(results),
        *_uncovered(results),
        *taken("job", [(each.observed, each.spec.envelope) for each in covered]),
        *_crowded(covered),
        *_faults(covered, facts.queries),
        *machine_speed.check(results, levels, facts),
        *check_gpus(results),
        *_placement(results),
        *_client(results),
        *_published(results),
    ]


def _worst(shares: Sequence[float | None], most: float) -> tuple[float, str] | None:
    """Return the largest share above ``most``, and the number of jobs above it in words."""
    above = [share for share in shares if share is not None and share > most]
    return (max(above), of_jobs(len(above), len(shares))) if above else None


def _share_of_cpus(job: Observed, envelope: Envelope, seconds: float | None) -> float | None:
    """Return seconds as a share of the time of the job's CPUs while its trials or its build ran."""
    wall = job.counters.wall_s
    cpus = len(job.placement.cpus) if job.placement else envelope.cpus
    return None if seconds is None or seconds < MIN_TAKEN_S or not wall or not cpus else seconds / (wall * cpus)


def limits(what: str, observed: Sequence[Observed], larger: str | None = None) -> Iterator[Doubt]:
    """Find jobs or builds that a CPU quota stopped or that the kernel swapped out.

    Args:
        what: ``job`` or ``build``.
        observed: what was read of each.
        larger: remedy for swapping; by default the remedy of its cause.
    """
    periods = sum(each.throttled_periods or 0 for each in observed)
    seconds = sum(each.counters.throttled_s or 0.0 for each in observed)
    if periods or seconds:
        yield invalid(Cause.THROTTLING, throttled(what, periods, seconds))
    most = max(each.counters.swap_bytes or 0 for each in observed)
    if most:
        text = f"{most / 2**20:.3g} MiB of the {what} were swapped out"
        yield Doubt(Cause.SWAP, text, larger, Validity.INVALID)


def _unread(results: Sequence[Result]) -> Iterator[Doubt]:
    """Find containers without counters, such as those on a remote engine."""
    silent = [
        result
        for result in results
        if result.observed.counters == Counters() and result.isolation.counters is CounterScope.CGROUP
    ]
    where = of_jobs(len(silent), len(results))
    # The cgroup could be read, but the trials ended before the first reading.
    if silent and all(result.observed.memory.samples for result in silent):
        yield remark(
            Cause.COUNTERS,
            f"the trials were too short for the kernel's counters{where}: steal, other processes, waiting and faults "
            "were not judged there",
        )
    elif silent:
        yield Doubt(Cause.COUNTERS, f"the kernel's counters of this job could not be read{where}")


def _summed(results: Sequence[Result]) -> Iterator[Doubt]:
    """Find jobs whose own cgroup does not count CPU time, as in steps of Slurm without accounting."""
    summed = [result for result in results if (result.observed.memory.source or "").endswith(CPU_OF_PROCESSES)]
    if summed:
        yield remark(
            Cause.COUNTERS,
            f"no cgroup counts the job's CPU time{of_jobs(len(summed), len(results))}, so it is the sum over processes:"
            " those that lived for less than a reading are missing",
        )


def _uncovered(results: Sequence[Result]) -> Iterator[Doubt]:
    others = [result for result in results if not covers(result.observed.counters.wall_s, trials_s(result))]
    if others:
        yield remark(
            Cause.COUNTERS,
            f"the kernel's counters cover {others[0].observed.counters.wall_s:.2g} s for {trials_s(others[0]):.2g} s "
            f"of trials{of_jobs(len(others), len(results))}, too far off to judge steal, other processes or faults; "
            f"trials that last longer can be judged: {MORE_QUERIES}",
        )


def taken(what: str, watched: Sequence[tuple[Observed, Envelope]]) -> Iterator[Doubt]:
    """Find CPU time of jobs or builds (``what``) that the hypervisor or other processes took."""
    for cause, name, most, who in _TAKEN:
        shares = [_share_of_cpus(seen, limits, getattr(seen.counters, name)) for seen, limits in watched]
        if worst := _worst(shares, most):
            yield Doubt(cause, f"{who} {worst[0]:.1%} of the {what}'s CPU time{worst[1]} (steady: up to {most:.0%})")


def waiting(counters: Counters) -> float | None:
    """Return how long a job's threads waited for one another, in each second of its CPU time.

    A thread waits for the process that runs on its CPU. If the job has at most as many runnable threads as CPUs, that
    is another process or the hypervisor; waiting beyond their time is for the job's own threads.
    """
    if counters.wait_s is None or counters.foreign_cpu_s is None or (counters.cpu_s or 0.0) < MIN_CPU_S:
        return None
    return (counters.wait_s - counters.foreign_cpu_s - (counters.steal_s or 0.0)) / (counters.cpu_s or 1.0)


def _crowded(results: Sequence[Result]) -> Iterator[Doubt]:
    """Find more runnable threads than CPUs, after subtracting the waiting that a busy machine causes."""
    if worst := _worst([waiting(result.observed.counters) for result in results], MAX_WAIT):
        spec = results[0].spec
        yield Doubt(
            Cause.OVERSUBSCRIPTION,
            f"more runnable threads than CPUs: they waited {worst[0]:.2f} s for one another in each second of CPU time"
            f"{worst[1]} ({counted(spec.envelope.cpus, 'CPU')}; expected: up to {MAX_WAIT})",
        )


def _faults(results: Sequence[Result], queries: int | None) -> Iterator[Doubt]:
    shares = []
    for result in results:
        faults = result.observed.counters.major_faults
        queries_run = (queries or 0) * max(result.answers.trials_finished, 1)
        shares.append(None if faults is None or not queries_run else faults / queries_run)
    if worst := _worst(shares, MAX_FAULTS_PER_QUERY):
        yield Doubt(
            Cause.PAGE_FAULTS,
            f"{worst[0]:.2g} major page faults a query{worst[1]} (expected: up to {MAX_FAULTS_PER_QUERY})",
            f"take a larger profile, or {warm_wider(results[0].spec)}",
        )


def _placement(results: Sequence[Result]) -> Iterator[Doubt]:
    """Find other work on the job's CPUs, cores or host, and index pages that stayed in the page cache."""
    placements = [placement for result in results if (placement := result.observed.placement) is not None]
    spec = results[0].spec
    if any(not placement.apart for placement in placements):
        yield Doubt(
            Cause.PLACEMENT,
            f"the harness had to share the job's CPUs ({spec.envelope.cpus} of {results[0].environment.host_cpus})",
        )
    if any(placement.whole_cores is False for placement in placements):
        yield remark(
            Cause.PLACEMENT, "others could run on the same physical cores; a profile of whole cores keeps them off"
        )
    shared = sum(result.observed.shared_host for result in results)
    if shared:
        yield Doubt(
            Cause.SHARED_HOST, f"other jobs of AWS Batch may have run on the same host{of_jobs(shared, len(results))}"
        )
    if any(result.page_cache is None for result in results) and not results[0].isolation.attached:
        yield remark(
            Cause.PAGE_CACHE,
            "the index's pages were not dropped from the host's page cache first, so load may be a warm one",
        )


def _client(results: Sequence[Result]) -> Iterator[Doubt]:
    """Find a service's client on the server's CPUs, or one that had no time left to send more queries."""
    served = [result for result in results if is_service(result)]
    placements = [result.observed.placement for result in served if result.isolation.attached]
    shared = [
        placement.cpus
        for result in served
        if (placement := result.observed.placement) and {*placement.client_cpus} & {*placement.cpus}
    ]
    if shared:
        where = of_jobs(len(shared), len(results))
        yield Doubt(Cause.CLIENT, f"client beside server: both had CPUs {format_list(shared[0])}{where}")
    if any(placement and {*placement.client_cpus} & {*placement.harness_cpus} for placement in placements):
        yield Doubt(Cause.CLIENT, "the client had to share its one CPU with harness itself")
    if results[0].spec.cell.scenario == "single_stream":
        return  # the client rests while the server works
    if worst := _worst([_client_busy(result.observed.counters) for result in served], MAX_CLIENT):
        text = f"the client used {worst[0]:.0%} of the one CPU that it can use{worst[1]} (expected: up to"
        yield invalid(Cause.CLIENT, f"{text} {MAX_CLIENT:.0%}), so the throughput may be its own, not the server's")


def _published(results: Sequence[Result]) -> Iterator[Doubt]:
    """Remark on servers of published images, in which no driver reads limits."""
    silent = [one for one in results if is_service(one) and one.measured and one.measured.effective is None]
    if silent:
        fact = "the limits of the server, a published image, were read from outside alone"
        yield remark(Cause.ISOLATION, f"{fact}{of_jobs(len(silent), len(results))}")


def _client_busy(counters: Counters) -> float | None:
    """Return the share of one CPU that a client used: its threads run one at a time, as in any Python process."""
    if not counters.wall_s or counters.client_cpu_s is None:
        return None
    return counters.client_cpu_s / counters.wall_s


def energy_j(result: Result) -> float | None:
    """Return the energy of a job's GPUs during its trials; ``None``: unknown, or not limited to the trials."""
    gpu = result.observed.gpu
    return gpu.energy_j if gpu and covers(gpu.wall_s, trials_s(result)) else None


def check_gpus(results: Sequence[Result]) -> list[Doubt]:
    """Judge the readings of NVML while a cell's jobs ran.

    Args:
        results: the pooled jobs of one cell, all ``ok``.
    """
    with_gpus = [result for result in results if result.spec.envelope.gpus]
    if not with_gpus:
        return []
    observed = [result.observed for result in with_gpus]
    return [
        *gpu_throttled("trials", observed),
        *_gpu_capped(observed),
        *gpu_shared("job", observed),
        *_gpu_clocks(with_gpus),
        *_gpu_unread(with_gpus),
    ]


def gpu_throttled(when: str, observed: Sequence[Observed]) -> Iterator[Doubt]:
    """Find GPUs that were held back during the trials or the build (``when``)."""
    slowed = [shares for seen in observed if (shares := _in_force(seen, *THROTTLING))]
    if slowed:
        worst = max(slowed, key=lambda shares: max(shares.values()))
        reasons = ", ".join(f"{name} in {share:.0%}" for name, share in sorted(worst.items()))
        yield Doubt(
            Cause.GPU_THROTTLING,
            f"the GPU was throttled: {reasons} of the readings during and around the {when}"
            f"{of_jobs(len(slowed), len(observed))} (steady: up to {MAX_THROTTLED:.0%} during the {when}, none around)",
        )


def _gpu_capped(observed: Sequence[Observed]) -> Iterator[Doubt]:
    capped = [shares[_POWER_LIMIT] for seen in observed if (shares := _in_force(seen, _POWER_LIMIT))]
    if capped:
        yield remark(
            Cause.GPU_THROTTLING,
            f"the GPU was at its power limit in {max(capped):.0%} of the readings during and around the trials"
            f"{of_jobs(len(capped), len(observed))}: another limit (nvidia-smi --power-limit) gives another speed",
        )


def _in_force(job: Observed, *reasons: str) -> dict[str, float]:
    """Return the given reasons that held this job's GPUs back, with their shares of all readings."""
    beside = [
        reading.gpu.clock_reasons for reading in job.canary if reading.gpu and reading.gpu.clock_reasons is not None
    ]
    within = (job.gpu.clock_reasons or {}) if job.gpu else {}
    readings = job.gpu.readings if job.gpu else 0
    shares = {}
    for name in reasons:
        counts = sum(name in names for names in beside), within.get(name, 0)
        if (counts[0] or counts[1] > MAX_THROTTLED * readings) and (name != _FLEETING or sum(counts) > 1):
            shares[name] = sum(counts) / max(readings + len(beside), 1)  # a forged record may count none
    return shares


def gpu_shared(what: str, observed: Sequence[Observed]) -> Iterator[Doubt]:
    """Find other processes on the GPUs of jobs or builds (``what``)."""
    # Count and memory must be from the same reading.
    shared = [
        (gpu.foreign_processes, gpu.foreign_bytes) for seen in observed if (gpu := seen.gpu) and gpu.foreign_processes
    ]
    if shared:
        most, held = max(shared, key=lambda pair: (pair[0], pair[1] or 0))
        amount = "an amount of memory that NVML does not say" if held is None else f"{held / 2**20:,.0f} MiB"
        # Not transient: a display server stays, and the next measurement would meet it again.
        yield Doubt(
            Cause.GPU_SHARED,
            f"{counted(most, 'process')} of others had {amount} on the {what}'s GPUs"
            f"{of_jobs(len(shared), len(observed))} (expected: none)",
        )


def _gpu_clocks(results: Sequence[Result]) -> Iterator[Doubt]:
    """Remark on different clocks: a GPU's clock follows its load, so the system itself may be the cause.

    External causes have their own clock reasons.  Readings outside the trials are not compared: an idle GPU and one
    that waits for the next trial differ by more than any disturbance.
    """
    clocks = [
        gpu.sm_clock_mhz
        for result in results
        if (gpu := result.observed.gpu) and gpu.sm_clock_mhz and gpu.readings >= MIN_READINGS
    ]
    if clocks and max(clocks) > MAX_CLOCK * min(clocks):
        yield remark(
            Cause.GPU_CLOCK,
            f"the GPU's clock was {min(clocks):,.0f} to {max(clocks):,.0f} MHz in different jobs (medians while the "
            f"trials ran; alike: up to {MAX_CLOCK:g} times); nvidia-smi --lock-gpu-clocks holds it",
        )


def _gpu_unread(results: Sequence[Result]) -> Iterator[Doubt]:
    """Remark on missing readings, so that silence is not taken for a quiet GPU."""
    uses = [result.observed.gpu or GpuUse() for result in results]
    unread = {
        "throttling": sum(use.clock_reasons is None for use in uses),
        "processes of others": sum(use.foreign_processes is None for use in uses),
        "energy": sum(use.energy_j is None for use in uses),
    }
    missing = [name for name, count in unread.items() if count]
    if missing:
        yield remark(
            Cause.GPU_UNSAID,
            f"no reading of {' and of '.join(missing)} on the job's GPUs{of_jobs(max(unread.values()), len(results))}: "
            "NVML does not say it on this device, the trials were over too soon, or the harness runs in a container, "
            "where processes have other numbers than NVML's; not judged there",
        )
    others = [
        (gpu.wall_s, trials_s(result))
        for result in results
        if (gpu := result.observed.gpu) and not covers(gpu.wall_s, trials_s(result))
    ]
    if others:
        counted_s, length_s = others[0]
        yield remark(
            Cause.GPU_UNSAID,
            f"the GPUs' energy was counted over {counted_s:.2g} s for {length_s:.2g} s of trials"
            f"{of_jobs(len(others), len(results))}, too far off to be theirs, so no energy is given; trials that last "
            f"longer give one: {MORE_QUERIES}",
        )
