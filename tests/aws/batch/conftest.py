"""Requirements of a suite, and the outputs of an account stack, in an AWS on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from harness.aws.batch.suite_stack import BatchOptions, StackRequirements
from harness.aws.clients import Connections, parse_uri
from harness.aws.ec2.account import Account
from harness.pricing import instances
from tests.aws import server

AGENT = "python@sha256:" + "a" * 64
ROLE_ID = "AROAEXAMPLEWORKER"
Make = Callable[..., StackRequirements]


@pytest.fixture
def connections(aws: str) -> Connections:
    return Connections(server.REGION)


@pytest.fixture
def wanted() -> Make:
    """Makes requirements of two profiles on two types; options by their names."""
    known = instances.read_instances("aws")

    def make(**changes: Any) -> StackRequirements:
        fixed = {name: changes.pop(name) for name in ("suite", "machines") if name in changes}
        options = BatchOptions(
            **{"region": server.REGION, "work": parse_uri("s3://bucket/work"), "agent_image": AGENT, **changes}
        )
        machines = (
            (instances.hardware_profile("cpu1-mem1"), known["m6gd.medium"]),
            (instances.hardware_profile("cpu2-mem4"), known["c7g.xlarge"]),
        )
        return StackRequirements(**{"suite": "quick", "machines": machines, **fixed}, options=options)

    return make


@pytest.fixture
def account(connections: Connections) -> Account:
    """What an administrator's stack has made; moto wants roles and profiles that exist."""
    iam, ec2 = connections.client("iam"), connections.client("ec2")
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    roles = [iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"] for name in ("worker", "host")]
    profile = iam.create_instance_profile(InstanceProfileName="host")["InstanceProfile"]
    iam.add_role_to_instance_profile(InstanceProfileName="host", RoleName="host")
    [group] = ec2.describe_security_groups(Filters=[{"Name": "group-name", "Values": ["default"]}])["SecurityGroups"]
    return Account(
        vpc=group["VpcId"],
        security_group=group["GroupId"],
        worker_role_id=ROLE_ID,
        worker_role_arn=roles[0]["Arn"],
        worker_profile="worker",
        host_profile_arn=profile["Arn"],
        reaper_rule="reaper",
    )
