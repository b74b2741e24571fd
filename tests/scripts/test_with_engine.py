"""scripts/with-engine against a stand-in dockerd that answers on a socket of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "scripts" / "with-engine"

# Started without env(1), so that the kernel knows the process as "dockerd".
DOCKERD = (
    f"#!{sys.executable}\n"
    + """\
import os, signal, socket, sys
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
path = arguments["--host"].removeprefix("unix://")
folder = os.path.dirname(path)
with open(os.path.join(folder, "starts"), "a") as log:
    log.write(f"{os.getpid()}\\n")
if os.path.exists(os.path.join(folder, "broken")):
    sys.exit("planted: cannot start")
with open(arguments["--pidfile"], "x") as file:
    file.write(str(os.getpid()))
signal.signal(signal.SIGTERM, lambda *_: (os.remove(path), os._exit(0)))
if os.path.exists(path):
    os.remove(path)
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen()
while True:
    asker, _ = server.accept()
    asker.recv(1000)
    asker.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\nOK")
    asker.close()
"""
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may start an engine")


@dataclass
class Stage:
    """A folder in which the script finds the stand-in."""

    folder: Path
    environment: dict[str, str]

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(SCRIPT), *command],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        with self.start(*command) as process:
            out, err = process.communicate(timeout=30)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def engines(self) -> list[int]:
        """Return process ids of all engines started in this test."""
        starts = self.folder / "starts"
        return [int(line) for line in starts.read_text().split()] if starts.exists() else []

    def all_ended(self) -> bool:
        return not [pid for pid in self.engines() if lives(pid)]


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def eventually(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.05)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "dockerd").write_text(DOCKERD)
    (programs / "dockerd").chmod(0o755)
    stage = Stage(
        tmp_path,
        {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "DOCKER_HOST": f"unix://{tmp_path}/engine.sock",
            "HARNESS_ENGINE_RUN": str(tmp_path / "run"),
        },
    )
    yield stage
    for pid in stage.engines():
        if lives(pid):
            os.kill(pid, signal.SIGKILL)


@needs_root
@pytest.mark.parametrize("code", [0, 7])
def test_with_engine_starts_an_engine_keeps_the_exit_code_and_stops_it(stage: Stage, code: int) -> None:
    done = stage.run("sh", "-c", f"test -S {stage.folder}/engine.sock && echo ran; exit {code}")
    assert (done.returncode, done.stdout) == (code, "ran\n")
    assert len(stage.engines()) == 1
    assert stage.all_ended()


@needs_root
def test_running_engine_is_left_alone(stage: Stage) -> None:
    foreign = subprocess.Popen(
        ["dockerd", "--host", stage.environment["DOCKER_HOST"], "--pidfile", str(stage.folder / "foreign.pid")],
        env=stage.environment,
    )
    eventually((stage.folder / "engine.sock").exists)
    done = stage.run("echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    assert stage.engines() == [foreign.pid]
    assert foreign.poll() is None
    foreign.terminate()
    foreign.wait()


@needs_root
def test_two_commands_share_an_engine_and_the_last_stops_it(stage: Stage) -> None:
    hold, runs = stage.folder / "hold", stage.folder / "runs"
    hold.touch()
    wait = f"touch {runs}; while [ -e {hold} ]; do sleep 0.05; done"
    long = stage.start("sh", "-c", f"{wait}; test -S {stage.folder}/engine.sock")
    eventually(runs.exists)  # else the short one may be over before
    short = stage.start("true")
    assert short.wait(30) == 0
    eventually(lambda: len(list((stage.folder / "run" / "users").iterdir())) == 1)
    assert not stage.all_ended()
    hold.unlink()
    assert long.wait(30) == 0  # its engine was there to its end
    assert len(stage.engines()) == 1
    assert stage.all_ended()
    for process in (long, short):
        process.communicate()


@needs_root
def test_leftovers_of_dead_engines_are_ignored(stage: Stage) -> None:
    (stage.folder / "run" / "users").mkdir(parents=True)
    # Numbers that other processes have by now: this one.
    (stage.folder / "run" / "dockerd.pid").write_text(str(os.getpid()))
    (stage.folder / "run" / "users" / str(os.getpid())).write_text("bash-of-old\n")
    (stage.folder / "engine.sock").touch()
    assert stage.run("true").returncode == 0
    assert len(stage.engines()) == 1
    assert stage.all_ended()


@needs_root
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_command_and_the_engine(stage: Stage, number: signal.Signals) -> None:
    process = stage.start("sh", "-c", "echo up; exec sleep 60")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    assert process.wait(30) == 128 + number
    assert stage.all_ended()
    process.communicate()


RESTART = f'"{SCRIPT}" --restartable && "{SCRIPT}" --restart'


@needs_root
def test_command_may_restart_its_own_engine(stage: Stage) -> None:
    done = stage.run("sh", "-c", f"{RESTART} && test -S {stage.folder}/engine.sock && echo back")
    assert (done.returncode, done.stdout) == (0, "back\n"), done.stderr
    first, second = stage.engines()
    assert first != second
    assert stage.all_ended(), "the second one is stopped at the end as the first one would have been"
    assert not (stage.folder / "run" / "dockerd.pid").exists()


@needs_root
def test_shared_engine_is_not_restarted(stage: Stage) -> None:
    long = stage.start("sleep", "60")
    eventually(lambda: len(list((stage.folder / "run" / "users").glob("*"))) == 1)
    done = stage.run("sh", "-c", RESTART)
    assert (done.returncode, "others use the engine as well" in done.stderr) == (1, True), done.stderr
    alone = stage.run("--restart")
    assert (alone.returncode, "others use the engine as well" in alone.stderr) == (1, True)
    assert len(stage.engines()) == 1
    long.send_signal(signal.SIGTERM)
    long.communicate()


def test_engine_started_by_others_is_not_restarted(stage: Stage) -> None:
    for host in (stage.environment["DOCKER_HOST"], "tcp://127.0.0.1:1"):
        stage.environment["DOCKER_HOST"] = host
        for option in ("--restart", "--restartable"):
            done = stage.run(option)
            assert (done.returncode, "was not started here" in done.stderr) == (1, True)


@needs_root
def test_engine_is_installed_in_advance_once_and_not_started(stage: Stage) -> None:
    """Of the system's programs, the path has those that the script needs, and an apt-get that brings an engine."""
    programs = stage.folder / "bin"
    (programs / "dockerd").rename(stage.folder / "packed")
    for name in ("bash", "env", "mkdir", "flock", "python3", "tail", "cp"):
        path = shutil.which(name)
        assert path is not None
        (programs / name).symlink_to(path)
    (programs / "apt-get").write_text(
        f'#!/bin/sh\necho "$1" >>{stage.folder}/apt\n[ "$1" = update ] || cp {stage.folder}/packed {programs}/dockerd\n'
    )
    (programs / "apt-get").chmod(0o755)
    stage.environment["PATH"] = str(programs)
    first, second = stage.run("--install"), stage.run("--install")
    assert (first.returncode, second.returncode, second.stderr) == (0, 0, ""), first.stderr
    assert first.stderr == "with-engine: installing docker.io and iptables with apt-get, as root\n"
    assert (stage.folder / "apt").read_text().split() == ["update", "install"] and stage.engines() == []
