"""Peak memory of a job, sampled from the host so that the measured CPUs do no work for it.

There is no kernel high-water mark for anonymous memory, so it is sampled; the cgroup's peak is the kernel's.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness import cgroup
from harness.launch.gpu import GpuMemory
from harness.records import Memory, Phase

INTERVAL_S = 0.02


@dataclass(frozen=True)
class MemoryTrace:
    """Memory over time: ``anon`` holds (monotonic nanoseconds, bytes) pairs."""

    anon: tuple[tuple[int, int], ...] = ()
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
            peak_cgroup_bytes=self.peak_cgroup_bytes,
            peak_gpu_bytes=self.peak_gpu_bytes,
            peak_anon_by_phase_bytes=by_phase,
            source=self.source,
            samples=len(self.anon),
            sample_interval_s=self.interval_s,
        )


class Source(Protocol):
    """Something whose memory can be read now."""

    name: str

    def anon_bytes(self) -> int | None:
        """Anonymous plus shared memory."""

    def peak_bytes(self) -> int | None:
        """High-water mark of all charged memory, where there is one."""

    def oom_kills(self) -> int | None:
        """Kills so far, where they are counted."""

    def throttled_periods(self) -> int | None:
        """Quota periods in which it was stopped, where they are counted."""


class CgroupSource:
    """A container's cgroup, read from the host."""

    def __init__(self, group: cgroup.Cgroup) -> None:
        self.name = f"cgroup v{group.version}"
        self.anon_bytes = group.anon_bytes
        self.peak_bytes = group.peak_bytes
        self.oom_kills = group.oom_kills
        self.throttled_periods = group.throttled_periods


class ProcessSource:
    """A plain process and its descendants: anonymous and shared resident memory of ``/proc/<pid>/status``."""

    name = "/proc"

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def anon_bytes(self) -> int | None:
        """Sum over the process tree; a page shared between two of them counts twice."""
        found = [value for pid in _tree(self._pid) if (value := _resident(pid)) is not None]
        return sum(found) if found else None

    def peak_bytes(self) -> int | None:
        """A process has no cgroup of its own."""
        return None

    def oom_kills(self) -> int | None:
        """Not counted for a process."""
        return None

    def throttled_periods(self) -> int | None:
        """Not counted for a process."""
        return None


class MemorySampler(threading.Thread):
    """Samples a source until stopped."""

    def __init__(self, source: Source, gpus: GpuMemory | None = None, interval_s: float = INTERVAL_S) -> None:
        super().__init__(daemon=True, name="memory-sampler")
        self._source = source
        self._gpus = gpus
        self._interval_s = interval_s
        self._done = threading.Event()
        self._anon: list[tuple[int, int]] = []
        self._peak: int | None = None
        self._peak_gpu: int | None = None
        self.oom_kills: int | None = None
        self.throttled_periods: int | None = None

    def run(self) -> None:
        """Sample; a source that is gone gives None and the last values stay."""
        while True:
            self._read()
            if self._done.wait(self._interval_s):
                return

    def stop(self) -> None:
        """Stop sampling."""
        self._done.set()
        self.join()

    def trace(self) -> MemoryTrace:
        """All that was seen."""
        return MemoryTrace(
            anon=tuple(self._anon),
            peak_cgroup_bytes=self._peak,
            peak_gpu_bytes=self._peak_gpu,
            source=self._source.name,
            interval_s=self._interval_s,
        )

    def _read(self) -> None:
        t_ns = time.perf_counter_ns()
        anon, peak, kills = self._source.anon_bytes(), self._source.peak_bytes(), self._source.oom_kills()
        if anon is not None:
            self._anon.append((t_ns, anon))
        self._peak = self._peak if peak is None else peak
        self.oom_kills = self.oom_kills if kills is None else kills
        throttled = self._source.throttled_periods()
        self.throttled_periods = self.throttled_periods if throttled is None else throttled
        used = self._gpus.used_bytes() if self._gpus else None
        if used is not None:
            self._peak_gpu = max(self._peak_gpu or 0, used)


def _tree(root: int) -> list[int]:
    pids, queue = [], [root]
    while queue:
        pid = queue.pop()
        pids.append(pid)
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                queue.extend(int(child) for child in (task / "children").read_text().split())
        except OSError:
            continue  # it ended while we looked
    return pids


def _resident(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    kib = [int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:"))]
    return sum(kib) * 1024 if kib else None
