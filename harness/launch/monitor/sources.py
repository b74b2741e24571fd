"""Sources of a running job's memory and counters: a container's cgroup, or a process tree of this host.

The kernel keeps no peak of anonymous memory, so that is sampled; the cgroup's peak is the kernel's own.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness.driver.cgroup import Cgroup
from harness.driver.procfs import ReadFile, read_text
from harness.launch.monitor.traces import CounterReading, MemoryNow

_PROC = Path("/proc")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class MemorySource(Protocol):
    """Protocol of a source of memory readings."""

    name: str

    def now(self) -> MemoryNow | None:
        """Return the memory held now; None when the job is gone."""

    def peak_bytes(self) -> int | None:
        """Return the kernel's peak of all charged memory; None: unknown."""

    def oom_kills(self) -> int | None:
        """Return the number of OOM kills so far; None: unknown."""

    def throttled_periods(self) -> int | None:
        """Return the number of throttled quota periods; None: unknown."""


class CgroupMemory:
    """A container's memory, read from its cgroup."""

    def __init__(self, group: Cgroup) -> None:
        self.name = f"cgroup v{group.version}"
        self._group = group
        self.peak_bytes = group.peak_bytes
        self.oom_kills = group.oom_kills
        self.throttled_periods = group.throttled_periods

    def now(self) -> MemoryNow | None:
        """Read ``memory.stat`` once."""
        stat = self._group.memory_stat()
        return MemoryNow(stat.anon_bytes, stat.mapped_bytes) if stat else None


class ProcessMemory:
    """Resident memory of a plain process and its descendants, from ``/proc/<pid>/status``."""

    name = "/proc"

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def now(self) -> MemoryNow | None:
        """Sum over the process tree; a page that two processes share counts twice."""
        resident = [memory for pid in process_tree(self._pid) if (memory := _resident(pid)) is not None]
        if not resident:
            return None
        return MemoryNow(
            sum(memory.anon_bytes for memory in resident), sum(memory.mapped_bytes or 0 for memory in resident)
        )

    def peak_bytes(self) -> int | None:
        """Return None: a process has no cgroup of its own."""
        return None

    def oom_kills(self) -> int | None:
        """Return None: not counted for a process."""
        return None

    def throttled_periods(self) -> int | None:
        """Return None: not counted for a process."""
        return None


