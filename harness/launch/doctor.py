"""Check whether this machine is fit to measure on: one line a check, with its remedy."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import Enum

import docker
import psutil
import requests

from harness.driver import cgroup
from harness.errors import EngineError, counted
from harness.launch import connection, cpu_placement, host
from harness.launch.docker_errors import reason
from harness.launch.images import platforms
from harness.launch.monitor import gpu
from harness.launch.monitor.canary import Canary
from harness.results.schema import Placement

_CANARY_READINGS = 3
# Quiet machines repeat within a few per cent.
_CANARY_SPREAD = 0.10


class Level(str, Enum):
    """Severity of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One check of a host or of a system; ``remedy`` is empty where it is ``ok``."""

    level: Level
    what: str
    fact: str
    remedy: str = ""

    @property
    def text(self) -> str:
        """The check, its finding and its remedy in one line."""
        return self.what + (f": {self.fact}" if self.fact else "") + (f"; {self.remedy}" if self.remedy else "")


def examine() -> Iterator[Check]:
    """Check everything that a measurement depends on."""
    yield from _engine()
    yield _cgroup()
    yield _cpus()
    yield _topology()
    yield _memory()
    yield _swap()
    yield _load()
    yield _canary()
    yield _gpu()


def _warn_if(wrong: bool, what: str, fact: str, remedy: str) -> Check:
    return Check(Level.WARN, what, fact, remedy) if wrong else Check(Level.OK, what, fact)


def _engine() -> Iterator[Check]:
    try:
        place = connection.endpoint()
        with closing(connection.connect(10)) as client:
            info = client.info()
    except EngineError as error:
        yield Check(Level.FAIL, "engine", "no Docker engine answers", str(error))
        return
    except (docker.errors.DockerException, requests.RequestException) as error:
        start = "start it (systemctl start docker) or install it (Debian: apt-get install docker.io)"
        if place.context:
            start = "start the engine of that context, or choose another (docker context use)"
        fact = f"no Docker engine answers: {reason(error)}"
        yield Check(Level.FAIL, "engine", fact, f"{start}, or use --launcher process")
        return
    fact = f"Docker {info['ServerVersion']}, {info['Driver']}, {info['OperatingSystem']}, at {place}"
    yield Check(Level.OK, "engine", fact)
    for key, what in (("MemoryLimit", "memory limits"), ("PidsLimit", "pids limits"), ("CPUSet", "CPU sets")):
        if not info.get(key, True):
            yield Check(Level.FAIL, "limits", f"the engine cannot enforce {what}", "enable the cgroup controller")
    if not info.get("SwapLimit", True) and psutil.swap_memory().total:
        remedy = "boot with swapaccount=1, or turn swap off (swapoff -a)"
        yield Check(Level.FAIL, "limits", "the engine cannot limit swap, and the host has some", remedy)


def _cgroup() -> Check:
    version = cgroup.host_version()
    fact = "no memory controller in /sys/fs/cgroup" if version is None else f"version {version}"
    return _warn_if(version is None, "cgroup", fact, "mount the cgroup file system, or use --launcher process")


def _cpus() -> Check:
    usable, online = host.cpus(), os.cpu_count() or 0
    fact = f"{usable} usable of {online}, {platform.machine()}"
    if platforms.host() not in platforms.PLATFORMS:
        remedy = f"images are made for {' and '.join(platforms.PLATFORMS)}; use one of these"
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
    return _warn_if(halves > 0, "topology", fact, remedy)


def _memory() -> Check:
    memory = psutil.virtual_memory()
    fact = f"{memory.total / 2**30:.1f} GiB, {memory.available / 2**30:.1f} GiB available"
    remedy = "profiles above that cannot be held; end other programs"
    return _warn_if(memory.available < 4 << 30, "memory", fact, remedy)


def _swap() -> Check:
    swap_bytes = psutil.swap_memory().total
    fact = f"{swap_bytes / 2**30:.1f} GiB" if swap_bytes else "none"
    return _warn_if(swap_bytes > 0, "swap", fact, "jobs get none, but the host may; swapoff -a while measuring")


def _load() -> Check:
    load, cpus = os.getloadavg()[0], host.cpus()
    fact = f"{load:.2f} over the last minute on {counted(cpus, 'CPU')}"
    return _warn_if(load > 0.25 * cpus, "load", fact, "other work disturbs the figures; end it or wait")


def _canary() -> Check:
    """Check that the same work takes the same time, three times in a row."""
    placement, canary = cpu_placement.place(1), Canary()
    canary.prepare(placement)
    with host.aside(placement):
        readings = [canary.read("before", placement, None) for _ in range(_CANARY_READINGS)]
    times = {"CPU": [reading.cpu_s for reading in readings], "memory": [reading.memory_s for reading in readings]}
    spreads = {name: max(values) / min(values) - 1 for name, values in times.items()}
    fact = "the same work three times: " + ", ".join(f"{name} within {100 * s:.0f} %" for name, s in spreads.items())
    remedy = "something else uses the machine; end it, or wait, then look again"
    return _warn_if(max(spreads.values()) > _CANARY_SPREAD, "canary", fact, remedy)


def _gpu() -> Check:
    gpus = gpu.probe()
    if not gpus.models:
        return Check(Level.OK, "GPUs", f"none; profiles with GPUs are not_applicable here ({gpus.reason})")
    fact = f"{', '.join(gpus.models)} (driver {gpus.driver})"
    if gpus.processes:
        fact += f"; used by {counted(gpus.processes, 'process')}"
    remedy = "they disturb every job with GPUs; end them (nvidia-smi lists all)"
    return _warn_if(bool(gpus.processes), "GPUs", fact, remedy)
