"""The canary does fixed work on the job's CPUs and leaves nothing."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import pytest

from harness.launch.cpu_placement import place
from harness.launch.monitor import canary
from harness.launch.monitor.canary import Canary, cpu_pressure, lowest_mhz


def test_canary_reports_its_work_time_and_leaves_nothing(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    looking = Canary()
    placement = place(1)
    looking.prepare(placement)
    affinity = os.sched_getaffinity(0)
    start_ns = time.perf_counter_ns()
    first, second = (looking.read(when, placement, tmp_path) for when in ("before", "after"))
    assert start_ns <= first.t_ns < second.t_ns < time.perf_counter_ns()
    assert (first.when, second.when) == ("before", "after")
    for reading in (first, second):
        assert 0 < reading.cpu_s < reading.took_s and 0 < reading.memory_s < reading.took_s
        assert reading.disk_s is not None and 0 < reading.disk_s < reading.took_s
        assert reading.load_1m is not None
    assert list(tmp_path.iterdir()) == []
    assert os.sched_getaffinity(0) == affinity
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.slow
def test_slowest_cpu_of_the_job_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    seen: list[int] = []

    def work() -> None:
        (cpu,) = os.sched_getaffinity(0)  # pinned
        seen.append(cpu)
        time.sleep(0.2 if cpu == cpus[0] else 0.0)

    monkeypatch.setattr(canary, "_work", work)
    reading = Canary().read("before", place(len(cpus)), None)
    assert reading.cpu_s >= 0.2
    assert set(seen) == set(cpus)
    assert reading.disk_s is None


@pytest.mark.parametrize("where", ["missing", "a link", "taken"])
def test_unwritable_disk_is_none_and_not_0(tmp_path: Path, where: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    folder = tmp_path / "folder"
    if where != "missing":
        folder.mkdir()
    if where == "a link":
        (folder / ".canary").symlink_to(victim)
    if where == "taken":
        (folder / ".canary").mkdir()
    assert Canary().read("before", place(1), folder).disk_s is None
    assert victim.read_text() == "untouched"


def test_a_slow_machine_gets_fewer_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "_ENOUGH_S", {"cpu": 0.05})
    repeats: list[None] = []
    clock = itertools.count(0, 50_000_000)
    monkeypatch.setattr(canary.time, "perf_counter_ns", lambda: next(clock))
    assert canary._timed("cpu", lambda: repeats.append(None)) == 0.05
    assert len(repeats) == 2


def test_lowest_clock_is_reported_if_all_clocks_are_known(tmp_path: Path) -> None:
    for cpu, khz in {0: "3600000\n", 1: "1200000\n", 2: "nonsense"}.items():
        (tmp_path / f"cpu{cpu}" / "cpufreq").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}" / "cpufreq" / "scaling_cur_freq").write_text(khz)
    assert lowest_mhz((0, 1), tmp_path) == 1200.0
    assert lowest_mhz((0,), tmp_path) == 3600.0
    assert lowest_mhz((0, 2), tmp_path) is None
    assert lowest_mhz((0, 3), tmp_path) is None


def test_pressure_is_a_share(tmp_path: Path) -> None:
    path = tmp_path / "cpu"
    assert cpu_pressure(path) is None, "a kernel without PSI"
    path.write_text("full avg10=9.00 avg60=0 avg300=0 total=1\nsome avg10=12.50 avg60=0.76 avg300=0.29 total=9463101\n")
    assert cpu_pressure(path) == 0.125
    path.write_text("")
    assert cpu_pressure(path) is None
