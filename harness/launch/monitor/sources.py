"""Sources of a running job's memory and counters: a container's cgroup, or a process tree of this host.

The kernel keeps no peak of anonymous memory, so that is sampled; the cgroup's peak is the kernel's own.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

from harness.driver.cgroup import Cgroup
from harness.driver.procfs import parse_list, read_text
from harness.launch.monitor.traces import CounterReading, MemoryNow
from harness.results.schema import CPU_OF_PROCESSES

_PROC = Path("/proc")
_ONLINE = Path("/sys/devices/system/cpu/online")

Read = TypeVar("Read")


class JobSource:
    """Source of a job's readings; this one, for a job that the host cannot see, has none."""

    name: str | None = None

    def now(self) -> MemoryNow | None:
        """Return the memory held now; None when the job is gone."""
        return None

    def read(self) -> CounterReading | None:
        """Read the counters' totals now; None when the job is gone."""
        return None

    def pids(self) -> Collection[int] | None:
        """Return the job's processes and perhaps threads, as this host numbers them; None: unknown."""
        return None


class CgroupSource(JobSource):
    """Readings of a container, from its cgroup; ``tree``: its processes, where no cgroup counts their CPU time."""

    def __init__(self, group: Cgroup, cpus: Iterable[int], proc: Path = _PROC, tree: ProcessTree | None = None) -> None:
        self._group = group
        self._tree, self._tree_ns = tree if tree and group.cpu_ns() is None else None, Totals()
        self.name = f"cgroup v{group.version}" + (CPU_OF_PROCESSES if self._tree else "")
        self._cpus = tuple(cpus)
        self._proc, self._wait_ns = proc, Totals()

    def now(self) -> MemoryNow | None:
        """Read ``memory.stat``, the kernel's peak and the kills, once each."""
        group, stat = self._group, self._group.memory_stat()
        return MemoryNow(stat.anon_bytes, stat.mapped_bytes, group.peak_bytes(), group.oom_kills()) if stat else None

    def read(self) -> CounterReading | None:
        """Read the totals now; None when the cgroup is gone."""
        t_ns = time.perf_counter_ns()
        group = self._group
        cpu_ns, stat = self._cpu_ns(), group.memory_stat()
        if cpu_ns is None and stat is None:
            return None
        busy_ns, steal_ns = busy_and_steal_ns(self._cpus)
        self._wait_ns.update(waits_ns(group.threads() or [], self._proc))
        reading = CounterReading(
            t_ns,
            cpu_ns,
            busy_ns,
            steal_ns,
            self._wait_ns.total,
            group.throttled_ns(),
            group.swap_bytes() if group.version == 2 else stat.swap_bytes if stat else None,
            stat.major_faults if stat else None,
            group.throttled_periods(),
        )
        # The cgroup may disappear during the reading; half a reading would turn known totals into "not known".
        return None if cpu_ns is not None and self._cpu_ns() is None else reading

    def _cpu_ns(self) -> int | None:
        if self._tree is None:
            return self._group.cpu_ns()
        return _cpu_of(self._tree.pids(), self._tree_ns)

    def pids(self) -> Collection[int] | None:
        """Return its threads: the first of a process has the process's number."""
        return self._group.threads()


class ProcessSource(JobSource):
    """Readings of a plain process and its descendants; psutil has neither waiting times nor major faults.

    psutil tells a process's shared memory from its mapped files only by reading every mapping.  So shared memory is
    the host's growth since this source was created, at most the pages that the job shares: what others put into shared
    memory meanwhile is counted as well.
    """

    name = "psutil"

    def __init__(self, pid: int, cpus: Iterable[int]) -> None:
        self._tree = ProcessTree(pid)
        self._shared_before_bytes = psutil.virtual_memory().shared
        self._cpus = tuple(cpus)
        self._wait_ns, self._cpu_ns, self._faults = Totals(), Totals(), Totals()

    def now(self) -> MemoryNow | None:
        """Sum over the process tree; a page that two processes share counts twice."""
        sizes = [size for size in _each(self._tree.pids(), psutil.Process.memory_info).values() if size.rss]
        if not sizes:  # gone, or zombies
            return None
        shareable_bytes = sum(size.shared for size in sizes)
        private_bytes = sum(size.rss for size in sizes) - shareable_bytes
        grown_bytes = max(0, psutil.virtual_memory().shared - self._shared_before_bytes)
        shared_bytes = min(shareable_bytes, grown_bytes)
        return MemoryNow(private_bytes + shared_bytes, shareable_bytes - shared_bytes)

    def read(self) -> CounterReading | None:
        """Read the totals now; None when the process is gone."""
        t_ns = time.perf_counter_ns()
        pids = self._tree.pids()
        threads = [int(path.name) for pid in pids for path in _entries(_PROC / str(pid) / "task")]
        if not threads:
            return None
        busy_ns, steal_ns = busy_and_steal_ns(self._cpus)
        self._wait_ns.update(waits_ns(threads))
        _cpu_of(pids, self._cpu_ns)
        self._faults.update({pid: faults for pid in pids if (faults := _major_faults(pid)) is not None})
        wait_ns, cpu_ns, faults = self._wait_ns.total, self._cpu_ns.total, self._faults.total
        return CounterReading(t_ns, cpu_ns, busy_ns, steal_ns, wait_ns, None, _swapped_bytes(pids), faults)

    def pids(self) -> Collection[int] | None:
        """Return the process and its descendants."""
        return self._tree.pids()


