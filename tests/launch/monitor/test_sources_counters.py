"""Tests of kernel counters over the trials, from recorded trees."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from harness.driver import cgroup
from harness.driver.records import Phase
from harness.launch.monitor import sources
from harness.launch.monitor.sources import CgroupSource, ProcessSource, Totals, busy_and_steal_ns, waits_ns
from harness.launch.monitor.traces import CounterReading, CounterTrace
from harness.results.schema import Counters
from tests.support.recorded_cgroups import FOLDER, docker_says, unfold

S = 1_000_000_000
STAT = """cpu  4000 0 1000 9000 100 0 50 25 10 0
cpu0 1000 1 200 5000 40 0 10 5 10 0
cpu1 2000 2 300 4000 60 4 20 9 0 0
cpu10 1000 3 500 0 0 0 20 11 0 0
intr 1 2 3
"""
TICK_NS = S // os.sysconf("SC_CLK_TCK")


def reading(at_s: float, **totals: float) -> CounterReading:
    """A reading at a second, totals in seconds."""
    return CounterReading(int(at_s * S), **{f"{name}_ns": int(value * S) for name, value in totals.items()})


def trials(*edges_s: tuple[float, float]) -> tuple[Phase, ...]:
    named = [Phase(f"trial-{n}", int(start * S), int(end * S)) for n, (start, end) in enumerate(edges_s)]
    return (Phase("load", 0, 1), *named, Phase("close", 100 * S, 101 * S))


def test_each_trial_is_counted_between_its_nearest_readings() -> None:
    trace = CounterTrace(
        tuple(reading(t, cpu=t * 0.5, busy=t * 0.75, wait=t * 0.1, steal=0, throttled=0) for t in range(10))
    )
    found = trace.summary(trials((2.6, 4.1), (5.4, 8.2)))
    assert found == Counters(4.0, 2.0, 1.0, 0.0, pytest.approx(0.4), 0.0)
    assert trace.summary(trials((2.5, 4.5), (4.5, 6.0))).wall_s == 4.0, "nothing counts twice"


def test_canary_between_trials_is_not_foreign_cpu_time() -> None:
    # The job sleeps from 1 to 2 s, where the canary takes the whole CPU, and the thread reads in its midst.
    times = (0.0, 0.5, 1.01, 1.5, 2.0, 2.5, 3.0)
    trace = CounterTrace(tuple(reading(t, cpu=min(t, 1) + max(0, t - 2), busy=t) for t in times))
    found = trace.summary(trials((0, 1), (2.001, 3)))
    assert found.wall_s == pytest.approx(2.01)
    assert found.foreign_cpu_s is not None and found.foreign_cpu_s < 0.02


def test_short_trial_is_not_charged_for_page_faults_of_load() -> None:
    readings = ((0.75, 0), (1.0, 900), (1.03, 1000), (1.24, 1002), (1.5, 1500))
    trace = CounterTrace(tuple(replace(reading(t), major_faults=faults) for t, faults in readings))
    found = trace.summary(trials((1.02, 1.21)))
    assert (found.wall_s, found.major_faults) == (pytest.approx(0.21), 2)


def test_trials_between_two_readings_are_counted_with_their_surroundings() -> None:
    trace = CounterTrace((reading(0, throttled=0), reading(1, throttled=0.5), reading(9, throttled=1)))
    found = trace.summary(trials((0.6, 0.7), (0.8, 0.9)))
    assert (found.wall_s, found.throttled_s) == (1.0, 0.5)


@pytest.mark.parametrize(("start_s", "end_s", "wall_s"), [(-5, 3.5, 4), (7.5, 30, 2), (-5, 30, 9), (3, 4, 1)])
def test_outermost_reading_is_used_if_none_lies_outside_the_trial(start_s: float, end_s: float, wall_s: float) -> None:
    trace = CounterTrace(tuple(reading(t, cpu=t) for t in range(10)))
    assert trace.summary(trials((start_s, end_s))).wall_s == wall_s


@pytest.mark.parametrize(
    ("count", "phases"),
    [
        (0, trials((1, 2))),
        (1, trials((1, 2))),
        (9, ()),
        (9, trials()),
        (9, (Phase("trial-x", 0, S),)),
        (9, trials((20, 30))),
    ],
)
def test_counters_are_none_without_trials_or_readings(count: int, phases: tuple[Phase, ...]) -> None:
    assert CounterTrace(tuple(reading(t, cpu=t) for t in range(count))).summary(phases) == Counters()


def test_hidden_counters_are_none_and_the_others_count() -> None:
    trace = CounterTrace((reading(0, cpu=1), reading(5, cpu=4)))
    assert trace.summary(trials((0, 5))) == Counters(wall_s=5.0, cpu_s=3.0)


def test_foreign_cpu_time_is_never_negative() -> None:
    trace = CounterTrace((reading(0, cpu=0, busy=0), reading(5, cpu=4.003, busy=4.0)))
    assert trace.summary(trials((0, 5))).foreign_cpu_s == 0.0


def test_swap_is_a_maximum_and_faults_are_a_difference() -> None:
    readings = tuple(
        replace(reading(t), swap_bytes=swap, major_faults=10 + t) for t, swap in enumerate((999, 5, 70, 30, 888))
    )
    found = CounterTrace(readings).summary(trials((1, 3)))
    assert (found.swap_bytes, found.major_faults) == (70, 2)


@pytest.fixture(autouse=True)
def online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernel's list of the online CPUs of ``STAT``."""
    path = tmp_path / "online"
    path.write_text("0-1,10\n")
    monkeypatch.setattr(sources, "_ONLINE", path)
    return path


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``/proc`` with two threads and three CPUs."""
    folder = tmp_path / "proc"
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(folder))
    for thread, line in {"17": "5000 300 2\n", "18": "7000 40 1\n"}.items():
        (folder / thread).mkdir(parents=True)
        (folder / thread / "schedstat").write_text(line)
    (folder / "stat").write_text(STAT)
    return folder


def test_busy_and_steal_time_cover_the_jobs_cpus_only(proc: Path, online: Path) -> None:
    assert busy_and_steal_ns([1]) == ((2302 + 24) * TICK_NS, 9 * TICK_NS)
    both = busy_and_steal_ns([0, 10])
    assert both == ((1201 + 10 + 1503 + 20) * TICK_NS, 16 * TICK_NS), "guests' time is in user time already"
    assert busy_and_steal_ns([1, 2]) == (None, None), "an offline CPU"
    online.write_text("0-2,10\n")
    assert busy_and_steal_ns([1]) == (None, None), "the kernel's two lists differ"
    online.write_text("0-1,10\n")
    (proc / "stat").unlink()
    assert busy_and_steal_ns([1]) == (None, None)


def test_v1_counters_are_read_from_a_recorded_tree(tmp_path: Path, proc: Path) -> None:
    root = Path(shutil.copytree(FOLDER / "cgroup-v1", tmp_path / "v1"))
    (root / "cpuacct").mkdir()
    (root / "cpuacct" / "cpuacct.usage").write_text("6191704\n")
    (root / "cpu" / "cpu.stat").write_text("nr_periods 9\nnr_throttled 2\nthrottled_time 77\n")
    (root / "memory" / "tasks").write_text("17\n18\n")
    found = read(cgroup.own(root), proc)
    assert found == CounterReading(0, 6_191_704, 2326 * TICK_NS, 9 * TICK_NS, 340, 77, 0, 3, 2)


def test_v2_counters_are_read_from_a_recorded_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of a job's readings, with its threads as that host's ``/proc`` showed them."""
    seen = unfold(tmp_path / "v2", "systemd/swap/busy.host")
    (seen.proc / "stat").write_text(STAT)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(seen.proc))
    group = cgroup.of_process(seen.membership, seen.cgroups)
    found = read(group, seen.proc)
    times = [path.read_text().split() for path in seen.proc.glob("*/schedstat")]
    assert len(times) == 2 and found.wait_ns == sum(int(wait) for _, wait, _ in times)
    # What had ended before, the engine's own start in there among it, is in the cgroup's time alone.
    assert 2 * S < sum(int(run) for run, _, _ in times) < found.cpu_ns
    assert (found.busy_ns, found.steal_ns, found.throttled_ns) == (2326 * TICK_NS, 9 * TICK_NS, 0)
    assert found.swap_bytes == group.swap_bytes() != 0
    assert found.major_faults == docker_says("systemd/swap/busy")["memory_stats"]["stats"]["pgmajfault"] > 0


