"""GPUs of this host through NVML.  Absent is said to be absent; nothing here ever reports 0 for "not measured"."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pynvml

from harness.errors import EngineError


@dataclass(frozen=True)
class Gpus:
    """What NVML shows; ``reason`` says why there is nothing to see."""

    models: tuple[str, ...] = ()
    driver: str | None = None
    reason: str | None = None


def probe() -> Gpus:
    """Ask NVML what GPUs this host has."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Gpus(reason=f"no GPU on this host: NVML says {error}")
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        models = tuple(str(pynvml.nvmlDeviceGetName(handle)) for handle in handles)
        return Gpus(models=models, driver=str(pynvml.nvmlSystemGetDriverVersion()))
    except pynvml.NVMLError as error:
        return Gpus(reason=f"the GPUs of this host cannot be read: NVML says {error}")
    finally:
        pynvml.nvmlShutdown()


class GpuMemory:
    """Memory that a job takes on the first ``count`` GPUs: used now minus used before it started."""

    def __init__(self, count: int) -> None:
        pynvml.nvmlInit()
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        self._baseline = self._used()

    def used_bytes(self) -> int | None:
        """Bytes above the idle baseline, all GPUs together; never negative.  None while NVML does not say."""
        try:
            return max(0, self._used() - self._baseline)
        except pynvml.NVMLError:
            return None

    def close(self) -> None:
        """Let go of NVML."""
        pynvml.nvmlShutdown()

    def _used(self) -> int:
        return sum(int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in self._handles)


@contextmanager
def memory(count: int) -> Iterator[GpuMemory | None]:
    """Follow the memory of the first ``count`` GPUs; None for a job without."""
    if not count:
        yield None
        return
    try:
        followed = GpuMemory(count)
    except pynvml.NVMLError as error:
        raise EngineError(f"the memory of {count} GPUs cannot be followed: NVML says {error}") from error
    try:
        yield followed
    finally:
        followed.close()
