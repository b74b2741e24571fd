"""Limits for the jobs of an ordinary user: a step of a Slurm allocation, or a scope of the user's own systemd.

Cgroups are found by ``/proc/<pid>/cgroup`` and never by a job's number, because their paths differ between releases.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from harness import child_process
from harness.commands import option
from harness.driver import cgroup
from harness.driver.cgroup import UNLIMITED, Cgroup
from harness.driver.procfs import format_list, read_text
from harness.driver.records import Envelope
from harness.errors import EngineError
from harness.launch import cpu_placement, host
from harness.results.schema import Placement

MIB = 1 << 20
# What the harness itself needs in an allocation, in addition to the job.
OWN_BYTES = 512 * MIB
# Controllers without which the limits of a job hold nowhere.
_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
# From this version on systemd ends a scope whose process was killed for memory, unless told otherwise.
_ENDS_SCOPES = 253


@dataclass(frozen=True)
class SlurmStep:
    """A step (``srun``) of the allocation that this process runs in; ``inside``: this process runs in a step itself."""

    node: str
    own: Cgroup
    inside: bool = False

    kind = "a step of this Slurm allocation"
    # All that a step needs to know; other variables say what the allocation or another step was given.
    variables = ("SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_WORKING_CLUSTER", "MUNGE_*")
    # What srun says of a job that it will never start, and of one that the kernel killed for its memory.
    too_large = re.compile(
        "memory required by task|more processors|configuration is not available|generic resource", re.I
    )
    out_of_memory = re.compile("oom.kill event|OOM Killed|out.of.memory", re.I)
    # What to ask for where the limits are not as requested.
    remedy = (
        "ask Slurm for more CPUs and memory (sbatch --cpus-per-task, --mem), or the administrator for ConstrainCores,"
        " ConstrainRAMSpace and ConstrainSwapSpace=yes in cgroup.conf"
    )

    def cannot(self, envelope: Envelope) -> str | None:
        """Return why the allocation does not hold the envelope, or None."""
        if reason := host.cannot_provide(envelope):
            return f"{reason}; ask Slurm for more (sbatch --cpus-per-task, --mem, --gres)"
        if envelope.memory_bytes % MIB:
            return f"profile {envelope.name} asks for {envelope.memory_bytes} bytes, and Slurm limits whole MiB only"
        if envelope.memory_bytes <= self.room_bytes():
            return None
        limit, needed = self.own.least_memory(), envelope.memory_bytes + OWN_BYTES
        return (
            f"profile {envelope.name} needs {envelope.memory_bytes // MIB} MiB and harness {OWN_BYTES // MIB} MiB, but"
            f" the allocation has {int(limit.value or 0) // MIB} MiB ({limit.folder}); ask Slurm for"
            f" {option('mem', f'{needed // MIB}M')} or more"
        )

    def room_bytes(self) -> int:
        """Return what the allocation has and harness does not need."""
        limit = self.own.least_memory()
        whole = host.memory_bytes() if limit.value is None or limit.value == UNLIMITED else int(limit.value)
        return max(0, whole - OWN_BYTES)

    def placed(self, envelope: Envelope) -> AbstractContextManager[None]:  # noqa: ARG002 # Slurm chooses
        """Choose nothing: Slurm chooses the CPUs."""
        return nullcontext()

    def command(self, envelope: Envelope, placement: Placement | None) -> list[str]:  # noqa: ARG002 # Slurm chooses
        """Return ``srun`` with the envelope's CPUs and memory, on this node."""
        return [
            *("srun", "--exact", "--nodes=1", "--ntasks=1", f"--nodelist={self.node}", "--hint=nomultithread"),
            *(f"--cpus-per-task={envelope.cpus}", f"--mem={envelope.memory_bytes // MIB}M", "--quit-on-interrupt"),
            *((f"--gres=gpu:{envelope.gpus}",) if envelope.gpus else ()),
            *(("--overlap",) if self.inside else ()),
        ]


