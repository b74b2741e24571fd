"""The gate of a job: it starts the job when told, keeps the job's cgroup, and never outlives its harness."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from harness.launch.gate import Gate, GateClosed
from tests.integration.proxy import wait_until

CPU = min(os.sched_getaffinity(0))
ENVIRONMENT = {"PATH": os.environ["PATH"]}


@contextmanager
def gated(holder: list[str], script: str, **options: int) -> Iterator[Gate]:
    with (
        TemporaryDirectory() as folder,
        Gate(Path(folder), holder, ["sh", "-c", script], ENVIRONMENT, **options) as gate,
    ):
        yield gate


def shell(script: str, **options: int) -> AbstractContextManager[Gate]:
    return gated([], script, **options)


@pytest.mark.slow
def test_job_starts_when_told_on_its_cpus_and_its_end_is_known(tmp_path: Path) -> None:
    with shell(f"touch {tmp_path}/ran; grep Cpus_allowed_list /proc/self/status; echo oops >&2; exit 3") as gate:
        assert gate.cpus == os.sched_getaffinity(0) and psutil.pid_exists(gate.pid)
        time.sleep(0.1)
        assert not (tmp_path / "ran").exists() and not gate.ended.is_set()
        gate.open([CPU])
        assert gate.result() == 3
        assert psutil.pid_exists(gate.pid), "the cgroup stays until its counters are read"
    assert not psutil.pid_exists(gate.pid)
    assert gate.log() == f"Cpus_allowed_list:\t{CPU}\noops\n".encode()


@pytest.mark.slow
def test_kill_ends_all_processes_of_the_job_and_not_the_gate(tmp_path: Path) -> None:
    with shell(f"sleep 60 & echo $! > {tmp_path}/child; echo ready; wait") as gate:
        gate.open([CPU])
        wait_until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().strip(), "it")
        child = int((tmp_path / "child").read_text())
        gate.kill()
        assert gate.result() == 128 + signal.SIGKILL and psutil.pid_exists(gate.pid)
    wait_until(lambda: not psutil.pid_exists(child), "it")


@pytest.mark.slow
def test_job_that_still_runs_ends_with_its_block(tmp_path: Path) -> None:
    with shell(f"echo $$ > {tmp_path}/job; sleep 60") as gate:
        gate.open([CPU])
        wait_until(lambda: (tmp_path / "job").exists() and (tmp_path / "job").read_text().strip(), "it")
        job = int((tmp_path / "job").read_text())
    wait_until(lambda: not psutil.pid_exists(job), "it")


@pytest.mark.slow
def test_job_ends_with_a_killed_harness(tmp_path: Path) -> None:
    code = (
        "from harness.launch.gate import Gate\nimport os, pathlib\n"
        f"job = ['sh', '-c', 'echo $$ > {tmp_path}/job; sleep 60']\n"
        f"with Gate(pathlib.Path('{tmp_path}'), [], job, dict(os.environ)) as gate:\n"
        f"    gate.open([{CPU}])\n    gate.result()\n"
    )
    paths = os.pathsep.join(sys.path)
    harness = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths})
    wait_until(lambda: (tmp_path / "job").exists() and (tmp_path / "job").read_text().strip(), "it")
    job = int((tmp_path / "job").read_text())
    harness.kill()
    harness.wait()
    wait_until(lambda: not psutil.pid_exists(job), "it")


def test_end_of_a_long_log_is_kept_and_a_full_log_stops_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.launch.gate.LOG_BYTES", 1 << 20)
    with shell("head -c 3000000 /dev/zero; echo; echo last") as gate:
        gate.open([CPU])
        assert gate.result() == 0
        log = gate.log()
    assert log.endswith(b"\nlast\n") and 1 << 19 < len(log) <= 1 << 20


def test_files_of_the_job_are_bounded(tmp_path: Path) -> None:
    with shell(f"head -c 100000 /dev/zero > {tmp_path}/large; echo $?", most_bytes=10_000) as gate:
        gate.open([CPU])
        assert gate.result() == 0
    assert (tmp_path / "large").stat().st_size == 10_240, "whole blocks of ulimit"
    assert gate.log().split()[-1] != b"0"


@pytest.mark.slow
def test_kill_at_once_is_not_missed() -> None:
    for _ in range(8):
        with shell("sleep 60") as gate:
            gate.open([CPU])
            gate.kill()
            assert gate.result() == 128 + signal.SIGKILL


def test_words_of_a_sites_prologue_are_skipped() -> None:
    prologue = ["sh", "-c", 'echo "print welcome"; echo; exec "$@"', "prologue"]
    with gated(prologue, "exit 4") as gate:
        gate.open([CPU])
        assert gate.result() == 4


def test_holder_that_refuses_is_quoted() -> None:
    refuses = ["sh", "-c", "echo 'srun: error: no memory' >&2; exit 1"]
    with pytest.raises(GateClosed, match="srun: error: no memory"), gated(refuses, "true"):
        pass


def test_gate_that_is_lost_has_no_code() -> None:
    """A scheduler may kill the whole step when one process is out of memory."""
    with shell("sleep 60") as gate:
        gate.open([CPU])
        os.kill(gate.pid, signal.SIGKILL)
        assert gate.result() is None
