"""Jobs as containers of a Docker engine, with every limit enforced by the kernel."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
import requests
from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

from harness import cgroup, images
from harness.catalog import System
from harness.engine import engine_errors
from harness.errors import EngineError, ImageError
from harness.launch import gpu, host
from harness.launch.base import Ended, Job, Prepared, Progress, Report, Stopped, choose_cpus, thread_environment
from harness.launch.memory import CgroupSource, MemorySampler, MemoryTrace
from harness.launch.owner import HOST_LABEL, LABEL, alive, me, this_host
from harness.launch.watch import Watch
from harness.records import Envelope, Isolation, Outcome
from harness.untrusted import most_output_bytes

# A user that exists in no image: nothing in the image belongs to it.
NOBODY = 65532
_POLL_S = 0.1
_LOG_BYTES = 10 << 20
_SCRATCH_BYTES = 64 << 20
# What the engine says when the fault is the image's (its entry point, its user), not its own.
_NO_START = ("OCI runtime", "executable file not found", "no such file or directory", "permission denied", "No command")


class DockerLauncher:
    """Launches jobs on the engine that the environment names (``DOCKER_HOST``, else the local socket)."""

    isolation = Isolation.CONTAINER

    def __init__(self, cache: Path, models: Path | None = None) -> None:
        self._cache = cache
        self._models = models
        self._client: docker.DockerClient | None = None

    def check(self) -> None:
        """Raise EngineError unless the engine answers."""
        _ = self.client

    @property
    def client(self) -> docker.DockerClient:
        """The connection, made at first use."""
        if self._client is None:
            with engine_errors():
                self._client = docker.from_env(timeout=120)
                self._client.ping()
        return self._client

    def engine_version(self) -> str | None:
        """The engine's version."""
        with engine_errors():
            return str(self.client.version()["Version"])

    def cannot(self, envelope: Envelope) -> str | None:
        """Why this host does not have that envelope, or None."""
        return host.cannot_provide(envelope)

    def find(self, system: System) -> Prepared | None:
        """The image, if it was built from exactly this recipe."""
        with engine_errors():
            image = images.find(self.client, system)
        return _prepared(system, image) if image else None

    def prepare(self, system: System, report: Report) -> Prepared:
        """Build the image where it is missing."""
        with engine_errors():
            image = images.ensure(self.client, system, cache=self._cache, models=self._models, report=report)
            volumes = self.client.images.get(image.digest).attrs["Config"].get("Volumes")
        if volumes:
            # The engine would give each a writable folder on the host's disk, under a root that is to be read-only.
            raise ImageError(f"system {system.name!r}: its image declares VOLUME {', '.join(volumes)}; remove it")
        return _prepared(system, image)

    def launch(self, job: Job, progress: Callable[[Progress], None]) -> Ended:
        """Run one container from start to end and remove it."""
        _open_to_job_user(job)
        cpus = choose_cpus(job.spec.envelope.cpus, os.sched_getaffinity(0))
        with engine_errors():
            container = self.client.containers.create(**_container(job, cpus))
        try:
            # Before the start: its baseline is what the GPUs hold without the job.
            with engine_errors(), host.aside(cpus), gpu.memory(job.spec.envelope.gpus) as gpu_memory:
                started = time.monotonic()
                refused = _start(container)
                if refused:
                    return Ended(None, False, None, None, refused, MemoryTrace(), 0.0, b"")
                return self._follow(container, job, progress, gpu_memory, started)
        finally:
            _remove(container)

    def _follow(
        self,
        container: Container,
        job: Job,
        progress: Callable[[Progress], None],
        gpu_memory: gpu.GpuMemory | None,
        started: float,
    ) -> Ended:
        ended = threading.Event()
        threading.Thread(target=_wait, args=(container, ended), daemon=True, name="container-wait").start()
        watch = Watch(job)
        with _sampling(container, gpu_memory) as sampler:
            stopped = None
            while not ended.wait(_POLL_S):
                stopped = watch.poll()
                progress(watch.progress)
                if stopped:
                    _kill(container)
                    ended.wait()
                    break
        wall_s = time.monotonic() - started
        container.reload()
        state = container.attrs["State"]
        if state["Running"]:
            raise EngineError("the engine dropped the connection while a job ran; see its log, then run again")
        return Ended(
            exit_code=state["ExitCode"],
            oom_killed=bool(state["OOMKilled"]),
            oom_kills=sampler.oom_kills if sampler else None,
            throttled_periods=sampler.throttled_periods if sampler else None,
            stopped=stopped,
            memory=sampler.trace() if sampler else MemoryTrace(),
            wall_s=wall_s,
            log=container.logs(stdout=True, stderr=True)[-_LOG_BYTES:],
        )

    def sweep(self) -> int:
        """Remove containers whose harness process on this host is dead."""
        removed = 0
        with engine_errors():
            for container in self.client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True):
                if container.labels.get(HOST_LABEL) == this_host() and not alive(container.labels[LABEL]):
                    _remove(container)
                    removed += 1
        return removed

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()


def _prepared(system: System, image: images.Image) -> Prepared:
    return Prepared(system, image.digest, image.digest, image.size_bytes)


