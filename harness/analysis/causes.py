"""The causes of findings in plain words: what happened, what it does to the numbers, what to do.

The summary names a cause in a few words; ``harness explain`` and the page's evidence have all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.analysis.table import Cause


@dataclass(frozen=True)
class CauseText:
    """A cause in a few words, its effect on the numbers, and the remedy (empty: nothing to do)."""

    short: str
    effect: str
    remedy: str


TEXTS: dict[Cause, CauseText] = {
    Cause.ISOLATION: CauseText(
        "no container enforced the limits",
        "The memory limit and the network ban were not enforced, so memory and latency may differ in a container.",
        "Measure with --launcher docker.",
    ),
    Cause.PROTOCOL: CauseText(
        "the suite departs from the protocol that it names",
        "The numbers follow other rules than the paper's, so they cannot be set beside its tables.",
        "Use the protocol's own values in the suite.",
    ),
    Cause.THROTTLING: CauseText(
        "the kernel throttled the CPUs",
        "A CPU quota stopped the job in each period, so every latency is wrong.",
        "Remove the quota (harness doctor shows it), then measure again.",
    ),
    Cause.SWAP: CauseText(
        "memory was swapped to disk",
        "The memory limit did not hold, and latencies include the disk.",
        "Switch swap off (swapoff -a) or take a larger profile.",
    ),
    Cause.COUNTERS: CauseText(
        "the kernel's counters are missing",
        "Nothing shows that the machine was quiet while the trials ran.",
        "Measure on a host whose cgroups harness doctor can read, with trials of some seconds.",
    ),
    Cause.STEAL: CauseText(
        "the hypervisor took CPU time",
        "Another virtual machine ran on the job's CPUs, so some queries waited.",
        "Take a machine with CPUs of its own, or run the suite again with --retry-noisy 3.",
    ),
    Cause.FOREIGN_CPU: CauseText(
        "other processes took CPU time",
        "Other programs ran on the job's CPUs, so some queries waited.",
        "Stop other work on this machine, then run the suite again with --retry-noisy 3.",
    ),
    Cause.OVERSUBSCRIPTION: CauseText(
        "more threads than CPUs",
        "The system's own threads waited for one another, so latency depends on its thread count.",
        "Let the system use as many threads as it has CPUs.",
    ),
    Cause.PAGE_FAULTS: CauseText(
        "the index was read from disk",
        "Queries read pages from disk, because the index does not fit into memory or was cold.",
        "Take a larger profile, or raise protocol.warmup_queries.",
    ),
    Cause.CANARY: CauseText(
        "the machine changed its speed",
        "A fixed piece of work took different times beside the trials, so trials are not comparable.",
        "Stop other work on this machine, then run the suite again with --retry-noisy 3.",
    ),
    Cause.SLOW_MACHINE: CauseText(
        "the machine was slower than for other rows",
        "A fixed piece of work took longer than beside other rows, so this row looks slow against them.",
        "Run the suite again with --retry-noisy 3.",
    ),
    Cause.GPU_THROTTLING: CauseText(
        "the GPU was throttled",
        "Heat or power held the GPU's clock back.",
        "Let it cool, then run the suite again with --retry-noisy 3.",
    ),
    Cause.GPU_SHARED: CauseText(
        "other processes used the GPU",
        "Neither the GPU's time nor its memory is the job's alone.",
        "End them (nvidia-smi lists them), then measure again.",
    ),
    Cause.GPU_CLOCK: CauseText(
        "the GPU's clock differed between jobs",
        "The jobs of this row ran at different GPU speeds.",
        "Lock the clocks (nvidia-smi --lock-gpu-clocks), then measure again.",
    ),
    Cause.GPU_UNSAID: CauseText(
        "the GPU driver withheld some readings",
        "Throttling, sharing or energy could not be judged.",
        "",
    ),
    Cause.PLACEMENT: CauseText(
        "the harness shared its CPUs",
        "The job had all CPUs of the machine, so the harness's own work delayed some queries.",
        "Measure on a machine with more CPUs, or take a smaller profile.",
    ),
    Cause.SHARED_HOST: CauseText(
        "other jobs may have run on the host",
        "Neighbours take caches and memory bandwidth whatever the limits are.",
        "Create the queues without --shared (harness batch up), then measure again.",
    ),
    Cause.PAGE_CACHE: CauseText(
        "the page cache was not dropped",
        "Loading may have been warm, so load time is a lower bound.",
        "",
    ),
    Cause.THREADS_UNSAID: CauseText(
        "the adapter reports no thread counts",
        "Its libraries may have used more threads than CPUs.",
        "Return the counts from the adapter's threads().",
    ),
    Cause.INCOMPLETE: CauseText(
        "trials are missing",
        "The numbers rest on fewer trials or queries than the suite asks for.",
        "Run the suite again: it measures what is missing.",
    ),
    Cause.RANKINGS: CauseText(
        "trials ranked documents differently",
        "The measures judge the first trial's run, and others differ from it.",
        "Look for threads, ties or approximate search in the system.",
    ),
    Cause.WARMUP: CauseText(
        "the system was not warm yet",
        "The first timed queries were slower than later ones, so the mean is too high.",
        "Set or raise protocol.warmup_cap in the suite.",
    ),
    Cause.DRIFT: CauseText(
        "trials differ too much",
        "Latency drifted from trial to trial by more than queries explain.",
        "Stop other work on this machine, then run the suite again with --retry-noisy 3.",
    ),
    Cause.RESULT_CACHE: CauseText(
        "the system caches results",
        "A repeated query was answered from a cache, which real queries seldom hit.",
        "Switch the cache off, or declare result_cache = true in the system's TOML.",
    ),
    Cause.UNACCOUNTED_TIME: CauseText(
        "time passed outside the reported latencies",
        "The image reports less time than its queries took.",
        "Let search() return only when its work is done.",
    ),
    Cause.STAGES: CauseText(
        "the stages do not sum to the latency",
        "The latency holds, but the times of retrieving and reranking miss a part of it or count some of it twice.",
        "Let stages_s() of the adapter count each moment once.",
    ),
    Cause.FEW_SAMPLES: CauseText(
        "few slow samples carry the mean",
        "Some samples were slow once and fast in other trials, and they dominate the mean.",
        "Compare p50, or run the suite again with --retry-noisy 3.",
    ),
    Cause.LATENCY_TARGET: CauseText(
        "no arrival rate kept the latency target",
        "Some jobs found no rate that meets the target twice, so the throughput is missing or lacks them.",
        "Raise server.latency_target_s in the suite.",
    ),
}
