"""The living are known from the dead, and from those who came after them under the same number."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import filesystem


def test_this_process_is_not_dead() -> None:
    assert not filesystem.dead(filesystem.me())
    assert filesystem.me() == filesystem.me()


def named(**other: object) -> str:
    """This process's name with other fields."""
    fields = dict(zip(("host", "boot_id", "namespace", "pid", "started"), filesystem.me().split("_"), strict=True))
    return "_".join(str(field) for field in (fields | other).values())


def test_a_process_lives_until_it_ends() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
    name = named(pid=child.pid, started=started)
    assert not filesystem.dead(name)
    child.kill()
    deadline = time.monotonic() + 10
    while not filesystem.dead(name) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert filesystem.dead(name), "a zombie is dead"
    child.wait()
    assert filesystem.dead(name)


def test_a_later_process_of_the_same_number_is_another() -> None:
    assert filesystem.dead(named(started=1))
    assert filesystem.dead(named(boot_id="another-boot")), "the host has been started anew"


def test_who_cannot_be_seen_from_here_is_not_called_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not filesystem.dead(named(host="elsewhere", pid=4194303))
    assert not filesystem.dead(named(namespace=1, pid=4194303)), (
        "a container with the host's network has the host's name"
    )
    assert filesystem.dead(named(boot_id="another-boot", namespace=1)), "no container outlives its host"
    assert filesystem.dead(named(pid=4194303))
    monkeypatch.setattr(os, "getpid", lambda: 4194302)  # as after an `unshare --pid` alone
    assert not filesystem.dead(named(pid=4194303)), "/proc numbers the processes of another namespace"


def test_a_process_in_another_pid_namespace_has_another_name() -> None:
    say = [sys.executable, "-c", "from harness.filesystem import me; print(me())"]
    unshared = ["unshare", "--pid", "--fork", "--mount-proc", *say]
    done = subprocess.run(unshared, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this user may not unshare")
    mine, other = filesystem.me().split("_"), done.stdout.strip().split("_")
    assert other[:2] == mine[:2] and other[2] != mine[2] and other[3] == "1"
    assert not filesystem.dead(done.stdout.strip()), "its end cannot be seen from here"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x",
        "____",
        "a_b_c_d_e",
        pytest.param("_".join(filesystem.me().split("_")[:4]), id="part of ours"),
        pytest.param(named(pid="x"), id="a pid of letters"),
    ],
)
def test_a_name_that_makes_no_sense_is_nobodys(name: str) -> None:
    assert not filesystem.dead(name)


def test_a_name_may_stand_in_a_file_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "a_b.example/ä")
    assert filesystem.me().startswith("a-b-example--_")
    assert not filesystem.dead(filesystem.me()) and filesystem.dead(named(started=1))


def test_brackets_and_blanks_in_a_command_do_not_confuse(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = ["S", *map(str, range(1, 50))]
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"7 (a) b (c) {' '.join(fields)}")
    assert filesystem._start_time("7") == "19"
