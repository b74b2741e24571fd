"""GPUs as NVML shows them; where it shows none, that is said and nothing is 0."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from harness.launch import gpu


class Nvml:
    """A driver with two GPUs; ``used`` is what they hold."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used, self.open, self.broken = [100, 1000], 0, False
        names = ("Init", "Shutdown", "DeviceGetCount", "DeviceGetHandleByIndex", "DeviceGetName", "DeviceGetMemoryInfo")
        for name in (*names, "SystemGetDriverVersion"):
            monkeypatch.setattr(pynvml, f"nvml{name}", getattr(self, name))

    def Init(self) -> None:
        self.open += 1

    def Shutdown(self) -> None:
        self.open -= 1

    def DeviceGetCount(self) -> int:
        if self.broken:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
        return 2

    def DeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def DeviceGetName(self, handle: int) -> str:
        return f"GPU {handle}"

    def DeviceGetMemoryInfo(self, handle: int) -> Any:
        if self.broken:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return SimpleNamespace(used=self.used[handle])

    def SystemGetDriverVersion(self) -> str:
        return "590.1"


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    return Nvml(monkeypatch)


def test_gpus_are_named_with_their_driver(nvml: Nvml) -> None:
    assert gpu.probe() == gpu.Gpus(("GPU 0", "GPU 1"), "590.1")
    assert nvml.open == 0


def test_a_host_without_a_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", none)
    found = gpu.probe()
    assert found.models == () and found.driver is None
    assert (found.reason or "").startswith("no GPU on this host: NVML says ")


def test_a_driver_that_fails_is_a_reason_and_no_traceback(nvml: Nvml) -> None:
    nvml.broken = True
    assert (gpu.probe().reason or "").startswith("the GPUs of this host cannot be read")
    assert nvml.open == 0


def test_memory_is_counted_above_what_was_used_before(nvml: Nvml) -> None:
    memory = gpu.GpuMemory(2)
    assert memory.used_bytes() == 0
    nvml.used = [150, 1500]
    assert memory.used_bytes() == 550
    nvml.used = [0, 0]
    assert memory.used_bytes() == 0, "a neighbour that let go does not make us negative"
    memory.close()
    assert nvml.open == 0


def test_only_the_first_gpus_count(nvml: Nvml) -> None:
    memory = gpu.GpuMemory(1)
    nvml.used = [101, 99_999]
    assert memory.used_bytes() == 1


def test_a_gpu_that_does_not_answer_is_not_measured(nvml: Nvml) -> None:
    memory = gpu.GpuMemory(2)
    nvml.broken = True
    assert memory.used_bytes() is None


@pytest.mark.gpu
def test_a_real_gpu_is_seen() -> None:
    found = gpu.probe()
    if not found.models:
        pytest.skip(found.reason or "no GPU")
    memory = gpu.GpuMemory(1)
    assert memory.used_bytes() is not None
    memory.close()
