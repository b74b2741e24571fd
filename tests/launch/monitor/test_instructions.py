"""Events of a job by perf_event_open; where a machine shows no CPU counters, the kernel's own clock is counted."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from harness.driver.records import Phase
from harness.launch.monitor import instructions
from harness.launch.monitor.instructions import CountedEvents, EventCounter
from harness.launch.monitor.sampler import Sampler
from harness.launch.monitor.sources import ProcessSource
from harness.launch.monitor.traces import CounterReading, CounterTrace

# Nanoseconds that a thread ran, which the kernel counts on every machine.
TASK_CLOCK = (1, 1)
# It waits for a line, then works in a thread and in a process of its own, and says for how long.
WORK = """
import resource, subprocess, sys, threading, time
def work():
    while time.thread_time() < 0.2: pass
print("ready", flush=True)
sys.stdin.readline()
thread = threading.Thread(target=work)
thread.start()
subprocess.run([sys.executable, "-Sc", "import time\\nwhile time.process_time() < 0.2: pass"])
thread.join()
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(sum(each.ru_utime + each.ru_stime for each in used), flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
def test_threads_and_processes_that_a_job_starts_later_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "_INSTRUCTIONS", TASK_CLOCK)
    if instructions.reason_not_counted() is not None:
        pytest.skip("this kernel counts no events")
    job = subprocess.Popen([sys.executable, "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert job.stdin and job.stdout
    with job, instructions.following() as counter:
        assert counter is not None and counter.read() is None
        assert job.stdout.readline() == "ready\n"
        sampler = Sampler(ProcessSource(job.pid, ()), instructions=counter)
        sampler.mark()
        job.stdin.write("go\n")
        job.stdin.flush()
        float(job.stdout.readline())
        sampler.mark()
        first, last = sampler.counters().readings
        job.stdin.write("end\n")
    assert first.instructions and last.instructions and first.cpu_ns is not None and last.cpu_ns is not None
    used_ns = last.cpu_ns - first.cpu_ns
    # psutil may miss the end of the child's life; the kernel's events do not.
    assert last.instructions.events - first.instructions.events >= 0.4e9
    assert last.instructions.followed_ns - first.instructions.followed_ns >= 0.98 * used_ns
    assert counter.read() is None, "closed"


def reading(t_s: float, cpu_ns: int, *counted: int) -> CounterReading:
    return CounterReading(round(t_s * 1e9), cpu_ns, instructions=CountedEvents(*counted) if counted else None)


@pytest.mark.parametrize(
    ("followed_ns", "counted_ns", "expected"),
    [
        (500_000_000, 500_000_000, 7_000),
        (480_000_000, 480_000_000, 7_000),  # a tick may be missing
        (479_000_000, 479_000_000, None),  # threads that are not followed
        (500_000_000, 499_000_000, None),  # counters that were shared
    ],
)
def test_instructions_of_a_trial_are_known_if_all_its_cpu_time_was_counted(
    followed_ns: int, counted_ns: int, expected: int | None
) -> None:
    trial = Phase("trial-0", 2_000_000_000, 3_000_000_000)
    before, after = reading(1.99, 0, 1_000, 0, 0), reading(3.01, 500_000_000, 8_000, followed_ns, counted_ns)
    (found,) = CounterTrace((before, after)).by_trial((trial,))
    assert (found.cpu_s, found.instructions) == (0.5, expected)
    (found,) = CounterTrace((before, reading(3.01, 500_000_000))).by_trial((trial,))
    assert (found.cpu_s, found.instructions) == (0.5, None)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOENT, "does not show the counters"),
        (errno.EACCES, "set it to 2 or less"),
        (errno.ENOSYS, "no perf_event_open"),
        (errno.EMFILE, "Too many open files"),
    ],
)
def test_a_host_that_does_not_count_says_why(monkeypatch: pytest.MonkeyPatch, code: int, reason: str) -> None:
    def refuse(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(instructions, "_open", refuse)
    assert reason in str(instructions.reason_not_counted())
    with instructions.following() as counter:
        assert counter is None


def test_a_thread_that_has_ended_is_left_out() -> None:
    counter = EventCounter()
    ended = subprocess.Popen(["true"])
    ended.wait()
    counter.follow([ended.pid])
    assert counter.read() is None
    counter.close()


def test_another_architecture_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert instructions.reason_not_counted() == "the kernel has no perf_event_open"
