"""Jobs as containers of a Docker engine, with every limit enforced by the kernel."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import docker
import psutil
import requests
from docker.errors import DockerException
from docker.models.containers import Container

from harness.driver import cgroup
from harness.driver.procfs import ReadFile, read_text
from harness.driver.records import Outcome
from harness.errors import EngineError, ImageError, UsageError
from harness.filesystem import has_died
from harness.launch import connection, cpu_placement, podman
from harness.launch.base import LaunchEnd, Launcher, LaunchRequest, Prepared, StopReason
from harness.launch.checks import Check, Level, warn_if
from harness.launch.connection import engine_errors
from harness.launch.container import (
    LABEL,
    LOG_BYTES,
    NOBODY,
    ContainerWait,
    create_arguments,
    refuse_emulation,
)
from harness.launch.images import emulation, platforms, recipes, side_by_side
from harness.launch.images.builder import Image, ImageBuilder
from harness.launch.images.engine_build import BuildLimits
from harness.launch.images.systems import System
from harness.launch.limits import limit_change, limit_mismatch
from harness.launch.monitor.canary import Canary
from harness.launch.monitor.sources import CgroupSource, JobSource
from harness.launch.observation import observed
from harness.progress import Progress, silent
from harness.results.isolation import CONTAINER
from harness.results.schema import Placement
from harness.untrusted import one_line

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Words of the engine when the fault is the image's (its entry point, its user).
_NO_START = ("OCI runtime", "executable file not found", "no such file or directory", "permission denied", "No command")
# Words of Podman, whose status says nothing, about a container that has ended.
_ENDED = "can only kill running containers"
# Words of Docker and of Podman about a container that is going or gone.
_REMOVED = ("is already in progress", "no such container", "no container with")


class DockerLauncher(Launcher):
    """Launches jobs on the engine that the ``docker`` command would use (:mod:`harness.launch.connection`).

    Args:
        platform: the platform of the images (``linux/arm64``); the engine's own if not given.
        emulated: jobs may run where the engine only emulates that platform.  Emulated times mean nothing, so never set
            it for a measurement.
    """

    isolation = CONTAINER
    options = frozenset({"platform"})

    def __init__(
        self, cache: Path, models: Path | None = None, *, platform: str | None = None, emulated: bool = False
    ) -> None:
        super().__init__(cache, models)
        self._platform = platform
        self._emulated = emulated
        self._client: docker.DockerClient | None = None
        self._canary = Canary()

    @classmethod
    def open(cls, cache: Path, models: Path | None, options: Mapping[str, str]) -> DockerLauncher:
        """Return a launcher; with ``platform``, of images for it, and of jobs even where it must be emulated."""
        platform = options.get("platform")
        return cls(cache, models, platform=platform, emulated=platform is not None)

    @classmethod
    def examine(cls) -> Iterator[Check]:
        """Check the engine, the limits that it can enforce, and the cgroups that its jobs are read from."""
        yield from _engine_checks()
        yield _cgroup_check()

    def check(self) -> None:
        """Raise EngineError unless the engine answers, and outside of an allocation of Slurm."""
        if job := os.environ.get("SLURM_JOB_ID"):
            raise EngineError(
                f"this process runs in Slurm job {job}, and an engine starts containers outside of it: they would take"
                " CPUs and memory that Slurm gave to others; use --launcher apptainer"
            )
        _ = self.client

    @property
    def client(self) -> docker.DockerClient:
        """Return the connection, made at first use."""
        if self._client is None:
            with engine_errors():
                self._client = connection.connect(120)
                self._client.ping()
        return self._client

    def _builder(self, stopped: threading.Event | None = None, progress: Progress = silent) -> ImageBuilder:
        limits = BuildLimits(stopped=stopped) if stopped else None
        return ImageBuilder(self.client, self.cache, self.models, self._platform, limits, progress)

    def engine_version(self) -> str | None:
        """Return the engine's version, which results store as ``docker_version``."""
        with engine_errors():
            version = str(self.client.version()["Version"])
        return f"Podman {version}" if podman.is_engine(self.client) else version

    def recipe(self, system: System) -> str:
        """Hash the inputs of the image; where no engine answers, of the image for this host's platform."""
        return recipes.recipe(system.for_platform(system.on_platform or self._platform or self._native))

    @cached_property
    def _native(self) -> str:
        if connection.is_local():  # an engine at the usual socket runs on this host
            return platforms.host()
        try:
            return emulation.native(self.client)
        except EngineError:
            return platforms.host()

    def find(self, system: System) -> Prepared | None:
        """Return the image, if it was built from exactly this recipe, with a driver that measures alike."""
        image = self._builder().find(system)
        return _prepared(system, image) if image else None

    def prepare(self, system: System, stopped: threading.Event | None = None, progress: Progress = silent) -> Prepared:
        """Return the image, built where it is missing; ``stopped`` ends a build, ``progress`` takes its steps."""
        if self._emulated and self._platform:  # the image may be there from before a reboot, what runs it not
            emulation.ensure(self.client, self._platform, self.cache)
        with engine_errors():
            image = self._builder(stopped, progress).ensure(system)
            volumes = self.client.images.get(image.digest).attrs["Config"].get("Volumes")
        if volumes:
            # The engine would give each a writable folder on the host's disk, under a read-only root.
            raise ImageError(f"system {system.name!r}: its image declares VOLUME {', '.join(volumes)}; remove it")
        return _prepared(system, image)

    def prepare_all(self, systems: Mapping[str, System]) -> Iterator[tuple[str, Prepared | ImageError]]:
        """Prepare systems side by side."""
        self.check()  # one connection for all threads
        return side_by_side.make({name: partial(self.prepare, system) for name, system in systems.items()})

    def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        """Run one container from start to end and remove it.

        Raises:
            ImageError: its image is for another platform than the engine's.
        """
        if not self._emulated:
            refuse_emulation(self.client, job.prepared)
        envelope = job.spec.envelope
        with ExitStack() as stack:
            placement = stack.enter_context(cpu_placement.placed(envelope.cpus))
            job.write_spec(placement.cpuset)
            _open_to_job_user(job)
            stack.enter_context(engine_errors())
            try:
                container = stack.enter_context(_created(self.client, job, placement))
            except docker.errors.APIError as error:  # the engine answers, so other jobs may run
                return LaunchEnd(stopped=_refused(error), placement=placement)
            seen = stack.enter_context(observed(job, placement, self._canary))
            seen.begin()
            if refused := _start(container):
                return LaunchEnd(stopped=refused, placement=placement)
            waiting = ContainerWait(container)
            group = _group(container)
            with seen.sampling(partial(_source, group, placement)):
                stopped = limit_mismatch(group, envelope, placement.cpuset) or seen.follow(
                    waiting.ended, progress, lambda: limit_change(group, placement.cpuset)
                )
                if stopped:
                    _kill(container)
            waiting.result()
            container.reload()
            state = container.attrs["State"]
            log = container.logs()[-LOG_BYTES:]  # the engine keeps no more of it than `create_arguments` allows
            return seen.end(state["ExitCode"], log, stopped, oom_killed=bool(state["OOMKilled"]))

    def throttle(self, job: LaunchRequest, quota: tuple[int, int]) -> None:
        """Set a CPU quota on the one running container of this job."""
        name = f"harness-{job.spec.system}-{job.spec.kind}-"
        for container in self.client.containers.list(filters={"name": name}, ignore_removed=True):
            if str(job.folder) in {mount["Source"] for mount in container.attrs["Mounts"]}:
                try:
                    container.update(cpu_quota=quota[0], cpu_period=quota[1])
                except docker.errors.NotFound as error:
                    if not podman.is_engine(self.client):
                        raise
                    fault = f"{self.engine_version()} cannot set a quota on a running job"
                    raise UsageError(f"{fault}; use a Docker engine") from error

    def sweep(self) -> int:
        """Remove containers whose harness process is certainly dead."""
        removed = 0
        with engine_errors():
            # Sparse: a look at each would fail for one that another run is removing.
            for container in self.client.containers.list(all=True, filters={"label": LABEL}, sparse=True):
                if has_died(container.attrs["Labels"][LABEL]):
                    container.attrs["Name"] = container.attrs["Names"][0]
                    _remove(container)
                    removed += 1
        return removed

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()


