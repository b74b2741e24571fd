"""``kill -9`` at any moment: what was finished is there once, nothing else is, and the same command goes on."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from harness.driver.records import Outcome
from harness.launch import podman
from harness.launch.fake import FakeLauncher
from harness.results.reader import read_jobs
from tests.conftest import Bench, protocol
from tests.integration import support
from tests.integration.proxy import wait_until

_TRIALS = 4


def _protocol(trials: int = _TRIALS) -> str:
    return protocol(trials, warmup_cap=4, repeats=1)


def _complete(bench: Bench, systems: int, trials: int) -> None:
    """Each job of each cell is stored once, as ok; the table shows them all, and a copy of them gives the same one."""
    specs = [job.result.spec for job in read_jobs(bench.results)]
    assert len({(spec.cell, spec.job) for spec in specs}) == len(specs) == systems * trials
    assert {spec.repetition for spec in specs} == {0}, "what did not finish was never stored, so nothing was repeated"
    assert {job.result.outcome for job in read_jobs(bench.results)} == {Outcome.OK}
    copy = bench.folder / "copy"
    shutil.copytree(bench.results, copy)
    assert support.table(bench.results) == support.table(copy)


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    """A process that runs ``tests.integration.dying`` in forks of itself, everything imported."""
    command = [sys.executable, "-m", "tests.integration.dying"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.communicate()


def _die(forks: subprocess.Popen[str], bench: Bench, when: str, point: str, command: list[str]) -> int:
    """Run a command of ``support.command`` that dies at one moment; how it ended."""
    asked = [[when, point, *command[3:]], support.environment(bench), str(bench.folder / "said.txt")]
    assert forks.stdin is not None and forks.stdout is not None
    print(json.dumps(asked), file=forks.stdin, flush=True)
    return int(forks.stdout.readline())


@pytest.mark.docker
@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("kills", "systems"),
    [(4, ["chaos"]), pytest.param(30, ["chaos-a", "chaos-b", "chaos-c"], marks=pytest.mark.soak)],
    ids=["few", "many"],
)
def test_kills_at_random_moments_lose_nothing(
    bench: Bench, forks: subprocess.Popen[str], engine: docker.DockerClient, kills: int, systems: list[str]
) -> None:
    for name in systems:
        bench.plant(name, service_s=0.005)
    command = support.command(bench, bench.suite(_protocol(), systems=systems))
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    finished: dict[str, str] = {}
    for _ in range(kills):
        # The last of them may come after the end.
        assert _die(forks, bench, "in", str(chance.uniform(0.05, 2)), command) in (-signal.SIGKILL, 0)
        now = support.stored(bench.results)
        assert finished.items() <= now.items(), "a finished job was lost, or changed"
        finished = now
    done = support.run_here(bench, command)
    assert done.code == 0, done.said
    assert finished.items() <= support.stored(bench.results).items()
    _complete(bench, len(systems), _TRIALS)
    report = [sys.executable, "-m", "harness", "report", str(bench.results), "--format", "json"]
    assert subprocess.run(report, capture_output=True, text=True, check=True).stdout == support.table(bench.results)
    assert [name for system in systems for name in support.orphans(engine, f"{system}-")] == []
    assert support.leftovers(bench) == []


# The moments at which a file or folder has just been, or is just about to be, made whole.
_WINDOWS = [
    ("before", "rename:/corpora/"),
    ("after", "rename:/corpora/"),
    ("before", "rename:/qrels/"),
    ("after", "rename:/samples/"),
    ("before", "rename:/indexes/"),
    ("after", "rename:/indexes/"),
    ("before", "rename:/put-"),
    ("after", "rename:/put-"),
    ("before", "call:harness.jobs.orchestrator:collect"),
    ("after", "call:harness.jobs.orchestrator:collect"),
    ("before", "call:pyarrow.parquet:write_table"),
    ("after", "call:harness.filesystem:remove_tree"),
    ("before", "call:harness.analysis.rows:build_rows"),
    ("before", "call:harness.cli.run:_finish"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("when", "point"), _WINDOWS)
def test_a_kill_in_each_narrow_window_loses_nothing(
    bench: Bench, forks: subprocess.Popen[str], when: str, point: str
) -> None:
    path = bench.suite(_protocol(2))
    command = support.command(bench, path, "--launcher", "fake")
    said = bench.folder / "said.txt"
    assert _die(forks, bench, when, point, command) == -signal.SIGKILL, said.read_text()
    finished = support.stored(bench.results)
    # A row is shown once its first trial is stored.
    stored = {("after", "rename:/put-"): 1, ("before", "call:harness.analysis.rows:build_rows"): 1}
    assert len(finished) == (2 if "_finish" in point else stored.get((when, point), 0))
    assert bench.run(FakeLauncher(), path).unforeseen == []
    assert finished.items() <= support.stored(bench.results).items()
    _complete(bench, 1, 2)
    assert support.leftovers(bench) == []


@pytest.mark.docker
@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("when", "point"),
    [
        ("after", "call:docker.models.containers:ContainerCollection.create"),
        ("after", "call:docker.models.containers:Container.start"),
        ("before", "call:docker.models.containers:Container.remove"),
    ],
)
def test_container_of_a_dead_harness_is_removed_by_the_next_run(
    bench: Bench, forks: subprocess.Popen[str], engine: docker.DockerClient, when: str, point: str
) -> None:
    bench.plant("dying", service_s=0.005)
    path = bench.suite(_protocol(1), systems=["dying"])
    command = support.command(bench, path)
    assert _die(forks, bench, when, point, command) == -signal.SIGKILL
    assert len(support.orphans(engine, "dying-")) == 1
    done = support.run_here(bench, command)
    assert done.code == 0 and "removed 1 container that a dead run had left" in done.said, done.said
    assert support.orphans(engine, "dying-") == []
    _complete(bench, 1, 1)
    assert support.leftovers(bench) == []


def _own_image(bench: Bench, more: str = "") -> list[str]:
    """A command whose image is not there yet, whatever other tests have built."""
    with (bench.folder / "engines" / "planted" / "Dockerfile").open("a", encoding="utf-8") as file:
        file.write(f"# {bench.folder}\n{more}")
    bench.plant("unbuilt")
    return support.command(bench, bench.suite(_protocol(), systems=["unbuilt"]))


@pytest.mark.docker
def test_leftovers_of_a_killed_download_are_removed_by_the_next_run(
    bench: Bench, forks: subprocess.Popen[str], engine: docker.DockerClient
) -> None:
    command = _own_image(bench)
    pin = f"absent==1.0 --hash=sha256:{'0' * 64}\n"
    (bench.folder / "engines" / "planted" / "requirements.lock").write_text(pin, encoding="utf-8")
    assert _die(forks, bench, "before", "call:harness.launch.images.assets:_pip_download", command) == -signal.SIGKILL
    left = [name for name in support.leftovers(bench) if not name.startswith("results/")]
    assert [name for name in left if name.startswith("cache/wheels/") and name.endswith(".partial")]
    assert all(name.startswith(("cache/wheels/", "cache/tmp/lock-")) for name in left), left
    assert support.run_here(bench, [*command, "--launcher", "fake"]).code == 0, "this one downloads nothing"
    assert support.leftovers(bench) == []


@pytest.mark.docker
def test_kill_during_an_image_build_leaves_nothing(bench: Bench, engine: docker.DockerClient) -> None:
    if podman.is_engine(engine):
        pytest.skip("Podman finishes a step of a build that nobody waits for")

    def building() -> list[str]:
        found = engine.containers.list(all=True, ignore_removed=True)
        return [each.id for each in found if "sleep 301" in " ".join(each.attrs["Config"]["Cmd"] or [])]

    child = support.start(bench, _own_image(bench, "RUN sleep 301\n"))
    wait_until(lambda: building() or child.poll() is not None, "the image is being built")
    child.send_signal(signal.SIGKILL)
    assert support.finish(bench, child).code == -signal.SIGKILL
    wait_until(lambda: not building(), "the engine gives up a build that nobody waits for")
    assert [name for name in support.leftovers(bench) if not name.startswith("results/")] == []


# Stands in for mmdebstrap: says that it runs, and holds that pipe for as long as it or a child of it lives.
_MMDEBSTRAP = """#!/bin/bash
root=${@: -2:1}
mkdir -p "$root/proc" && mount -t proc proc "$root/proc" || exit 1
echo started >"$SAYS"
exec sleep 300 >"$SAYS"
"""
_BOOTSTRAP = """
import sys
from pathlib import Path
from docker.errors import APIError
from harness.launch.images import base_image

