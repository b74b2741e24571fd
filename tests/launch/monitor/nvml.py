"""A driver with two GPUs, as ``pynvml`` would show it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest


class Nvml:
    """Figures by GPU, which a test may change.

    ``used`` is what they hold, ``compute`` and ``graphics`` pid -> bytes.  A function in ``unsupported`` is refused on
    GPU 1, one in ``unknown`` by the driver; ``broken`` GPUs are lost.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used, self.open, self.broken = [100, 1000], 0, False
        self.clock, self.reasons, self.temperature, self.energy = [1980, 1755], [0x1, 0x0], [40, 45], [5_000, 7_000]
        self.compute: list[dict[int, int | None]] = [{}, {}]
        self.graphics: list[dict[int, int | None]] = [{}, {}]
        self.unsupported: set[str] = set()
        self.unknown: set[str] = set()
        self.called: list[str] = []
        for name in (each.removeprefix("nvml") for each in dir(pynvml) if each.startswith("nvml")):
            if hasattr(self, name.removesuffix("_v3").removesuffix("_v2")):
                monkeypatch.setattr(pynvml, f"nvml{name}", lambda *asked, name=name: self._call(name, *asked))

    def _call(self, name: str, *asked: Any) -> Any:
        self.called.append(name)
        if name in self.unknown:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        if name in self.unsupported and asked[0] == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        plain = name.removesuffix("_v3").removesuffix("_v2")
        if self.broken and plain not in ("Init", "Shutdown"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return getattr(self, plain)(*asked)

    def Init(self) -> None:
        self.open += 1

    def Shutdown(self) -> None:
        self.open -= 1

    def SystemGetDriverVersion(self) -> str:
        return "590.1"

    def DeviceGetCount(self) -> int:
        return 2

    def DeviceGetHandleByIndex(self, index: int) -> int:
        if index > 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return index

    def DeviceGetName(self, handle: int) -> str:
        return f"GPU {handle}"

    def DeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(used=self.used[handle], total=80 << 30)

    def DeviceGetClockInfo(self, handle: int, clock: int) -> int:
        assert clock == pynvml.NVML_CLOCK_SM
        return self.clock[handle]

    def DeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        return self.reasons[handle]

    DeviceGetCurrentClocksThrottleReasons = DeviceGetCurrentClocksEventReasons

    def DeviceGetTemperatureV(self, handle: int, sensor: int) -> int:
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return self.temperature[handle]

    DeviceGetTemperature = DeviceGetTemperatureV

    def DeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        return self.energy[handle]

    def DeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return _listed(self.compute[handle])

    def DeviceGetGraphicsRunningProcesses(self, handle: int) -> list[Any]:
        return _listed(self.graphics[handle])

    def DeviceGetMPSComputeRunningProcesses(self, handle: int) -> list[Any]:
        return []


def _listed(held: dict[int, int | None]) -> list[Any]:
    return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in held.items()]
