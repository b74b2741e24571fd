"""Peaks of what was sampled; the last reading counts, and what was not measured is None."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from harness import cgroup
from harness.launch.memory import CgroupSource, MemorySampler, MemoryTrace, ProcessSource
from harness.records import Memory, Phase
from tests.test_cgroup import RECORDED


class Scripted:
    """Gives one value after the other, then None as a cgroup that is gone."""

    name = "script"

    def __init__(self, anon: Iterable[int | None], peak: Iterable[int | None], kills: Iterable[int | None]) -> None:
        self._anon, self._peak, self._kills = iter(anon), iter(peak), iter(kills)
        self._throttled = [False, True, *[False] * 1000]

    def anon_bytes(self) -> int | None:
        return next(self._anon, None)

    def peak_bytes(self) -> int | None:
        return next(self._peak, None)

    def oom_kills(self) -> int | None:
        return next(self._kills, None)

    def throttled_periods(self) -> int | None:
        return 7 if self._throttled.pop(0) else None


class ScriptedGpu:
    def __init__(self, *used: int | None) -> None:
        self._used = iter(used)

    def used_bytes(self) -> int | None:
        return next(self._used, None)


def sampled(source: Scripted, gpu: ScriptedGpu | None = None, times: int = 4) -> MemorySampler:
    sampler = MemorySampler(source, gpu)  # type: ignore[arg-type]
    for _ in range(times):
        sampler._read()
    return sampler


def test_the_highest_reading_is_the_peak_and_the_last_known_counters_stay() -> None:
    sampler = sampled(Scripted([5, 50, 20], [60, 70, 70], [0, 0, 1]))
    summary = sampler.trace().summary()
    assert (summary.peak_anon_bytes, summary.peak_cgroup_bytes, summary.samples) == (50, 70, 3)
    assert sampler.oom_kills == 1 and sampler.throttled_periods == 7
    assert (summary.source, summary.sample_interval_s) == ("script", 0.02)


def test_what_was_never_read_is_none_and_never_0() -> None:
    sampler = sampled(Scripted([], [], []))
    assert sampler.trace().summary() == Memory(source="script", samples=0, sample_interval_s=0.02)
    assert sampler.oom_kills is None
    assert MemoryTrace().summary() == Memory()


def test_gpu_memory_peaks_over_what_was_answered() -> None:
    assert sampled(Scripted([1], [1], [0]), ScriptedGpu(None, 7, 3)).trace().peak_gpu_bytes == 7
    assert sampled(Scripted([1], [1], [0]), ScriptedGpu()).trace().peak_gpu_bytes is None
    assert sampled(Scripted([1], [1], [0])).trace().peak_gpu_bytes is None


def test_each_phase_has_its_own_peak() -> None:
    trace = MemoryTrace(anon=((10, 1), (20, 9), (30, 4), (40, 5)))
    phases = (Phase("load", 0, 25), Phase("warmup", 26, 29), Phase("trial-0", 30, 35), Phase("close", 36, 40))
    assert trace.summary(phases).peak_anon_by_phase_bytes == {"load": 9, "trial-0": 4, "close": 5}


def test_sampling_starts_at_once_and_reads_once_more_at_the_end() -> None:
    sampler = MemorySampler(Scripted([1, 2], [1, 1], [0, 0]), interval_s=3600)
    sampler.start()
    deadline = time.monotonic() + 10
    while not sampler.trace().anon and time.monotonic() < deadline:
        time.sleep(0.001)
    assert [value for _, value in sampler.trace().anon] == [1]
    sampler.stop()
    assert not sampler.is_alive()


def test_a_cgroup_is_a_source() -> None:
    group = cgroup.own(RECORDED / "cgroup-v2")
    assert group is not None
    source = CgroupSource(group)
    assert (source.name, source.anon_bytes(), source.oom_kills()) == ("cgroup v2", 54 << 20, 1)
    assert source.peak_bytes() == 121_634_816


def test_a_process_counts_with_its_children_and_a_dead_one_not_at_all() -> None:
    code = (
        "import subprocess, sys; held = bytearray(b'x' * (40 << 20))\n"
        "child = 'held = bytearray(b\"x\" * (40 << 20)); print(1, flush=True); input()'\n"
        "subprocess.run([sys.executable, '-c', child])"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        source = ProcessSource(parent.pid)
        both = source.anon_bytes()
        assert both is not None and 80 << 20 < both < 140 << 20
        assert source.peak_bytes() is None and source.oom_kills() is None
        parent.communicate(b"\n")
    assert source.anon_bytes() is None


def test_file_pages_do_not_count(tmp_path: Path) -> None:
    import mmap

    path = tmp_path / "mapped"
    path.write_bytes(b"x" * (64 << 20))
    source = ProcessSource(os.getpid())
    before = source.anon_bytes()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        touched = sum(mapped[place] for place in range(0, len(mapped), 4096))
        after = source.anon_bytes()
    assert touched and before is not None and after is not None and after - before < 16 << 20
