"""What this host has to give."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.launch import gpu
from harness.records import Envelope

_NODES = Path("/sys/devices/system/node")


def cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    """Physical memory of the host."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def larger_than_host(envelope: Envelope) -> str | None:
    """Why the envelope does not fit on this host, or None."""
    if envelope.cpus > cpus():
        return f"profile {envelope.name} needs {envelope.cpus} CPUs, this host gives {cpus()}"
    if envelope.memory_bytes > memory_bytes():
        return f"profile {envelope.name} needs {envelope.memory_bytes >> 20} MiB, this host has {memory_bytes() >> 20}"
    return None


def cannot_provide(envelope: Envelope) -> str | None:
    """Why this host does not have that envelope, GPUs included, or None."""
    reason = larger_than_host(envelope)
    if reason or not envelope.gpus:
        return reason
    found = gpu.probe()
    if len(found.models) < envelope.gpus:
        return found.reason or f"{len(found.models)} GPUs on this host, the profile needs {envelope.gpus}"
    return None


@contextmanager
def aside(cpus: Iterable[int]) -> Iterator[None]:
    """Keep this thread, and those that it starts, off a job's CPUs; where the job has all of them, nothing changes."""
    before = os.sched_getaffinity(0)
    rest = before - set(cpus)
    if not rest:
        yield
        return
    os.sched_setaffinity(0, rest)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def numa_nodes(wanted_cpus: Iterable[int], root: Path = _NODES) -> tuple[int, ...]:
    """The memory nodes of these CPUs; empty where the kernel shows none."""
    wanted = set(wanted_cpus)
    found = []
    for path in sorted(root.glob("node[0-9]*")):
        try:
            members = parse_cpu_list((path / "cpulist").read_text(encoding="ascii"))
        except OSError:
            continue
        if members & wanted:
            found.append(int(path.name.removeprefix("node")))
    return tuple(sorted(found))


def parse_cpu_list(text: str) -> set[int]:
    """``0-2,5`` -> ``{0, 1, 2, 5}``, the kernel's notation."""
    found: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found.update(range(int(first), int(last or first) + 1))
    return found
