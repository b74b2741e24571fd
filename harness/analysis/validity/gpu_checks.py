"""What a job's GPUs say against a cell: throttling, processes of others, a clock that was not the same in every job.

Each threshold stands here once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.analysis.table import Cause, Finding
from harness.analysis.validity.findings import again, covers, noisy, of_jobs, remark, trials_s
from harness.results.schema import Result

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


def look(results: Sequence[Result]) -> list[Finding]:
    """Judge what NVML said while a cell's jobs ran.

    Args:
        results: the pooled jobs of one cell, all ``ok``.
    """
    asked = [result for result in results if result.spec.envelope.gpus]
    if not asked:
        return []
    return [
        *_throttled(asked),
        *_capped(asked),
        *_shared(asked),
        *_clocks(asked),
        *_unsaid(asked),
        *_uncovered(asked),
    ]


def energy_j(result: Result) -> float | None:
    """What a job's GPUs took while its trials ran; None where that was not said, or is not of the trials alone."""
    return result.gpu.energy_j if result.gpu and covers(result.gpu.wall_s, result) else None


def _throttled(results: Sequence[Result]) -> list[Finding]:
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


def _capped(results: Sequence[Result]) -> list[Finding]:
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


def _shared(results: Sequence[Result]) -> list[Finding]:
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


def _clocks(results: Sequence[Result]) -> list[Finding]:
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


def _unsaid(results: Sequence[Result]) -> list[Finding]:
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


def _uncovered(results: Sequence[Result]) -> list[Finding]:
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
