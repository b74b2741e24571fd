"""The interface of launchers: a job to launch, how it ended, and the launcher's protocol."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness import filesystem
from harness.driver.driver import SERVING, UPDATES_FILE
from harness.driver.records import Cpuset, EffectiveEnvelope, Envelope, JobSpec, Outcome, ScenarioParams, to_json
from harness.errors import ImageError, UsageError
from harness.launch import host
from harness.launch.checks import Check
from harness.launch.images import side_by_side
from harness.launch.images.systems import System
from harness.launch.monitor.traces import CounterTrace, GpuTrace, MemoryTrace
from harness.progress import Progress
from harness.results.isolation import Isolation
from harness.results.schema import CanaryReading, Placement

KILLED = 137  # 128 + SIGKILL
_AT_LIMIT = 0.98
# The most that is kept of a job's output: its end, which tells most.
LOG_BYTES = 10 << 20
# The memory of a service's client: it holds queries and answers, and no index.
CLIENT_BYTES = 2 << 30


@dataclass(frozen=True)
class Prepared:
    """A system ready for launch: an image, or an environment of its own on the host.

    ``recipe`` is the hash of its inputs: jobs and indexes of one recipe are the same.  ``digest`` is the image's id and
    ``size_bytes`` its size on disk, where known.  ``components`` are ready too, where the caller asked for them.
    """

    system: System
    recipe: str
    digest: str
    reference: str
    size_bytes: int | None = None
    components: tuple[Prepared, ...] = ()


@dataclass(frozen=True)
class Limits:
    """Time limits of a job's parts, in seconds; beyond them the job is stopped as ``timeout``."""

    load_s: float = 600.0
    query_s: float = 60.0
    build_s: float = 7200.0
    job_s: float = 7200.0


@dataclass(frozen=True)
class LaunchRequest:
    """One container life: the spec, its files and its time limits.

    ``folder`` holds the empty ``out/``; the launcher adds ``spec.json`` and mounts it at ``/job``.  ``index_is_copy``:
    the search may write into its index, because no other job reads it.
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
        """Return the only folder that a search may write."""
        return self.folder / "out"

    @property
    def may_write_index(self) -> bool:
        """Return whether the job may write its index: a build does."""
        return self.spec.kind == "build" or self.index_is_copy

    def with_copied_index(self) -> LaunchRequest:
        """Return the request with a copy of the index in its own folder, which the job may write.

        Raises:
            OSError: the copy finds no room.
        """
        index = self.folder / "index"
        filesystem.copy_tree(self.index_dir, index)
        host.forget_pages(index)
        return replace(self, index_dir=index, index_is_copy=True)

    def write_spec(self, cpuset: Cpuset) -> None:
        """Write the driver's spec, with the CPUs that it must find itself on.

        The queries are left out: an adapter that knew them while it loads could answer them there, under no clock.
        Updates are in a file of their own, which a driver that knows no updates never reads.
        """
        spec = replace(self.spec, warmup=(), sample=()) if self.spec.pause else self.spec
        if spec.updates is not None:
            self._give(UPDATES_FILE, to_json(spec.updates))
        if spec.scenario == "mixed":
            spec = replace(spec, updates=None, scenario_params=ScenarioParams())
        self._give("spec.json", to_json(replace(spec, cpuset=cpuset)))

    def tell_server_started(self, started_ns: int) -> None:
        """Tell a service's client that its server runs, and since when."""
        self._give(SERVING, json.dumps({"started_ns": started_ns}))

    def for_client(self, cpus: tuple[int, ...]) -> LaunchRequest:
        """Return the client's part of a service's job, with an envelope of its own, and write its spec."""
        envelope = Envelope("client", len(cpus), CLIENT_BYTES)
        made = replace(self, spec=replace(self.spec, envelope=envelope))
        made.write_spec(Cpuset(cpus))
        return made

    def _give(self, name: str, text: str) -> None:
        """Write a file that is whole when it is there, and that the job's user may read: our umask may forbid it."""
        path = self.folder / name
        partial = path.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        partial.chmod(0o644)
        partial.rename(path)


@dataclass(frozen=True)
class StopReason:
    """Outcome and reason of a job that the launcher ended."""

    outcome: Outcome
    detail: str


@dataclass(frozen=True)
class TrialTimes:
    """One trial on the host's clock, and the driver's figures at its end.

    Host: the queries could be read from ``go_ns`` on, the trial's end was seen at ``end_ns``, and the last look before
    the end was ``least_ns`` after they were written.  Driver: the trial lasted ``span_ns``, of which ``claimed_ns`` are
    the answers' and ``written_ns`` went into writing.
    """

    phase: str
    go_ns: int
    end_ns: int
    least_ns: int
    span_ns: int
    claimed_ns: int
    written_ns: int = 0


