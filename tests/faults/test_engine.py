"""An engine that goes away in the middle of a job: one line, and the next run goes on as if nothing had been."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from harness.launch.container import LABEL
from harness.records import Outcome
from harness.stored_jobs import read_jobs
from tests.conftest import Bench
from tests.faults import support
from tests.faults.proxy import Proxy, wait_until

pytestmark = [pytest.mark.docker, pytest.mark.alone]

_PROTOCOL = """[protocol]
name = "interleaved"
warmup_queries = 2
warmup_cap = 2
repeats = 0
k = 3
trials = 2
"""
_WITH_ENGINE = Path(__file__).parents[2] / "scripts" / "with-engine"


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.close()


def _running(engine: docker.DockerClient, name: str) -> bool:
    filters = {"label": LABEL, "name": f"harness-{name}-search", "status": "running"}
    return bool(engine.containers.list(filters=filters, ignore_removed=True))


def _goes_on(bench: Bench, command: list[str], engine: docker.DockerClient, name: str) -> None:
    """The same command finishes; no interrupted job was stored as anything."""
    done = support.run(bench, command)
    assert done.code == 0, done.said
    assert [job.result.outcome for job in read_jobs(bench.results)] == [Outcome.OK] * 2
    assert {job.result.spec.repetition for job in read_jobs(bench.results)} == {0}
    assert support.orphans(engine, f"{name}-") == []
    assert support.leftovers(bench) == []


def test_connections_that_break_in_the_middle_of_a_job(bench: Bench, engine: docker.DockerClient, proxy: Proxy) -> None:
    bench.plant("cut", service_s=0.3)
    command = support.command(bench, bench.suite(_PROTOCOL, systems=["cut"]))
    child = support.start(bench, command, DOCKER_HOST=proxy.url)
    wait_until(lambda: _running(engine, "cut") or child.poll() is not None, "a search job runs")
    proxy.cut()
    back = threading.Timer(2.0, proxy.open)
    back.start()
    ended = support.finish(bench, child)
    back.join()
    assert ended.code == 1, ended.said
    assert ended.complaint.startswith("harness: the Docker engine "), ended.said
    _goes_on(bench, command, engine, "cut")


def test_an_engine_that_is_restarted_in_the_middle_of_a_job(bench: Bench, engine: docker.DockerClient) -> None:
    able = subprocess.run([str(_WITH_ENGINE), "--restartable"], capture_output=True, text=True, check=False)
    if able.returncode:
        pytest.skip(f"not ours to restart: {able.stderr.strip()}")
    bench.plant("restarted", service_s=0.3)
    command = support.command(bench, bench.suite(_PROTOCOL, systems=["restarted"]))
    child = support.start(bench, command)
    wait_until(lambda: _running(engine, "restarted") or child.poll() is not None, "a search job runs")
    done = subprocess.run([str(_WITH_ENGINE), "--restart"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ended = support.finish(bench, child)
    assert ended.code == 1, ended.said
    assert ended.complaint.startswith("harness: the Docker engine "), ended.said
    _goes_on(bench, command, engine, "restarted")
