"""GPUs of this host through NVML.  Absent is said to be absent; nothing here ever reports 0 for "not measured"."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pynvml

from harness.errors import EngineError
from harness.launch.monitor import nvml
from harness.launch.monitor.gpu_trace import Moment, others
from harness.results.schema import GpuReading

_PID_NAMESPACE = Path("/proc/self/ns/pid")
# That of the host itself, on every kernel (PROC_PID_INIT_INO).
_HOST_PIDS = 0xEFFFFFFC


@dataclass(frozen=True)
class Gpus:
    """What NVML shows; ``reason`` says why there is nothing to see, ``processes`` how many are on them now."""

    models: tuple[str, ...] = ()
    driver: str | None = None
    reason: str | None = None
    processes: int | None = None


def probe() -> Gpus:
    """Ask NVML what GPUs this host has."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Gpus(reason=f"no GPU on this host: NVML says {error}")
    try:
        handles = nvml.first_handles(pynvml.nvmlDeviceGetCount())
        models = tuple(str(pynvml.nvmlDeviceGetName(handle)) for handle in handles)
        there = nvml.processes(handles)
        return Gpus(models, str(pynvml.nvmlSystemGetDriverVersion()), None, None if there is None else len(there))
    except pynvml.NVMLError as error:
        return Gpus(reason=f"the GPUs of this host cannot be read: NVML says {error}")
    finally:
        pynvml.nvmlShutdown()


class JobGpus:
    """The first ``count`` GPUs, from before a job starts on them; whoever is there by then is not the job."""

    def __init__(self, count: int) -> None:
        pynvml.nvmlInit()
        try:
            self._handles = nvml.first_handles(count)
            self._baseline = self._used()
        except pynvml.NVMLError:
            pynvml.nvmlShutdown()
            raise
        self.before = others(nvml.processes(self._handles), (), lambda _: True)
        self._own: set[int] = set()

    def used_bytes(self) -> int | None:
        """Bytes above the idle baseline, all GPUs together; never negative.  None while NVML does not say."""
        try:
            return max(0, self._used() - self._baseline)
        except pynvml.NVMLError:
            return None

    def look(self) -> GpuReading:
        """Clocks, why they are not higher, and temperature now."""
        return GpuReading(
            sm_clock_mhz=nvml.sm_clock_mhz(self._handles),
            clock_reasons=nvml.clock_reasons(self._handles),
            temperature_c=nvml.temperature_c(self._handles),
        )

    def moment(self, pids: Callable[[], Collection[int] | None]) -> Moment:
        """All that is followed over a job's life, now.

        Args:
            pids: says the job's own process ids, as this host numbers them; None when they cannot be had.
        """
        t_ns = time.perf_counter_ns()
        energy_mj = nvml.energy_mj(self._handles)
        # NVML's numbers are the host's: in a container they are nobody's here, or somebody else's.
        listed = nvml.processes(self._handles) if _numbered_as_the_host() else None
        known = True
        if listed:
            # After the list: a process that is young is in both, and one that has ended is known from earlier.
            own = pids()
            known = own is not None
            self._own.update(own or ())
        strangers = others(listed, self._own, _alive) if known else None
        return Moment(t_ns, self.look(), energy_mj, strangers)

    def close(self) -> None:
        """Let go of NVML."""
        pynvml.nvmlShutdown()

    def _used(self) -> int:
        return sum(int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in self._handles)


@contextmanager
def following(count: int) -> Iterator[JobGpus | None]:
    """Follow the first ``count`` GPUs; None for a job without.

    Raises:
        EngineError: NVML does not show their memory.
    """
    if not count:
        yield None
        return
    try:
        followed = JobGpus(count)
    except pynvml.NVMLError as error:
        raise EngineError(f"the memory of {count} GPUs cannot be followed: NVML says {error}") from error
    try:
        yield followed
    finally:
        followed.close()


def _numbered_as_the_host() -> bool:
    try:
        return _PID_NAMESPACE.stat().st_ino == _HOST_PIDS
    except OSError:
        return False


def _alive(pid: int) -> bool:
    with suppress(OverflowError):  # NVML's numbers are unsigned
        return psutil.pid_exists(pid)
    return False
