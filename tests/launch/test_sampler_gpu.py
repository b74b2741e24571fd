"""GPUs are read by their own thread, so a slow driver delays no other reading."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Collection, Iterable

import pytest

from harness.launch.monitor import sampler as sampler_monitor
from harness.launch.monitor.sampler import INTERVAL_S, GpuSampler, Sampler
from harness.launch.monitor.traces import ForeignProcesses, GpuMoment
from harness.results.schema import GpuReading
from tests.launch.test_sampler import ScriptedCounters, ScriptedMemory, until


class ScriptedGpu:
    before = ForeignProcesses(3, 1)

    def __init__(self, used: Iterable[int | None] = (), work: Callable[[], object] = lambda: None) -> None:
        self._used, self._work, self.asked = iter(used), work, 0

    def moment(self, pids: Callable[[], Collection[int] | None]) -> GpuMoment:
        self.asked += 1
        t_ns = time.perf_counter_ns()
        self._work()
        assert pids() == [42]
        return GpuMoment(t_ns, GpuReading())

    def used_bytes(self) -> int | None:
        return next(self._used, None)


def sampler(gpu: ScriptedGpu, memory: ScriptedMemory | None = None) -> Sampler:
    return Sampler(memory or ScriptedMemory(), ScriptedCounters(), gpu)  # type: ignore[arg-type]


def sleep() -> None:
    time.sleep(0.05)


def burn() -> None:
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass


def test_gpus_are_read_at_the_start_each_mark_and_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_monitor, "_MOMENTS_S", 3600)
    gpu = ScriptedGpu()
    with sampler(gpu) as running:
        until(lambda: gpu.asked == 1)
        asked_ns = time.perf_counter_ns()
        running.mark()
        until(lambda: gpu.asked == 2)
        left_ns = time.perf_counter_ns()
    trace = running.gpus()
    assert trace is not None and trace.before == ForeignProcesses(3, 1)
    _, marked, last = (moment.t_ns for moment in trace.moments)
    assert asked_ns < marked < left_ns < last
    assert Sampler(ScriptedMemory(), ScriptedCounters()).gpus() is None, "a job without GPUs"


@pytest.mark.parametrize(("used", "peak"), [((None, 7, 3), 7), ((), None), ((0,), 0)])
def test_gpu_memory_peak_covers_answered_readings(used: tuple[int | None, ...], peak: int | None) -> None:
    reader = GpuSampler(ScriptedGpu(used), lambda: [42])  # type: ignore[arg-type]
    for _ in range(4):
        reader._read_memory()
    assert reader.peak_bytes == peak


def test_gpu_memory_peak_is_part_of_the_memory_trace() -> None:
    with sampler(ScriptedGpu((7,)), ScriptedMemory([1])) as running:
        pass
    assert running.memory().peak_gpu_bytes == 7
    assert Sampler(ScriptedMemory(), ScriptedCounters()).memory().peak_gpu_bytes is None


@pytest.mark.slow
def test_hung_gpu_driver_delays_no_other_reading() -> None:
    answer = threading.Event()
    gpu = ScriptedGpu(work=lambda: answer.wait(20))
    with sampler(gpu, ScriptedMemory(itertools.repeat(1))) as running:
        until(lambda: gpu.asked == 1)
        first = len(running.memory().anon)
        for _ in range(3):
            running.mark()
        until(lambda: len(running.memory().anon) > first + 8 and len(running.counters().readings) > 5)
        assert gpu.asked == 1 and not answer.is_set(), "all this while the driver has not answered once"
        times = [t_ns for t_ns, _ in running.memory().anon[first:]]
        answer.set()
    gaps_s = [(later - earlier) / 1e9 for earlier, later in itertools.pairwise(times)]
    assert statistics.median(gaps_s) < 1.5 * INTERVAL_S


@pytest.mark.parametrize(("work", "least_s"), [(sleep, 0.5), (burn, 15)])
def test_slowly_read_gpus_are_read_less_often(work: Callable[[], None], least_s: float) -> None:
    """Limit readings to 10 % of the time for waiting and 0.3 % of a CPU for work."""
    assert sampler_monitor._paced(work, 0.25) >= least_s
    assert sampler_monitor._paced(lambda: None, 3600) == 3600


@pytest.mark.slow
def test_slow_driver_is_called_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_monitor, "_MOMENTS_S", 0.0)
    gpu = ScriptedGpu(work=sleep)
    started = time.monotonic()
    with sampler(gpu):
        time.sleep(0.7)
    assert gpu.asked <= 2 + (time.monotonic() - started) / 0.5, "at the start, each half second, and at the end"
