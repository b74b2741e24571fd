"""The limits of a container as its cgroup shows them to the host.

The driver reads them from inside, but an image can claim anything.  What the host cannot see (the container of a
remote engine, a file that this kernel has not) is left to what is read inside.  Swap that is used, and throttling by a
quota of its own that is set later, are counted while the job runs and have their own verdict.
"""

from __future__ import annotations

import os

from harness.driver.cgroup import UNLIMITED, Cgroup
from harness.driver.envelope import PAGE_BYTES, same_memory
from harness.driver.procfs import format_list
from harness.launch.base import Stopped
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
    return _stopped(wrong + _memory_above(group, asked) + _quotas_above(group))


def moved(group: Cgroup | None, cpuset: Cpuset) -> Stopped | None:
    """Whether somebody gave a running container other CPUs or NUMA nodes, or set a quota above it, since it started."""
    return _stopped(_cpuset(group, cpuset) + _quotas_above(group)) if group else None


def _cpuset(group: Cgroup, asked: Cpuset) -> list[str]:
    wrong = []
    cpus, nodes = group.cpus(), group.numa_nodes()
    if cpus is not None and cpus != set(asked.cpus):
        said = f"held to CPUs {format_list(cpus)}, asked for CPUs {format_list(asked.cpus)}"
        wrong.append(said + _same_cpus_as_the_engine(group, asked))
    if nodes is not None and asked.numa_nodes and nodes != set(asked.numa_nodes):
        wrong.append(f"memory from NUMA nodes {format_list(nodes)}, asked for nodes {format_list(asked.numa_nodes)}")
    return wrong


def _same_cpus_as_the_engine(group: Cgroup, asked: Cpuset) -> str:
    """What to do where the engine itself has not the CPUs that the harness has; empty where it has them."""
    for parent in group.cpu_parents():
        cpus = parent.cpus()
        if cpus is not None and not cpus.issuperset(asked.cpus):
            these = format_list(cpus)
            return f" (the engine has CPUs {these}: run the harness on the same, `taskset -c {these} harness run ...`)"
    return ""


# Limits further up are invisible from inside, and the kernel keeps no count of them in the container's own cgroup.
def _memory_above(group: Cgroup, asked: Envelope) -> list[str]:
    wrong = []
    for parent in group.memory_parents():
        memory_bytes = parent.memory_limit_bytes()
        if memory_bytes is not None and UNLIMITED < memory_bytes <= asked.memory_bytes - PAGE_BYTES:
            wrong.append(f"{parent.memory} has a memory limit of {memory_bytes} bytes, asked for {asked.memory_bytes}")
    return wrong


def _quotas_above(group: Cgroup) -> list[str]:
    """Quotas that can bind: one for as many CPUs as there are for those below it stops nobody."""
    wrong = []
    for parent in group.cpu_parents():
        quota = parent.cpu_quota()
        if quota is None or quota == UNLIMITED:
            continue
        held_to = parent.cpus()
        cpus = len(held_to) if held_to else os.cpu_count()
        if cpus is None or quota < cpus:
            wrong.append(
                f"{parent.cpu} has a CPU quota of {quota:g} CPUs and may use {cpus}, asked for no quota that binds:"
                f" take it off (`{_without_quota(parent)}`), or measure outside that cgroup"
            )
    return wrong


def _without_quota(group: Cgroup) -> str:
    """The command that takes its quota off."""
    if group.cpu.suffix in (".slice", ".scope", ".service"):
        return f"systemctl set-property {group.cpu.name} CPUQuota="
    return f"echo max > {group.cpu}/cpu.max" if group.version == 2 else f"echo -1 > {group.cpu}/cpu.cfs_quota_us"


def _stopped(wrong: list[str]) -> Stopped | None:
    return Stopped(Outcome.ENVELOPE_MISMATCH, "seen from outside: " + "; ".join(wrong)) if wrong else None