def _container(job: Job, cpus: tuple[int, ...]) -> dict[str, Any]:
    """Every limit of the envelope as arguments of the engine's create call (measuring rules 1, 2, 3 and 5)."""
    envelope = job.spec.envelope
    building = job.spec.kind == "build"
    mounts = [
        Mount("/job", str(job.folder), type="bind", read_only=True),
        Mount("/job/out", str(job.out), type="bind"),
        Mount("/corpus", str(job.corpus_dir), type="bind", read_only=True),
        Mount("/index", str(job.index_dir), type="bind", read_only=not building),
    ]
    return {
        "image": job.prepared.reference,
        "name": f"harness-{job.spec.system}-{job.spec.kind}-{secrets.token_hex(4)}",
        "labels": {LABEL: me(), HOST_LABEL: this_host()},
        "user": f"{_job_user()}:{_job_user()}",
        "environment": thread_environment(envelope.cpus),
        "mounts": mounts,
        # A cpuset, never a quota: a quota flatters p50 and wrecks p99 (rule 1).
        "cpuset_cpus": ",".join(map(str, cpus)),
        "cpuset_mems": ",".join(map(str, host.numa_nodes(cpus))) or None,
        "mem_limit": envelope.memory_bytes,
        "memswap_limit": envelope.memory_bytes,  # the same figure: no swap on top (rule 2)
        "pids_limit": envelope.pids,
        "network_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "tmpfs": {"/tmp": f"rw,noexec,nosuid,nodev,size={_SCRATCH_BYTES},mode=1777"},  # noqa: S108
        "shm_size": _SCRATCH_BYTES,
        "ulimits": [Ulimit(name="core", soft=0, hard=0), *_file_limit(job)],
        "healthcheck": {"test": ["NONE"]},  # nothing but the job runs inside the measured envelope
        "log_config": LogConfig(type="json-file", config={"max-size": str(_LOG_BYTES), "max-file": "1"}),
        "device_requests": _device_requests(envelope.gpus),
    }


def _file_limit(job: Job) -> list[Ulimit]:
    """No single file of a search job can outgrow what the whole job may leave; an index may be large."""
    if job.spec.kind == "build":
        return []
    most = most_output_bytes(job.spec)
    return [Ulimit(name="fsize", soft=most, hard=most)]


def _device_requests(gpus: int) -> list[DeviceRequest] | None:
    if not gpus:
        return None
    return [DeviceRequest(device_ids=[str(index) for index in range(gpus)], capabilities=[["gpu"]])]


def _job_user() -> int:
    """Never root; our own user where we are not root, so that we can read what the job wrote."""
    return os.getuid() or NOBODY


def _open_to_job_user(job: Job) -> None:
    """Let the job's user read its spec and write its ``out/``, whatever our umask is."""
    job.folder.chmod(0o755)
    (job.folder / "spec.json").chmod(0o644)
    for folder in [job.out, *([job.index_dir] if job.spec.kind == "build" else [])]:
        folder.chmod(0o755)
        if os.getuid() == 0:
            os.chown(folder, NOBODY, NOBODY)


def _start(container: Container) -> Stopped | None:
    try:
        container.start()
    except docker.errors.APIError as error:
        if "device driver" in str(error):
            reason = "the engine cannot hand out GPUs; install the NVIDIA container toolkit"
            return Stopped(Outcome.NOT_APPLICABLE, reason)
        if any(words in str(error) for words in _NO_START):
            return Stopped(
                Outcome.CRASH, f"the image does not start: {' '.join(str(error.explanation).split())[-300:]}"
            )
        raise
    return None


def _kill(container: Container) -> None:
    try:
        container.kill()
    except docker.errors.APIError as error:
        if error.status_code not in (404, 409):  # it ended by itself meanwhile
            raise


def _wait(container: Container, ended: threading.Event) -> None:
    """Block until the container ends; one request, so that waiting costs the measured CPUs nothing."""
    try:
        container.wait(timeout=None)
    except (docker.errors.APIError, requests.RequestException):
        pass  # the engine went away: the caller's next request says so
    finally:
        ended.set()


@contextmanager
def _sampling(container: Container, gpu_memory: gpu.GpuMemory | None) -> Iterator[MemorySampler | None]:
    """Sample the container's cgroup from the host; None where the host does not show it."""
    container.reload()
    pid = container.attrs["State"]["Pid"]
    try:
        membership = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8") if pid else ""
    except OSError:
        membership = ""
    # The id guards against a remote engine, whose pids are not ours.
    group = cgroup.of_process(membership) if container.id and container.id in membership else None
    sampler = MemorySampler(CgroupSource(group), gpu_memory) if group else None
    if sampler:
        sampler.start()
    try:
        yield sampler
    finally:
        if sampler:
            sampler.stop()


def _remove(container: Container) -> None:
    try:
        container.remove(force=True, v=True)
    except docker.errors.NotFound:
        pass
    except (docker.errors.APIError, requests.RequestException) as error:
        raise EngineError(f"container {container.name} could not be removed: {error}; remove it by hand") from error