def _resident(pid: int) -> MemoryNow | None:
    # psutil tells anonymous memory from shared only by reading every mapping.
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    kib = {line.partition(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Rss")}
    if not kib:  # a zombie
        return None
    return MemoryNow((kib.get("RssAnon", 0) + kib.get("RssShmem", 0)) * 1024, kib.get("RssFile", 0) * 1024)


class CounterSource(Protocol):
    """Protocol of a source of counter readings."""

    def read(self) -> CounterReading | None:
        """Read the totals now; None when the job is gone."""

    def pids(self) -> Collection[int] | None:
        """Return the job's processes and perhaps threads, as this host numbers them; None: unknown."""


class CgroupCounters:
    """Counters of a container, read through its cgroup."""

    def __init__(self, group: Cgroup, cpus: Iterable[int], proc: Path = _PROC) -> None:
        self._group = group
        self._host = HostCpus(cpus, proc, group.read)
        self._threads = Threads(proc)

    def read(self) -> CounterReading | None:
        """Read the totals now; None when the cgroup is gone."""
        t_ns = time.perf_counter_ns()
        group = self._group
        cpu_ns, stat = group.cpu_ns(), group.memory_stat()
        if cpu_ns is None and stat is None:
            return None
        busy_ns, steal_ns = self._host.busy_and_steal_ns()
        self._threads.update(group.threads() or [])
        reading = CounterReading(
            t_ns,
            cpu_ns,
            busy_ns,
            steal_ns,
            self._threads.wait_ns,
            group.throttled_ns(),
            group.swap_bytes() if group.version == 2 else stat.swap_bytes if stat else None,
            stat.major_faults if stat else None,
        )
        # The cgroup may disappear during the reading; half a reading would turn known totals into "not known".
        return None if cpu_ns is not None and group.cpu_ns() is None else reading

    def pids(self) -> Collection[int] | None:
        """Return its threads: the first of a process has the process's number."""
        return self._group.threads()


class ProcessCounters:
    """Counters of a plain process and its descendants.

    psutil has no waiting time and no major faults, and rounds CPU time to ticks.
    """

    def __init__(self, pid: int, cpus: Iterable[int], proc: Path = _PROC, read: ReadFile = read_text) -> None:
        self._pid = pid
        self._proc = proc
        self._host = HostCpus(cpus, proc, read)
        self._threads = Threads(proc)
        self._faults = Totals()

    def read(self) -> CounterReading | None:
        """Read the totals now; None when the process is gone."""
        t_ns = time.perf_counter_ns()
        pids = process_tree(self._pid, self._proc)
        threads = [int(path.name) for pid in pids for path in _entries(self._proc / str(pid) / "task")]
        if not threads:
            return None
        busy_ns, steal_ns = self._host.busy_and_steal_ns()
        self._threads.update(threads)
        self._faults.update({pid: faults for pid in pids if (faults := self._major_faults(pid)) is not None})
        swapped = [value for pid in pids if (value := self._swapped(pid)) is not None]
        return CounterReading(
            t_ns,
            self._threads.run_ns,
            busy_ns,
            steal_ns,
            self._threads.wait_ns,
            None,
            sum(swapped) if swapped else None,
            self._faults.total,
        )

    def pids(self) -> Collection[int] | None:
        """Return the process and its descendants."""
        return process_tree(self._pid, self._proc)

    def _major_faults(self, pid: int) -> int | None:
        # The command name may hold blanks and brackets; fields are counted from its end.
        fields = (_text(self._proc / str(pid) / "stat") or "").rpartition(")")[2].split()
        return int(fields[9]) if len(fields) > 9 else None

    def _swapped(self, pid: int) -> int | None:
        found = re.search(r"^VmSwap:\s+(\d+) kB", _text(self._proc / str(pid) / "status") or "", re.MULTILINE)
        return int(found.group(1)) * 1024 if found else None


class HostCpus:
    """Busy and stolen time of some CPUs, from ``/proc/stat``."""

    def __init__(self, cpus: Iterable[int], proc: Path, read: ReadFile) -> None:
        self._lines = [f"\ncpu{cpu} " for cpu in cpus]
        self._path = proc / "stat"
        self._read = read

    def busy_and_steal_ns(self) -> tuple[int | None, int | None]:
        """Return both since boot, all CPUs together; None where the kernel hides one."""
        text = self._read(self._path)
        busy = stolen = 0
        for name in self._lines:
            start = -1 if text is None else text.find(name)
            if text is None or start < 0:
                return None, None
            ticks = [int(word) for word in text[start + len(name) : text.index("\n", start + 1)].split()]
            # user, nice, system, idle, iowait, irq, softirq, steal; guests' time is in user already.
            busy += sum(ticks[:3]) + sum(ticks[5:7])
            stolen += ticks[7]
        return busy * _TICK_NS, stolen * _TICK_NS


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
            grown += value - earlier if value >= earlier else value  # an id that is used again starts anew
        self._last = values
        if values:
            self.total = (self.total or 0) + grown


class Threads:
    """Time on a CPU and time waiting for one, over threads, from ``/proc/<tid>/schedstat``."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._run, self._wait = Totals(), Totals()

    @property
    def run_ns(self) -> int | None:
        """Return the time on a CPU so far; None: unknown."""
        return self._run.total

    @property
    def wait_ns(self) -> int | None:
        """Return the time runnable without a CPU so far; None: unknown."""
        return self._wait.total

    def update(self, threads: Iterable[int]) -> None:
        """Read the threads that are alive now."""
        run, wait = {}, {}
        for thread in threads:
            words = (_text(self._proc / str(thread) / "schedstat") or "").split()
            if len(words) == 3:
                run[thread], wait[thread] = int(words[0]), int(words[1])
        self._run.update(run)
        self._wait.update(wait)


def process_tree(root: int, proc: Path = _PROC) -> list[int]:
    """Return the ids of a process and its descendants, the root's first."""
    # psutil.children reads every process of the host: 3 ms among 110, twelve times a second.
    pids, queue = [], [root]
    while queue:
        pid = queue.pop()
        pids.append(pid)
        try:
            for task in (proc / str(pid) / "task").iterdir():
                queue.extend(int(child) for child in (task / "children").read_text(encoding="ascii").split())
        except OSError:
            continue
    return pids


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
