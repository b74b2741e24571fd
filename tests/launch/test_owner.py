"""The living are known from the dead, and from those who came after them under the same number."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.launch import owner


def test_this_process_lives() -> None:
    assert owner.alive(owner.me())
    assert owner.me() == owner.me()


def named(pid: int) -> str:
    boot_id, _, _ = owner.me().split(":")
    started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{boot_id}:{pid}:{started}"


def test_a_process_lives_until_it_ends() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    name = named(child.pid)
    assert owner.alive(name)
    child.kill()
    deadline = time.monotonic() + 10
    while owner.alive(name) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not owner.alive(name), "a zombie is dead"
    child.wait()
    assert not owner.alive(name)


def test_a_later_process_of_the_same_number_is_another() -> None:
    boot_id, pid, started = owner.me().split(":")
    assert not owner.alive(f"{boot_id}:{pid}:{int(started) - 1}")
    assert not owner.alive(f"another-boot:{pid}:{started}")


@pytest.mark.parametrize("name", ["", "x", ":::", "a:b:c", f"{owner.me().split(':')[0]}:{os.getpid()}"])
def test_a_name_that_makes_no_sense_is_nobodys(name: str) -> None:
    assert not owner.alive(name)


def test_brackets_and_blanks_in_a_command_do_not_confuse(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = ["S", *map(str, range(1, 50))]
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"7 (a) b (c) {' '.join(fields)}")
    assert owner._start_time(7) == "19"
