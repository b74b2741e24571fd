"""CPU time of just-in-time compiler threads, read from a fake /proc and from this process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.driver.procfs import CompilerClock


def write_thread(proc: Path, process: str, thread: str, name: str, ran_ns: int | None, children: str = "") -> None:
    folder = proc / process / "task" / thread
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "children").write_text(children)
    if ran_ns is not None:
        (folder / "schedstat").write_text(f"{ran_ns} 17 3\n")


@pytest.fixture
def own() -> str:
    """Return the number of this process."""
    return str(os.getpid())


def test_compiler_threads_are_found_by_name(tmp_path: Path, own: str) -> None:
    clock = CompilerClock(tmp_path)
    write_thread(tmp_path, own, "1", "python3", 5_000)
    write_thread(tmp_path, own, "2", "GC Thread#0", 7_000)
    assert clock() == 0 and not clock.seen
    write_thread(tmp_path, own, "3", "C1 CompilerThre", 100)
    write_thread(tmp_path, own, "4", "C2 CompilerThre", 20)
    assert clock() == 120 and clock.seen
    write_thread(tmp_path, own, "4", "C2 CompilerThre", 60)
    assert clock() == 160


def test_ended_compiler_thread_counts_and_its_id_may_recur(tmp_path: Path, own: str) -> None:
    clock = CompilerClock(tmp_path)
    write_thread(tmp_path, own, "3", "C2 CompilerThre", 100)
    assert clock() == 100
    (tmp_path / own / "task" / "3" / "schedstat").unlink()
    assert clock() == 100
    write_thread(tmp_path, own, "3", "C2 CompilerThre", 30)
    assert clock() == 130


def test_compilers_of_child_processes_count(tmp_path: Path, own: str) -> None:
    write_thread(tmp_path, own, "1", "python3", 5, children="7000 ")
    write_thread(tmp_path, "7000", "7000", "sh", 5, children="7001 ")
    write_thread(tmp_path, "7001", "7002", ".NET Tiered Com", 40)
    assert CompilerClock(tmp_path)() == 40


def test_no_compilers_without_proc(tmp_path: Path) -> None:
    clock = CompilerClock(tmp_path / "nowhere")
    assert clock() == 0 and not clock.seen


def test_compiler_of_a_real_child_is_found() -> None:
    named = "import ctypes; ctypes.CDLL(None).prctl(15, b'C1 CompilerThread0', 0, 0, 0); print(flush=True)"
    code = f"{named}\nwhile 1: pass"
    clock = CompilerClock()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        try:
            while clock() < 20_000_000:
                time.sleep(0.005)
        finally:
            child.kill()
    assert clock.seen
