"""The container of a job: how it is created, and its end."""

from __future__ import annotations

import functools
import os
import resource
import secrets
import threading
from typing import Any

import docker
import requests
from docker.errors import DockerException
from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

from harness.errors import EngineError, ImageError
from harness.filesystem import this_process
from harness.launch.base import LaunchRequest, Prepared, thread_environment
from harness.launch.connection import engine_errors
from harness.launch.images import emulation, platforms
from harness.results.schema import Placement
from harness.untrusted import max_output_bytes

# The label that names a container's owner.
LABEL = "ir-harness.owner"
# A user that exists in no image: nothing in the image belongs to it.
NOBODY = 65532
LOG_BYTES = 10 << 20
_SCRATCH_BYTES = 64 << 20


# Open files and processes of a job in Podman, at most.  Podman asks for a million, which few users may have.
_PODMAN_ULIMITS = {"nofile": (resource.RLIMIT_NOFILE, 1 << 16), "nproc": (resource.RLIMIT_NPROC, 1 << 15)}


def create_arguments(job: LaunchRequest, placement: Placement, *, podman: bool = False) -> dict[str, Any]:
    """Return an envelope's limits as arguments of the engine's create call (measuring rules 1, 2, 3, 5)."""
    envelope = job.spec.envelope
    mounts = [
        Mount("/job", str(job.folder), type="bind", read_only=True),
        Mount("/job/out", str(job.out), type="bind"),
        Mount("/corpus", str(job.corpus_dir), type="bind", read_only=True),
        Mount("/index", str(job.index_dir), type="bind", read_only=not job.may_write_index),
    ]
    ulimits = [Ulimit(name="core", soft=0, hard=0)]
    if job.spec.kind != "build":  # each file at most as large as all output; an index may be large
        most_bytes = max_output_bytes(job.spec)
        ulimits.append(Ulimit(name="fsize", soft=most_bytes, hard=most_bytes))
    for name, (number, most) in _PODMAN_ULIMITS.items() if podman else ():
        own = resource.getrlimit(number)[1]
        limit = most if own == resource.RLIM_INFINITY else min(own, most)
        ulimits.append(Ulimit(name=name, soft=limit, hard=limit))
    gpus = [str(index) for index in range(envelope.gpus)]
    return {
        "image": job.prepared.reference,
        "name": f"harness-{job.spec.system}-{job.spec.kind}-{secrets.token_hex(4)}",
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
        "tmpfs": {"/tmp": f"rw,noexec,nosuid,nodev,size={_SCRATCH_BYTES},mode=1777"},  # noqa: S108 # its own
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


class ContainerWait(threading.Thread):
    """A wait for a container's end through one open request, which costs the measured CPUs nothing."""

    def __init__(self, container: Container) -> None:
        super().__init__(daemon=True, name="container-wait")
        self._container = container
        self._broken = False
        self.ended = threading.Event()
        self.start()

    def run(self) -> None:
        """Block until the container ends or the engine goes away."""
        try:
            self._container.wait(timeout=None)
        except (DockerException, requests.RequestException):
            self._broken = True
        finally:
            self.ended.set()

    def result(self) -> None:
        """Return when the container has ended.

        Raises:
            EngineError: the engine went away and took its containers down, so their end says nothing about the job.
        """
        if not self.ended.wait(_KILL_S):
            raise EngineError(
                f"the Docker engine did not end a container within {_KILL_S} s; see `harness doctor`, then run again"
            )
        if self._broken:
            raise EngineError(
                "the Docker engine went away while a job ran; see that it is back (`harness doctor`), then run again: "
                "what was finished is kept, and what is left of the job is removed"
            )
