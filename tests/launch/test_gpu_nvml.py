"""NVML readings of several GPUs; a value missing on one is None for all."""

from __future__ import annotations

import pynvml
import pytest

from harness.launch.monitor import gpu as module
from tests.launch.nvml import Nvml

BOTH = [0, 1]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    return Nvml(monkeypatch)


def test_gpus_report_the_lowest_clock_highest_temperature_and_total_energy(nvml: Nvml) -> None:
    assert (module.sm_clock_mhz(BOTH), module.temperature_c(BOTH), module.energy_mj(BOTH)) == (1755, 45, 12_000)
    assert (module.sm_clock_mhz([0]), module.temperature_c([0]), module.energy_mj([0])) == (1980, 40, 5_000)


def test_clock_reasons_of_all_gpus_are_named_in_order(nvml: Nvml) -> None:
    assert module.clock_reasons(BOTH) == ("gpu_idle",)
    nvml.reasons = [0x44, 0x804]
    assert module.clock_reasons(BOTH) == ("bit_11", "hw_thermal_slowdown", "sw_power_cap")
    nvml.reasons = [0, 0]
    assert module.clock_reasons(BOTH) == (), "no reason is an answer"


def test_reason_bits_equal_pynvmls() -> None:
    def snake(name: str) -> str:
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")

    known = {
        getattr(pynvml, name): snake(name.removeprefix(prefix))
        for prefix in ("nvmlClocksThrottleReason", "nvmlClocksEventReason")
        for name in dir(pynvml)
        if name.startswith(prefix) and not name.endswith(("None", "All", "UserDefinedClocks"))
    }
    assert known.items() <= module.REASONS.items()
    assert len(known) >= 9


@pytest.mark.parametrize(
    ("ask", "function"),
    [
        (module.sm_clock_mhz, "DeviceGetClockInfo"),
        (module.clock_reasons, "DeviceGetCurrentClocksEventReasons"),
        (module.temperature_c, "DeviceGetTemperatureV"),
        (module.energy_mj, "DeviceGetTotalEnergyConsumption"),
        (module.processes, "DeviceGetComputeRunningProcesses_v3"),
    ],
)
def test_value_unsupported_by_one_device_is_none_and_not_0(nvml: Nvml, ask: object, function: str) -> None:
    assert callable(ask)
    assert ask(BOTH) is not None
    nvml.unsupported.add(function)
    assert ask(BOTH) is None
    assert ask([0]) is not None
    assert not [name for name in nvml.called if name.endswith(("ThrottleReasons", "Temperature", "_v2"))], "no retries"
    nvml.broken = True
    assert ask([0]) is None


@pytest.mark.parametrize(
    ("ask", "function", "older", "answer"),
    [
        (
            module.clock_reasons,
            "DeviceGetCurrentClocksEventReasons",
            "DeviceGetCurrentClocksThrottleReasons",
            ("gpu_idle",),
        ),
        (module.temperature_c, "DeviceGetTemperatureV", "DeviceGetTemperature", 45),
        (
            module.processes,
            "DeviceGetComputeRunningProcesses_v3",
            "DeviceGetComputeRunningProcesses_v2",
            {7: 30, 8: None},
        ),
    ],
)
def test_older_driver_is_called_by_the_older_name(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, ask: object, function: str, older: str, answer: object
) -> None:
    assert callable(ask)
    nvml.compute = [{7: 10}, {7: 20, 8: None}]
    nvml.unknown.add(function)
    assert ask(BOTH) == answer
    assert older in nvml.called
    monkeypatch.delattr(pynvml, f"nvml{older}")
    assert ask(BOTH) is None, "neither name"
    nvml.unknown.clear()
    assert ask(BOTH) == answer, "as a pynvml that dropped the older name"


def test_process_memory_is_summed_over_gpus_and_not_over_kinds(nvml: Nvml) -> None:
    assert module.processes(BOTH) == {}
    nvml.compute, nvml.graphics = [{7: 10, 8: 5}, {7: 20}], [{7: 10, 9: 1}, {}]
    assert module.processes(BOTH) == {7: 30, 8: 5, 9: 1}
    nvml.unknown.add("DeviceGetGraphicsRunningProcesses_v3")
    assert module.processes(BOTH) == {7: 30, 8: 5}, "a device that draws nothing may not say"


def test_process_memory_is_none_if_one_gpu_does_not_report_it(nvml: Nvml) -> None:
    nvml.compute = [{7: None, 8: 5}, {7: 20, 8: None}]
    assert module.processes(BOTH) == {7: None, 8: None}


def test_values_are_none_without_gpus(nvml: Nvml) -> None:
    assert module.sm_clock_mhz([]) is None and module.clock_reasons([]) is None and module.energy_mj([]) is None
