"""GPUs of this host through NVML.

Every function returns None, never 0, for "not measured": a device does not support it, the driver is too old, or the
GPU is lost.
"""

from __future__ import annotations

import functools
import operator
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pynvml

from harness.errors import EngineError
from harness.launch.monitor.traces import GpuMoment, foreign_processes
from harness.results.schema import GpuReading

Handle = Any

# Bits of NVML's clocks event reasons: why the clocks are not higher.  Older drivers call them throttle reasons.
REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
# The newest name first: a driver may not know it yet, and pynvml may not know it any more.
_CLOCK_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
_TEMPERATURE = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
# A display server or a client of MPS disturbs a job as much; some devices do not list them.
_PROCESSES = {
    kind: tuple(f"nvmlDeviceGet{kind}RunningProcesses_{version}" for version in ("v3", "v2"))
    for kind in ("Compute", "Graphics", "MPSCompute")
}
_PID_NAMESPACE = Path("/proc/self/ns/pid")
# The host's own PID namespace has this number on every kernel (PROC_PID_INIT_INO).
_HOST_PIDS = 0xEFFFFFFC


@dataclass(frozen=True)
class Gpus:
    """GPUs that NVML shows; ``reason`` says why it shows none, ``processes`` counts the processes on them now."""

    models: tuple[str, ...] = ()
    driver: str | None = None
    reason: str | None = None
    processes: int | None = None


def probe() -> Gpus:
    """Ask NVML what GPUs this host has."""
    failure = "no GPU on this host"
    try:
        with _nvml():
            failure = "the GPUs of this host cannot be read"
            handles = first_handles(pynvml.nvmlDeviceGetCount())
            models = tuple(str(pynvml.nvmlDeviceGetName(handle)) for handle in handles)
            running, driver = processes(handles), str(pynvml.nvmlSystemGetDriverVersion())
            return Gpus(models, driver, None, None if running is None else len(running))
    except pynvml.NVMLError as error:
        return Gpus(reason=f"{failure}: NVML says {error}")


@contextmanager
def _nvml() -> Iterator[None]:
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


class JobGpus:
    """The first ``count`` GPUs of a job, followed from before its start: earlier processes are not the job's.

    ``fullest_share`` is the largest share of a GPU's memory that was in use at any reading, by any process.
    """

    def __init__(self, count: int) -> None:
        self._handles = first_handles(count)
        self.fullest_share = 0.0
        self._baseline = self._used()
        self.before = foreign_processes(processes(self._handles), (), lambda _: True)
        self._own: set[int] = set()

    def used_bytes(self) -> int | None:
        """Return the bytes above the use before the job, all GPUs together.

        None while NVML reports none, or less is in use than before: a neighbour let go of an unknown part.
        """
        try:
            used = self._used() - self._baseline
        except pynvml.NVMLError:
            return None
        return used if used >= 0 else None

    def read(self) -> GpuReading:
        """Read clocks, their limits and temperature now."""
        return read(self._handles)

    def moment(self, pids: Callable[[], Collection[int] | None]) -> GpuMoment:
        """Read everything that is followed over a job's life.

        Args:
            pids: returns the job's own process ids, as this host numbers them; None: unknown.
        """
        t_ns = time.perf_counter_ns()
        used_mj = energy_mj(self._handles)
        # NVML's process ids are the host's: in a container they name no process, or another one.
        listed = processes(self._handles) if _numbered_as_the_host() else None
        known = True
        if listed:
            # After the list: a process that is young is in both, and one that has ended is known from earlier.
            own = pids()
            known = own is not None
            self._own.update(own or ())
        strangers = foreign_processes(listed, self._own, _alive) if known else None
        return GpuMoment(t_ns, self.read(), used_mj, strangers)

    def _used(self) -> int:
        memory = [pynvml.nvmlDeviceGetMemoryInfo(handle) for handle in self._handles]
        self.fullest_share = max(self.fullest_share, *(int(each.used) / int(each.total) for each in memory))
        return sum(int(each.used) for each in memory)


@contextmanager
def following(count: int) -> Iterator[JobGpus | None]:
    """Follow the first ``count`` GPUs; None for a job without.

    Raises:
        EngineError: NVML does not show their memory.
    """
    if not count:
        yield None
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(_nvml())
            followed = JobGpus(count)
        except pynvml.NVMLError as error:
            raise EngineError(f"the memory of {count} GPUs cannot be followed: NVML says {error}") from error
        yield followed


def _numbered_as_the_host() -> bool:
    try:
        return _PID_NAMESPACE.stat().st_ino == _HOST_PIDS
    except OSError:
        return False


def _alive(pid: int) -> bool:
    with suppress(OverflowError):  # NVML's numbers are unsigned
        return psutil.pid_exists(pid)
    return False


def first_handles(count: int) -> list[Handle]:
    """Return the first ``count`` GPUs, as NVML and the container runtime number them.

    Raises:
        pynvml.NVMLError: there are fewer.
    """
    return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]


def read(handles: Sequence[Handle]) -> GpuReading:
    """Read the lowest clock of their multiprocessors, why any clock is not higher, and the highest temperature."""
    bits = _each(handles, _CLOCK_REASONS, lambda values: functools.reduce(operator.or_, values))
    reasons = None if bits is None else (n for n in range(bits.bit_length()) if bits >> n & 1)
    return GpuReading(
        _each(handles, ("nvmlDeviceGetClockInfo",), min, pynvml.NVML_CLOCK_SM),
        None if reasons is None else tuple(sorted(REASONS.get(1 << n, f"bit_{n}") for n in reasons)),
        _each(handles, _TEMPERATURE, max, pynvml.NVML_TEMPERATURE_GPU),
    )


def energy_mj(handles: Sequence[Handle]) -> int | None:
    """Return their energy since the driver was loaded, millijoules, updated 10 to 50 times a second."""
    return _each(handles, ("nvmlDeviceGetTotalEnergyConsumption",), sum)


def processes(handles: Sequence[Handle]) -> dict[int, int | None] | None:
    """Return the processes on any of them: host pid -> bytes held on all (None: unknown)."""
    held_by_pid: dict[int, int | None] = {}
    for handle in handles:
        here: dict[int, int | None] = {}
        for kind, names in _PROCESSES.items():
            listed = _ask(names, handle)
            if listed is None and kind == "Compute":
                return None
            # A process that computes and draws is in two lists, with the same memory in both.
            here.update({int(process.pid): process.usedGpuMemory for process in listed or []})
        for pid, held in here.items():
            earlier = held_by_pid.get(pid, 0)
            held_by_pid[pid] = None if earlier is None or held is None else earlier + int(held)
    return held_by_pid


def _each(
    handles: Sequence[Handle], names: Sequence[str], join: Callable[[list[int]], int], *arguments: object
) -> int | None:
    """Join one number of all GPUs; None where any GPU reports none."""
    values = [int(value) for handle in handles if (value := _ask(names, handle, *arguments)) is not None]
    return join(values) if values and len(values) == len(handles) else None


def _ask(names: Sequence[str], *arguments: object) -> Any | None:
    """Call the first of some functions that both pynvml and the driver have."""
    for name in names:
        function = getattr(pynvml, name, None)
        if function is None:
            continue
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                return None
    return None
