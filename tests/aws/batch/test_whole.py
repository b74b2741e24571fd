"""From an empty account to a table and back: moto's Batch starts the job's containers on a real engine."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import docker
import pytest
from click.testing import CliRunner

from harness.aws import cloudformation
from harness.aws.clients import Connections, parse_uri
from harness.aws.ec2 import account, instances
from harness.cli import main
from harness.driver.records import Outcome
from harness.remote.watch import Timeouts
from harness.results.reader import StoredJob, read_jobs
from tests.aws import rights, server
from tests.aws.batch import agents
from tests.aws.batch.test_suite_stack import everything
from tests.aws.ec2 import imds
from tests.conftest import Bench, protocol, write_dataset

pytestmark = pytest.mark.docker

TYPE = "c5.large"
WORK = "s3://harness-work/a/place"
# The keys of ECS tasks begin so (tests/aws/moto_server.py).
SECRETS = (*server.SECRETS, "AKIAEXAMPLE7")


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, engine: docker.DockerClient) -> Iterator[tuple[str, str]]:
    """An AWS whose Batch starts containers, and the image that its agents are made of."""
    folder = tmp_path_factory.mktemp("aws")
    with server.running(folder / "moto.log") as endpoint, imds.running(imds.of(instance_type=TYPE)) as metadata:
        variables = server.environment(endpoint)
        del variables["AWS_EC2_METADATA_DISABLED"]
        variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = metadata.endpoint
        with agents.image(engine, variables) as image:
            yield endpoint, image


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS is looked at more often than users look at it."""
    monkeypatch.setattr(Timeouts.__init__, "__defaults__", (1.0, *(Timeouts.__init__.__defaults__ or ())[1:]))
    monkeypatch.setattr(instances, "POLL_S", 0.3)
    monkeypatch.setattr(cloudformation, "_POLL_S", 0.3)


