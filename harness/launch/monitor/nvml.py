"""What NVML says of some GPUs, all together.

Each question is answered with None, never 0, where any of the GPUs does not say: a device that does not support it, a
driver too old to know it, a GPU that is lost.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import pynvml

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
# What a display server or a client of MPS has on a GPU disturbs as much; not every device can say it.
_PROCESSES = {
    kind: tuple(f"nvmlDeviceGet{kind}RunningProcesses_{version}" for version in ("v3", "v2"))
    for kind in ("Compute", "Graphics", "MPSCompute")
}


def first_handles(count: int) -> list[Handle]:
    """The first ``count`` GPUs, as NVML and the container runtime number them.

    Raises:
        pynvml.NVMLError: there are not so many.
    """
    return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]


def sm_clock_mhz(handles: Sequence[Handle]) -> int | None:
    """The lowest clock of their multiprocessors, MHz."""
    return _each(handles, ("nvmlDeviceGetClockInfo",), min, pynvml.NVML_CLOCK_SM)


def clock_reasons(handles: Sequence[Handle]) -> tuple[str, ...] | None:
    """Why the clocks of any of them are not higher, by name; a bit that has no name yet goes by its number."""
    bits = _each(handles, _CLOCK_REASONS, lambda values: functools.reduce(operator.or_, values))
    if bits is None:
        return None
    return tuple(sorted(REASONS.get(1 << n, f"bit_{n}") for n in range(bits.bit_length()) if bits >> n & 1))


def temperature_c(handles: Sequence[Handle]) -> int | None:
    """The hottest of them, degrees Celsius."""
    return _each(handles, _TEMPERATURE, max, pynvml.NVML_TEMPERATURE_GPU)


def energy_mj(handles: Sequence[Handle]) -> int | None:
    """What they used since the driver was loaded, millijoules; devices count it anew some 10 to 50 times a second."""
    return _each(handles, ("nvmlDeviceGetTotalEnergyConsumption",), sum)


def processes(handles: Sequence[Handle]) -> dict[int, int | None] | None:
    """Processes on any of them: host pid -> bytes held there (None: not said), all GPUs together."""
    found: dict[int, int | None] = {}
    for handle in handles:
        here: dict[int, int | None] = {}
        for kind, names in _PROCESSES.items():
            listed = _ask(names, handle)
            if listed is None and kind == "Compute":
                return None
            # A process that computes and draws stands in two lists, with the same memory in both.
            here.update({int(each.pid): each.usedGpuMemory for each in listed or []})
        for pid, held in here.items():
            earlier = found.get(pid, 0)
            found[pid] = None if earlier is None or held is None else earlier + int(held)
    return found


def _each(
    handles: Sequence[Handle], names: Sequence[str], join: Callable[[list[int]], int], *asked: object
) -> int | None:
    """One number of all GPUs; None where any of them does not say its own."""
    values = [int(value) for handle in handles if (value := _ask(names, handle, *asked)) is not None]
    return join(values) if values and len(values) == len(handles) else None


def _ask(names: Sequence[str], *asked: object) -> Any | None:
    """The answer of the first of some functions that both pynvml and the driver have."""
    for name in names:
        function = getattr(pynvml, name, None)
        if function is None:
            continue
        try:
            return function(*asked)
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                return None
    return None
