"""An engine that goes away in the middle of a job: one line, and the next run goes on as if nothing had been."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import APIError
from docker.models.containers import Container

from harness.driver.records import Outcome
from harness.launch.container import LABEL
from harness.launch.docker import DockerLauncher
from harness.launch.images import catalog
from harness.results.reader import read_jobs
from tests.conftest import Bench, protocol
from tests.integration import support
from tests.integration.proxy import Proxy, wait_until

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("host")]

SYSTEM = "cut-off"
_PROTOCOL = protocol(1, warmup_queries=1, warmup_cap=1)
# The five queries of a job take longer than a busy machine needs to find and pause its container.
_SERVICE_S = 2.0
_WITH_ENGINE = Path(__file__).parents[2] / "scripts" / "with-engine"


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.close()


# Below its with-engine: says when the engine answers, restarts it when told to, and holds it until told again.
_RESTARTING = 'echo up; read -r _; "$0" --restartable && "$0" --restart; echo "code $?"; read -r _'


@pytest.fixture
def own_engine(tmp_path: Path) -> Iterator[tuple[dict[str, str], subprocess.Popen[str]]]:
    """An engine of this test alone; how to reach it, and who restarts it when a line is written to it."""
    if os.geteuid() != 0 or not shutil.which("dockerd"):
        pytest.skip("no second engine can be started here: that takes root, and a dockerd")
    # Not below pytest's folder: a socket's path may be 107 bytes long.
    place = Path(tempfile.mkdtemp(prefix="engine-"))
    reach = {"DOCKER_HOST": f"unix://{place}/s", "HARNESS_ENGINE_RUN": f"{place}/run"}
    apart = {"HARNESS_DOCKERD_ARGS": f"--data-root {place}/data --exec-root {place}/exec --iptables=false"}
    # A network of its own: with "--bridge=none" it would remove the other engine's bridge.
    command = ["unshare", "--net", str(_WITH_ENGINE), "bash", "-c", _RESTARTING, str(_WITH_ENGINE)]
    with (tmp_path / "with-engine.log").open("w") as log:
        holding = subprocess.Popen(
            command,
            env={**os.environ, **reach, **apart},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert holding.stdout is not None
            assert holding.stdout.readline() == "up\n", (tmp_path / "with-engine.log").read_text()
            yield reach, holding
        finally:
            holding.communicate()
            shutil.rmtree(place)


def _hand_over(image: str, of: docker.DockerClient, to: docker.DockerClient) -> None:
    """Have an image in another engine, by its name."""
    with tempfile.TemporaryFile() as packed:
        for chunk in of.api.get_image(image):
            packed.write(chunk)
        packed.seek(0)
        to.images.load(packed)


def _running(engine: docker.DockerClient) -> list[Container]:
    filters = {"label": LABEL, "name": f"harness-{SYSTEM}-search", "status": "running"}
    return engine.containers.list(filters=filters, ignore_removed=True)


def _start_and_hold(
    bench: Bench, command: list[str], engine: docker.DockerClient, reach: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start a run, and pause its job's container, so that it does not end before the engine fails."""
    child = support.start(bench, command, **reach)
    wait_until(lambda: _running(engine) or child.poll() is not None, "a search job runs")
    jobs = _running(engine)
    assert jobs, "the job ended before it could be paused: give its queries more time"
    for job in jobs:
        wait_until(functools.partial(_stands, job), "the container stands still")
    return child


def _stands(job: Container) -> bool:
    """Pause a container; runc gives up on one that starts processes at that moment."""
    with contextlib.suppress(APIError):
        job.pause()
        return True
    return False


def _ends_and_goes_on(
    bench: Bench, child: subprocess.Popen[bytes], command: list[str], engine: docker.DockerClient, **more: str
) -> None:
    """The run ends in one line, and the same command finishes; no interrupted job was stored as anything."""
    ended = support.finish(bench, child)
    assert ended.code == 1, ended.said
    assert ended.complaint.startswith("harness: the Docker engine "), ended.said
    done = support.run_here(bench, command, **more)
    assert done.code == 0, done.said
    assert [job.result.outcome for job in read_jobs(bench.results)] == [Outcome.OK]
    assert {job.result.spec.repetition for job in read_jobs(bench.results)} == {0}
    assert support.orphans(engine, f"{SYSTEM}-") == []
    assert support.leftovers(bench) == []


def test_broken_engine_connection_during_a_job(bench: Bench, engine: docker.DockerClient, proxy: Proxy) -> None:
    bench.plant(SYSTEM, service_s=_SERVICE_S)
    command = support.command(bench, bench.suite(_PROTOCOL, systems=[SYSTEM]))
    child = _start_and_hold(bench, command, engine, {"DOCKER_HOST": proxy.url})
    proxy.cut()
    back = threading.Timer(2.0, proxy.open)
    back.start()
    _ends_and_goes_on(bench, child, command, engine)
    back.join()


def test_engine_restart_during_a_job(
    bench: Bench, engine: docker.DockerClient, own_engine: tuple[dict[str, str], subprocess.Popen[str]]
) -> None:
    reach, holding = own_engine
    assert holding.stdin is not None and holding.stdout is not None
    bench.plant(SYSTEM, service_s=_SERVICE_S)
    launcher = DockerLauncher(bench.cache)
    image = launcher.prepare(catalog.systems(bench.folder / "engines")[SYSTEM])
    launcher.close()
    own = docker.DockerClient(reach["DOCKER_HOST"])
    tags = [tag.removeprefix("docker.io/library/") for tag in engine.images.get(image.digest).tags]  # as Podman says
    (name,) = (tag for tag in tags if tag.startswith(f"harness-{SYSTEM}:"))
    _hand_over(name, engine, own)
    command = support.command(bench, bench.suite(_PROTOCOL, systems=[SYSTEM]))
    child = _start_and_hold(bench, command, own, reach)
    holding.stdin.write("\n")
    holding.stdin.flush()
    assert holding.stdout.readline() == "code 0\n"
    _ends_and_goes_on(bench, child, command, own, **reach)
    own.close()