def read(group: cgroup.Cgroup | None, proc: Path) -> CounterReading:
    found = CgroupSource(group, (1,), proc).read()
    return replace(found, t_ns=0)


def test_removed_cgroup_has_no_reading(tmp_path: Path, proc: Path) -> None:
    gone = CgroupSource(cgroup.Cgroup(2, tmp_path, tmp_path, tmp_path), (1,), proc)
    assert gone.read() is None and gone.pids() is None and gone.now() is None


def test_cgroup_removed_during_a_read_has_no_reading(tmp_path: Path, proc: Path) -> None:
    files = {tmp_path / "cpu.stat": "usage_usec 5\n", tmp_path / "memory.stat": "anon 1\n"}

    def read(path: Path) -> str | None:
        return files.pop(path, None)  # each is there once

    assert CgroupSource(cgroup.Cgroup(2, tmp_path, tmp_path, tmp_path, read=read), (1,), proc).read() is None


def test_wait_time_of_an_ended_thread_is_kept_and_a_reused_id_starts_at_zero(proc: Path) -> None:
    waited = Totals()
    waited.update(waits_ns([17, 18], proc))
    assert waited.total == 340
    (proc / "17" / "schedstat").write_text("6000 350 3\n")
    for alive in ([17], [99]):
        waited.update(waits_ns(alive, proc))
    assert waited.total == 390
    (proc / "18" / "schedstat").write_text("20 1 1\n")
    waited.update(waits_ns([18], proc))
    assert waited.total == 391
    (proc / "18" / "schedstat").unlink()
    unknown = Totals()
    unknown.update(waits_ns([18], proc))
    assert unknown.total is None


