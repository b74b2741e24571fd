"""The container of a job, from its creation to its removal."""

from __future__ import annotations

import functools
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import docker
import psutil
import requests
from docker.errors import DockerException
from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

from harness.driver import cgroup
from harness.driver.procfs import ReadFile, read_text
from harness.driver.records import Outcome
from harness.errors import EngineError, ImageError
from harness.filesystem import this_process
from harness.launch import podman
from harness.launch.base import LOG_BYTES, LaunchRequest, Prepared, StopReason, thread_environment
from harness.launch.connection import engine_errors
from harness.launch.images import emulation, platforms
from harness.launch.monitor import kernel_log
from harness.launch.monitor.sources import CgroupSource, JobSource
from harness.results.schema import Placement
from harness.untrusted import max_output_bytes, one_line

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Words of the engine when the fault is the image's (its entry point, its user).
_NO_START = ("OCI runtime", "executable file not found", "no such file or directory", "permission denied", "No command")
# Words of Podman, whose status says nothing, about a container that has ended.
_ENDED = "can only kill running containers"
# Words of Docker and of Podman about a container that is going or gone.
_REMOVED = ("is already in progress", "no such container", "no container with")

# The label that names a container's owner.
LABEL = "ir-harness.owner"
# A user that exists in no image: nothing in the image belongs to it.
NOBODY = 65532
_SCRATCH_BYTES = 64 << 20
SCRATCH = f"rw,noexec,nosuid,nodev,size={_SCRATCH_BYTES},mode=1777"


def name_of(job: LaunchRequest) -> str:
    """Return the beginning of the names of a job's containers, which may not contain the sign of a version."""
    return f"harness-{re.sub(r'[^A-Za-z0-9_.-]', '_', job.spec.system)}-{job.spec.kind}-"


