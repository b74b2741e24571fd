"""The container of a job: how it is created, its limits as the host sees them, and its end.

The driver reads the limits from inside, but an image can claim anything.  The host cannot see all of them (the
container of a remote engine, a file that this kernel lacks); then the values read inside count alone.  Swap in use, and
throttling by a container's own later quota, are counted while the job runs and have their own verdict.
"""

from __future__ import annotations

import functools
import os
import secrets
import threading
from typing import Any

import docker
import requests
from docker.errors import DockerException
from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

from harness.commands import words
from harness.driver.cgroup import UNLIMITED, Cgroup
from harness.driver.envelope import PAGE_BYTES, same_memory
from harness.driver.procfs import format_list
from harness.driver.records import Cpuset, Envelope, Outcome
from harness.errors import EngineError, ImageError
from harness.filesystem import this_process
from harness.launch.base import LaunchRequest, Prepared, StopReason, thread_environment
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
    if job.spec.kind != "build":  # each file at most as large as all output; an index may be large
        most_bytes = max_output_bytes(job.spec)
        ulimits.append(Ulimit(name="fsize", soft=most_bytes, hard=most_bytes))
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


def limit_mismatch(group: Cgroup | None, requested: Envelope, cpuset: Cpuset) -> StopReason | None:
    """Return why a container that has just started must not be measured.

    Args:
        group: its cgroup; ``None`` where the host does not show it.
    """
    if group is None:
        return None
    wrong = _cpuset(group, cpuset)
    memory_bytes, quota = group.memory_limit_bytes(), group.cpu_quota()
    if memory_bytes is not None and not same_memory(requested, memory_bytes):
        wrong.append(f"memory limit {memory_bytes} bytes, asked for {requested.memory_bytes}")
    if quota not in (None, UNLIMITED):
        wrong.append(f"CPU quota of {quota} CPUs, asked for none")
    return _stopped(wrong + _memory_above(group, requested) + _quotas_above(group))


def limit_change(group: Cgroup | None, cpuset: Cpuset) -> StopReason | None:
    """Return why a running container's CPUs, NUMA nodes or parents' quotas no longer fit."""
    return _stopped(_cpuset(group, cpuset) + _quotas_above(group)) if group else None


def _cpuset(group: Cgroup, requested: Cpuset) -> list[str]:
    wrong = []
    cpus, nodes = group.cpus(), group.numa_nodes()
    if cpus is not None and cpus != set(requested.cpus):
        reason = f"held to CPUs {format_list(cpus)}, asked for CPUs {format_list(requested.cpus)}"
        wrong.append(reason + _same_cpus_as_the_engine(group, requested))
    if nodes is not None and requested.numa_nodes and nodes != set(requested.numa_nodes):
        wrong.append(
            f"memory from NUMA nodes {format_list(nodes)}, asked for nodes {format_list(requested.numa_nodes)}"
        )
    return wrong


def _same_cpus_as_the_engine(group: Cgroup, requested: Cpuset) -> str:
    """Return the remedy where the engine itself lacks CPUs of the harness, else nothing."""
    for parent in group.cpu_parents():
        cpus = parent.cpus()
        if cpus is not None and not cpus.issuperset(requested.cpus):
            these = format_list(cpus)
            here = f"taskset -c {words(these)}"
            return f" (the engine has CPUs {these}: run the harness on the same, `{here} harness run ...`)"
    return ""


# Limits further up are invisible from inside, and the kernel keeps no count of them in the container's own cgroup.
def _memory_above(group: Cgroup, requested: Envelope) -> list[str]:
    limits = [(parent.memory, parent.memory_limit_bytes()) for parent in group.memory_parents()]
    return [
        f"{folder} has a memory limit of {memory_bytes} bytes, asked for {requested.memory_bytes}"
        for folder, memory_bytes in limits
        if memory_bytes is not None and UNLIMITED < memory_bytes <= requested.memory_bytes - PAGE_BYTES
    ]


def _quotas_above(group: Cgroup) -> list[str]:
    """Return the parents' quotas that can bind: one of as many CPUs as they have never does."""
    wrong = []
    for parent in group.cpu_parents():
        quota = parent.cpu_quota()
        if quota is None or quota == UNLIMITED:
            continue
        cpus = len(parent.cpus() or ()) or os.cpu_count()
        if cpus is None or quota < cpus:
            wrong.append(
                f"{parent.cpu} has a CPU quota of {quota:g} CPUs and may use {cpus}, asked for no quota that binds:"
                f" take it off (`{_without_quota(parent)}`), or measure outside that cgroup"
            )
    return wrong


def _without_quota(group: Cgroup) -> str:
    """Return the command that removes the quota."""
    if group.cpu.suffix in (".slice", ".scope", ".service"):
        return f"systemctl set-property {group.cpu.name} CPUQuota="
    return f"echo max > {group.cpu}/cpu.max" if group.version == 2 else f"echo -1 > {group.cpu}/cpu.cfs_quota_us"


def _stopped(wrong: list[str]) -> StopReason | None:
    return StopReason(Outcome.ENVELOPE_MISMATCH, "seen from outside: " + "; ".join(wrong)) if wrong else None