@contextmanager
def _created(client: docker.DockerClient, job: LaunchRequest, placement: Placement) -> Iterator[Container]:
    """Create the job's container; remove it at the end, also after an error."""
    with _deferred_interrupts():  # else a container could stay for ever
        arguments = create_arguments(job, placement, podman=podman.is_engine(client))
        container = client.containers.create(**arguments)
    try:
        yield container
    except BaseException:
        with suppress(EngineError):  # the first error says more, and the next run sweeps
            _remove(container)
        raise
    _remove(container)


def _prepared(system: System, image: Image) -> Prepared:
    return Prepared(system.for_platform(image.platform), image.recipe, image.digest, image.digest, image.size_bytes)


def _open_to_job_user(job: LaunchRequest) -> None:
    """Let the job's user read its spec and write its ``out/``: our umask may forbid both."""
    job.folder.chmod(0o755)
    (job.folder / "spec.json").chmod(0o644)
    for folder in [job.out, *([job.index_dir] if job.may_write_index else [])]:
        folder.chmod(0o755)
        if os.getuid() == 0:
            os.chown(folder, NOBODY, NOBODY)


def _start(container: Container) -> StopReason | None:
    try:
        container.start()
    except docker.errors.APIError as error:
        if "device driver" in str(error):
            reason = "the engine cannot hand out GPUs; install the NVIDIA container toolkit"
            return StopReason(Outcome.NOT_APPLICABLE, reason)
        if any(words in str(error) for words in _NO_START):
            return StopReason(
                Outcome.CRASH, f"the image does not start: {' '.join(str(error.explanation).split())[-300:]}"
            )
        return _refused(error)
    return None


