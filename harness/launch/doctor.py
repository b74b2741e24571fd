"""Check whether this machine is fit to measure on: one line a check, with its remedy."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence

import psutil

from harness.driver.procfs import read_text
from harness.errors import counted
from harness.launch import cpu_placement, host
from harness.launch.base import Launcher
from harness.launch.checks import Check, Level, warn_if
from harness.launch.images import platforms
from harness.launch.monitor import gpu, instructions, rapl
from harness.launch.monitor.canary import Canary
from harness.results.schema import CanaryReading, Placement

_CANARY_READINGS = 3
# Quiet machines repeat within a few per cent.
MAX_SPREAD = 0.10


def examine(launcher: type[Launcher]) -> Iterator[Check]:
    """Check everything that a measurement by a launcher depends on."""
    yield from launcher.examine()
    yield _cpus()
    yield _topology()
    yield _memory()
    yield _swap()
    yield _load()
    yield _canary()
    yield _instructions()
    yield _cpu_energy()
    yield _gpu()


def _cpus() -> Check:
    usable, online = host.cpus(), os.cpu_count() or 0
    fact = f"{usable} usable of {online}, {platform.machine()}"
    if platforms.host() not in platforms.PLATFORMS:
        remedy = f"harness builds images for {' and '.join(platforms.PLATFORMS)}; use one of these"
        return Check(Level.FAIL, "CPUs", fact, remedy)
    if usable < 2:
        return Check(Level.WARN, "CPUs", fact, "the harness shares its CPU with the measured job; use two or more")
    alone = 1
    while alone < usable and _apart(cpu_placement.place(alone + 1)):
        alone += 1
    return Check(Level.OK, "CPUs", f"{fact}; jobs of up to {alone} do not share theirs with the harness")


def _apart(placement: Placement) -> bool:
    return placement.apart and placement.whole_cores is not False


def _topology() -> Check:
    seen = cpu_placement.read(os.sched_getaffinity(0))
    if not seen.shown:
        remedy = "jobs may share a physical core with other work; take a host whose /sys shows its cores"
        return Check(Level.WARN, "topology", "the kernel does not show which CPUs share a core", remedy)
    halves = sum(not core.whole for core in seen.cores)
    fact = f"{counted(len(seen.cores), 'physical core')}, {counted(max(1, len(seen.nodes)), 'NUMA node')}"
    fact += f"; harness may use only a half of {counted(halves, 'core')}" if halves else ""
    remedy = "others may use the other half; give harness both CPUs of each core (`taskset`)"
    return warn_if(halves > 0, "topology", fact, remedy)


def _memory() -> Check:
    memory = psutil.virtual_memory()
    fact = f"{memory.total / 2**30:.1f} GiB, {memory.available / 2**30:.1f} GiB available"
    remedy = "larger profiles do not fit; end other programs"
    return warn_if(memory.available < 4 << 30, "memory", fact, remedy)


def _swap() -> Check:
    swap_bytes = psutil.swap_memory().total
    fact = f"{swap_bytes / 2**30:.1f} GiB" if swap_bytes else "none"
    return warn_if(
        swap_bytes > 0, "swap", fact, "jobs get no swap, but the host uses it; run swapoff -a while you measure"
    )


def _load() -> Check:
    load, cpus = os.getloadavg()[0], host.cpus()
    fact = f"{load:.2f} over the last minute on {counted(cpus, 'CPU')}"
    return warn_if(load > 0.25 * cpus, "load", fact, "other work disturbs the figures; end it or wait")


def _canary() -> Check:
    """Check that the same work takes the same time, three times in a row."""
    placement, canary = cpu_placement.place(1), Canary()
    canary.prepare(placement)
    with host.aside(placement):
        readings = [canary.read("before", placement, None) for _ in range(_CANARY_READINGS)]
    spreads = canary_spreads(readings)
    fact = "the same work three times: " + ", ".join(f"{name} within {100 * s:.0f} %" for name, s in spreads.items())
    remedy = "something else uses the machine; end it, or wait, then look again"
    return warn_if(max(spreads.values()) > MAX_SPREAD, "canary", fact, remedy)


def canary_spreads(readings: Sequence[CanaryReading]) -> dict[str, float]:
    """Return by how much the slowest reading exceeds the fastest, as a share, for ``CPU`` and ``memory``."""
    times = {"CPU": [reading.cpu_s for reading in readings], "memory": [reading.memory_s for reading in readings]}
    return {name: max(values) / min(values) - 1 for name, values in times.items()}


def _instructions() -> Check:
    why = instructions.reason_not_counted()
    return Check(Level.OK, "instructions", f"not counted: {why}" if why else "counted for each query")


def _cpu_energy() -> Check:
    found = rapl.counters_of(os.sched_getaffinity(0), read_text)
    fact = f"not counted: {found}" if isinstance(found, str) else "counted for jobs that have all CPUs of a package"
    return Check(Level.OK, "CPU energy", fact)


def _gpu() -> Check:
    gpus = gpu.probe()
    if not gpus.models:
        return Check(Level.OK, "GPUs", f"none; profiles with GPUs are not_applicable here ({gpus.reason})")
    fact = f"{', '.join(gpus.models)} (driver {gpus.driver})"
    if gpus.processes:
        fact += f"; used by {counted(gpus.processes, 'process')}"
    remedy = "these processes disturb every job with GPUs; end them (nvidia-smi lists them)"
    return warn_if(bool(gpus.processes), "GPUs", fact, remedy)
