"""From an empty account to a table and back: moto's Batch starts the job's containers on a real engine."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import docker
import pytest
from click.testing import CliRunner

from harness.aws import cloudformation
from harness.aws.batch import suite_stack
from harness.aws.clients import Connections, parse_uri
from harness.aws.ec2 import account, instances
from harness.cli import main
from harness.driver.records import Outcome
from harness.remote.watch import Timeouts
from harness.results.reader import read_jobs
from tests.aws import rights, server
from tests.aws.batch import agents
from tests.aws.batch.test_suite_stack import everything
from tests.aws.ec2 import imds
from tests.conftest import Bench, write_dataset

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
    for module, name in ((instances, "POLL_S"), (suite_stack, "_GRACE_S")):
        monkeypatch.setattr(module, name, 0.3)
    monkeypatch.setattr(cloudformation, "_POLL_S", 0.3)


@pytest.fixture
def connections(cloud: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Connections:
    server.reset(cloud[0])
    for name, value in server.environment(cloud[0]).items():
        monkeypatch.setenv(name, value)
    return Connections(server.REGION)


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
    """All jobs that Batch was ever given, children of arrays left out."""
    jobs = connections.client("batch").describe_jobs(jobs=[])["jobs"]
    return [each for each in jobs if ":" not in each["jobId"]]


def check_measured(bench: Bench, connections: Connections, bucket: str) -> None:
    """Check that two datasets of one system were one array, which waited for the job that built their index."""
    results = [job.result for job in read_jobs(bench.results / "quickstart")]
    assert [result.outcome for result in results] == [Outcome.OK, Outcome.OK]
    for result in results:
        assert result.spec.instance_type == result.environment.instance_type == TYPE
        assert result.instance is not None and result.instance.instance_id.startswith("i-")
        assert result.observed.shared_host is False
        assert result.measured.effective is not None
        assert result.measured.effective.memory_bytes == result.spec.envelope.memory_bytes
    assert sorted(each.get("arrayProperties", {}).get("size", 1) for each in submitted(connections)) == [1, 2]
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
            assert len(submitted(connections)) == 2, "nothing was left to do, and nothing more is submitted"
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
