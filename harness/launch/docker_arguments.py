"""An envelope as arguments of the engine's create call."""

from __future__ import annotations

import os
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
from harness.launch.docker_errors import engine_errors
from harness.launch.images import emulation, platforms
from harness.results.schema import Placement
from harness.untrusted import max_output_bytes

# The label that says whose a container is.
LABEL = "ir-harness.filesystem"
# A user that exists in no image: nothing in the image belongs to it.
NOBODY = 65532
LOG_BYTES = 10 << 20
_SCRATCH_BYTES = 64 << 20


def arguments(job: LaunchRequest, placement: Placement) -> dict[str, Any]:
    """Every limit of the envelope as arguments of the engine's create call (measuring rules 1, 2, 3 and 5)."""
    envelope = job.spec.envelope
    mounts = [
        Mount("/job", str(job.folder), type="bind", read_only=True),
        Mount("/job/out", str(job.out), type="bind"),
        Mount("/corpus", str(job.corpus_dir), type="bind", read_only=True),
        Mount("/index", str(job.index_dir), type="bind", read_only=not job.may_write_index),
    ]
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
        "tmpfs": {"/tmp": f"rw,noexec,nosuid,nodev,size={_SCRATCH_BYTES},mode=1777"},  # noqa: S108
        "shm_size": _SCRATCH_BYTES,
        "ulimits": [Ulimit(name="core", soft=0, hard=0), *_file_limit(job)],
        "healthcheck": {"test": ["NONE"]},  # nothing but the job runs inside the measured envelope
        # Of two files the older goes when the newer is full; one alone would be emptied, last words and all.
        "log_config": LogConfig(type="json-file", config={"max-size": str(LOG_BYTES // 2), "max-file": "2"}),
        "device_requests": _device_requests(envelope.gpus),
    }


def _file_limit(job: LaunchRequest) -> list[Ulimit]:
    """No single file of a search job can outgrow what the whole job may leave; an index may be large."""
    if job.spec.kind == "build":
        return []
    most = max_output_bytes(job.spec)
    return [Ulimit(name="fsize", soft=most, hard=most)]


def _device_requests(gpus: int) -> list[DeviceRequest] | None:
    if not gpus:
        return None
    return [DeviceRequest(device_ids=[str(index) for index in range(gpus)], capabilities=[["gpu"]])]


def job_user() -> int:
    """The job's uid and gid: never root; our own user where we are not root, so that we can read what the job wrote."""
    return os.getuid() or NOBODY


# MERGED harness.launch.docker_arguments: What an emulator takes is no measurement of anything: such jobs are refused.


def refuse(client: docker.DockerClient, prepared: Prepared) -> None:
    """What the image itself says it is for decides, whoever made it.

    Raises:
        ImageError: its platform is not the engine's own.
    """
    with engine_errors():
        image = client.images.get(prepared.reference).attrs
    platform, own = platforms.of_machine(image["Architecture"]), emulation.native(client)
    if platform != own:
        raise ImageError(
            f"system {prepared.system.name!r}: its image is for {platform}, which this engine ({own}) could only"
            f" emulate, and such times say nothing; run it on a machine of {platform}"
        )


# MERGED harness.launch.docker_arguments: Waiting for a container's end.


# What an engine may take to end a container that was killed.
_KILL_S = 60


class Waiting(threading.Thread):
    """Waits for a container's end: one request that stays open, so that waiting costs the measured CPUs nothing."""

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
            EngineError: the engine went away meanwhile: it takes its containers down with it, so that what their end
                looks like says nothing about the job.
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
