"""The machine's speed now: fixed work on a job's CPUs, before, between and after its trials, or around its build.

A slower system and a slower machine look alike in the system's own figures; here they do not (measuring rule 21).
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

from harness.driver.procfs import read_text
from harness.results.schema import CanaryReading, Placement

# Each repeat outlasts a scheduler's time slice (some 3 ms), so that a rival on the same CPU slows every one of them,
# and the median forgets what slows one or two (an interrupt).
_CPU_ROUNDS = 15_000
_COPY_BYTES = 64 << 20  # larger than most last-level caches
_DISK_BYTES = 1 << 20
_REPEATS = {"cpu": 9, "memory": 5, "disk": 5}
_LEAST_REPEATS = 3
# No more repeats after so long (twice that for the least): a slow or busy machine gets fewer, and the whole stays
# below 300 ms.
_ENOUGH_S = {"cpu": 0.05, "memory": 0.05, "disk": 0.03}
_FILE = ".canary"


class Canary:
    """Timer of fixed work; keeps its buffers between readings, because fresh pages cost time."""

    @functools.cached_property
    def _buffers(self) -> tuple[np.ndarray, np.ndarray]:
        return np.ones(_COPY_BYTES, np.uint8), np.ones(_COPY_BYTES, np.uint8)

    def read(self, when: str, placement: Placement, folder: Path | None) -> CanaryReading:
        """Time the fixed work now.

        Args:
            when: ``before``, ``between`` or ``after``.
            placement: the CPUs to time.
            folder: a folder to write into for a moment; None leaves the disk out.
        """
        t_ns = time.perf_counter_ns()
        # All CPUs at once: that is how a job uses them, and how clocks go down.
        cpu_s = _on(placement.cpus, lambda: _timed("cpu", _work))
        memory_s = _on(placement.cpus[-1:], self._copy)
        disk_s = _write(folder) if folder else None
        return CanaryReading(
            when=when,
            t_ns=t_ns,
            took_s=(time.perf_counter_ns() - t_ns) / 1e9,
            cpu_s=max(cpu_s),
            memory_s=memory_s[0],
            disk_s=disk_s,
            load_1m=os.getloadavg()[0],
            frequency_mhz=lowest_mhz(placement.cpus),
            cpu_pressure=cpu_pressure(),
        )

    def prepare(self, placement: Placement) -> None:
        """Touch the buffers on the job's CPUs, which takes longer than a reading may."""
        if "_buffers" not in vars(self):  # no thread on those CPUs between trials
            _on(placement.cpus[-1:], lambda: len(self._buffers))

    def _copy(self) -> float:
        source, target = self._buffers
        return _timed("memory", lambda: np.copyto(target, source))


def lowest_mhz(cpus: tuple[int, ...], root: Path = Path("/sys/devices/system/cpu")) -> float | None:
    """Return the lowest clock of some CPUs, None where any of them hides it."""
    paths = (root / f"cpu{cpu}" / "cpufreq" / "scaling_cur_freq" for cpu in cpus)
    try:
        return min(int(path.read_text(encoding="ascii")) for path in paths) / 1000
    except (OSError, ValueError):
        return None


def cpu_pressure(path: Path = Path("/proc/pressure/cpu")) -> float | None:
    """Return the share of the last 10 s in which a task waited for a CPU; None without PSI."""
    share = re.search(r"^some avg10=([\d.]+)", read_text(path) or "", re.MULTILINE)
    return float(share.group(1)) / 100 if share else None


def _work() -> None:
    """Work some milliseconds in the first-level cache, with the interpreter's lock released."""
    hashlib.pbkdf2_hmac("sha256", b"canary", b"harness", _CPU_ROUNDS)


def _timed(kind: str, work: Callable[[], object]) -> float:
    """Return the median of some repeats, in seconds."""
    took: list[float] = []
    while len(took) < _REPEATS[kind] and sum(took) < _ENOUGH_S[kind] * (1 if len(took) >= _LEAST_REPEATS else 2):
        start = time.perf_counter_ns()
        work()
        took.append((time.perf_counter_ns() - start) / 1e9)
    return statistics.median_low(took)


def _on(cpus: tuple[int, ...], work: Callable[[], float]) -> list[float]:
    """Run the same work on each CPU at once, one pinned thread each."""

    def pinned(cpu: int) -> float:
        with suppress(OSError):  # a CPU that we may not use: measured wherever we may
            os.sched_setaffinity(0, {cpu})  # this thread alone
        return work()

    with ThreadPoolExecutor(len(cpus), "canary") as pool:
        return list(pool.map(pinned, cpus))


def _write(folder: Path) -> float | None:
    """Time writes of a small file through to the disk; None where it cannot be written."""
    path = folder / _FILE
    block = bytes(_DISK_BYTES)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        path.unlink()  # no other process sees it, and it goes with the descriptor
        os.pwrite(descriptor, block, 0)  # the first write also finds room

        def flush() -> None:
            os.pwrite(descriptor, block, 0)
            os.fdatasync(descriptor)

        flush()
        return _timed("disk", flush)
    except OSError:
        return None
    finally:
        os.close(descriptor)
