"""The thread that reads a job's GPUs: apart from memory and counters, because a driver may take its time to answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

from harness.launch.gpu import JobGpus
from harness.launch.gpu_trace import GpuTrace, Moment

# Between two readings, at least: of memory, which comes and goes, and of all else.
_MEMORY_S = 0.08
_MOMENTS_S = 0.25
# More where the driver is slow to answer, as a share of the time (it may hold up the job's own calls meanwhile), or
# busy with it, as a share of a CPU.
_WAITING_SHARE = 0.1
_CPU_SHARE = 0.003


class GpuSampler(threading.Thread):
    """Reads GPUs until stopped."""

    def __init__(self, gpus: JobGpus, pids: Callable[[], Collection[int] | None]) -> None:
        """Prepare; ``pids`` says the job's processes and is called from this thread."""
        super().__init__(daemon=True, name="gpu-sampler")
        self._gpus = gpus
        self._pids = pids
        self._stopped = threading.Event()
        self._asked = threading.Event()
        self._moments: list[Moment] = []
        self.peak_bytes: int | None = None

    def run(self) -> None:
        """Read at once, whenever it is time or somebody asks, and once more at the end."""
        next_s, wait_s, last = 0.0, 0.0, False
        while not last:
            asked = self._asked.wait(wait_s)
            self._asked.clear()
            last = self._stopped.is_set()
            if asked or last or time.monotonic() >= next_s:
                next_s = _paced(self._read_moment, _MOMENTS_S) + time.monotonic()
            wait_s = _paced(self._read_memory, _MEMORY_S)

    def mark(self) -> None:
        """Have the GPUs read out of turn; does not wait for it."""
        self._asked.set()

    def stop(self) -> None:
        """Have the GPUs read once more, and stop."""
        self._stopped.set()  # first: who is woken must find it set
        self._asked.set()
        self.join()

    def trace(self) -> GpuTrace:
        """All that was seen."""
        return GpuTrace(self._gpus.before, tuple(self._moments))

    def _read_moment(self) -> None:
        self._moments.append(self._gpus.moment(self._pids))

    def _read_memory(self) -> None:
        used = self._gpus.used_bytes()
        if used is not None:
            self.peak_bytes = max(used, self.peak_bytes or 0)


def _paced(read: Callable[[], None], least_s: float) -> float:
    """Read, and say how long to wait before the next time, by what it took: the CPU's time does not show a wait."""
    wall_s, cpu_s = time.monotonic(), time.thread_time()
    read()
    took_s, busy_s = time.monotonic() - wall_s, time.thread_time() - cpu_s
    return max(least_s, took_s / _WAITING_SHARE, busy_s / _CPU_SHARE)
