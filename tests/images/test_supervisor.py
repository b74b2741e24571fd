"""Several commands in one container: signals go on, the first end ends all, orphans are reaped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.launch.images import catalog

pytestmark = pytest.mark.slow

# Says that it runs, and ends in order at SIGTERM.
_ORDERLY = "trap 'echo {name} ends; exit {code}' TERM; echo {name} runs; while :; do sleep 0.01; done"
RUN = "raise SystemExit(supervisor.run({!r}, {}))"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started = []

    def run(*scripts: str, grace_s: float = 10.0) -> subprocess.Popen[str]:
        commands = [["sh", "-c", script] for script in scripts]
        # As the first process of a container, it becomes the parent of orphans (PR_SET_CHILD_SUBREAPER).
        lines = f"import ctypes, supervisor; ctypes.CDLL(None).prctl(36, 1); {RUN.format(commands, grace_s)}"
        child = subprocess.Popen(
            [sys.executable, "-c", lines],
            env={**os.environ, "PYTHONPATH": str(catalog.images_dir() / "shared")},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(child)
        return child

    yield run
    for child in started:
        child.kill()
        child.communicate()


def _orderly(name: str, code: int = 0) -> str:
    return _ORDERLY.format(name=name, code=code)


def _lines(child: subprocess.Popen[str], count: int) -> list[str]:
    assert child.stdout is not None
    return sorted(child.stdout.readline().strip() for _ in range(count))


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_goes_on_to_all_and_their_good_end_is_its_own(start: Start, asked: signal.Signals) -> None:
    child = start(_orderly("one").replace("TERM", "TERM INT"), _orderly("two").replace("TERM", "TERM INT"))
    assert _lines(child, 2) == ["one runs", "two runs"]
    child.send_signal(asked)
    assert _lines(child, 2) == ["one ends", "two ends"] and child.wait(10) == 0


def test_a_server_without_a_handler_ends_by_the_signal(start: Start) -> None:
    child = start("echo one runs; exec sleep 60")
    assert _lines(child, 1) == ["one runs"]
    child.terminate()
    assert child.wait(10) == 128 + signal.SIGTERM


def test_one_that_fails_when_asked_to_end_is_not_hidden_by_the_others(start: Start) -> None:
    child = start(_orderly("one"), _orderly("two", 5))
    assert _lines(child, 2) == ["one runs", "two runs"]
    child.terminate()
    assert _lines(child, 2) == ["one ends", "two ends"] and child.wait(10) == 5


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("exit 0", 0), ("kill -9 $$", 137)])
def test_the_first_end_ends_the_others_and_gives_the_code(start: Start, script: str, code: int, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    child = start(
        _orderly("one", 7).replace("while", f"touch {ready}; while"), f"until [ -e {ready} ]; do :; done; {script}"
    )
    assert child.wait(10) == code and _lines(child, 2) == ["one ends", "one runs"]


def test_a_command_that_does_not_exist_ends_all(start: Start) -> None:
    child = start("exec /nowhere 2> /dev/null", "exec sleep 60")
    assert child.wait(10) == 127


def test_who_does_not_end_in_time_is_killed(start: Start) -> None:
    child = start("trap '' TERM; echo one runs; while :; do sleep 0.01; done", grace_s=0.1)
    assert _lines(child, 1) == ["one runs"]
    child.terminate()
    assert child.wait(10) == 137


def test_orphans_are_reaped_and_end_nothing(start: Start) -> None:
    child = start(_orderly("one"), "(sleep 0.01 &); echo two runs; exec sleep 60")
    assert _lines(child, 2) == ["one runs", "two runs"]
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
    deadline = time.monotonic() + 10
    while len(children.read_text().split()) > 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert child.poll() is None
    child.terminate()
    assert _lines(child, 1) == ["one ends"] and child.wait(10) in (0, 143)


def test_the_command_of_a_supervisor_is_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = str(catalog.images_dir() / "shared")
    monkeypatch.syspath_prepend(shared)
    import supervisor

    words = supervisor.command([["sh", "-c", "exit 4"], ["sleep", "60"]])
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": shared}, timeout=10, check=False)
    assert done.returncode == 4


def test_a_command_may_end_by_a_signal_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = str(catalog.images_dir() / "shared")
    monkeypatch.syspath_prepend(shared)
    import supervisor

    scripts = [_orderly("one").replace(" TERM;", " INT;").replace("trap", "trap '' TERM; trap"), _orderly("two")]
    words = supervisor.command([["sh", "-c", script] for script in scripts], {0: "SIGINT"})
    env = {**os.environ, "PYTHONPATH": shared}
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as child:
        assert _lines(child, 2) == ["one runs", "two runs"]
        child.terminate()
        assert _lines(child, 2) == ["one ends", "two ends"] and child.wait(10) == 0