def create_arguments(job: LaunchRequest, placement: Placement) -> dict[str, Any]:
    """Return an envelope's limits as arguments of the engine's create call (measuring rules 1, 2, 3, 5)."""
    envelope = job.spec.envelope
    mounts = [
        Mount("/job", str(job.folder), type="bind", read_only=True),
        Mount("/job/out", str(job.out), type="bind"),
        Mount("/corpus", str(job.corpus_dir), type="bind", read_only=True),
        Mount("/index", str(job.index_dir), type="bind", read_only=not job.may_write_index),
    ]
    ulimits = [Ulimit(name="core", soft=0, hard=0)]
    if not job.may_write_index:  # each file at most as large as all output; an index may be large
        most_bytes = max_output_bytes(job.spec)
        ulimits.append(Ulimit(name="fsize", soft=most_bytes, hard=most_bytes))
    gpus = [str(index) for index in range(envelope.gpus)]
    return {
        "image": job.prepared.reference,
        "name": f"{name_of(job)}{secrets.token_hex(4)}",
        "labels": {LABEL: this_process()},
        "user": f"{job_user()}:{job_user()}",
        "environment": thread_environment(envelope.cpus),
        "mounts": mounts,
        # A cpuset, never a quota: a quota flatters p50 and wrecks p99 (rule 1).
        "cpuset_cpus": ",".join(map(str, placement.cpus)),
        "cpuset_mems": ",".join(map(str, placement.numa_nodes)) or None,
        "mem_limit": envelope.memory_bytes,
        "memswap_limit": envelope.memory_bytes,  # the same figure: no swap on top (rule 2)
        "pids_limit": envelope.pids,
        "network_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        # The proxies of the user's docker configuration, which may name passwords, are not for the image.
        "use_config_proxy": False,
        "tmpfs": {"/tmp": SCRATCH},  # noqa: S108 # its own
        "shm_size": _SCRATCH_BYTES,
        "ulimits": ulimits,
        "healthcheck": {"test": ["NONE"]},  # nothing but the job runs inside the measured envelope
        # Of two files the older goes when the newer is full; one alone would be emptied, last words and all.
        "log_config": LogConfig(type="json-file", config={"max-size": str(LOG_BYTES // 2), "max-file": "2"}),
        "device_requests": [DeviceRequest(device_ids=gpus, capabilities=[["gpu"]])] if gpus else None,
    }


def job_user() -> int:
    """Return the job's uid and gid: never root, and ours where we are not root, so that we can read its files."""
    return os.getuid() or NOBODY


def refuse_emulation(client: docker.DockerClient, prepared: Prepared) -> None:
    """Refuse an image of another platform than the engine's, because emulated times say nothing.

    Raises:
        ImageError: its platform is not the engine's own.
    """
    platform, own = _platform(client, prepared.digest), emulation.native(client)
    if platform != own:
        raise ImageError(
            f"system {prepared.system.name!r}: its image is for {platform}, which this engine ({own}) could only"
            f" emulate, and emulated times mean nothing; run it on a machine of {platform}"
        )


@functools.lru_cache(maxsize=64)  # a digest names its content for good
def _platform(client: docker.DockerClient, digest: str) -> str:
    with engine_errors():
        return platforms.of_machine(client.images.get(digest).attrs["Architecture"])


# The longest time that an engine needs to end a killed container.
_KILL_S = 60


@dataclass(frozen=True)
class ContainerEnd:
    """End of a container, with the last of what it printed."""

    exit_code: int
    oom_killed: bool
    log: bytes


class JobContainer:
    """One container of a job; made by :func:`created`, which removes it."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._engine_lost = False
        self.id = str(container.id)
        self.ended = threading.Event()  # also when the engine goes away
        self.group: cgroup.Cgroup | None = None  # once it has started, where the host shows its cgroup
        # When its process started, on the monotonic clock; without its cgroup, when it was asked to.
        self.started_ns = 0

    def start(self, also: threading.Event | None = None) -> StopReason | None:
        """Start it; return why the engine does not.  Its end sets ``also`` too."""
        self.started_ns = time.perf_counter_ns()
        try:
            self._container.start()
        except docker.errors.APIError as error:
            if "device driver" in str(error):
                reason = "the engine cannot hand out GPUs; install the NVIDIA container toolkit"
                return StopReason(Outcome.NOT_APPLICABLE, reason)
            if any(words in str(error) for words in _NO_START):
                return StopReason(
                    Outcome.CRASH, f"the image does not start: {' '.join(str(error.explanation).split())[-300:]}"
                )
            return refused(error)
        threading.Thread(target=self._wait, args=(also,), daemon=True, name="container-wait").start()
        self._container.reload()
        pid = self._container.attrs["State"]["Pid"]
        membership = (read_text(Path(f"/proc/{pid}/cgroup")) or "") if pid else ""
        self.group = group_of(self.id, membership)
        if self.group is not None:
            with suppress(psutil.Error):  # it has ended
                age_s = time.time() - psutil.Process(pid).create_time()
                self.started_ns = max(self.started_ns, time.perf_counter_ns() - round(age_s * 1e9))
        return None

    def _wait(self, also: threading.Event | None) -> None:
        """Wait for its end through one open request, which costs the measured CPUs nothing."""
        try:
            self._container.wait(timeout=None)
        except (DockerException, requests.RequestException):
            self._engine_lost = True
        finally:
            self.ended.set()
            if also:
                also.set()

    def source(self, placement: Placement, read: ReadFile) -> JobSource:
        """Return the source of its counters, where the host shows its cgroup."""
        return CgroupSource(replace(self.group, read=read), placement.cpus) if self.group else JobSource()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal, unless it has ended."""
        try:
            self._container.kill(int(number))
        except docker.errors.APIError as error:
            if error.status_code not in (404, 409) and _ENDED not in str(error):  # it ended by itself
                raise

    def result(self) -> ContainerEnd:
        """Return how it ended, once it has.

        Raises:
            EngineError: the engine went away and took its containers down, so their end says nothing about the job.
        """
        if not self.ended.wait(_KILL_S):
            raise EngineError(
                f"the Docker engine did not end a container within {_KILL_S} s; see `harness doctor`, then run again"
            )
        if self._engine_lost:
            raise EngineError(
                "the Docker engine went away while a job ran; see that it is back (`harness doctor`), then run again: "
                "what was finished is kept, and what is left of the job is removed"
            )
        self._container.reload()
        state = self._container.attrs["State"]
        # The engine keeps no more of it than `create_arguments` allows.
        killed = bool(state["OOMKilled"] or (state["ExitCode"] and kernel_log.has_kill(self.id)))
        return ContainerEnd(state["ExitCode"], killed, self._container.logs()[-LOG_BYTES:])


@contextmanager
def created(client: docker.DockerClient, arguments: Mapping[str, Any]) -> Iterator[JobContainer]:
    """Create a job's container; remove it at the end, also after an error.

    Args:
        client: the engine.
        arguments: as :func:`create_arguments` returns them.
    """
    if podman.is_engine(client):
        arguments = {**arguments, "ulimits": [*arguments["ulimits"], *podman.ulimits()]}
    with _deferred_interrupts():  # else a container could stay for ever
        container = client.containers.create(**arguments)
    try:
        yield JobContainer(container)
    except BaseException:
        with suppress(EngineError):  # the first error says more, and the next run sweeps
            remove(container)
        raise
    remove(container)


def open_to_job_user(job: LaunchRequest) -> None:
    """Let the job's user enter its folder and write its ``out/``: our umask may forbid both."""
    job.folder.chmod(0o755)
    for folder in [job.out, *([job.index_dir] if job.may_write_index else [])]:
        folder.chmod(0o755)
        if os.getuid() == 0:
            os.chown(folder, NOBODY, NOBODY)


def refused(error: docker.errors.APIError) -> StopReason:
    """Return the end of a job that the engine refuses: limits that it does not take are not the system's fault."""
    outcome = Outcome.NOT_APPLICABLE if error.status_code == requests.codes.bad_request else Outcome.CRASH
    return StopReason(outcome, f"the engine refuses this job: {one_line(str(error.explanation or error), 300)}")


def group_of(container_id: str, membership: str) -> cgroup.Cgroup | None:
    """Return a container's cgroup, or None where that is uncertain.

    A remote engine's pids are not ours.  A process that is exiting shows as one of the root cgroup, on v1 for one
    controller after the other: reading that would charge the whole host's memory to the job.
    """
    group = cgroup.of_process(membership)
    if group is None:
        return None
    return group if all(container_id in str(folder) for folder in group.folders) else None


def remove(container: Container) -> None:
    """Remove a container, running or not."""
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