class Engine:
    images = property(lambda self: self)

    def version(self):
        return {"Arch": "amd64"}

    def list(self, _):
        return []

    def pull(self, *_, **__):
        raise APIError("no registry")

base_image.lock = lambda *_: Path(sys.argv[2])
base_image.ensure(Engine(), Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_kill_during_bootstrap_leaves_no_process_and_the_next_run_removes_its_folder(
    bench: Bench,
) -> None:
    if subprocess.run(["sh", "-c", "unshare --mount true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount")
    programs, says = bench.folder / "bin", bench.folder / "says"
    programs.mkdir()
    (programs / "mmdebstrap").write_text(_MMDEBSTRAP.replace("$SAYS", str(says)))
    (programs / "mmdebstrap").chmod(0o755)
    os.mkfifo(says)
    listening = os.open(says, os.O_RDONLY | os.O_NONBLOCK)
    (bench.folder / "empty.lock").write_text("# none\n")
    command = [sys.executable, "-c", _BOOTSTRAP, str(bench.cache), str(bench.folder / "empty.lock")]
    child = support.start(bench, command, PATH=f"{programs}:{os.environ['PATH']}", HARNESS_IMAGES="")
    try:
        wait_until(lambda: _said(listening) or child.poll() is not None, "mmdebstrap runs")
        child.send_signal(signal.SIGKILL)
        assert support.finish(bench, child).code == -signal.SIGKILL
        wait_until(lambda: _said(listening) == b"", "mmdebstrap ends with its harness")
    finally:
        os.close(listening)
    (left,) = support.leftovers(bench)
    assert left.startswith("tmp/harness-base-") and left.endswith(".partial")
    assert str(bench.folder) not in Path("/proc/self/mountinfo").read_text()
    bench.plant("planted")
    assert support.run_here(bench, support.command(bench, bench.suite(_protocol()), "--launcher", "fake")).code == 0
    assert support.leftovers(bench) == []


def _said(listening: int) -> bytes | None:
    """Read what came: b"" when no writer is left, None while one is silent."""
    try:
        return os.read(listening, 100)
    except BlockingIOError:
        return None
