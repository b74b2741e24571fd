"""The causes of findings in plain words: what happened, what it does to the numbers, what to do.

The summary names a cause in a few words; ``harness explain`` and the page's evidence have all of it.  A finding of the
validity checks takes its remedy from here, and names the command for its own cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from harness.analysis.table import Cause
from harness.estimate import MIN_PROCESSES


class Again(Enum):
    """Way to measure again after a remedy."""

    NOT = ""
    FRESH = "measure again"
    MISSING = "run the suite again: it measures what is missing"
    RETRY = "run the suite again with --retry-noisy 3"


@dataclass(frozen=True)
class CauseText:
    """A cause in a few words, its effect on the numbers, and the remedy.

    ``remedy`` ends with the word that leads to ``again``, and is empty where only measuring again helps.
    """

    short: str
    effect: str
    remedy: str = ""
    again: Again = Again.FRESH

    @property
    def transient(self) -> bool:
        """True if the cause may pass by itself."""
        return self.again is Again.RETRY

    @property
    def advice(self) -> str:
        """The remedy for any cell, as a sentence; empty: nothing to do."""
        text = f"{self.remedy} {self.again.value}".strip()
        return f"{text[0].upper()}{text[1:]}." if text else ""


_STOP_OTHERS = "stop other work on this machine, then"
# A row does not know how many judged queries its dataset has, so this holds whether it has more or not.
MORE_QUERIES = (
    "raise protocol.sample_size if the dataset judges more queries; else judge more, time others too"
    " (protocol.unjudged), or take another dataset"
)
MORE_PROCESSES = f"set protocol.trials to {MIN_PROCESSES} or more, with protocol.name = interleaved"

TEXTS: dict[Cause, CauseText] = {
    Cause.ISOLATION: CauseText(
        "not measured in a Docker container",
        "Another launcher held the job and enforced fewer limits, so memory and latency may differ in a container.",
        "measure with --launcher docker",
        Again.NOT,
    ),
    Cause.CLIENT: CauseText(
        "the client was in the way",
        "The service's client had the server's CPUs, or could send no more queries, so the figures are partly its own.",
        "take a smaller profile or a machine with more CPUs, so that the client has CPUs of its own, then",
    ),
    Cause.PROTOCOL: CauseText(
        "the suite departs from the protocol that it names",
        "The numbers follow other rules than the paper's, so they cannot be compared with its tables.",
        "use the protocol's own values in the suite",
        Again.NOT,
    ),
    Cause.THROTTLING: CauseText(
        "the kernel throttled the CPUs",
        "A CPU quota stopped the job in each period, so every latency is wrong.",
        "remove the quota (harness doctor shows the cgroups), then",
    ),
    Cause.SWAP: CauseText(
        "memory was swapped to disk",
        "The memory limit did not hold, and latencies include the disk.",
        "switch swap off (swapoff -a) or take a larger profile, then",
    ),
    Cause.COUNTERS: CauseText(
        "the kernel's counters are missing",
        "Nothing shows that the machine was quiet while the trials ran.",
        "use an engine on this host whose cgroups harness doctor can read, and trials of some seconds, then",
    ),
    Cause.STEAL: CauseText(
        "the hypervisor took CPU time",
        "Another virtual machine ran on the job's CPUs, so some queries waited.",
        "take a machine with CPUs of its own, or",
        Again.RETRY,
    ),
    Cause.FOREIGN_CPU: CauseText(
        "other processes took CPU time",
        "Other programs ran on the job's CPUs, so some queries waited.",
        _STOP_OTHERS,
        Again.RETRY,
    ),
    Cause.OVERSUBSCRIPTION: CauseText(
        "more threads than CPUs",
        "The system's own threads waited for one another, so latency depends on its thread count.",
        "let the system use as many threads as it has CPUs, or warm a JVM up longer (protocol.warmup_cap), then",
    ),
    Cause.PAGE_FAULTS: CauseText(
        "the index was read from disk",
        "Queries read pages from disk, because the index does not fit into memory or was cold.",
        "take a larger profile, or raise protocol.warmup_queries in the suite, then",
    ),
    Cause.CANARY: CauseText(
        "the machine changed its speed",
        "The same fixed work took different times around the trials, so trials are not comparable.",
        _STOP_OTHERS,
        Again.RETRY,
    ),
    Cause.SLOW_MACHINE: CauseText(
        "the machine was slower than for other rows",
        "The same fixed work took longer than for other rows, so this row looks slow against them.",
        again=Again.RETRY,
    ),
    Cause.GPU_THROTTLING: CauseText(
        "the GPU was throttled",
        "Heat or power held the GPU's clock back.",
        "let it cool (nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE shows what holds it back), then",
        Again.RETRY,
    ),
    Cause.GPU_SHARED: CauseText(
        "other processes used the GPU",
        "Neither the GPU's time nor its memory is the job's alone.",
        "end them (nvidia-smi lists them), then",
    ),
    Cause.GPU_CLOCK: CauseText(
        "the GPU's clock differed between jobs",
        "The jobs of this row ran at different GPU speeds.",
        "lock the clocks (nvidia-smi --lock-gpu-clocks), then",
    ),
    Cause.GPU_UNSAID: CauseText(
        "the GPU driver withheld some readings",
        "Throttling, sharing or energy could not be judged.",
        again=Again.NOT,
    ),
    Cause.PLACEMENT: CauseText(
        "the harness shared its CPUs",
        "The job had all CPUs of the machine, so the harness's own work delayed some queries.",
        "take a machine with more CPUs, or a smaller profile, then",
    ),
    Cause.SHARED_HOST: CauseText(
        "other jobs may have run on the host",
        "Neighbours use caches and memory bandwidth in spite of the limits.",
        "create the queues without --shared (harness batch up), then",
    ),
    Cause.PAGE_CACHE: CauseText(
        "the page cache was not dropped",
        "Loading may have been warm, so load time is a lower bound.",
        again=Again.NOT,
    ),
    Cause.THREADS_UNSAID: CauseText(
        "the adapter reports no thread counts",
        "Its libraries may have used more threads than CPUs.",
        "return the counts from the adapter's threads(), then",
    ),
    Cause.INCOMPLETE: CauseText(
        "trials are missing",
        "The numbers rest on fewer trials or queries than the suite asks for.",
        again=Again.MISSING,
    ),
    Cause.RANKINGS: CauseText(
        "trials ranked documents differently",
        "The measures judge the first trial's run, and others differ from it.",
        "look for threads, ties or approximate search in the system, then",
    ),
    Cause.WARMUP: CauseText(
        "the system was not warm yet",
        "The first timed queries were slower than later ones, so the mean is too high.",
        "warm up with more queries (protocol.warmup_queries) or longer (protocol.warmup_cap), then",
    ),
    Cause.DRIFT: CauseText(
        "trials differ too much",
        "Latency drifted from trial to trial by more than queries explain.",
        _STOP_OTHERS,
        Again.RETRY,
    ),
    Cause.RESULT_CACHE: CauseText(
        "the system caches results",
        "A repeated query was answered from a cache, which real queries seldom hit.",
        "switch the cache off, or declare result_cache = true in the system's TOML, then",
    ),
    Cause.UNACCOUNTED_TIME: CauseText(
        "time passed outside the reported latencies",
        "The image reports less time than its queries took.",
        "let search() return only when its work is done, then",
    ),
    Cause.STAGES: CauseText(
        "the stages do not sum to the latency",
        "The latency holds, but the times of retrieving and reranking miss a part of it or count some of it twice.",
        "let stages_s() of the adapter count each moment once, then",
    ),
    Cause.FEW_SAMPLES: CauseText(
        "a few slow samples decide the mean",
        "A few queries were slow in one trial and fast in the others, and they make up much of the mean.",
        "compare p50, which they do not move, or",
        Again.RETRY,
    ),
    Cause.LATENCY_TARGET: CauseText(
        "no arrival rate kept the latency target",
        "Some jobs found no rate that meets the target twice, so the throughput is missing or leaves those jobs out.",
        "raise server.latency_target_s in the suite, then",
    ),
    Cause.FAILED_QUERIES: CauseText(
        "some queries got no answer",
        "The service answered them with an error or not in time. They count as late, and no latency includes them.",
        "read the job's log for the error (harness explain names it), give the service more connections or time, then",
    ),
}