@pytest.mark.slow
def test_process_tree_is_counted_with_a_thread_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_ONLINE", Path("/sys/devices/system/cpu/online"))
    code = (
        "import subprocess, sys, time\n"
        "spin = 'import threading, time\\ndef work():\\n    while time.thread_time() < 0.3: pass\\n"
        "worker = threading.Thread(target=work)\\nworker.start(); worker.join()\\nprint(1, flush=True); input()'\n"
        "subprocess.run([sys.executable, '-c', spin])"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        counters = ProcessSource(parent.pid, os.sched_getaffinity(0))
        parent.stdout.readline()
        found, pids = counters.read(), counters.pids()
        parent.communicate(b"\n")
    assert pids is not None and parent.pid in pids and len(pids) == 2
    assert found is not None and found.cpu_ns is not None and found.cpu_ns > 0.28 * S
    assert found.busy_ns is not None and found.wait_ns is not None and found.major_faults is not None
    assert found.throttled_ns is None, "a process has no quota of its own"
    assert counters.read() is None


@pytest.mark.parametrize("host_swaps", [False, True])
def test_swap_of_a_process_is_known(monkeypatch: pytest.MonkeyPatch, host_swaps: bool) -> None:
    used = psutil.swap_memory()._replace(used=int(host_swaps))
    monkeypatch.setattr(psutil, "swap_memory", lambda: used)
    found = ProcessSource(os.getpid(), os.sched_getaffinity(0)).read()
    own = psutil.Process().memory_full_info().swap if host_swaps else 0
    assert found is not None and found.swap_bytes is not None and found.swap_bytes >= own
