"""The limits in force, read from inside the job, and their differences from the requested limits."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path

from harness.driver import cgroup
from harness.driver.cgroup import UNLIMITED
from harness.driver.procfs import format_list, parse_list, read_text
from harness.driver.records import Cpuset, EffectiveEnvelope, Envelope

PAGE_BYTES = 4096
# The limits that the driver can verify, by their field of EffectiveEnvelope.
LIMITS = tuple(each.name for each in fields(EffectiveEnvelope) if each.name not in ("cgroup_version", "threads"))
# Limits with one right value, and the text for another.
_SINGLE_VALUES: dict[str, tuple[object, str]] = {
    "swap_bytes": (0, "swap limit {} bytes, asked for 0: turn swap accounting on or swap off"),
    "root_read_only": (True, "the root file system is writable, asked for read-only"),
    "effective_capabilities": (0, "capabilities {}, asked for none"),
    "no_new_privileges": (True, "no-new-privileges is off"),
}
_NO_QUOTA = (
    "CPU quota unknown, asked for none: the container does not see the cpu controller; delegate it to the engine"
    " (cgroup v2) or mount it (v1)"
)


def read() -> EffectiveEnvelope:
    """Read the effective envelope of this process."""
    group = cgroup.own()
    status = _status()
    nodes = status.get("Mems_allowed_list")
    memory = group.least_memory().value if group else None
    swap = group.least_swap_bytes() if group else None
    return EffectiveEnvelope(
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        cgroup_version=group.version if group else None,
        memory_bytes=None if memory is None else int(memory),
        # Kernels without swap accounting show no swap limit; a host without swap needs none.
        swap_bytes=0 if _host_swap_bytes() == 0 else swap,
        cpu_quota=group.least_cpu_quota() if group else None,
        pids=group.pids_limit() if group else None,
        gpus=len([name for name in _listdir("/dev") if re.fullmatch(r"nvidia\d+", name)]),
        network_interfaces=_network_interfaces(),
        root_read_only=bool(os.statvfs("/").f_flag & os.ST_RDONLY),
        effective_capabilities=int(status["CapEff"], 16) if status.get("CapEff") else None,
        no_new_privileges={"1": True, "0": False}.get(status.get("NoNewPrivs", "")),
        uid=os.getuid(),
        # Of the process, like the affinity: independent of its cgroup's controllers.
        numa_nodes=None if nodes is None else tuple(sorted(parse_list(nodes))),
    )


def mismatches(
    requested: Envelope, effective: EffectiveEnvelope, enforced: Collection[str], cpuset: Cpuset | None = None
) -> list[str]:
    """Describe every enforced limit that differs from the request.

    Args:
        enforced: the :data:`LIMITS` that the launcher enforces.
        cpuset: the chosen CPUs and NUMA nodes; ``None``: any CPUs, as many as requested.
    """
    wrong = {
        limit: text.format(value)
        for limit, (right, text) in _SINGLE_VALUES.items()
        if (value := getattr(effective, limit)) != right
    }
    if len(effective.cpus) != requested.cpus:
        wrong["cpus"] = f"{len(effective.cpus)} CPUs in the affinity mask, asked for {requested.cpus}"
    elif cpuset and set(effective.cpus) != set(cpuset.cpus):
        # The same number of other CPUs: perhaps the harness's own, or two threads of one core.
        held = format_list(effective.cpus)
        wrong["cpus"] = f"CPUs {held} in the affinity mask, asked for CPUs {format_list(cpuset.cpus)}"
    if cpuset and cpuset.numa_nodes and set(effective.numa_nodes or ()) != set(cpuset.numa_nodes):
        nodes = "unknown" if effective.numa_nodes is None else format_list(effective.numa_nodes)
        wrong["numa_nodes"] = f"memory from NUMA nodes {nodes}, asked for nodes {format_list(cpuset.numa_nodes)}"
    memory, quota, pids = effective.memory_bytes, effective.cpu_quota, effective.pids
    if memory is None or not same_memory(requested, memory):
        wrong["memory_bytes"] = f"memory limit {memory} bytes, asked for {requested.memory_bytes}"
    if quota is None:  # a quota further up may still be in force
        wrong["cpu_quota"] = _NO_QUOTA
    elif quota != UNLIMITED:
        wrong["cpu_quota"] = f"CPU quota of {quota} CPUs, asked for none"
    if pids is None or not 0 < pids <= requested.pids:
        wrong["pids"] = f"pids limit {pids}, asked for {requested.pids}"
    if effective.gpus != requested.gpus:
        wrong["gpus"] = f"{effective.gpus} GPUs visible, asked for {requested.gpus}"
    if not effective.network_interfaces:  # without a network there is "lo"
        wrong["network_interfaces"] = "network interfaces unknown, asked for none that leads out"
    # Tunnel stubs (tunl0, sit0 ...) come with kernel modules and lead nowhere; a veth (eth0) leads out.
    elif any(re.match(r"(eth|en|wl|veth)", name) for name in effective.network_interfaces):
        wrong["network_interfaces"] = f"network interfaces {', '.join(effective.network_interfaces)}, asked for none"
    if effective.uid == 0:
        wrong["uid"] = "runs as root"
    return [wrong[limit] for limit in LIMITS if limit in wrong and limit in enforced]


def same_memory(requested: Envelope, limit_bytes: int) -> bool:
    """Check a memory limit, which the kernel rounds down to whole pages."""
    return 0 <= requested.memory_bytes - limit_bytes < PAGE_BYTES


def thread_mismatches(requested: Envelope, threads: dict[str, int]) -> list[str]:
    """Describe every library that reports more threads than there are CPUs."""
    return [
        f"{name} says {count} threads on {requested.cpus} CPUs"
        for name, count in threads.items()
        if count > requested.cpus
    ]


def _status() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _network_interfaces() -> tuple[str, ...]:
    """Return the interfaces of this process's network namespace; /sys may be mounted from another."""
    lines = (read_text(Path("/proc/self/net/dev")) or "").splitlines()
    return tuple(sorted(line.partition(":")[0].strip() for line in lines if ":" in line))


def _host_swap_bytes() -> int | None:
    match = re.search(r"^SwapTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None


def _listdir(path: str) -> list[str]:
    try:
        return [entry.name for entry in Path(path).iterdir()]
    except OSError:
        return []
