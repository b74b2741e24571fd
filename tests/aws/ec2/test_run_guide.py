"""Compare docs/guides/ec2.md with the code: its policies are deployed, and every command on it works."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import boto3
import pytest
from click.testing import CliRunner

from harness.aws.clients import S3Uri
from harness.cli import main
from harness.remote.watch import Timeouts
from tests.aws import policies
from tests.aws.ec2.conftest import PROFILES, FakeShipper, Field, launched_and_terminated
from tests.aws.ec2.test_run_command import _Engine
from tests.aws.server import REGION
from tests.conftest import Bench

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "ec2.md").read_text(encoding="utf-8")
WORK = S3Uri("my-harness-work")
PAPER = "suites/santhanam2023-msmarco.toml"
OTHER_PAPER = "suites/santhanam2023-xortydi.toml"


def _block(title: str) -> object:
    found = re.search(rf"<!-- {title} -->\n```json\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_guide_shows_the_deployed_worker_policy() -> None:
    assert _block("policy of the workers") == policies.of_role("worker", WORK, of_account="*")


def _commands() -> list[list[str]]:
    lines = [line for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    assert all(line.startswith("$ harness ") for line in lines)
    return [shlex.split(line.removeprefix("$ harness ")) for line in lines]


def test_every_command_of_the_guide_works(bench: Bench, aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's suite is a small one here; workers are threads."""
    monkeypatch.setattr("harness.launch.docker.DockerLauncher", _Engine)
    monkeypatch.setattr("harness.remote.shipment.Shipper", lambda work, _, cache: FakeShipper(work, cache))
    monkeypatch.setattr(Timeouts.__init__, "__defaults__", (0.1, *(Timeouts.__init__.__defaults__ or ())[1:]))
    monkeypatch.setattr("tests.aws.ec2.conftest.WORK", WORK)
    monkeypatch.setenv("HARNESS_CACHE", str(bench.cache))
    monkeypatch.chdir(bench.folder)
    field = Field(bench, aws)
    path = field.bench.suite(field.text, systems=list(field.systems), profiles=list(PROFILES))
    commands = [
        [str(path) if word == PAPER else word for word in command if word != OTHER_PAPER] for command in _commands()
    ]
    assert len(commands) == 8
    outputs = []
    for command in commands:
        before = launched_and_terminated()
        if command[0] == "run" and "--dry-run" not in command:
            with field.workers(queries=field.queries()):
                result = CliRunner().invoke(main, command)
        else:
            result = CliRunner().invoke(main, command)
            assert launched_and_terminated() == before
        assert result.exit_code == 0, (command, result.output, result.exception)
        outputs.append(result.output)
    assert "accepted" in outputs[1] and "never more than US$" in outputs[2]
    assert "18 jobs run" in outputs[3] and all(system in outputs[3] for system in field.systems)
    assert (bench.folder / "results" / "test-suite" / "report.html").exists()
    assert launched_and_terminated()[0] == launched_and_terminated()[1] > 0
    assert "all your instances and disks are gone" in outputs[5]
    assert "no instance" in outputs[-1]
    assert boto3.client("s3", REGION).list_buckets()["Buckets"] == []
    groups = boto3.client("ec2", REGION).describe_security_groups()["SecurityGroups"]
    assert [group["GroupName"] for group in groups] == ["default"]
    iam = boto3.client("iam")
    assert not [role for role in iam.list_roles()["Roles"] if "harness" in role["RoleName"]]
    assert iam.list_instance_profiles()["InstanceProfiles"] == []