def _swapped_bytes(pids: Iterable[int]) -> int | None:
    """Return what these processes have in swap; psutil reads all their mappings, so only where the host swaps."""
    if not psutil.swap_memory().used:
        return 0
    swapped = _each(pids, psutil.Process.memory_full_info)
    return sum(size.swap for size in swapped.values()) if swapped else None


def process_cpu_ns(pid: int) -> int | None:
    """Return the CPU time of a process and all threads that it ever had, in nanoseconds; None: it is gone.

    ``/proc`` counts it in ticks of 10 ms, which are longer than a trial of a fast system.
    """
    clock = ~pid << 3 | 2  # as clock_getcpuclockid(3) makes it
    try:
        return time.clock_gettime_ns(clock)
    except OSError:
        return None


def _cpu_of(pids: Iterable[int], totals: Totals) -> int | None:
    """Add the CPU time of the processes that exist now; return the total of all that ever did."""
    totals.update({pid: used_ns for pid in pids if (used_ns := process_cpu_ns(pid)) is not None})
    return totals.total


def _major_faults(pid: int) -> int | None:
    # The command name may hold blanks and brackets; fields are counted from its end.
    fields = (_text(_PROC / str(pid) / "stat") or "").rpartition(")")[2].split()
    return int(fields[9]) if len(fields) > 9 else None


def busy_and_steal_ns(cpus: Iterable[int]) -> tuple[int | None, int | None]:
    """Return the busy and the stolen time of these CPUs since boot, summed; None where the kernel hides one."""
    try:
        # psutil lists the online CPUs in order and does not number them.
        times = dict(zip(sorted(parse_list(read_text(_ONLINE) or "")), psutil.cpu_times(percpu=True), strict=True))
        chosen = [times[cpu] for cpu in cpus]
    except (OSError, ValueError, KeyError):
        return None, None
    # Guests' time is in the user's time already.
    busy_s = sum(cpu.user + cpu.nice + cpu.system + cpu.irq + cpu.softirq for cpu in chosen)
    return round(busy_s * 1e9), round(sum(cpu.steal for cpu in chosen) * 1e9)


@dataclass
class Totals:
    """A sum over things that come and go; each that has gone keeps its last value."""

    total: int | None = None
    _last: dict[int, int] = field(default_factory=dict)

    def update(self, values: dict[int, int]) -> None:
        """Take in the values of all that exist now, by id."""
        grown = 0
        for name, value in values.items():
            earlier = self._last.get(name, 0)
            grown += value - earlier if value >= earlier else value  # a reused id starts at 0
        self._last = values
        if values:
            self.total = (self.total or 0) + grown


def waits_ns(threads: Iterable[int], proc: Path = _PROC) -> dict[int, int]:
    """Return the time that each thread alive has waited for a CPU, from ``/proc/<tid>/schedstat``."""
    words = {thread: (_text(proc / str(thread) / "schedstat") or "").split() for thread in threads}
    return {thread: int(each[1]) for thread, each in words.items() if len(each) == 3}


class ProcessTree:
    """A process and its descendants, also those whose parent has ended, by psutil.

    psutil's ``children`` reads every process of the host: 6 ms of CPU among 500, twelve times a second.  Here only
    those that are new since the last call are read.
    """

    def __init__(self, root: int) -> None:
        self._parents: dict[int, int] = {}
        self._members = {root}

    def pids(self) -> list[int]:
        """Return those that exist now, zombies included."""
        known = self._parents
        self._parents = {pid: known[pid] if pid in known else _parent(pid) for pid in psutil.pids()}
        self._members &= self._parents.keys()
        while born := {pid for pid, parent in self._parents.items() if parent in self._members} - self._members:
            self._members |= born
        return sorted(self._members)


def _parent(pid: int) -> int:
    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:  # ended meanwhile
        return 0


def _each(pids: Iterable[int], read: Callable[[psutil.Process], Read]) -> dict[int, Read]:
    """Read each process that still exists, by pid."""
    found = {}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found[pid] = read(psutil.Process(pid))
    return found


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str | None:
    """Read through one descriptor and no buffers: there may be hundreds of threads."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, 1 << 14).decode("ascii", "replace")
    except OSError:
        return None
    finally:
        os.close(descriptor)
