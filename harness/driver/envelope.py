"""The limits in force, read from inside the job, and whether they are the ones asked for."""

from __future__ import annotations

import os
import re
from pathlib import Path

from harness.driver import cgroup
from harness.driver.cgroup import UNLIMITED
from harness.driver.procfs import format_list, parse_list
from harness.records import Cpuset, EffectiveEnvelope, Envelope, Isolation

PAGE = 4096


def read() -> EffectiveEnvelope:
    """Read the effective envelope of this process."""
    group = cgroup.own()
    status = _status()
    nodes = status.get("Mems_allowed_list")
    swap = group.swap_limit_bytes() if group else None
    return EffectiveEnvelope(
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        cgroup_version=group.version if group else None,
        memory_bytes=group.memory_limit_bytes() if group else None,
        # Kernels without swap accounting show no swap limit; a host without swap needs none.
        swap_bytes=0 if _host_swap_bytes() == 0 else swap,
        cpu_quota=group.cpu_quota() if group else None,
        pids=group.pids_limit() if group else None,
        gpus=len([name for name in _listdir("/dev") if re.fullmatch(r"nvidia\d+", name)]),
        network_interfaces=tuple(sorted(_listdir("/sys/class/net"))),
        root_read_only=bool(os.statvfs("/").f_flag & os.ST_RDONLY),
        effective_capabilities=_hexadecimal(status.get("CapEff")),
        no_new_privileges={"1": True, "0": False}.get(status.get("NoNewPrivs", "")),
        uid=os.getuid(),
        # Of the process, as the affinity is: shown whatever controllers its cgroup has.
        numa_nodes=None if nodes is None else tuple(sorted(parse_list(nodes))),
    )


def mismatches(
    asked: Envelope, seen: EffectiveEnvelope, isolation: Isolation, cpuset: Cpuset | None = None
) -> list[str]:
    """Name every limit that is not as asked for; empty when all hold.

    A plain process has only its CPU affinity held; the rest is checked in containers alone.

    Args:
        cpuset: the very CPUs and NUMA nodes that were chosen; ``None``: as many CPUs as asked for, wherever they are.
    """
    wrong = _cpus(asked, seen, cpuset)
    if isolation is Isolation.CONTAINER:
        wrong += _numa_nodes(seen, cpuset) + _limits(asked, seen) + _walls(asked, seen)
    return wrong


def _cpus(asked: Envelope, seen: EffectiveEnvelope, cpuset: Cpuset | None) -> list[str]:
    if len(seen.cpus) != asked.cpus:
        return [f"{len(seen.cpus)} CPUs in the affinity mask, asked for {asked.cpus}"]
    if cpuset and set(seen.cpus) != set(cpuset.cpus):
        # As many, but others: the harness's own, perhaps, or two threads of one core.
        return [f"CPUs {format_list(seen.cpus)} in the affinity mask, asked for CPUs {format_list(cpuset.cpus)}"]
    return []


def _numa_nodes(seen: EffectiveEnvelope, cpuset: Cpuset | None) -> list[str]:
    if not cpuset or not cpuset.numa_nodes or set(seen.numa_nodes or ()) == set(cpuset.numa_nodes):
        return []
    nodes = "unknown" if seen.numa_nodes is None else format_list(seen.numa_nodes)
    return [f"memory from NUMA nodes {nodes}, asked for nodes {format_list(cpuset.numa_nodes)}"]


def _limits(asked: Envelope, seen: EffectiveEnvelope) -> list[str]:
    wrong = []
    if seen.memory_bytes is None or not same_memory(asked, seen.memory_bytes):
        wrong.append(f"memory limit {seen.memory_bytes} bytes, asked for {asked.memory_bytes}")
    if seen.swap_bytes != 0:
        wrong.append(f"swap limit {seen.swap_bytes} bytes, asked for 0: turn swap accounting on or swap off")
    if seen.cpu_quota is None:
        # Not "none": one further up would hold all the same.
        wrong.append(
            "CPU quota unknown, asked for none: the container does not see the cpu controller; delegate it to the"
            " engine (cgroup v2) or mount it (v1)"
        )
    elif seen.cpu_quota != UNLIMITED:
        wrong.append(f"CPU quota of {seen.cpu_quota} CPUs, asked for none")
    if seen.pids is None or not 0 < seen.pids <= asked.pids:
        wrong.append(f"pids limit {seen.pids}, asked for {asked.pids}")
    return wrong


def _walls(asked: Envelope, seen: EffectiveEnvelope) -> list[str]:
    wrong = []
    if seen.gpus != asked.gpus:
        wrong.append(f"{seen.gpus} GPUs visible, asked for {asked.gpus}")
    if not seen.network_interfaces:  # without a network there is "lo"
        wrong.append("network interfaces unknown, asked for none that leads out")
    # Tunnel stubs (tunl0, sit0 ...) come with kernel modules and lead nowhere; a veth (eth0) leads out.
    if any(re.match(r"(eth|en|wl|veth)", name) for name in seen.network_interfaces):
        wrong.append(f"network interfaces {', '.join(seen.network_interfaces)}, asked for none")
    if not seen.root_read_only:
        wrong.append("the root file system is writable, asked for read-only")
    if seen.effective_capabilities != 0:
        wrong.append(f"capabilities {seen.effective_capabilities}, asked for none")
    if seen.no_new_privileges is not True:
        wrong.append("no-new-privileges is off")
    if seen.uid == 0:
        wrong.append("runs as root")
    return wrong


def same_memory(asked: Envelope, limit_bytes: int) -> bool:
    """Is this the limit that was asked for?  The kernel rounds it down to whole pages."""
    return 0 <= asked.memory_bytes - limit_bytes < PAGE


def thread_mismatches(asked: Envelope, threads: dict[str, int]) -> list[str]:
    """Name every library that says it uses more threads than there are CPUs."""
    return [
        f"{name} says {count} threads on {asked.cpus} CPUs" for name, count in threads.items() if count > asked.cpus
    ]


def _status() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _hexadecimal(text: str | None) -> int | None:
    return int(text, 16) if text else None


def _host_swap_bytes() -> int | None:
    found = re.search(r"^SwapTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    return int(found.group(1)) * 1024 if found else None


def _listdir(path: str) -> list[str]:
    try:
        return [entry.name for entry in Path(path).iterdir()]
    except OSError:
        return []
