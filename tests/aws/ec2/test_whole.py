"""The whole path: the command as typed, the user data that AWS recorded executed by stand-in instances, the table."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import boto3
import docker
import pytest
from click.testing import CliRunner

from harness.aws.clients import Connections, S3Uri
from harness.aws.ec2 import account
from harness.aws.objects import Objects
from harness.cli import main
from harness.driver.records import Outcome
from harness.remote import records
from harness.results.reader import StoredJob, read_jobs
from tests.aws import rights, server
from tests.aws.ec2 import fleet, standin
from tests.aws.ec2.conftest import launched_and_terminated
from tests.conftest import Bench, protocol

pytestmark = pytest.mark.docker

WORK = "s3://harness-whole/here"
SYSTEMS = ("first", "second")
PROFILES = ("cpu1-mem256m", "cpu1-mem1")
PROTOCOL = protocol(2)
# Rights of who runs that this path leaves unused: other regions, launch templates and all that is Batch's, consoles
# of workers without records, left-over disks, jobs that are cancelled.
UNUSED = {
    "Look ec2:DescribeRegions",
    "Look ec2:GetConsoleOutput",
    "Look ec2:DescribeLaunchTemplateVersions",
    "Look ec2:DescribeLaunchTemplates",
    "WriteInputsInParts s3:PutObject",  # where no image is large
    "EndWorkers ec2:DeleteVolume",
    "EndWorkers ec2:TerminateInstances",  # where every worker ends by itself before the command looks
}
# A first boot downloads packages.
LONG_S = 1200


class Typed:
    """Commands as a user types them, which look at EC2 more often; ``start`` has one in a process of its own."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.path = bench.suite(PROTOCOL, systems=list(SYSTEMS), profiles=list(PROFILES))
        self.outputs: list[str] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.aws.ec2.quick_command", *arguments],
            cwd=self.bench.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), **self._environment(arguments)},
        )

    def end(self, process: subprocess.Popen[str], code: int) -> str:
        output, _ = process.communicate(timeout=LONG_S)
        self.outputs.append(output)
        assert process.returncode == code, output
        return output

    def __call__(self, *arguments: str) -> str:
        environment = self._environment(arguments)
        with contextlib.chdir(self.bench.folder):
            done = CliRunner(env=environment).invoke(main, arguments, catch_exceptions=False)
        self.outputs.append(done.output)
        assert done.exit_code == 0, done.output
        return done.output

    def _environment(self, arguments: Sequence[str]) -> dict[str, str]:
        """Who makes and removes what runs stand on is another than who runs."""
        keeper = arguments[:2] in (("ec2", "up"), ("ec2", "down"))
        key = server.KEEPER_KEY if keeper else server.RUNNER_KEY
        return {"HARNESS_CACHE": str(self.bench.cache), "AWS_ACCESS_KEY_ID": key}

    @property
    def run(self) -> list[str]:
        return [
            *("run", str(self.path), "--results", str(self.bench.results), "--launcher", "ec2", "--work", WORK),
            *("--max-usd", "5", "--yes"),
        ]

    @property
    def stored(self) -> tuple[StoredJob, ...]:
        folder = self.bench.results / "test-suite"
        return read_jobs(folder) if folder.is_dir() else ()


@pytest.fixture(scope="module")
def ground(engine: docker.DockerClient) -> standin.Ground:
    return standin.ground(engine)


@pytest.fixture
def typed(bench: Bench, aws: str, engine: docker.DockerClient) -> Iterator[Typed]:
    for name in SYSTEMS:
        bench.plant(name, service_s=0.3)
    # Images of this test alone, which it may remove.
    with (bench.folder / "engines" / "planted" / "adapter.py").open("a") as adapter:
        adapter.write(f"# {bench.folder}\n")
    yield Typed(bench)
    for image in _images(engine):
        engine.images.remove(image, force=True)


def _images(engine: docker.DockerClient) -> list[str]:
    return [
        tag
        for image in engine.images.list()
        for tag in image.tags
        if tag.startswith(("harness-first:", "harness-second:"))
    ]


def wait_until(condition: Callable[[], object], timeout_s: float = LONG_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.5)


