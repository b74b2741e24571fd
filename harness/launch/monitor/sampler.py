"""The threads that read a job's memory, counters and GPUs from the host, so that the measured CPUs do no work for it.

They must see an allocation that lives for 100 ms, and take less than 1 % of a CPU.  GPUs have their own thread, because
a driver may be slow to answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Self

from harness.launch.monitor.gpu import JobGpus
from harness.launch.monitor.instructions import CountedEvents, EventCounter
from harness.launch.monitor.rapl import PackageCounters
from harness.launch.monitor.sources import JobSource
from harness.launch.monitor.traces import CounterReading, CounterTrace, GpuMoment, GpuTrace, MemoryTrace

# Between two readings of memory, which comes and goes: usual, and while it grows fast (before an OOM kill only the last
# reading tells).
INTERVAL_S = 0.08
_FAST_INTERVAL_S = 0.003
_FAST_BYTES_PER_S = 200 << 20
# Between two readings of all else, at least; more where they cost more (hundreds of threads), as a share of a CPU, or
# where the GPUs' driver is slow to answer, as a share of the time: it may hold up the job's own calls meanwhile.
_MOMENTS_S = 0.25
_CPU_SHARE = 0.003
_WAITING_SHARE = 0.1


class GpuSampler(threading.Thread):
    """A thread that reads GPUs until stopped."""

    def __init__(self, gpus: JobGpus, pids: Callable[[], Collection[int] | None]) -> None:
        """Prepare; this thread calls ``pids`` for the job's processes."""
        super().__init__(daemon=True, name="gpu-sampler")
        self.gpus = gpus
        self._pids = pids
        self._stopped = threading.Event()
        self._asked = threading.Event()
        self._moments: list[GpuMoment] = []
        self.peak_bytes: int | None = None

    def run(self) -> None:
        """Read at once, when it is time or marked, and once more at the end."""
        next_s, wait_s, last = 0.0, 0.0, False
        while not last:
            asked = self._asked.wait(wait_s)
            self._asked.clear()
            last = self._stopped.is_set()
            if asked or last or time.monotonic() >= next_s:
                next_s = _paced(self._read_moment, _MOMENTS_S) + time.monotonic()
            wait_s = _paced(self._read_memory, INTERVAL_S)

    def mark(self) -> None:
        """Have the GPUs read out of turn, without waiting for it."""
        self._asked.set()

    def stop(self) -> None:
        """Have the GPUs read once more, and stop."""
        self._stopped.set()  # first: who is woken must find it set
        self._asked.set()
        self.join()

    def trace(self) -> GpuTrace:
        """Return all readings."""
        return GpuTrace(self.gpus.before, tuple(self._moments))

    def _read_moment(self) -> None:
        self._moments.append(self.gpus.moment(self._pids))

    def _read_memory(self) -> None:
        used = self.gpus.used_bytes()
        if used is not None:
            self.peak_bytes = max(used, self.peak_bytes or 0)


def _paced(read: Callable[[], None], least_s: float) -> float:
    """Read; return how long to wait before the next reading, by wall and CPU time."""
    wall_s, cpu_s = time.monotonic(), time.thread_time()
    read()
    took_s, busy_s = time.monotonic() - wall_s, time.thread_time() - cpu_s
    return max(least_s, took_s / _WAITING_SHARE, busy_s / _CPU_SHARE)


class Sampler(threading.Thread):
    """A thread that reads a source during a ``with`` block; GPUs have a thread of their own."""

    def __init__(
        self,
        source: JobSource,
        gpus: JobGpus | None = None,
        packages: PackageCounters | None = None,
        instructions: EventCounter | None = None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        super().__init__(daemon=True, name="sampler")
        self._source = source
        self._packages, self._instructions = packages, instructions
        self._gpus = GpuSampler(gpus, self._pids) if gpus else None
        self._interval_s = interval_s
        self._stopped = threading.Event()
        # A source keeps state and descriptors from one reading to the next.
        self._reading = threading.Lock()
        self._anon: list[tuple[int, int]] = []
        self._mapped: int | None = None
        self._peak: int | None = None
        self._readings: list[CounterReading] = []
        self._next_counters = 0.0
        self.oom_kills: int | None = None
        self.throttled_periods: int | None = None

    def __enter__(self) -> Self:
        self.start()
        if self._gpus:
            self._gpus.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self.stop()
        if self._gpus:
            self._gpus.stop()

    def run(self) -> None:
        """Read until stopped; a source that is gone gives None, and the last values stay."""
        while not self._stopped.is_set():
            with self._reading:
                growing = self._read_memory()
                if time.monotonic() >= self._next_counters:
                    self._read_counters()
            self._stopped.wait(min(_FAST_INTERVAL_S, self._interval_s) if growing else self._interval_s)
        with self._reading:
            self._read_memory()
            self._read_counters()

    def mark(self) -> None:
        """Read counters before this returns, and GPUs soon, because a phase or a canary reading begins or ends."""
        if self._gpus:
            self._gpus.mark()
        with self._reading:
            self._read_counters()

    def stop(self) -> None:
        """Read once more and stop."""
        self._stopped.set()
        self.join()

    def memory(self) -> MemoryTrace:
        """Return the memory readings."""
        return MemoryTrace(
            anon=tuple(self._anon),
            peak_mapped_bytes=self._mapped,
            peak_cgroup_bytes=self._peak,
            peak_gpu_bytes=self._gpus.peak_bytes if self._gpus else None,
            fullest_gpu_share=self._gpus.gpus.fullest_share if self._gpus else None,
            source=self._source.name,
            interval_s=self._interval_s,
        )

    def counters(self) -> CounterTrace:
        """Return the counter readings."""
        return CounterTrace(tuple(self._readings))

    def gpus(self) -> GpuTrace | None:
        """Return the GPU readings; None for a job without GPUs."""
        return self._gpus.trace() if self._gpus else None

    def _read_memory(self) -> bool:
        """Read memory once; return whether it grows fast."""
        t_ns = time.perf_counter_ns()
        now, growing = self._source.now(), False
        if now is not None:
            last_ns, last_bytes = self._anon[-1] if self._anon else (t_ns, now.anon_bytes)
            grown_bytes, passed_s = now.anon_bytes - last_bytes, (t_ns - last_ns) / 1e9
            growing = grown_bytes > _FAST_BYTES_PER_S * passed_s
            self._anon.append((t_ns, now.anon_bytes))
            if now.mapped_bytes is not None:
                self._mapped = max(self._mapped or 0, now.mapped_bytes)
            self._peak = self._peak if now.peak_bytes is None else now.peak_bytes
            self.oom_kills = self.oom_kills if now.oom_kills is None else now.oom_kills
        return growing

    def _read_counters(self) -> None:
        start = time.thread_time()
        # First, because the source may take milliseconds, and begins with the CPU time.
        executed = self._count()
        used_uj = self._packages.total_uj(time.perf_counter_ns()) if self._packages else None
        if (reading := self._source.read()) is not None:
            self._readings.append(replace(reading, package_uj=used_uj, instructions=executed))
            if reading.throttled_periods is not None:
                self.throttled_periods = reading.throttled_periods
        cost_s = time.thread_time() - start
        self._next_counters = time.monotonic() + max(_MOMENTS_S, cost_s / _CPU_SHARE)

    def _count(self) -> CountedEvents | None:
        if self._instructions is None:
            return None
        self._instructions.follow(self._source.pids() or ())
        return self._instructions.read()

    def _pids(self) -> Collection[int] | None:
        with self._reading:
            return self._source.pids()
