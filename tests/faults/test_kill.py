"""``kill -9`` at any moment: what was finished is there once, nothing else is, and the same command goes on."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time

import docker
import pytest

from harness.launch.fake import FakeLauncher
from harness.records import Outcome
from harness.store import read_jobs
from tests.conftest import Bench
from tests.faults import support

_KILLS = 30
_TRIALS = 4
_PROTOCOL = f"""[protocol]
name = "interleaved"
warmup_queries = 2
warmup_cap = 4
repeats = 1
trials = {_TRIALS}
k = 3
"""
_SYSTEMS = ["chaos-a", "chaos-b", "chaos-c"]


def _complete(bench: Bench, systems: int, trials: int) -> None:
    """Each job of each cell is stored once, as ok; the table shows them all, and a copy of them gives the same one."""
    specs = [job.result.spec for job in read_jobs(bench.results)]
    assert len({(spec.cell, spec.job) for spec in specs}) == len(specs) == systems * trials
    assert {spec.repetition for spec in specs} == {0}, "what did not finish was never stored, so nothing was repeated"
    assert {job.result.outcome for job in read_jobs(bench.results)} == {Outcome.OK}
    copy = bench.folder / "copy"
    shutil.copytree(bench.results, copy)
    assert support.table(bench.results) == support.table(copy)


@pytest.mark.docker
def test_thirty_kills_at_random_moments_lose_nothing(bench: Bench, engine: docker.DockerClient) -> None:
    for name in _SYSTEMS:
        bench.plant(name, service_s=0.005)
    command = support.command(bench, bench.suite(_PROTOCOL, systems=_SYSTEMS))
    chance = random.Random(2023)
    finished: dict[str, str] = {}
    for _ in range(_KILLS):
        child = support.start(bench, command)
        time.sleep(chance.uniform(0.2, 2.5))
        child.send_signal(signal.SIGKILL)
        support.finish(bench, child)
        now = support.stored(bench.results)
        assert finished.items() <= now.items(), "a finished job was lost, or changed"
        finished = now
    done = support.run(bench, command)
    assert done.code == 0, done.said
    assert finished.items() <= support.stored(bench.results).items()
    _complete(bench, len(_SYSTEMS), _TRIALS)
    report = [sys.executable, "-m", "harness", "report", str(bench.results), "--format", "json"]
    assert subprocess.run(report, capture_output=True, text=True, check=True).stdout == support.table(bench.results)
    assert support.orphans(engine, "chaos-") == []
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
    ("before", "call:harness.orchestrator:collect"),
    ("after", "call:harness.orchestrator:collect"),
    ("before", "call:pyarrow.parquet:write_table"),
    ("after", "call:harness.leftovers:remove"),
    ("before", "call:harness.rows:build"),
]


@pytest.mark.parametrize(("when", "point"), _WINDOWS)
def test_a_kill_in_each_narrow_window_loses_nothing(bench: Bench, when: str, point: str) -> None:
    path = bench.suite(_PROTOCOL.replace(f"trials = {_TRIALS}", "trials = 2"))
    command = support.command(bench, path, "--launcher", "fake")
    dying = [sys.executable, "-m", "tests.faults.dying", when, point, *command[3:]]
    assert support.run(bench, dying).code == -signal.SIGKILL
    finished = support.stored(bench.results)
    assert len(finished) == (1 if (when, point) == ("after", "rename:/put-") else 2 if "rows" in point else 0)
    assert bench.run(FakeLauncher(), path).unforeseen == []
    assert finished.items() <= support.stored(bench.results).items()
    _complete(bench, 1, 2)
    assert support.leftovers(bench) == []


@pytest.mark.docker
@pytest.mark.parametrize(
    ("when", "point"),
    [
        ("after", "call:docker.models.containers:ContainerCollection.create"),
        ("after", "call:docker.models.containers:Container.start"),
        ("before", "call:docker.models.containers:Container.remove"),
    ],
)
def test_a_container_whose_harness_died_is_removed_by_the_next_run(
    bench: Bench, engine: docker.DockerClient, when: str, point: str
) -> None:
    bench.plant("dying", service_s=0.005)
    path = bench.suite(_PROTOCOL.replace(f"trials = {_TRIALS}", "trials = 1"), systems=["dying"])
    command = support.command(bench, path)
    dying = [sys.executable, "-m", "tests.faults.dying", when, point, *command[3:]]
    assert support.run(bench, dying).code == -signal.SIGKILL
    assert len(support.orphans(engine, "dying-")) == 1
    done = support.run(bench, command)
    assert done.code == 0, done.said
    assert support.orphans(engine, "dying-") == []
    _complete(bench, 1, 1)
    assert support.leftovers(bench) == []