@pytest.fixture
def connections(cloud: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Connections:
    server.reset(cloud[0])
    for name, value in server.environment(cloud[0]).items():
        monkeypatch.setenv(name, value)
    return Connections(server.REGION)


@pytest.fixture
def set_up(connections: Connections) -> None:
    """An administrator has set up the account."""
    account.up(connections, parse_uri(WORK), "owner", [TYPE])


def harness(bench: Bench, *arguments: str, code: int = 0) -> str:
    """Run a command as a user types it."""
    environment = {"HARNESS_WORK": WORK, **os.environ, "HARNESS_CACHE": str(bench.cache), "COLUMNS": "200"}
    keeper = arguments[:2] in (("ec2", "up"), ("ec2", "down"))
    environment["AWS_ACCESS_KEY_ID"] = server.KEEPER_KEY if keeper else server.RUNNER_KEY
    with chdir(bench.folder):
        done = CliRunner(env=environment).invoke(main, arguments, catch_exceptions=False)
    output = done.stdout + done.stderr
    assert done.exit_code == code, output
    assert not [secret for secret in SECRETS if secret in output], output
    return output


def up(bench: Bench, cloud: tuple[str, str], *more: str) -> str:
    return harness(bench, "batch", "up", "test-suite.toml", "--instance", TYPE, "--agent-image", cloud[1], *more)


def run(bench: Bench, *more: str, code: int = 0) -> str:
    given = ("run", "test-suite.toml", "--launcher", "batch", "--instance", TYPE, "--yes")
    return harness(bench, *given, *more, code=code)


def stored(bench: Bench) -> list[StoredJob]:
    return list(read_jobs(bench.results / "test-suite"))


def no_secrets(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [secret for secret in SECRETS if secret.encode() in content], path


def stored_in_s3(connections: Connections, bucket: str) -> dict[str, bytes]:
    """Return what runs and workers have left in a bucket, by object name."""
    s3 = connections.client("s3")
    listed = s3.list_objects_v2(Bucket=bucket).get("Contents", [])
    names = [each["Key"] for each in listed if each["Key"].startswith(("runs/", "workers/"))]
    return {name: s3.get_object(Bucket=bucket, Key=name)["Body"].read() for name in names}


def submitted(connections: Connections) -> list[dict[str, Any]]:
    """All jobs that Batch was ever given."""
    return list(connections.client("batch").describe_jobs(jobs=[])["jobs"])


def check_measured(bench: Bench, connections: Connections, bucket: str) -> None:
    """Check that two datasets of one system were two jobs, which waited for the job that built their index."""
    results = [job.result for job in read_jobs(bench.results / "quickstart")]
    assert [result.outcome for result in results] == [Outcome.OK, Outcome.OK]
    for result in results:
        assert result.spec.instance_type == result.environment.instance_type == TYPE
        assert result.instance is not None and result.instance.instance_id.startswith("i-")
        assert result.observed.shared_host is False
        assert result.measured.effective is not None
        assert result.measured.effective.memory_bytes == result.spec.envelope.memory_bytes
    assert len(submitted(connections)) == 3
    no_secrets(bench.results)
    left = stored_in_s3(connections, bucket)
    workers = {name.split("/")[1] for name in left if name.startswith("workers/")}
    assert len(workers) == 3, "an index build, and two parts"
    for name, content in left.items():
        assert not [secret for secret in SECRETS if secret.encode() in content], name
    requests = server.requests(os.environ["AWS_ENDPOINT_URL"])
    role = f"{account.stack_name(parse_uri(f's3://{bucket}'), server.REGION)}-worker"
    keys = {each["who"] for each in requests if each["userid"] in workers}
    assert len(keys) == 3
    for key in keys:
        assert rights.differing(requests, key, rights.of_role(role))[0] == []
    logs = connections.client("logs").filter_log_events(logGroupName="/aws/batch/job")["events"]
    assert not [secret for secret in SECRETS if secret in str([each["message"] for each in logs])]


def test_every_command_of_the_guide_works(
    bench: Bench,
    cloud: tuple[str, str],
    connections: Connections,
    monkeypatch: pytest.MonkeyPatch,
    engine: docker.DockerClient,
) -> None:
    """Every command of docs/guides/batch.md, in its order; only the suite behind the name is a small one."""
    monkeypatch.setenv("HARNESS_AGENT_IMAGE", cloud[1])
    write_dataset(bench.folder / "other", queries=3)
    made = bench.suite(
        '[ec2]\ninstances = { cpu1-mem256m = "c5.large", cpu1-mem1 = "c5.large" }\n', datasets=["../tiny", "../other"]
    )
    (bench.folder / "suites").mkdir()
    made.rename(bench.folder / "suites" / "quickstart.toml")
    page = (Path(__file__).parents[3] / "docs" / "guides" / "batch.md").read_text()
    commands = [line[2:] for block in re.findall(r"```console\n(.*?)```", page, re.S) for line in block.splitlines()]
    output: dict[str, str] = {}
    for command in commands:
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            monkeypatch.setenv(name, value)
            continue
        first, *words = shlex.split(command)
        assert first == "harness", command
        target = words[words.index(">") + 1] if ">" in words else None
        words = words[: words.index(">")] if target else words
        if words[:2] == ["batch", "up"]:
            too_early = harness(bench, "run", words[2], "--launcher", "batch", "--yes", code=2)
            assert "quickstart is not in AWS Batch in us-east-1; make it: `harness batch up" in too_early
        output[command] = harness(bench, *words)
        if "--max-usd" in words:
            check_measured(bench, connections, "my-harness")
            harness(bench, *words)
            assert len(submitted(connections)) == 3, "nothing was left to do, and nothing more is submitted"
        if target:
            (bench.folder / target).write_text(output[command])
    assert "made: stack harness-batch-quickstart" in output["harness batch up suites/quickstart.toml"]
    ran = next(text for command, text in output.items() if "--max-usd" in command)
    assert "planted" in ran and "c5.large" in ran and "tiny" in ran and "other" in ran
    assert "AWSTemplateFormatVersion" in (bench.folder / "harness-batch.yaml").read_text()
    assert "no suite is in AWS Batch" in output["harness batch ls"]
    assert not connections.client("s3").list_buckets()["Buckets"]
    left = everything(connections)
    assert not any(left.values()), left
    assert not agents.siblings(engine)
    place = parse_uri("s3://my-harness")
    printed = account.policy("runner", place, server.REGION, [TYPE], server.ACCOUNT)
    assert rights.differing(server.requests(cloud[0]), server.RUNNER_KEY, [printed])[0] == []


@contextmanager
def started(bench: Bench) -> Iterator[subprocess.Popen[bytes]]:
    """An orchestrator in a process of its own; the test kills it at the end."""
    command = [sys.executable, "-m", "tests.aws.ec2.quick_command", "run", "test-suite.toml", "--launcher", "batch"]
    command += ["--instance", TYPE]
    environment = {"HARNESS_WORK": WORK, **os.environ, "HARNESS_CACHE": str(bench.cache)}
    environment |= {"AWS_ACCESS_KEY_ID": server.RUNNER_KEY, "PYTHONPATH": str(Path(__file__).parents[3])}
    with (bench.folder / "orchestrator.log").open("wb") as log:
        child = subprocess.Popen(
            [*command, "--yes"], cwd=bench.folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            yield child
        finally:
            child.kill()
            child.wait()


def test_cancel_interrupts_what_runs_and_the_next_command_goes_on(
    bench: Bench, cloud: tuple[str, str], connections: Connections, set_up: None, engine: docker.DockerClient
) -> None:
    """On a shared host, with a forged envelope in one of two systems; the first orchestrator is killed."""
    bench.plant("boasts", threads=99)
    bench.plant("slow", service_s=600)
    bench.suite(protocol(2, name="santhanam2023", query_timeout_s=900.0), systems=["boasts", "slow"])
    up(bench, cloud, "--shared")

    def containers() -> str:
        return " ".join(each.name for each in engine.containers.list(all=True, ignore_removed=True))

    def ends() -> list[str]:
        return [each["status"] for each in submitted(connections)]

    with started(bench) as child:
        # Of both systems' index and of the one that boasts.
        wait(lambda: ends().count("SUCCEEDED") == 2 and "slow-search" in containers(), child)
    assert "jobs of test-suite are not finished" in harness(bench, "batch", "down", "test-suite.toml", code=2)
    assert "running" in harness(bench, "batch", "ls")
    assert "1 job ended" in harness(bench, "batch", "cancel", "test-suite.toml")
    wait(lambda: not agents.siblings(engine))
    wait(lambda: "slow-search" not in containers())
    output = run(bench, code=1)
    assert "goes on with the open run" in output
    results = {job.result.spec.cell.system: job.result for job in stored(bench)}
    boasts, slow = results["boasts"], results["slow"]
    assert boasts.outcome is Outcome.ENVELOPE_MISMATCH and "99 threads" in (boasts.detail or "")
    assert boasts.observed.shared_host is True
    assert slow.outcome is Outcome.INTERRUPTED, output
    assert "cancelled by harness batch cancel" in (slow.detail or ""), slow.detail
    # A measured failure is a result: its job has done what it could, and was begun once.
    done = [each for each in submitted(connections) if each["status"] == "SUCCEEDED"]
    assert [len(each["attempts"]) for each in done] == [1, 1]
    harness(bench, "batch", "down", "test-suite")
    assert not any(everything(connections).values())


def wait(done: Callable[[], Any], child: subprocess.Popen[bytes] | None = None) -> None:
    until = time.monotonic() + 600
    while not done():
        assert time.monotonic() < until, "waited for minutes"
        assert child is None or child.poll() is None, "the orchestrator ended"
        time.sleep(0.5)
