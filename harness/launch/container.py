"""An envelope as arguments of the engine's create call."""

from __future__ import annotations

import os
import secrets
from typing import Any

from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

from harness.launch.base import Job, thread_environment
from harness.owner import me
from harness.result import Placement
from harness.untrusted import most_output_bytes

# The label that says whose a container is.
LABEL = "ir-harness.owner"
# A user that exists in no image: nothing in the image belongs to it.
NOBODY = 65532
LOG_BYTES = 10 << 20
_SCRATCH_BYTES = 64 << 20


def arguments(job: Job, placement: Placement) -> dict[str, Any]:
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
        "labels": {LABEL: me()},
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


def job_user() -> int:
    """The job's uid and gid: never root; our own user where we are not root, so that we can read what the job wrote."""
    return os.getuid() or NOBODY
