"""The commands, as far as they need no jobs: what they print, and what they say when it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.aws import templates
from harness.aws.clients import Connections
from harness.aws.ec2 import account as accounts
from harness.aws.ec2.account import Account
from harness.cli import main
from tests.aws import server
from tests.conftest import Bench

WORK = "s3://harness-work/place"


def harness(*words: str) -> Result:
    return CliRunner().invoke(main, [*words], env={"HARNESS_WORK": WORK})


@pytest.fixture
def suite(bench: Bench) -> str:
    return str(bench.suite())


@pytest.fixture
def set_up(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """The account stack of the work place is there."""
    monkeypatch.setattr(accounts, "find", lambda _, work: account if str(work) == WORK else None)


def test_up_before_the_account_is_set_up_names_the_command(aws: str, suite: str) -> None:
    Connections(server.REGION).client("s3").create_bucket(Bucket="harness-work")
    done = harness("batch", "up", suite)
    assert done.exit_code == 2
    assert f"ask an administrator to run `harness ec2 up {WORK}`" in done.output


def test_down_reports_a_living_instance(set_up: None, suite: str) -> None:
    """Batch ends its instances with their environment; who removes that by hand may leave one."""
    assert harness("batch", "up", suite).exit_code == 0
    client = Connections(server.REGION).client("ec2")

    def start(**more: str) -> str:
        tags = [
            {"Key": f"harness:{key}", "Value": value}
            for key, value in {"suite": "test-suite", "owner": "o", **more}.items()
        ]
        specifications = [{"ResourceType": "instance", "Tags": tags}]
        started = client.run_instances(ImageId="ami-1", MinCount=1, MaxCount=1, TagSpecifications=specifications)
        return str(started["Instances"][0]["InstanceId"])

    of_batch, of_ec2 = start(launcher="batch"), start()
    shown = harness("batch", "ls").output
    assert of_batch in shown and "create_complete" in shown and "queue     harness-test-suite-" in shown
    assert of_ec2 not in shown, "a worker of EC2, of the same suite"
    done = harness("batch", "down", suite)
    assert done.exit_code == 1
    assert f"STILL ALIVE AND COSTING MONEY: {of_batch}" in done.output
    client.terminate_instances(InstanceIds=[of_batch])
    assert harness("batch", "down", suite).exit_code == 0


@pytest.mark.parametrize("suite_name", ["test-suite", "unknown"])
def test_nothing_to_cancel_is_no_failure(set_up: None, suite: str, suite_name: str) -> None:
    assert harness("batch", "up", suite).exit_code == 0
    done = harness("batch", "cancel", suite_name)
    assert (done.exit_code, done.output) == (0, "0 jobs ended\n")


@pytest.mark.slow
def test_the_template_needs_no_account(suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    done = harness("batch", "template", suite, "--region", "us-east-1")
    assert done.exit_code == 0, done.output
    document = templates.parsed(done.output)
    assert set(document["Parameters"]) == {"WorkerRoleArn", "HostProfileArn", "SecurityGroup", "Subnets", "Owner"}
    assert {each["Type"] for each in document["Resources"].values()} == {
        "AWS::EC2::LaunchTemplate",
        "AWS::Batch::ComputeEnvironment",
        "AWS::Batch::JobQueue",
        "AWS::Batch::JobDefinition",
    }


@pytest.mark.slow
def test_by_default_agents_are_the_official_python_by_digest(suite: str) -> None:
    document = templates.parsed(harness("batch", "template", suite, "--region", "us-east-1").output)
    base = (Path(__file__).parents[3] / "images" / "base" / "base.toml").read_text()
    for each in document["Resources"].values():
        if each["Type"] == "AWS::Batch::JobDefinition":
            name, _, digest = each["Properties"]["ContainerProperties"]["Image"].partition("@")
            assert name == "public.ecr.aws/docker/library/python"
            assert f'digest = "{digest}"' in base


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("up", "{suite}", "--instance", "c5.lage"), "unknown instance type 'c5.lage'"),
        (("up", "{suite}", "--instance", "t3.large"), "t3.large is burstable"),
        (("up", "{suite}", "--region", "mars-1"), "mars-1"),
        (("up", "{suite}", "--work", "/tmp/x"), "is not a place in S3"),
        (("up", "{suite}", "--shared", "--instance", "c5.large"), ""),
        (("up", "nowhere.toml"), "nowhere.toml: this file does not exist"),
    ],
)
def test_wrong_option_is_one_line(set_up: None, suite: str, words: tuple[str, ...], message: str) -> None:
    done = harness("batch", *(word.format(suite=suite) for word in words))
    assert done.exit_code == (2 if message else 0), done.output
    assert message in done.output
    assert "Traceback" not in done.output