def boundary(name: str) -> None:
    """What an administrator makes once: who sets up may not."""
    document = CliRunner().invoke(main, ["ec2", "template", WORK, "--policy", "boundary"]).output
    boto3.client("iam").create_policy(PolicyName=f"{name}-boundary", PolicyDocument=document)


def test_run_prints_a_table_although_one_of_two_instances_dies(
    typed: Typed, ground: standin.Ground, tmp_path: Path
) -> None:
    place = S3Uri("harness-whole", "here")
    name = account.stack_name(place, server.REGION)
    boundary(name)
    made = typed("ec2", "up", WORK, str(typed.path))
    assert "harness run SUITE --launcher ec2" in made
    work = Objects(Connections(server.REGION), place)

    def arrived() -> list[str]:
        return [each.name for each in work.list(f"{records.WORKERS}/") if f"/{records.JOBS}/" in each.name]

    with fleet.watching(ground, tmp_path / "instances") as machines:
        running = typed.start(*typed.run)

        found: list[standin.StandIn] = []

        def at_work() -> list[standin.StandIn]:
            found[:] = [
                each for each in list(machines.instances.values()) if not each.ended.is_set() and each.containers()
            ]
            return found

        # The index is built by one worker before; then each profile's worker measures, both at once.
        wait_until(lambda: running.poll() is not None or (arrived() and len(at_work()) == 2))
        assert running.poll() is None, running.communicate()
        found[0].kill()
        output = typed.end(running, 1)
        assert "its instance went away" in output and "the same command plans them again" in output
        output = typed.end(typed.start(*typed.run), 0)
        logs = [each.log for each in machines.instances.values()]
        assert all(each.ended.is_set() and not each.containers() for each in machines.instances.values())
        again = typed(*typed.run)
    # The builder, two that measured at once, and the one that did the rest.
    assert len(logs) == 4, output
    assert launched_and_terminated() == (4, 4)
    assert "0 jobs run, 8 done before" in again
    good = [job for job in typed.stored if job.result.outcome is Outcome.OK]
    assert Counter(job.result.spec.cell.system for job in good) == dict.fromkeys(SYSTEMS, 4)
    assert Counter(job.result.outcome for job in typed.stored) <= Counter({Outcome.OK: 8, Outcome.INTERRUPTED: 1})
    for job in good:
        instance = job.result.instance
        assert instance is not None and instance.instance_type == job.result.spec.instance_type
        assert re.fullmatch(r"i-[0-9a-f]+", instance.instance_id) and instance.availability_zone and instance.ami_id
        assert job.run_path is not None and len(job.samples()) > 0
    for system in SYSTEMS:
        assert re.search(rf"{system} .*cpu1-mem256m", output), output
    assert (typed.bench.results / "test-suite" / "report.html").exists()
    assert "you have no instance and no left-over disk" in typed("ec2", "ls", "--region", server.REGION)
    check_rights(place, name, list(machines.instances))
    texts = [*typed.outputs, *logs, *(path.read_text() for path in typed.bench.results.rglob("result.json"))]
    assert not [secret for secret in server.SECRETS for text in texts if secret in text]


def check_rights(place: S3Uri, name: str, instances: Sequence[str]) -> None:
    """Hold each request of workers, user and keeper against the policy of whoever made it: none is denied."""
    found = account.find(Connections(server.REGION), place, server.REGION)
    assert found is not None
    worker, runner = rights.of_role(f"{name}-worker"), rights.of_policy(f"{name}-runner")
    requests = server.requests(os.environ["AWS_ENDPOINT_URL"])
    unused_by_all = set(rights.unused(worker, []))
    for instance in instances:
        denied, unused = rights.differing(requests, server.worker_key(f"{found.worker_role_id}:{instance}"), worker)
        assert denied == []
        unused_by_all &= set(unused)
    assert unused_by_all == set()
    denied, unused = rights.differing(requests, server.RUNNER_KEY, [runner])
    batch = ("LookAtBatch", "SuiteStacks", "Batch ", "TagJobs", "EndJobs", "MakeLaunch", "LaunchTemplates", "HostsRole")
    assert denied == []
    assert {each for each in unused if not each.startswith(batch)} <= UNUSED, unused
    keeper = account.policy("keeper", place, server.REGION, [], server.ACCOUNT)
    assert rights.differing(requests, server.KEEPER_KEY, [keeper])[0] == []