def _refused(error: docker.errors.APIError) -> StopReason:
    """Return the end of a job that the engine refuses: limits that it does not take are not the system's fault."""
    outcome = Outcome.NOT_APPLICABLE if error.status_code == requests.codes.bad_request else Outcome.CRASH
    return StopReason(outcome, f"the engine refuses this job: {one_line(str(error.explanation or error), 300)}")


def _kill(container: Container) -> None:
    try:
        container.kill()
    except docker.errors.APIError as error:
        if error.status_code not in (404, 409) and _ENDED not in str(error):  # it ended by itself
            raise


def _group(container: Container) -> cgroup.Cgroup | None:
    """Return the container's cgroup; None where the host hides it."""
    container.reload()
    pid = container.attrs["State"]["Pid"]
    membership = (read_text(Path(f"/proc/{pid}/cgroup")) or "") if pid else ""
    return group_of(container.id or "?", membership)


def _source(group: cgroup.Cgroup | None, placement: Placement, read: ReadFile) -> JobSource:
    """Return the source of the container's counters, where the host shows its cgroup."""
    return CgroupSource(replace(group, read=read), placement.cpus) if group else JobSource()


def group_of(container_id: str, membership: str) -> cgroup.Cgroup | None:
    """Return a container's cgroup, or None where that is uncertain.

    A remote engine's pids are not ours.  A process that is exiting shows as one of the root cgroup, on v1 for one
    controller after the other: reading that would charge the whole host's memory to the job.
    """
    group = cgroup.of_process(membership)
    if group is None:
        return None
    return group if all(container_id in str(folder) for folder in group.folders) else None


def _remove(container: Container) -> None:
    try:
        with _deferred_interrupts():
            container.remove(force=True, v=True)
    except docker.errors.NotFound:
        pass
    except (DockerException, requests.RequestException) as error:
        if any(words in str(error) for words in _REMOVED):  # another run removes it
            return
        raise EngineError(f"container {container.name} could not be removed: {error}; remove it by hand") from error


@contextmanager
def _deferred_interrupts() -> Iterator[None]:
    """Defer stop signals until the block has ended; only the main thread gets any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    deferred = [number for number in _STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    handlers = {number: signal.signal(number, lambda given, _: received.append(given)) for number in deferred}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt


def _engine_checks() -> Iterator[Check]:
    try:
        place = connection.endpoint()
        with closing(connection.connect(10)) as client:
            info = client.info()
    except EngineError as error:
        yield Check(Level.FAIL, "engine", "no Docker engine answers", str(error))
        return
    except (docker.errors.DockerException, requests.RequestException) as error:
        start = "start it (systemctl start docker) or install it (Debian: apt-get install docker.io)"
        if place.context:
            start = "start the engine of that context, or choose another (docker context use)"
        fact = f"no Docker engine answers: {connection.reason(error)}"
        yield Check(Level.FAIL, "engine", fact, f"{start}, or use --launcher process")
        return
    if (lacking := podman.check_limits(info)) is not None:
        yield lacking
    fact = f"{podman.name(info)} {info['ServerVersion']}, {info['Driver']}, {info['OperatingSystem']}, at {place}"
    yield Check(Level.OK, "engine", fact)
    for key, what in (("MemoryLimit", "memory limits"), ("PidsLimit", "pids limits"), ("CPUSet", "CPU sets")):
        if not info.get(key, True):
            yield Check(Level.FAIL, "limits", f"the engine cannot enforce {what}", "enable the cgroup controller")
    if not info.get("SwapLimit", True) and psutil.swap_memory().total:
        remedy = "boot with swapaccount=1, or turn swap off (swapoff -a)"
        yield Check(Level.FAIL, "limits", "the engine cannot limit swap, and the host has some", remedy)


def _cgroup_check() -> Check:
    version = cgroup.host_version()
    fact = "no memory controller in /sys/fs/cgroup" if version is None else f"version {version}"
    return warn_if(version is None, "cgroup", fact, "mount the cgroup file system, or use --launcher process")
