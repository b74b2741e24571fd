"""Read the kernel's counters of a job from the host: CPU time, waiting, steal, throttling, faults."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness.driver.cgroup import Cgroup
from harness.driver.procfs import ReadFile, read_text
from harness.launch.monitor.memory import process_tree
from harness.launch.monitor.trial_windows import over_trials
from harness.records import Phase
from harness.results.schema import Counters

_PROC = Path("/proc")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Reading:
    """The kernel's running totals at one moment; ``swap_bytes`` is no total but what is in swap just then.

    ``busy_ns`` and ``steal_ns`` are of the job's CPUs, by whomever; ``/proc/stat`` counts them in ticks, mostly of
    10 ms.  The others are the job's own.
    """

    t_ns: int
    cpu_ns: int | None = None
    busy_ns: int | None = None
    steal_ns: int | None = None
    wait_ns: int | None = None
    throttled_ns: int | None = None
    swap_bytes: int | None = None
    major_faults: int | None = None


@dataclass(frozen=True)
class CounterTrace:
    """Readings over time, in their order."""

    readings: tuple[Reading, ...] = ()

    def summary(self, phases: tuple[Phase, ...] = ()) -> Counters:
        """Sum the counters over the trials; all ``None`` if nothing was read, or no trial ran.

        See :func:`harness.launch.monitor.trial_windows.over_trials` for which readings these are; ``wall_s`` says how far apart.
        """
        stretches = over_trials(self.readings, phases)
        if not stretches:
            return Counters()

        def total(get: Callable[[Reading], int | None]) -> int | None:
            return _sum(_less(get(readings[-1]), get(readings[0])) for readings in stretches)

        own, busy = total(lambda reading: reading.cpu_ns), total(lambda reading: reading.busy_ns)
        swapped = [value for readings in stretches for each in readings if (value := each.swap_bytes) is not None]
        return Counters(
            wall_s=_seconds(total(lambda reading: reading.t_ns)),
            cpu_s=_seconds(own),
            # Ticks against nanoseconds: a job alone on its CPUs may seem to have used more than there was.
            foreign_cpu_s=None if own is None or busy is None else max(0, busy - own) / 1e9,
            steal_s=_seconds(total(lambda reading: reading.steal_ns)),
            wait_s=_seconds(total(lambda reading: reading.wait_ns)),
            throttled_s=_seconds(total(lambda reading: reading.throttled_ns)),
            swap_bytes=max(swapped, default=None),
            major_faults=total(lambda reading: reading.major_faults),
        )


class CounterSource(Protocol):
    """Something whose counters can be read now."""

    def read(self) -> Reading | None:
        """The totals now; None when the job is gone."""

    def pids(self) -> Collection[int] | None:
        """The job's processes now, as this host numbers them (threads may be among them); None where not shown."""


class CgroupCounters:
    """A container's counters, read through its cgroup."""

    def __init__(self, group: Cgroup, cpus: Iterable[int], proc: Path = _PROC) -> None:
        self._group = group
        self._host = HostCpus(cpus, proc, group.read)
        self._threads = Threads(proc)

    def read(self) -> Reading | None:
        """The totals now; None when the cgroup is gone."""
        t_ns = time.perf_counter_ns()
        group = self._group
        cpu_ns, stat = group.cpu_ns(), group.memory_stat()
        if cpu_ns is None and stat is None:
            return None
        busy_ns, steal_ns = self._host.busy_and_steal_ns()
        self._threads.look(group.threads() or [])
        reading = Reading(
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
        """Its threads: the first of a process has the process's number."""
        return self._group.threads()


class ProcessCounters:
    """The counters of a plain process and its descendants."""

    def __init__(self, pid: int, cpus: Iterable[int], proc: Path = _PROC, read: ReadFile = read_text) -> None:
        self._pid = pid
        self._proc = proc
        self._host = HostCpus(cpus, proc, read)
        self._threads = Threads(proc)
        self._faults = Totals()

    def read(self) -> Reading | None:
        """The totals now; None when the process is gone."""
        t_ns = time.perf_counter_ns()
        pids = process_tree(self._pid, self._proc)
        threads = [int(path.name) for pid in pids for path in _entries(self._proc / str(pid) / "task")]
        if not threads:
            return None
        busy_ns, steal_ns = self._host.busy_and_steal_ns()
        self._threads.look(threads)
        self._faults.look({pid: faults for pid in pids if (faults := self._major_faults(pid)) is not None})
        swapped = [value for pid in pids if (value := self._swapped(pid)) is not None]
        return Reading(
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
        """The process and its descendants."""
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
        """Both since the host's start, all CPUs together; None where any of them is not shown."""
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
    """A sum over things that come and go; what has gone keeps its last value."""

    total: int | None = None
    _last: dict[int, int] = field(default_factory=dict)

    def look(self, values: dict[int, int]) -> None:
        """Take in the values of all that are there now, by id."""
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
        """Time on a CPU so far; None where the kernel does not show it."""
        return self._run.total

    @property
    def wait_ns(self) -> int | None:
        """Time runnable without a CPU so far; None where the kernel does not show it."""
        return self._wait.total

    def look(self, threads: Iterable[int]) -> None:
        """Read those that are alive now."""
        run, wait = {}, {}
        for thread in threads:
            words = (_text(self._proc / str(thread) / "schedstat") or "").split()
            if len(words) == 3:
                run[thread], wait[thread] = int(words[0]), int(words[1])
        self._run.look(run)
        self._wait.look(wait)


def _less(later: int | None, earlier: int | None) -> int | None:
    return None if later is None or earlier is None else max(0, later - earlier)


def _sum(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _seconds(value_ns: int | None) -> float | None:
    return None if value_ns is None else value_ns / 1e9


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str | None:
    """Through one descriptor and no buffers: there may be hundreds of threads."""
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