@dataclass(frozen=True)
class LaunchEnd:
    """End of a job, observed from outside; ``oom_kills`` and ``throttled_periods`` are the cgroup's counters.

    Of a service all of this is the server's, and ``server`` holds the limits in force in its container, as read from
    inside; ``None``: it did not say.

    ``canary`` holds the machine's readings before, between and after the trials, or before and after the build;
    ``handed`` the trials.  ``ready_s``: from the start until the job asked for its first queries.
    """

    exit_code: int | None = None
    oom_killed: bool = False
    oom_kills: int | None = None
    throttled_periods: int | None = None
    stopped: StopReason | None = None
    memory: MemoryTrace = field(default_factory=MemoryTrace)
    wall_s: float = 0.0
    log: bytes = b""
    counters: CounterTrace = field(default_factory=CounterTrace)
    gpus: GpuTrace | None = None
    canary: tuple[CanaryReading, ...] = ()
    placement: Placement | None = None
    handed: tuple[TrialTimes, ...] = ()
    ready_s: float | None = None
    server: EffectiveEnvelope | None = None

    def lacked_memory(self, limit_bytes: int) -> bool:
        """Return whether the kernel killed it, or one of its processes, at its memory limit."""
        # An engine may miss the flag, the counter goes with the cgroup, and not every user may read the kernel's log.
        at_limit = (self.memory.peak_cgroup_bytes or 0) >= _AT_LIMIT * limit_bytes
        killed = limit_bytes > 0 and self.exit_code == KILLED and not self.stopped
        return bool(self.oom_killed or self.oom_kills or (killed and at_limit))


class Launcher(ABC):
    """Base of the launchers of jobs, by name in :mod:`harness.launch.launchers`.

    A launcher says how it holds a job to its envelope (``isolation``), and implements ``recipe``, ``find``,
    ``prepare`` and ``launch``.  What the others return by default is right without a container engine.
    """

    isolation: Isolation
    # Options of the command line that `open` takes besides --cache and --models, by name (``platform``).
    options: frozenset[str] = frozenset()
    # Whether the launcher fetches systems' files at all, and a local folder of models besides the hub.
    fetches_files = True
    # Whether it starts a server and its client apart.
    runs_services = False
    # Whether jobs search an index that harness built; and the service that they ask, if it runs already.
    needs_indexes = True
    service_url: str | None = None
    models: Path | None = None

    def __init__(self, cache: Path, models: Path | None = None) -> None:
        self.cache = cache.absolute()
        self.models = models

    @classmethod
    def open(cls, cache: Path, models: Path | None, options: Mapping[str, str]) -> Launcher:  # noqa: ARG003 # of others
        """Return a launcher for one command, with the given ones of its ``options``."""
        return cls(cache, models)

    @classmethod
    def examine(cls) -> Iterator[Check]:
        """Check what this launcher needs of this machine, for `harness doctor`."""
        yield from ()

    def check(self) -> None:
        """Raise EngineError when this host can launch nothing."""

    def check_images(self, missing: Collection[str] = ()) -> None:  # noqa: ARG002 # of others
        """Raise EngineError when this host cannot find images, or cannot make the missing ones; it need run no job."""
        self.check()

    def engine_version(self) -> str | None:
        """Return the version of the container engine, which results store as ``docker_version``; None without one."""
        return None

    def cannot(self, envelope: Envelope) -> str | None:
        """Return why this host lacks the envelope (no GPU), or None."""
        return host.cannot_provide(envelope)

    def room_bytes(self) -> int:
        """Return the memory that one job may have here where its profile says nothing: an index build."""
        return host.memory_bytes() // 2

    def cannot_run(self, system: System) -> str | None:
        """Return why this launcher cannot run the system, or None."""
        if any(part.service for part in system.parts) and not self.runs_services:
            return "its server needs a container of its own, and its client another: take --launcher docker"
        return None

    @abstractmethod
    def recipe(self, system: System) -> str:
        """Return the hash of the system's inputs here; needs no engine."""

    @abstractmethod
    def find(self, system: System) -> Prepared | None:
        """Return the system if it is ready already; quick, and changes nothing."""

    @abstractmethod
    def prepare(self, system: System) -> Prepared:
        """Prepare the system, however long that takes; raise ImageError when it fails."""

    def prepare_all(self, systems: Mapping[str, System]) -> Iterator[tuple[str, Prepared | ImageError]]:
        """Prepare systems, by the names of their images; yield each as it ends, or its error."""
        for name, system in systems.items():
            try:
                with side_by_side.making(name):
                    made: Prepared | ImageError = self.prepare(system)
            except ImageError as error:
                made = error
            yield name, made

    @abstractmethod
    def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        """Run one job to its end; on KeyboardInterrupt leave nothing running."""

    def throttle(self, job: LaunchRequest, quota: tuple[int, int]) -> None:  # noqa: ARG002 # of others
        """Set a CPU quota (microseconds, period) on a running job, as a neighbour might; for calibrations.

        Raises:
            UsageError: this launcher cannot set a quota.
        """
        raise UsageError(f"isolation {self.isolation.name} cannot set a quota on a running job; use --launcher docker")

    def sweep(self) -> int:
        """Remove the containers of dead harness processes; return their number."""
        return 0

    def close(self) -> None:
        """Close connections."""


def thread_environment(cpus: int) -> dict[str, str]:
    """Return variables that hold all known libraries to ``cpus`` threads (measuring rule 3)."""
    count = str(cpus)
    names = (
        *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "BLIS_NUM_THREADS"),
        *("NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS", "NUMBA_NUM_THREADS", "LOKY_MAX_CPU_COUNT"),
        *("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS"),
        *("GOMAXPROCS", "JULIA_NUM_THREADS", "UV_THREADPOOL_SIZE"),  # the last is of Node.js
    )
    # The tokenizers library forks badly and gains nothing on single queries.
    parallel = {"TOKENIZERS_PARALLELISM": "true" if cpus > 1 else "false"}
    # Every JVM reads this; options on its own command line come later and win.
    java = {"JAVA_TOOL_OPTIONS": f"-XX:ActiveProcessorCount={cpus}"}
    return {**dict.fromkeys(names, count), **parallel, **java}
