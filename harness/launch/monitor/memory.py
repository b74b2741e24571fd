"""Peak memory of a job: what was seen over time, and where it can be seen.

There is no kernel high-water mark for anonymous memory, so it is sampled; the cgroup's peak is the kernel's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.driver.cgroup import Cgroup
from harness.records import Phase
from harness.results.schema import Memory

# MERGED harness.launch.monitor.memory: A process and its descendants, from ``/proc``.


def process_tree(root: int, proc: Path = Path("/proc")) -> list[int]:
    """Process ids, the root's first; what ends while we look may be missing."""
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


@dataclass(frozen=True)
class MemoryNow:
    """Anonymous plus shared memory, and file pages that are mapped."""

    anon_bytes: int
    mapped_bytes: int | None


@dataclass(frozen=True)
class MemoryTrace:
    """Memory over time: ``anon`` holds (monotonic nanoseconds, bytes) pairs, ``interval_s`` apart at most."""

    anon: tuple[tuple[int, int], ...] = ()
    peak_mapped_bytes: int | None = None
    peak_cgroup_bytes: int | None = None
    peak_gpu_bytes: int | None = None
    source: str | None = None
    interval_s: float | None = None

    def summary(self, phases: tuple[Phase, ...] = ()) -> Memory:
        """Peaks, in all and in each phase; a phase shorter than the interval may have none."""
        by_phase = {}
        for phase in phases:
            inside = [value for t_ns, value in self.anon if phase.start_ns <= t_ns <= phase.end_ns]
            if inside:
                by_phase[phase.name] = max(inside)
        return Memory(
            peak_anon_bytes=max((value for _, value in self.anon), default=None),
            peak_mapped_bytes=self.peak_mapped_bytes,
            peak_cgroup_bytes=self.peak_cgroup_bytes,
            peak_gpu_bytes=self.peak_gpu_bytes,
            peak_anon_by_phase_bytes=by_phase,
            source=self.source,
            samples=len(self.anon),
            sample_interval_s=self.interval_s,
        )


class MemorySource(Protocol):
    """Something whose memory can be read now."""

    name: str

    def now(self) -> MemoryNow | None:
        """What it holds; None when it is gone."""

    def peak_bytes(self) -> int | None:
        """High-water mark of all charged memory, where there is one."""

    def oom_kills(self) -> int | None:
        """Kills so far, where they are counted."""

    def throttled_periods(self) -> int | None:
        """Quota periods in which it was stopped, where they are counted."""


class CgroupMemory:
    """A container's cgroup, read from the host."""

    def __init__(self, group: Cgroup) -> None:
        self.name = f"cgroup v{group.version}"
        self._group = group
        self.peak_bytes = group.peak_bytes
        self.oom_kills = group.oom_kills
        self.throttled_periods = group.throttled_periods

    def now(self) -> MemoryNow | None:
        """From one reading of ``memory.stat``."""
        stat = self._group.memory_stat()
        return MemoryNow(stat.anon_bytes, stat.mapped_bytes) if stat else None


class ProcessMemory:
    """A plain process and its descendants: resident memory of ``/proc/<pid>/status``."""

    name = "/proc"

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def now(self) -> MemoryNow | None:
        """Sums over the process tree; a page shared between two of them counts twice."""
        found = [held for pid in process_tree(self._pid) if (held := _resident(pid)) is not None]
        if not found:
            return None
        return MemoryNow(sum(held.anon_bytes for held in found), sum(held.mapped_bytes or 0 for held in found))

    def peak_bytes(self) -> int | None:
        """A process has no cgroup of its own."""
        return None

    def oom_kills(self) -> int | None:
        """Not counted for a process."""
        return None

    def throttled_periods(self) -> int | None:
        """Not counted for a process."""
        return None


def _resident(pid: int) -> MemoryNow | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    kib = {line.partition(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Rss")}
    if not kib:  # a zombie
        return None
    return MemoryNow((kib.get("RssAnon", 0) + kib.get("RssShmem", 0)) * 1024, kib.get("RssFile", 0) * 1024)
