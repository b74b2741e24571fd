"""The sampler reads memory often, counters less often, and GPUs in their own thread."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Collection, Iterable

import pytest

from harness.launch.monitor import sampler as sampler_monitor
from harness.launch.monitor.sampler import INTERVAL_S, GpuSampler, Sampler
from harness.launch.monitor.sources import JobSource
from harness.launch.monitor.traces import CounterReading, ForeignProcesses, GpuMoment, MemoryNow
from harness.results.schema import GpuReading, Memory


class Scripted(JobSource):
    """Source of the given memory in turn, then None like a removed cgroup, and of ``times`` counter readings."""

    name = "script"

    def __init__(
        self,
        anon: Iterable[int | None] = (),
        peak: Iterable[int | None] = (),
        kills: Iterable[int | None] = (),
        throttled: Iterable[int | None] = (),
        *,
        times: int = 10**6,
        work: Callable[[], object] = lambda: None,
    ) -> None:
        self._anon, self._peak, self._kills, self._throttled = iter(anon), iter(peak), iter(kills), iter(throttled)
        self.read_times, self._left, self._work = 0, times, work

    def now(self) -> MemoryNow | None:
        anon, peak, kills = (next(each, None) for each in (self._anon, self._peak, self._kills))
        return None if anon is None else MemoryNow(anon, 1000 - anon, peak, kills)

    def read(self) -> CounterReading | None:
        self._work()
        self.read_times += 1
        if self.read_times > self._left:
            return None
        throttled = next(self._throttled, None)
        return CounterReading(time.perf_counter_ns(), cpu_ns=self.read_times, throttled_periods=throttled)

    def pids(self) -> list[int]:
        return [42]


def sampled(source: JobSource, times: int = 4) -> Sampler:
    sampler = Sampler(source)
    for _ in range(times):
        sampler._read_memory()
        sampler._read_counters()
    return sampler


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.001)


def test_peak_is_the_highest_reading_and_the_last_known_counters_stay() -> None:
    sampler = sampled(Scripted([5, 50, 20], [60, 70, 70], [0, 0, 1], [3, 7]))
    summary = sampler.memory().summary()
    assert (summary.peak_anon_bytes, summary.peak_mapped_bytes, summary.peak_cgroup_bytes) == (50, 995, 70)
    assert (sampler.oom_kills, sampler.throttled_periods, summary.samples) == (1, 7, 3)
    assert (summary.source, summary.sample_interval_s) == ("script", INTERVAL_S)


def test_missing_readings_are_none_and_not_0() -> None:
    hidden = sampled(JobSource())  # of a job that the host cannot see
    assert hidden.memory().summary() == Memory(samples=0, sample_interval_s=INTERVAL_S)
    assert hidden.oom_kills is None and hidden.throttled_periods is None and hidden.counters().readings == ()


def test_fast_growing_memory_is_read_again_at_once() -> None:
    sampler = Sampler(Scripted([0, 500 << 20, 500 << 20]))
    assert not sampler._read_memory(), "one reading shows no growth"
    assert sampler._read_memory()
    time.sleep(0.001)
    assert not sampler._read_memory()


def test_sampler_reads_at_its_start_and_at_its_end() -> None:
    counters = Scripted([1, 2])
    sampler = Sampler(counters, interval_s=3600)
    sampler.start()
    until(lambda: counters.read_times == 1)
    assert [value for _, value in sampler.memory().anon] == [1]
    sampler.stop()
    assert not sampler.is_alive()
    assert [value for _, value in sampler.memory().anon] == [1, 2]
    assert counters.read_times == 2


def test_a_mark_reads_the_counters_out_of_turn() -> None:
    counters = Scripted()
    sampler = Sampler(counters, interval_s=3600)
    sampler.start()
    until(lambda: counters.read_times == 1)
    asked_ns = time.perf_counter_ns()
    sampler.mark()
    assert sampler.counters().readings[-1].t_ns > asked_ns, "read before mark() returned"
    sampler.stop()
    assert len(sampler.counters().readings) == 3


@pytest.mark.slow
def test_mark_and_thread_never_read_concurrently() -> None:
    inside: list[None] = []

    def work() -> None:
        inside.append(None)
        time.sleep(0.001)
        at_once.append(len(inside))
        inside.pop()

    at_once: list[int] = []
    sampler = Sampler(Scripted(work=work), interval_s=0.0)
    sampler.start()
    markers = [threading.Thread(target=lambda: [sampler.mark() for _ in range(20)]) for _ in range(4)]
    for marker in markers:
        marker.start()
    for marker in markers:
        marker.join()
    sampler.stop()
    assert set(at_once) == {1}
    times = [reading.t_ns for reading in sampler.counters().readings]
    assert len(times) > 80 and times == sorted(times)


def test_costly_counters_are_read_less_often() -> None:
    def work() -> None:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    cheap, dear = Sampler(Scripted()), Sampler(Scripted(work=work))
    cheap._read_counters()
    dear._read_counters()
    # 20 ms of CPU at 0.3 % of one: not again for more than 6 s.
    assert dear._next_counters - time.monotonic() > 5
    assert cheap._next_counters - time.monotonic() < 5


class ScriptedGpu:
    before, fullest_share = ForeignProcesses(3, 1), 0.25

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


def sleep() -> None:
    time.sleep(0.05)


def burn() -> None:
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass


def test_gpus_are_read_at_the_start_each_mark_and_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_monitor, "_MOMENTS_S", 3600)
    gpu = ScriptedGpu()
    with Sampler(Scripted(), gpu) as running:
        until(lambda: gpu.asked == 1)
        asked_ns = time.perf_counter_ns()
        running.mark()
        until(lambda: gpu.asked == 2)
        left_ns = time.perf_counter_ns()
    trace = running.gpus()
    assert trace is not None and trace.before == ForeignProcesses(3, 1)
    _, marked, last = (moment.t_ns for moment in trace.moments)
    assert asked_ns < marked < left_ns < last
    assert Sampler(Scripted()).gpus() is None, "a job without GPUs"


@pytest.mark.parametrize(("used", "peak"), [((None, 7, 3), 7), ((), None), ((0,), 0)])
def test_gpu_memory_peak_covers_answered_readings(used: tuple[int | None, ...], peak: int | None) -> None:
    reader = GpuSampler(ScriptedGpu(used), lambda: [42])
    for _ in range(4):
        reader._read_memory()
    assert reader.peak_bytes == peak


@pytest.mark.slow
def test_hung_gpu_driver_delays_no_other_reading() -> None:
    answer = threading.Event()
    gpu = ScriptedGpu(work=lambda: answer.wait(20))
    with Sampler(Scripted(itertools.repeat(1)), gpu) as running:
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


@pytest.mark.slow
@pytest.mark.parametrize(("work", "least_s"), [(sleep, 0.5), (burn, 15)])
def test_slowly_read_gpus_are_read_less_often(work: Callable[[], None], least_s: float) -> None:
    """Limit readings to 10 % of the time for waiting and 0.3 % of a CPU for work."""
    assert sampler_monitor._paced(work, 0.25) >= least_s
    assert sampler_monitor._paced(lambda: None, 3600) == 3600
