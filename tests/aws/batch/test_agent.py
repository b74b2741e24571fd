"""The agent's two containers, on a real engine: what Batch starts, and the sibling that it has the engine start.

harness itself is a stand-in here: it says where it is, and does as the part's name says.
"""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.models.containers import Container

from harness.aws.batch.suite_stack import command
from harness.aws.clients import Connections, S3Uri
from harness.aws.objects import Objects
from harness.launch import cpu_placement
from tests.aws import server
from tests.aws.batch import agents

pytestmark = pytest.mark.docker

WORK = S3Uri("harness-work", "a/place")
_WORKER = """
import json, os, pathlib, signal, sys, time
import boto3
work, run, part = sys.argv[1:]
def stopped(*_):
    print("worker: stopping", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, stopped)
namespaces = {name: os.readlink(f"/proc/self/ns/{name}") for name in ("pid", "cgroup", "net")}
root = os.environ["HARNESS_WORKER_ROOT"]
assert pathlib.Path.cwd() == pathlib.Path(root), root
# One folder for all jobs of a host, under the name that the launchers read.
assert pathlib.Path(os.environ["{leases}"]) == pathlib.Path(root).parent.parent / "cpus", os.environ
shared = os.environ["HARNESS_SHARED_HOST"]
print("worker:", json.dumps([work, run, part, boto3.__name__, shared, namespaces]), flush=True)
if part == "waits":
    time.sleep(600)
sys.exit(int(part) if part.isdecimal() else 0)
"""


@pytest.fixture(scope="module")
def aws_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server.running(tmp_path_factory.mktemp("aws") / "moto.log") as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def agent(engine: docker.DockerClient, aws_here: str) -> Iterator[str]:
    with agents.image(engine, server.environment(aws_here)) as name:
        yield name


@pytest.fixture
def work(aws_here: str, monkeypatch: pytest.MonkeyPatch) -> Objects:
    server.reset(aws_here)
    for name, value in server.environment(aws_here).items():
        monkeypatch.setenv(name, value)
    connections = Connections(server.REGION)
    connections.client("s3").create_bucket(Bucket=WORK.bucket)
    return Objects(connections, WORK)


@pytest.fixture
def started(work: Objects, agent: str, engine: docker.DockerClient) -> Iterator[Callable[..., Container]]:
    """Starts the job's container for a part, as Batch does."""
    made: list[Container] = []

    def start(part: str, checksum: str | None = None, **variables: str) -> Container:
        packed = bundle()
        work.put("inputs/bundles/x.tar.gz", packed)
        words = command(agent, WORK, server.REGION)
        given = {"run": "run", "part": part, "bundle": "inputs/bundles/x.tar.gz"}
        given["sha256"] = checksum or sha256(packed).hexdigest()
        filled = [given[word.removeprefix("Ref::")] if word.startswith("Ref::") else word for word in words]
        paths = ("/var/run/docker.sock", "/var/lib/harness")
        made.append(
            engine.containers.run(
                agent,
                filled,
                detach=True,
                network_mode="none",
                volumes=[f"{path}:{path}" for path in paths],
                environment={
                    "AWS_BATCH_JOB_ID": f"test-{time.monotonic_ns()}",
                    "HARNESS_SHARED_HOST": "0",
                    **variables,
                },
            )
        )
        return made[-1]

    yield start
    for each in made:
        each.remove(force=True)
    wait(lambda: not agents.siblings(engine))


def bundle() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, text in {
            "harness/__init__.py": "",
            "harness/aws/__init__.py": "",
            "harness/aws/worker.py": _WORKER.replace("{leases}", cpu_placement.VARIABLE),
            "requirements.lock": "boto3==1 --hash=sha256:0\n",
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return content.getvalue()


def wait(done: Callable[[], Any]) -> None:
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until, "waited for a minute"
        time.sleep(0.1)


def output(container: Container) -> str:
    return str(container.logs().decode())


def test_an_agent_runs_its_part_beside_the_engine(
    started: Callable[..., Container], engine: docker.DockerClient
) -> None:
    job = started("7")
    assert job.wait()["StatusCode"] == 7, output(job)
    [line] = [line for line in output(job).splitlines() if line.startswith("worker: ")]
    work, run, part, _, shared, namespaces = json.loads(line.removeprefix("worker: "))
    assert (work, run, part, shared) == (str(WORK), "run", "7", "0")
    # The host's own, though the container that Batch starts has none of them.
    assert namespaces == {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("pid", "cgroup", "net")}
    assert not agents.siblings(engine)
    assert not list((agents.HOST / "jobs").iterdir())


def test_stopped_agent_stops_its_sibling(started: Callable[..., Container], engine: docker.DockerClient) -> None:
    job = started("waits")
    wait(lambda: "worker: [" in output(job))
    job.stop(timeout=60)
    assert "worker: stopping" in output(job)
    assert job.wait()["StatusCode"] == 1
    assert not agents.siblings(engine)


def test_killed_agent_ends_its_sibling(started: Callable[..., Container], engine: docker.DockerClient) -> None:
    job = started("waits")
    wait(lambda: "worker: [" in output(job))
    [sibling] = agents.siblings(engine)
    words = engine.containers.get(sibling).logs(stream=True, follow=True)
    job.kill()
    wait(lambda: not agents.siblings(engine))
    heard = b"".join(words).decode()
    words.close()
    assert "the agent that followed this job is gone" in heard
    assert "worker: stopping" in heard


def test_a_further_attempt_does_the_part_again(started: Callable[..., Container]) -> None:
    for attempt in ("1", "2"):
        job = started("0", AWS_BATCH_JOB_ID="one", AWS_BATCH_JOB_ATTEMPT=attempt)
        assert job.wait()["StatusCode"] == 0, output(job)
        assert "worker: [" in output(job)


def test_bundle_with_another_hash_is_not_run(started: Callable[..., Container]) -> None:
    job = started("0", checksum="0" * 64)
    assert job.wait()["StatusCode"] == 1
    assert "the bundle is not the one that was sent" in output(job)
    assert "worker:" not in output(job)
