"""Readings of GPUs through NVML: a missing GPU is reported, and an unknown value is None, never 0."""

from __future__ import annotations

import os
import subprocess
import sys

import pynvml
import pytest

from harness.errors import EngineError
from harness.launch.monitor import gpu
from harness.launch.monitor.traces import ForeignProcesses
from harness.results.schema import GpuReading
from tests.launch.monitor.nvml import Nvml

NOBODY = 2**22 + 1  # above what Linux gives any process


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    numbered(monkeypatch)
    return Nvml(monkeypatch)


def numbered(monkeypatch: pytest.MonkeyPatch, *, as_the_host: bool = True) -> None:
    """Set whether pids are those of the host, wherever the tests run."""
    here = gpu._PID_NAMESPACE.stat().st_ino
    monkeypatch.setattr(gpu, "_HOST_PIDS", here if as_the_host else here + 1)


def test_gpus_are_named_with_their_driver(nvml: Nvml) -> None:
    nvml.compute, nvml.graphics = [{7: 1}, {7: 1}], [{8: 1}, {}]
    assert gpu.probe() == gpu.Gpus(("GPU 0", "GPU 1"), "590.1", None, 2)
    nvml.unsupported.add("DeviceGetComputeRunningProcesses_v3")
    assert gpu.probe().processes is None
    assert nvml.open == 0


def test_missing_driver_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", none)
    found = gpu.probe()
    assert found.models == () and found.driver is None
    assert (found.reason or "").startswith("no GPU on this host: NVML says ")


def test_failing_driver_is_a_reason_and_not_a_traceback(nvml: Nvml) -> None:
    nvml.broken = True
    assert (gpu.probe().reason or "").startswith("the GPUs of this host cannot be read")
    assert nvml.open == 0


def test_memory_used_before_the_job_is_subtracted(nvml: Nvml) -> None:
    gpus = gpu.JobGpus(2)
    assert gpus.used_bytes() == 0
    nvml.used = [150, 1500]
    assert gpus.used_bytes() == 550
    nvml.used = [0, 0]
    assert gpus.used_bytes() is None, "a neighbour let go: what the job itself holds is unknown"


def test_only_the_first_gpus_count(nvml: Nvml) -> None:
    gpus = gpu.JobGpus(1)
    nvml.used = [101, 99_999]
    assert gpus.used_bytes() == 1


def test_unresponsive_gpu_is_not_measured(nvml: Nvml) -> None:
    gpus = gpu.JobGpus(2)
    nvml.broken = True
    assert gpus.used_bytes() is None


def test_reading_has_clocks_reasons_and_temperature(nvml: Nvml) -> None:
    assert gpu.JobGpus(1).read() == GpuReading(1980, ("gpu_idle",), 40), "only the job's own count"
    nvml.reasons = [0x44, 0x804]
    assert gpu.JobGpus(2).read() == GpuReading(1755, ("bit_11", "hw_thermal_slowdown", "sw_power_cap"), 45)
    nvml.reasons = [0, 0]
    assert gpu.JobGpus(2).read().clock_reasons == (), "no reason is an answer"
    nvml.unsupported |= {"DeviceGetClockInfo", "DeviceGetCurrentClocksEventReasons", "DeviceGetTemperatureV"}
    assert gpu.JobGpus(2).read() == GpuReading(None, None, None)
    assert gpu.read([]) == GpuReading() and gpu.energy_mj([]) is None


def test_process_from_before_the_job_is_foreign(nvml: Nvml) -> None:
    assert gpu.JobGpus(2).before == ForeignProcesses(0, 0)
    nvml.compute = [{os.getpid(): 10}, {NOBODY: 20}]
    assert gpu.JobGpus(2).before == ForeignProcesses(2, 30), "wherever it may be numbered"
    assert gpu.JobGpus(1).before == ForeignProcesses(1, 10)


def test_foreign_process_is_distinguished_from_the_jobs_processes(nvml: Nvml) -> None:
    gpus, me, parent = gpu.JobGpus(2), os.getpid(), os.getppid()
    nvml.compute = [{me: 10, NOBODY: 20}, {parent: 5}]
    seen = gpus.moment(lambda: [me])
    assert seen.others == ForeignProcesses(1, 5), "what has no process here has ended, or is numbered otherwise"
    assert (seen.energy_mj, seen.seen.sm_clock_mhz) == (12_000, 1755)
    assert gpus.moment(lambda: []).others == ForeignProcesses(1, 5), "once the job's, always the job's"
    assert gpus.moment(lambda: None).others is None, "nobody can say whose they are"


