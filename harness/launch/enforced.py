"""The limits of a container as its cgroup shows them to the host.

The driver reads them from inside, but an image can claim anything.  What the host cannot see (the container of a
remote engine, a file that this kernel has not) is left to what is read inside.  Swap that is used, and throttling by a
quota that is set later, are counted while the job runs and have their own verdict.
"""

from __future__ import annotations

from harness.cgroup import UNLIMITED, Cgroup
from harness.kernel_files import format_list
from harness.launch.base import Stopped
from harness.measure.envelope import PAGE, same_memory
from harness.records import Cpuset, Envelope, Outcome


def refusal(group: Cgroup | None, asked: Envelope, cpuset: Cpuset) -> Stopped | None:
    """Why a container that has just started must not be measured, or None.

    Args:
        group: its cgroup; ``None`` where the host does not show it.
    """
    if group is None:
        return None
    wrong = _cpuset(group, cpuset)
    memory_bytes, quota = group.memory_limit_bytes(), group.cpu_quota()
    if memory_bytes is not None and not same_memory(asked, memory_bytes):
        wrong.append(f"memory limit {memory_bytes} bytes, asked for {asked.memory_bytes}")
    if quota not in (None, UNLIMITED):
        wrong.append(f"CPU quota of {quota} CPUs, asked for none")
    # Invisible from inside, and the kernel keeps no count of it in the container's own cgroup.
    for parent in group.parents():
        memory_bytes, quota = parent.memory_limit_bytes(), parent.cpu_quota()
        if memory_bytes is not None and UNLIMITED < memory_bytes < asked.memory_bytes - PAGE:
            wrong.append(f"{parent.memory} has a memory limit of {memory_bytes} bytes, asked for {asked.memory_bytes}")
        if quota not in (None, UNLIMITED):
            wrong.append(f"{parent.cpu} has a CPU quota of {quota} CPUs, asked for none")
    return _stopped(wrong)


def moved(group: Cgroup | None, cpuset: Cpuset) -> Stopped | None:
    """Whether somebody gave a running container other CPUs or NUMA nodes than it started with."""
    return _stopped(_cpuset(group, cpuset)) if group else None


def _cpuset(group: Cgroup, asked: Cpuset) -> list[str]:
    wrong = []
    cpus, nodes = group.cpus(), group.numa_nodes()
    if cpus is not None and cpus != set(asked.cpus):
        wrong.append(f"held to CPUs {format_list(cpus)}, asked for CPUs {format_list(asked.cpus)}")
    if nodes is not None and asked.numa_nodes and nodes != set(asked.numa_nodes):
        wrong.append(f"memory from NUMA nodes {format_list(nodes)}, asked for nodes {format_list(asked.numa_nodes)}")
    return wrong


def _stopped(wrong: list[str]) -> Stopped | None:
    return Stopped(Outcome.ENVELOPE_MISMATCH, "seen from outside: " + "; ".join(wrong)) if wrong else None