@dataclass(frozen=True)
class UserScope:
    """A scope of the user's own systemd on cgroup v2, which limits what the administrator has delegated."""

    kind = "a scope of the user's systemd"
    variables = child_process.SYSTEMD
    too_large = out_of_memory = re.compile("(?!)")  # it sets any limit, and the cgroup's counter shows the kills
    remedy = (
        f"ask the administrator for 'Delegate={' '.join(_CONTROLLERS)}' below [Service] in"
        " /etc/systemd/system/user@.service.d/delegate.conf, then log in again"
    )

    def cannot(self, envelope: Envelope) -> str | None:
        """Return why this host lacks the envelope, or None."""
        return host.cannot_provide(envelope)

    def room_bytes(self) -> int:
        """Return a half of the host's memory."""
        return host.memory_bytes() // 2

    def placed(self, envelope: Envelope) -> AbstractContextManager[Placement]:
        """Choose the job's CPUs among those that no other harness holds."""
        return cpu_placement.placed(envelope.cpus)

    def command(self, envelope: Envelope, placement: Placement | None) -> list[str]:
        """Return ``systemd-run`` with the envelope's limits."""
        limits = {
            "MemoryMax": envelope.memory_bytes,
            "MemorySwapMax": 0,
            "TasksMax": envelope.pids,
            "CPUWeight": 100,  # the usual one: without it the scope's cgroup does not show that it has no quota
            **({"OOMPolicy": "continue"} if _systemd_version() >= _ENDS_SCOPES else {}),
            **({"AllowedCPUs": format_list(placement.cpus)} if placement else {}),
        }
        properties = [word for name, value in limits.items() for word in ("-p", f"{name}={value}")]
        return ["systemd-run", "--user", "--scope", "--quiet", "--collect", *properties, "--"]


# What holds a job to its envelope, without root and without an engine.
Holder: TypeAlias = SlurmStep | UserScope


def holder(environ: Mapping[str, str] = os.environ, root: Path = cgroup.ROOT) -> Holder:
    """Return what can limit a job here.

    Raises:
        EngineError: nothing can; says what to ask for.
    """
    job, node = environ.get("SLURM_JOB_ID"), environ.get("SLURMD_NODENAME")
    if job and not node:
        raise EngineError(
            f"this process has the Slurm allocation {job} and does not run on its node, so nothing limits it; start"
            " harness with `sbatch`, or in `srun --pty bash`"
        )
    if job and node:
        own = cgroup.of_process(read_text(Path("/proc/self/cgroup")) or "", root)
        if own is None or not shutil.which("srun"):
            lacking = "srun is" if own else "/sys/fs/cgroup with a memory controller is"
            raise EngineError(f"{lacking} not found on node {node}; ask the administrator")
        return SlurmStep(node, own, "SLURM_STEP_ID" in environ)
    if reason := lacks_scope(root):
        raise EngineError(
            f"no Slurm allocation here: nothing else limits a job's memory, because {reason}; use sbatch or --on slurm"
        )
    return UserScope()


def lacks_scope(root: Path = cgroup.ROOT, uid: int | None = None) -> str | None:
    """Return why the user's systemd cannot limit a job, or None."""
    uid = os.getuid() if uid is None else uid
    if not (root / "cgroup.controllers").exists():
        return "this host has cgroup v1, where users have no cgroups of their own"
    manager = user_manager(root, uid)
    if not manager.is_dir():
        return f"user {uid} has no systemd of its own ({manager}): log in with a session, or loginctl enable-linger"
    if lacking := not_delegated(manager):
        return f"systemd does not delegate {', '.join(lacking)} to user {uid}: {UserScope.remedy}"
    return None if shutil.which("systemd-run") else "systemd-run is not found"


def _systemd_version() -> int:
    """Return the version of systemd; 0: unknown."""
    found = re.match(r"systemd (\d+)", child_process.run(["systemd-run", "--version"]).stdout)
    return int(found[1]) if found else 0


def user_manager(root: Path, uid: int) -> Path:
    """Return the cgroup of the systemd of a user."""
    return root / "user.slice" / f"user-{uid}.slice" / f"user@{uid}.service"


def not_delegated(manager: Path) -> list[str]:
    """Return the controllers that a user's systemd lacks, of all that limit a job."""
    held = (read_text(manager / "cgroup.controllers") or "").split()
    return [controller for controller in _CONTROLLERS if controller not in held]


def apart(job: Cgroup, ours: Cgroup | None) -> Cgroup:
    """Return a job's cgroup without the controllers that the harness is in, too: their counters are not the job's."""
    if ours is None:
        return job
    shared = {folder for mine in ours.folders for folder in (mine, *mine.parents)}
    names = ("memory", "cpu", "pids", "cpuacct", "cpuset")
    hidden: dict[str, Any] = {
        name: Path(os.devnull) for name, folder in zip(names, job.folders, strict=True) if folder in shared
    }
    return replace(job, **hidden)
