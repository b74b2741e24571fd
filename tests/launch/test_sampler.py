"""The sampler reads memory often, counters less often, and keeps the last values."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from harness.launch.monitor import sampler as module
from harness.launch.monitor.sampler import Sampler
from harness.launch.monitor.traces import CounterReading, MemoryNow
from harness.results.schema import Memory


class ScriptedMemory:
    """Returns the given values in turn, then None like a removed cgroup."""

    name = "script"

    def __init__(
        self,
        anon: Iterable[int | None] = (),
        peak: Iterable[int | None] = (),
        kills: Iterable[int | None] = (),
        throttled: Iterable[int | None] = (),
    ) -> None:
        self._anon, self._peak, self._kills, self._throttled = iter(anon), iter(peak), iter(kills), iter(throttled)

    def now(self) -> MemoryNow | None:
        anon = next(self._anon, None)
        return None if anon is None else MemoryNow(anon, 1000 - anon)

    def peak_bytes(self) -> int | None:
        return next(self._peak, None)

    def oom_kills(self) -> int | None:
        return next(self._kills, None)

    def throttled_periods(self) -> int | None:
        return next(self._throttled, None)


class ScriptedCounters:
    def __init__(self, times: int = 10**6, work: Callable[[], object] = lambda: None) -> None:
        self.read_times, self._left, self._work = 0, times, work

    def read(self) -> CounterReading | None:
        self._work()
        self.read_times += 1
        return CounterReading(time.perf_counter_ns(), cpu_ns=self.read_times) if self.read_times <= self._left else None

    def pids(self) -> list[int]:
        return [42]


def sampled(memory: ScriptedMemory, times: int = 4) -> Sampler:
    sampler = Sampler(memory, ScriptedCounters())
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
    sampler = sampled(ScriptedMemory([5, 50, 20], [60, 70, 70], [0, 0, 1], [3, 7]))
    summary = sampler.memory().summary()
    assert (summary.peak_anon_bytes, summary.peak_mapped_bytes, summary.peak_cgroup_bytes) == (50, 995, 70)
    assert (sampler.oom_kills, sampler.throttled_periods, summary.samples) == (1, 7, 3)
    assert (summary.source, summary.sample_interval_s) == ("script", module.INTERVAL_S)


def test_missing_readings_are_none_and_not_0() -> None:
    sampler = sampled(ScriptedMemory())
    assert sampler.memory().summary() == Memory(source="script", samples=0, sample_interval_s=module.INTERVAL_S)
    assert sampler.oom_kills is None and sampler.throttled_periods is None


def test_fast_growing_memory_is_read_again_at_once() -> None:
    sampler = Sampler(ScriptedMemory([0, 500 << 20, 500 << 20]), ScriptedCounters())
    assert not sampler._read_memory(), "one reading shows no growth"
    assert sampler._read_memory()
    time.sleep(0.001)
    assert not sampler._read_memory()


def test_sampler_reads_at_its_start_and_at_its_end() -> None:
    counters = ScriptedCounters()
    sampler = Sampler(ScriptedMemory([1, 2]), counters, interval_s=3600)
    sampler.start()
    until(lambda: counters.read_times == 1)
    assert [value for _, value in sampler.memory().anon] == [1]
    sampler.stop()
    assert not sampler.is_alive()
    assert [value for _, value in sampler.memory().anon] == [1, 2]
    assert counters.read_times == 2


def test_a_mark_reads_the_counters_out_of_turn() -> None:
    counters = ScriptedCounters()
    sampler = Sampler(ScriptedMemory(), counters, interval_s=3600)
    sampler.start()
    until(lambda: counters.read_times == 1)
    asked_ns = time.perf_counter_ns()
    sampler.mark()
    assert sampler.counters().readings[-1].t_ns > asked_ns, "read before mark() returned"
    sampler.stop()
    assert len(sampler.counters().readings) == 3


def test_mark_and_thread_never_read_concurrently() -> None:
    inside: list[None] = []

    def work() -> None:
        inside.append(None)
        time.sleep(0.001)
        at_once.append(len(inside))
        inside.pop()

    at_once: list[int] = []
    sampler = Sampler(ScriptedMemory(), ScriptedCounters(work=work), interval_s=0.0)
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


def test_missing_readings_are_not_kept() -> None:
    sampler = Sampler(ScriptedMemory(), ScriptedCounters(times=2))
    for _ in range(5):
        sampler._read_counters()
    assert [reading.cpu_ns for reading in sampler.counters().readings] == [1, 2]


def test_costly_counters_are_read_less_often() -> None:
    def work() -> None:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    cheap, dear = Sampler(ScriptedMemory(), ScriptedCounters()), Sampler(ScriptedMemory(), ScriptedCounters(work=work))
    cheap._read_counters()
    dear._read_counters()
    # 20 ms of CPU at 0.3 % of one: not again for more than 6 s.
    assert dear._next_counters - time.monotonic() > 5
    assert cheap._next_counters - time.monotonic() < 5
