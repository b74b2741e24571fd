"""Memory peaks, total and per phase; mapped file pages are separate; missing values are None."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.driver import cgroup
from harness.driver.records import Phase
from harness.launch.monitor.sources import CgroupSource, ProcessSource, ProcessTree
from harness.launch.monitor.traces import MemoryNow, MemoryTrace
from tests.support.recorded_cgroups import unfold


def test_each_phase_has_its_own_peak() -> None:
    trace = MemoryTrace(anon=((10, 1), (20, 9), (30, 4), (40, 5)))
    phases = (Phase("load", 0, 25), Phase("warmup", 26, 29), Phase("trial-0", 30, 35), Phase("close", 36, 40))
    assert trace.summary(phases).peak_anon_by_phase_bytes == {"load": 9, "trial-0": 4, "close": 5}


def test_cgroup_is_a_memory_source(tmp_path: Path) -> None:
    group = cgroup.own(unfold(tmp_path, "systemd/limited/killed.inside").cgroups)
    stat = group.memory_stat() if group else None
    source = CgroupSource(group, ())
    assert source.name == "cgroup v2" and stat.anon_bytes > 0
    assert source.now() == MemoryNow(stat.anon_bytes, stat.mapped_bytes, 256 << 20, 1)
    assert source.read().throttled_periods == 0


@pytest.mark.slow
def test_process_is_counted_with_children_and_a_dead_one_is_not() -> None:
    code = (
        "import subprocess, sys; held = bytearray(b'x' * (40 << 20))\n"
        "child = 'held = bytearray(b\"x\" * (40 << 20)); print(1, flush=True); input()'\n"
        "subprocess.run([sys.executable, '-c', child])"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        parent.stdout.readline()
        source = ProcessSource(parent.pid, ())
        both = source.now()
        assert both is not None and 80 << 20 < both.anon_bytes < 140 << 20
        assert both.peak_bytes is None and both.oom_kills is None and source.read().throttled_periods is None
        parent.communicate(b"\n")
    assert source.now() is None


def test_mapped_file_pages_are_counted_separately() -> None:
    source = ProcessSource(os.getpid(), ())
    # Not in pytest's folder, which may lie in memory: pages of such files are no file's.
    with tempfile.TemporaryFile(dir="/var/tmp") as file:
        for _ in range(64):
            file.write(b"x" * (1 << 20))
        file.flush()
        before = source.now()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            touched = sum(mapped[place] for place in range(0, len(mapped), 4096))
            after = source.now()
    assert touched and before is not None and after is not None
    assert after.anon_bytes - before.anon_bytes < 16 << 20
    assert 60 << 20 < (after.mapped_bytes or 0) - (before.mapped_bytes or 0) < 68 << 20


@pytest.mark.slow
def test_shared_memory_is_no_file() -> None:
    grown = []
    for _ in range(5):  # what other tests put into shared memory meanwhile is counted as well
        source = ProcessSource(os.getpid(), ())
        before = source.now()
        with mmap.mmap(-1, 64 << 20) as shared:
            shared.write(b"x" * (64 << 20))
            grown.append(source.now().anon_bytes - before.anon_bytes)
        if 60 << 20 < grown[-1] < 80 << 20:
            return
    pytest.fail(f"64 MiB of shared memory counted as {grown} bytes")


def test_process_whose_parent_has_ended_still_belongs_to_the_job() -> None:
    code = "sh -c 'sleep 60 & echo $$ $!; wait' & wait"
    with subprocess.Popen(["sh", "-c", code], stdout=subprocess.PIPE) as job:
        parent, orphan = map(int, job.stdout.readline().split())
        tree = ProcessTree(job.pid)
        assert tree.pids() == sorted([job.pid, parent, orphan])
        os.kill(parent, signal.SIGKILL)
        job.wait()
        assert tree.pids() == [orphan] and orphan not in ProcessTree(job.pid).pids()
        os.kill(orphan, signal.SIGKILL)
