"""What every launcher takes and gives."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from harness.launch.images.catalog import System
from harness.launch.monitor.traces import CounterTrace, GpuTrace, MemoryTrace
from harness.progress import Progress
from harness.records import Cpuset, Envelope, Isolation, JobSpec, Outcome, to_json
from harness.results.schema import CanaryReading, Placement


@dataclass(frozen=True)
class Prepared:
    """A system made ready to be launched: an image, or an environment of its own on the host.

    ``digest`` names exactly what will be measured; ``size_bytes`` is what it takes on disk, where known.
    """

    system: System
    digest: str
    reference: str
    size_bytes: int | None = None


@dataclass(frozen=True)
class Limits:
    """How long parts of a job may take, in seconds, before it is stopped as ``timeout``."""

    load_s: float = 600.0
    query_s: float = 60.0
    build_s: float = 7200.0
    job_s: float = 7200.0


@dataclass(frozen=True)
class LaunchRequest:
    """One container life: what to run, on which files, for how long at most.

    ``folder`` holds the empty ``out/``; the launcher adds ``spec.json`` and mounts it at ``/job``.  ``index_is_copy``:
    a search may write into its index, which nobody else reads.
    """

    spec: JobSpec
    prepared: Prepared
    folder: Path
    corpus_dir: Path
    index_dir: Path
    limits: Limits = Limits()
    index_is_copy: bool = False

    @property
    def out(self) -> Path:
        """The one folder that the job may write."""
        return self.folder / "out"

    @property
    def may_write_index(self) -> bool:
        """A build makes its index; a search reads it."""
        return self.spec.kind == "build" or self.index_is_copy

    def write_spec(self, cpuset: Cpuset) -> None:
        """Write what the driver is told, with the CPUs that it must find itself on: only the launcher knows them.

        An adapter that knew the queries while it loads could answer them there, under no clock.
        """
        told = replace(self.spec, warmup=(), sample=()) if self.spec.pause else self.spec
        text = to_json(replace(told, cpuset=cpuset))
        (self.folder / "spec.json").write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Stopped:
    """Why the launcher ended a job before it ended itself."""

    outcome: Outcome
    detail: str


@dataclass(frozen=True)
class Handed:
    """The queries of a trial as the host saw them go and come back, and what the driver said at their end.

    By the host's clock: they could be read from ``go_ns`` on, their end was seen at ``end_ns``, and a last look without
    an end was ``least_ns`` after they were written.  By the driver's: the trial lasted ``span_ns``, of which
    ``claimed_ns`` are the answers' and ``written_ns`` went into writing.
    """

    phase: str
    go_ns: int
    end_ns: int
    least_ns: int
    span_ns: int
    claimed_ns: int
    written_ns: int = 0


@dataclass(frozen=True)
class Ended:
    """How a job ended, seen from outside it.  ``oom_kills`` and ``throttled_periods`` are the cgroup's own counters.

    ``canary`` holds the looks at the machine before, between and after the trials; ``handed`` the trials.
    """

    exit_code: int | None
    oom_killed: bool
    oom_kills: int | None
    throttled_periods: int | None
    stopped: Stopped | None
    memory: MemoryTrace
    wall_s: float
    log: bytes
    counters: CounterTrace = field(default_factory=CounterTrace)
    gpus: GpuTrace | None = None
    canary: tuple[CanaryReading, ...] = ()
    placement: Placement | None = None
    handed: tuple[Handed, ...] = ()


class Launcher(Protocol):
    """Somewhere that jobs can run."""

    isolation: Isolation

    def check(self) -> None:
        """Raise EngineError when nothing can be launched here at all."""

    def engine_version(self) -> str | None:
        """Version of the container engine, where there is one."""

    def cannot(self, envelope: Envelope) -> str | None:
        """Why this envelope does not exist here (no GPU), or None."""

    def find(self, system: System) -> Prepared | None:
        """The system if it is ready already; quick, and changes nothing."""

    def prepare(self, system: System) -> Prepared:
        """Make the system ready, whatever that takes; ImageError when it cannot be."""

    def launch(self, job: LaunchRequest, progress: Progress) -> Ended:
        """Run one job to its end.  On KeyboardInterrupt nothing is left running."""

    def sweep(self) -> int:
        """Remove what launchers of dead harness processes left; return how many."""

    def close(self) -> None:
        """Let go of connections."""


def thread_environment(cpus: int) -> dict[str, str]:
    """Environment variables that hold every library we know of to ``cpus`` threads (measuring rule 3)."""
    count = str(cpus)
    names = (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "NUMEXPR_MAX_THREADS",
        "NUMBA_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "BLIS_NUM_THREADS",
        "RAYON_NUM_THREADS",
        "POLARS_MAX_THREADS",
        "LOKY_MAX_CPU_COUNT",
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
        "GOMAXPROCS",
        "JULIA_NUM_THREADS",
        "UV_THREADPOOL_SIZE",  # Node.js
    )
    # The tokenizers library forks badly and gains nothing on single queries.
    parallel = {"TOKENIZERS_PARALLELISM": "true" if cpus > 1 else "false"}
    # Every JVM reads this, whoever starts it; options on its own command line come after it and win.
    java = {"JAVA_TOOL_OPTIONS": f"-XX:ActiveProcessorCount={cpus}"}
    return {**dict.fromkeys(names, count), **parallel, **java}
