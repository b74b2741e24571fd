"""A job's limits as the host sees them in its cgroup and above.

The driver reads the limits from inside, but an image can claim anything.  The host cannot see all of them (the
container of a remote engine, a file that this kernel lacks); then the values read inside count alone.  Swap in use, and
throttling by a container's own later quota, are counted while the job runs and have their own verdict.
"""

from __future__ import annotations

import os
from collections.abc import Collection

import psutil

from harness.commands import words
from harness.driver.cgroup import UNLIMITED, Cgroup
from harness.driver.envelope import same_memory
from harness.driver.procfs import format_list
from harness.driver.records import Cpuset, Envelope, Outcome
from harness.launch.base import StopReason


def limit_mismatch(
    group: Cgroup | None, requested: Envelope, cpuset: Cpuset, spare: Collection[int] = ()
) -> StopReason | None:
    """Return why a container that has just started must not be measured.

    Args:
        group: its cgroup; ``None`` where the host does not show it.
        requested: its limits.
        cpuset: its CPUs and NUMA nodes.
        spare: CPUs that it may be held to as well, because they are idle threads of its cores.
    """
    if group is None:
        return None
    wrong, quota = _cpuset(group, cpuset, spare) + _memory(group, requested), group.cpu_quota()
    if quota not in (None, UNLIMITED):
        wrong.append(f"CPU quota of {quota} CPUs, asked for none")
    return _stopped(wrong + _quotas_above(group))


def limit_change(group: Cgroup | None, cpuset: Cpuset, spare: Collection[int] = ()) -> StopReason | None:
    """Return why a running container's CPUs, NUMA nodes or parents' quotas no longer fit."""
    return _stopped(_cpuset(group, cpuset, spare) + _quotas_above(group)) if group else None


def _cpuset(group: Cgroup, requested: Cpuset, spare: Collection[int]) -> list[str]:
    wrong = []
    cpus, nodes = group.cpus(), group.numa_nodes()
    if cpus is not None and not set(requested.cpus) <= cpus <= {*requested.cpus, *spare}:
        reason = f"held to CPUs {format_list(cpus)}, asked for CPUs {format_list(requested.cpus)}"
        wrong.append(reason + _same_cpus_as_the_engine(group, requested))
    if nodes is not None and requested.numa_nodes and nodes != set(requested.numa_nodes):
        wrong.append(
            f"memory from NUMA nodes {format_list(nodes)}, asked for nodes {format_list(requested.numa_nodes)}"
        )
    return wrong


def _memory(group: Cgroup, requested: Envelope) -> list[str]:
    """Return what is wrong with the smallest limit of the cgroup and its ancestors, which is the one in force."""
    limit, swap = group.least_memory(), group.least_swap_bytes()
    wrong = []
    if limit.value == UNLIMITED:
        asked = f"asked for {requested.memory_bytes} bytes"
        wrong.append(f"{limit.folder} and the cgroups above it have no memory limit, {asked}")
    elif limit.value is not None and not same_memory(requested, int(limit.value)):
        wrong.append(f"{limit.folder} has a memory limit of {limit.value} bytes, asked for {requested.memory_bytes}")
    if swap and psutil.swap_memory().total:
        size = "any swap" if swap == UNLIMITED else f"{swap} bytes of swap"
        wrong.append(f"{limit.folder} may use {size}, asked for none")
    return wrong


def _same_cpus_as_the_engine(group: Cgroup, requested: Cpuset) -> str:
    """Return the remedy where the engine itself lacks CPUs of the harness, else nothing."""
    for parent in group.cpu_parents():
        cpus = parent.cpus()
        if cpus is not None and not cpus.issuperset(requested.cpus):
            these = format_list(cpus)
            here = f"taskset -c {words(these)}"
            return f" ({parent.cpuset} has CPUs {these}: run the harness on the same, `{here} harness run ...`)"
    return ""


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
