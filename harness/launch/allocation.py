"""Limits for the jobs of an ordinary user: a step of a Slurm allocation, or a scope of the user's own systemd.

Cgroups are found by ``/proc/<pid>/cgroup`` and never by a job's number, because their paths differ between releases.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from harness import child_process
from harness.commands import option
from harness.driver import cgroup
from harness.driver.cgroup import UNLIMITED, Cgroup, Limit
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
# A step must not inherit what the allocation's first step was given.
_OF_ANOTHER_STEP = re.compile(r"SLURM_(CPU_BIND|MEM_|NTASKS|NPROCS|CPUS_PER_TASK|TRES_PER_TASK|STEP|DISTRIBUTION|GPU)")
_OOM = re.compile(r"oom.kill event|OOM Killed|out.of.memory", re.IGNORECASE)


class Holder(Protocol):
    """Holder of a job to its envelope, without root and without an engine."""

    # What it is, and what to ask for where the limits are not as requested.
    kind: str
    remedy: str

    def cannot(self, envelope: Envelope) -> str | None:
        """Return why the envelope does not fit in, or None."""

    def room_bytes(self) -> int:
        """Return the memory that it leaves to a job."""

    @contextmanager
    def placed(self, envelope: Envelope) -> Iterator[Placement | None]:
        """Choose the job's CPUs; None: the holder chooses them when it starts."""

    def command(self, envelope: Envelope, placement: Placement | None) -> list[str]:
        """Return the command that runs another one inside the limits, with its input and output."""

    def environment(self) -> dict[str, str]:
        """Return the variables of that command."""

    def out_of_memory(self, said: str) -> bool:
        """Return whether the holder says that the kernel killed the job at its memory limit."""


@dataclass(frozen=True)
class SlurmStep:
    """A step (``srun``) of the allocation that this process runs in; ``inside``: this process runs in a step itself."""

    node: str
    own: Cgroup | None
    inside: bool = False

    kind = "a step of this Slurm allocation"
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
        limit, needed = self._limit(), envelope.memory_bytes + OWN_BYTES
        return (
            f"profile {envelope.name} needs {envelope.memory_bytes // MIB} MiB and harness {OWN_BYTES // MIB} MiB, but"
            f" the allocation has {int(limit.value or 0) // MIB} MiB ({limit.folder}); ask Slurm for"
            f" {option('mem', f'{needed // MIB}M')} or more"
        )

    def room_bytes(self) -> int:
        """Return what the allocation has and harness does not need."""
        limit = self._limit()
        whole = host.memory_bytes() if limit.value is None or limit.value == UNLIMITED else int(limit.value)
        return max(0, whole - OWN_BYTES)

    def _limit(self) -> Limit:
        return self.own.least_memory() if self.own else Limit(cgroup.ROOT, None)

    @contextmanager
    def placed(self, envelope: Envelope) -> Iterator[Placement | None]:  # noqa: ARG002 # Slurm chooses
        """Yield nothing: Slurm chooses the CPUs."""
        yield None

    def command(self, envelope: Envelope, placement: Placement | None) -> list[str]:  # noqa: ARG002 # Slurm chooses
        """Return ``srun`` with the envelope's CPUs and memory, on this node."""
        return [
            *("srun", "--exact", "--nodes=1", "--ntasks=1", f"--nodelist={self.node}", "--hint=nomultithread"),
            *(f"--cpus-per-task={envelope.cpus}", f"--mem={envelope.memory_bytes // MIB}M", "--quit-on-interrupt"),
            *((f"--gres=gpu:{envelope.gpus}",) if envelope.gpus else ()),
            *(("--overlap",) if self.inside else ()),
        ]

    def environment(self) -> dict[str, str]:
        """Return our variables without what the allocation gave to another step."""
        own = child_process.environment(*child_process.SLURM)
        return {name: value for name, value in own.items() if not _OF_ANOTHER_STEP.match(name)}

    def out_of_memory(self, said: str) -> bool:
        """Return whether Slurm reports it."""
        return bool(_OOM.search(said))


@dataclass(frozen=True)
class UserScope:
    """A scope of the user's own systemd on cgroup v2, which limits what the administrator has delegated."""

    kind = "a scope of the user's systemd"
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

    @contextmanager
    def placed(self, envelope: Envelope) -> Iterator[Placement | None]:
        """Choose the job's CPUs among those that no other harness holds."""
        with cpu_placement.placed(envelope.cpus) as placement:
            yield placement

    def command(self, envelope: Envelope, placement: Placement | None) -> list[str]:
        """Return ``systemd-run`` with the envelope's limits."""
        limits = {
            "MemoryMax": envelope.memory_bytes,
            "MemorySwapMax": 0,
            "TasksMax": envelope.pids,
            **({"AllowedCPUs": format_list(placement.cpus)} if placement else {}),
        }
        properties = [word for name, value in limits.items() for word in ("-p", f"{name}={value}")]
        return ["systemd-run", "--user", "--scope", "--quiet", "--collect", *properties, "--"]

    def environment(self) -> dict[str, str]:
        """Return our variables, and how the user's systemd is reached."""
        return child_process.environment(*child_process.SYSTEMD)

    def out_of_memory(self, said: str) -> bool:  # noqa: ARG002 # the cgroup counts the kills
        """Return False: the cgroup's own counter says it."""
        return False


def slurm_job() -> str | None:
    """Return the number of the Slurm job that this process runs in, for messages; None outside of one."""
    return os.environ.get("SLURM_JOB_ID")


def holder(environ: Mapping[str, str] | None = None, root: Path = cgroup.ROOT) -> Holder:
    """Return what can limit a job here.

    Raises:
        EngineError: nothing can; says what to ask for.
    """
    environ = os.environ if environ is None else environ
    job, node = environ.get("SLURM_JOB_ID"), environ.get("SLURMD_NODENAME")
    if job and not node:
        raise EngineError(
            f"this process has the Slurm allocation {job} and does not run on its node, so nothing limits it; start"
            " harness with `sbatch`, or in `srun --pty bash`"
        )
    if job and node:
        if not shutil.which("srun"):
            raise EngineError(f"srun is not found on node {node}; add Slurm's programs to the PATH of the job")
        own = cgroup.of_process(read_text(Path("/proc/self/cgroup")) or "", root)
        return SlurmStep(node, own, "SLURM_STEP_ID" in environ)
    if reason := lacks_scope(root):
        raise EngineError(
            f"no Slurm allocation here: nothing else limits a job's memory, because {reason}; start harness with"
            " `sbatch`"
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
    if lacking := [each for each in not_delegated(manager) if each != "cpu"]:
        return f"systemd does not delegate {', '.join(lacking)} to user {uid}: {UserScope.remedy}"
    return None if shutil.which("systemd-run") else "systemd-run is not found"


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
    own = [Path(os.devnull) if folder in shared else folder for folder in job.folders]
    memory, cpu, pids, cpuacct, cpuset = own
    return replace(job, memory=memory, cpu=cpu, pids=pids, cpuacct=cpuacct, cpuset=cpuset)