def test_foreign_processes_are_unknown_inside_a_container(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML reports host pids: inside a container they name no process or another one."""
    numbered(monkeypatch, as_the_host=False)
    gpus = gpu.JobGpus(2)
    assert gpus.before == ForeignProcesses(0, 0)
    for listed in ({NOBODY: 20}, {os.getpid(): 10}, {}):
        nvml.compute[0] = dict(listed)
        assert gpus.moment(lambda: [os.getpid()]).others is None
    nvml.compute[0] = {NOBODY: 20}
    assert gpu.JobGpus(2).before == ForeignProcesses(1, 20), "nobody there is the job, whatever the number"


def test_processes_of_the_job_are_not_listed_if_the_gpu_has_none(nvml: Nvml) -> None:
    def unasked() -> list[int]:
        raise AssertionError

    assert gpu.JobGpus(2).moment(unasked).others == ForeignProcesses(0, 0)
    nvml.unsupported.add("DeviceGetComputeRunningProcesses_v3")
    assert gpu.JobGpus(2).moment(unasked).others is None


@pytest.mark.parametrize(("pid", "alive"), [(1, True), (NOBODY, False), (0, False), (2**32 - 1, False)])
def test_liveness_of_a_process_is_found_by_its_pid(pid: int, alive: bool) -> None:
    assert gpu._alive(pid) is alive


def test_gpus_are_released_after_any_end(nvml: Nvml) -> None:
    with gpu.following(0) as none:
        assert none is None and nvml.called == []
    with pytest.raises(RuntimeError), gpu.following(2) as gpus:
        assert gpus is not None and nvml.open == 1
        raise RuntimeError
    assert nvml.open == 0
    with pytest.raises(EngineError, match="the memory of 3 GPUs cannot be followed: NVML says"), gpu.following(3):
        pass
    assert nvml.open == 0


@pytest.mark.gpu
def test_real_gpu_is_found() -> None:
    found = gpu.probe()
    if not found.models:
        pytest.skip(found.reason or "no GPU")
    with gpu.following(1) as gpus:
        assert gpus.used_bytes() is not None
        first = gpus.moment(lambda: [os.getpid()])
        subprocess.run([sys.executable, "-c", "import time; time.sleep(0.5)"], check=True)
        second = gpus.moment(lambda: [os.getpid()])
    print(found, gpus.before, first, second)
    for reading in (first.seen, second.seen):
        assert reading.sm_clock_mhz is None or 0 < reading.sm_clock_mhz < 10_000
        assert reading.temperature_c is None or 0 < reading.temperature_c < 150
        assert reading.clock_reasons is None or all(not name.startswith("bit_") for name in reading.clock_reasons)
    if first.energy_mj is not None and second.energy_mj is not None:
        assert 1_000 < second.energy_mj - first.energy_mj < 1_000_000, "an idle GPU takes some 10 to 100 W"


BOTH = [0, 1]


def test_reason_bits_equal_pynvmls() -> None:
    def snake(name: str) -> str:
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")

    known = {
        getattr(pynvml, name): snake(name.removeprefix(prefix))
        for prefix in ("nvmlClocksThrottleReason", "nvmlClocksEventReason")
        for name in dir(pynvml)
        if name.startswith(prefix) and not name.endswith(("None", "All", "UserDefinedClocks"))
    }
    assert known.items() <= gpu.REASONS.items()
    assert len(known) >= 9


ASK = {
    "DeviceGetClockInfo": lambda handles: gpu.read(handles).sm_clock_mhz,
    "DeviceGetCurrentClocksEventReasons": lambda handles: gpu.read(handles).clock_reasons,
    "DeviceGetTemperatureV": lambda handles: gpu.read(handles).temperature_c,
    "DeviceGetTotalEnergyConsumption": gpu.energy_mj,
    "DeviceGetComputeRunningProcesses_v3": gpu.processes,
}


@pytest.mark.parametrize("function", ASK)
def test_value_unsupported_by_one_device_is_none_and_not_0(nvml: Nvml, function: str) -> None:
    ask = ASK[function]
    assert ask(BOTH) is not None
    nvml.unsupported.add(function)
    assert ask(BOTH) is None
    assert ask([0]) is not None
    assert not [name for name in nvml.called if name.endswith(("ThrottleReasons", "Temperature", "_v2"))], "no retries"
    nvml.broken = True
    assert ask([0]) is None


@pytest.mark.parametrize(
    ("function", "older", "answer"),
    [
        ("DeviceGetCurrentClocksEventReasons", "DeviceGetCurrentClocksThrottleReasons", ("gpu_idle",)),
        ("DeviceGetTemperatureV", "DeviceGetTemperature", 45),
        ("DeviceGetComputeRunningProcesses_v3", "DeviceGetComputeRunningProcesses_v2", {7: 30, 8: None}),
    ],
)
def test_older_driver_is_called_by_the_older_name(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, function: str, older: str, answer: object
) -> None:
    ask = ASK[function]
    nvml.compute = [{7: 10}, {7: 20, 8: None}]
    nvml.unknown.add(function)
    assert ask(BOTH) == answer
    assert older in nvml.called
    monkeypatch.delattr(pynvml, f"nvml{older}")
    assert ask(BOTH) is None, "neither name"
    nvml.unknown.clear()
    assert ask(BOTH) == answer, "as a pynvml that dropped the older name"


def test_process_memory_is_summed_over_gpus_and_not_over_kinds(nvml: Nvml) -> None:
    assert gpu.processes(BOTH) == {}
    nvml.compute, nvml.graphics = [{7: 10, 8: 5}, {7: 20}], [{7: 10, 9: 1}, {}]
    assert gpu.processes(BOTH) == {7: 30, 8: 5, 9: 1}
    nvml.unknown |= {"DeviceGetGraphicsRunningProcesses_v3", "DeviceGetGraphicsRunningProcesses_v2"}
    assert gpu.processes(BOTH) == {7: 30, 8: 5}, "a device that draws nothing may not say"


def test_process_memory_is_none_if_one_gpu_does_not_report_it(nvml: Nvml) -> None:
    nvml.compute = [{7: None, 8: 5}, {7: 20, 8: None}]
    assert gpu.processes(BOTH) == {7: None, 8: None}
