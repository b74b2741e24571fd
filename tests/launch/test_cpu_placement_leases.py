"""Runs on a shared host give their jobs separate CPUs and free those of dead runs."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.launch import cpu_placement
from harness.launch.cpu_placement import placed

_HOLD = """
from harness.launch import cpu_placement
with cpu_placement.placed(1) as placement:
    print(*placement.cpus, flush=True)
    input()
"""


@pytest.fixture
def four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shared host of four CPUs."""
    monkeypatch.setenv(cpu_placement.VARIABLE, str(tmp_path / "cpus"))
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0, 1, 2, 3})
    monkeypatch.setattr(cpu_placement, "_WAIT_S", 0.01)
    return tmp_path / "cpus"


def test_jobs_on_a_host_have_separate_cpus(four: Path) -> None:
    with placed(1) as first, placed(2) as second:
        assert len(first.cpus) == 1
        assert len(second.cpus) == 2
        assert not set(first.cpus) & set(second.cpus)
        assert not set(first.cpus) & set(second.harness_cpus), "the harness keeps off the other's CPU, too"


def test_job_waits_until_enough_cpus_are_free(four: Path) -> None:
    begun = threading.Event()

    def second() -> None:
        with placed(2):
            begun.set()

    waiting = threading.Thread(target=second)
    with placed(3):
        waiting.start()
        assert not begun.wait(0.2), "one CPU is not enough for two"
        with placed(1) as one:
            assert len(one.cpus) == 1, "who waits holds nothing"
    waiting.join(10)
    assert begun.is_set()


def test_job_does_not_wait_for_more_cpus_than_exist(four: Path) -> None:
    with placed(9) as placement:
        assert set(placement.cpus) == {0, 1, 2, 3}


def test_failed_job_frees_its_cpus(four: Path) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError), placed(4):
            raise RuntimeError
    with placed(4) as placement:
        assert set(placement.cpus) == {0, 1, 2, 3}


def test_a_killed_harness_frees_its_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cpu_placement.VARIABLE, str(tmp_path / "cpus"))
    monkeypatch.setattr(cpu_placement, "_WAIT_S", 0.01)
    expected = cpu_placement.place(1).cpus
    with subprocess.Popen([sys.executable, "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert tuple(map(int, other.stdout.readline().split())) == expected
        with placed(1) as mine:
            assert mine.cpus != expected
        other.kill()
    with placed(1) as mine:
        assert mine.cpus == expected


def test_harness_alone_on_the_host_locks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cpu_placement.VARIABLE, raising=False)
    with placed(1) as first, placed(1) as second:
        assert first == second == cpu_placement.place(1)
