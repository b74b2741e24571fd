"""What a suite has in Batch, as data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from harness import hardware, instances
from harness.aws import uri
from harness.batch import names
from harness.batch.definition import command
from harness.batch.resources import Resource, resources
from harness.batch.wanted import Stack, Wanted, needs, room_mib
from harness.errors import UsageError
from tests.batch.conftest import AGENT

Make = Callable[..., Stack]


def of(kind: str, made: list[Resource]) -> dict[str, dict[str, Any]]:
    return {each.name: each.properties for each in made if each.kind == kind}


def required(properties: dict[str, Any]) -> dict[str, str]:
    asked = properties["ContainerProperties"]["ResourceRequirements"]
    return {each["Type"]: each["Value"] for each in asked}


def test_one_definition_for_each_image_and_profile_and_one_queue_for_each_type(stack: Make) -> None:
    made = resources(stack())
    assert set(of("AWS::Batch::JobDefinition", made)) == {
        "harness-quick-bm25-cpu1-mem1",
        "harness-quick-bm25-cpu2-mem4",
        "harness-quick-null-cpu2-mem4",
    }
    assert len(of("AWS::Batch::JobQueue", made)) == len(of("AWS::Batch::ComputeEnvironment", made)) == 2
    assert len({each.logical for each in made}) == len(made)


def test_a_job_takes_its_whole_instance_unless_it_shares_it(stack: Make) -> None:
    name = "harness-quick-bm25-cpu2-mem4"
    alone = required(of("AWS::Batch::JobDefinition", resources(stack()))[name])
    shared = required(of("AWS::Batch::JobDefinition", resources(stack(shared=True, wanted=stack().wanted[1:])))[name])
    assert alone == {"VCPU": "4", "MEMORY": "512"}
    assert shared == {"VCPU": "3", "MEMORY": str(4096 + 1024)}


# What ECS has registered of these types, in MiB; Batch keeps 32 more.
REGISTERED = {
    "m5.xlarge": 15586,
    "m5.2xlarge": 31377,
    "m5.4xlarge": 62960,
    "m5.24xlarge": 378665,
    "c5.2xlarge": 15473,
    "c5.9xlarge": 70351,
    "c5.18xlarge": 140780,
}


def test_no_job_asks_for_more_memory_than_hosts_register(stack: Make) -> None:
    """It would wait for ever."""
    known = instances.read("aws")
    for name, registered in REGISTERED.items():
        assert room_mib(known[name]) <= registered - 32, name
        wanted = Wanted("bm25", hardware.profile("cpu1-mem1"), known[name], 600)
        assert needs(wanted, shared=False) == (known[name].vcpus, 512)


def test_the_filled_in_command_fits_into_what_ecs_takes(stack: Make) -> None:
    """8192 characters of overrides: the command with its parameters, and the variables that Batch adds."""
    made = stack(suite="s" * 63, work=uri.parse("s3://" + "b" * 63 + "/" + "p" * 200))
    for properties in of("AWS::Batch::JobDefinition", resources(made)).values():
        filled = [("x" * 128 if word.startswith("Ref::") else word) for word in command(made)]
        variables = properties["ContainerProperties"]["Environment"]
        overrides = {"containerOverrides": [{"name": "default", "command": filled, "environment": variables}]}
        assert len(json.dumps(overrides)) < 7300
    with pytest.raises(UsageError, match="shorten the prefix"):
        resources(stack(work=uri.parse("s3://bucket/" + "/".join(["p" * 100] * 12))))


def test_results_of_a_shared_host_say_so(stack: Make) -> None:
    for shared, says in ((False, "0"), (True, "1")):
        made = resources(stack(shared=shared, wanted=stack().wanted[1:]))
        for properties in of("AWS::Batch::JobDefinition", made).values():
            told = {each["Name"]: each["Value"] for each in properties["ContainerProperties"]["Environment"]}
            assert told == {"HARNESS_SHARED_HOST": says, "HARNESS_GPUS": "0"}


def test_only_what_a_host_did_is_tried_again(stack: Make) -> None:
    """What no rule matches Batch would try again, so the last rule matches everything."""
    for properties in of("AWS::Batch::JobDefinition", resources(stack())).values():
        retries = properties["RetryStrategy"]
        assert retries["Attempts"] == 3
        assert ends_as(retries, status_reason="Host EC2 (instance i-1) terminated.") == "RETRY"
        assert len(retries["EvaluateOnExit"]) <= 5
        failed, exited = "Task failed to start", "Essential container in task exited"
        assert ends_as(retries, status_reason=failed, reason="CannotPullContainerError: timeout") == "RETRY"
        assert ends_as(retries, status_reason=failed, reason="CannotStartContainerError: API error") == "RETRY"
        assert ends_as(retries, status_reason=failed, reason="DockerTimeoutError: Could not transition") == "RETRY"
        assert ends_as(retries, status_reason=exited, reason="", exit_code=1) == "EXIT"
        assert ends_as(retries, status_reason=exited, reason="OutOfMemoryError: killed", exit_code=137) == "EXIT"
        assert ends_as(retries, status_reason="Essential container in task exited", exit_code=1) == "EXIT"
        assert ends_as(retries, status_reason="Job attempt duration exceeded timeout", reason="x") == "EXIT"


def ends_as(retries: dict[str, Any], *, status_reason: str = "", reason: str = "", exit_code: int | None = None) -> str:
    """As Batch reads the rules: the first whose conditions all hold; else it tries again."""
    said = {
        "OnStatusReason": status_reason,
        "OnReason": reason,
        "OnExitCode": "" if exit_code is None else str(exit_code),
    }
    for rule in retries["EvaluateOnExit"]:
        conditions = {key: value for key, value in rule.items() if key != "Action"}
        if all(fits(pattern, said[key]) for key, pattern in conditions.items()):
            return str(rule["Action"])
    return "RETRY"


def fits(pattern: str, text: str) -> bool:
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern


def test_machines_come_and_go_by_themselves_and_nothing_comes_in(stack: Make) -> None:
    made = resources(stack(most_instances=5, disk_gib=200))
    environment = of("AWS::Batch::ComputeEnvironment", made)[names.queue("quick", "c7g.xlarge")]
    computing = environment["ComputeResources"]
    assert (computing["MinvCpus"], computing["MaxvCpus"]) == (0, 20)
    assert "DesiredvCpus" not in computing, "an update of the stack would set it back under running jobs"
    assert (computing["Type"], computing["InstanceTypes"]) == ("EC2", ["c7g.xlarge"])
    [template] = of("AWS::EC2::LaunchTemplate", made).values()
    data = template["LaunchTemplateData"]
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert data["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
    assert data["BlockDeviceMappings"][0]["Ebs"]["Encrypted"] is True
    assert data["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 200
    assert "KeyName" not in data
    tagged = {each["Key"]: each["Value"] for each in data["TagSpecifications"][0]["Tags"]}
    assert tagged == {
        "harness:suite": "quick",
        "harness:launcher": "batch",
        "harness:owner": {"Ref": "Owner"},
        "Name": "harness-batch-quick",
    }
    [group] = of("AWS::EC2::SecurityGroup", made).values()
    assert "SecurityGroupIngress" not in group


def test_spot_gpu_machines_get_the_gpu_image(stack: Make) -> None:
    gpu = Wanted("bm25", hardware.profile("gpu1-cpu1-mem4"), instances.read("aws")["g4dn.xlarge"], 600)
    made = resources(stack(wanted=(gpu,), spot=True))
    [environment] = of("AWS::Batch::ComputeEnvironment", made).values()
    assert environment["ComputeResources"]["Type"] == "SPOT"
    assert environment["ComputeResources"]["Ec2Configuration"] == [{"ImageType": "ECS_AL2023_NVIDIA"}]
    [definition] = of("AWS::Batch::JobDefinition", made).values()
    assert required(definition)["GPU"] == "1"
    with pytest.raises(UsageError, match="a GPU is not shared"):
        resources(stack(wanted=(gpu,), shared=True))


def test_what_could_never_run_is_refused(stack: Make) -> None:
    """Batch would take it, and let it wait for ever."""
    small = Wanted("bm25", hardware.profile("cpu1-mem4"), instances.read("aws")["c7g.large"], 600)
    with pytest.raises(UsageError, match=r"needs 2 vCPU, 5120 MiB and 0 GPU, and c7g\.large leaves a job 2 vCPU"):
        resources(stack(wanted=(small,), shared=True))


def test_the_agent_has_the_hosts_engine_and_no_other_privilege(stack: Make) -> None:
    for properties in of("AWS::Batch::JobDefinition", resources(stack())).values():
        container = properties["ContainerProperties"]
        assert container["Image"] == AGENT
        assert "Privileged" not in container
        mounted = {each["ContainerPath"] for each in container["MountPoints"]}
        assert mounted == {"/var/run/docker.sock", "/var/lib/harness"}
        assert container["Command"][-4:] == ["Ref::run", "Ref::group", "Ref::bundle", "Ref::sha256"]
        # AWS' own limit of what a task definition may hold.
        assert len(json.dumps(properties)) < 24_000


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com/a/python:3.12", "a/python"),
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com/python@sha256:0", "python"),
        (AGENT, None),
    ],
)
def test_hosts_may_fetch_the_agent_from_ones_own_registry(stack: Make, image: str, repository: str | None) -> None:
    roles = of("AWS::IAM::Role", resources(stack(agent_image=image)))
    host = roles[names.role("quick", stack().region, "host")]
    statements = {each["Sid"]: each for each in host["Policies"][0]["PolicyDocument"]["Statement"]}
    if repository is None:
        assert "AgentImage" not in statements
        return
    assert statements["RegistryLogin"]["Action"] == ["ecr:GetAuthorizationToken"]
    assert set(statements["AgentImage"]["Action"]) >= {"ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"}
    arn = f"arn:${{AWS::Partition}}:ecr:eu-west-1:123456789012:repository/{repository}"
    assert statements["AgentImage"]["Resource"] == {"Fn::Sub": arn}


def test_names_stay_distinct_and_short() -> None:
    long = "x" * 63
    assert names.queue("a", "c7g.large") == "harness-a-c7g-large"
    assert names.definition("a.b", "c", "d") != names.definition("a-b", "c", "d")
    first, second = (names.role(long, "ap-southeast-1", kind) for kind in ("host", "job"))
    assert first != second
    assert max(len(first), len(second)) <= 64
    assert len(names.definition(long, "y" * 63, "z" * 63)) <= 128
    assert names.logical("Queue", "c7g.large") != names.logical("Queue", "c7gl.arge")
    assert names.logical("Queue", "c7g.large").isalnum()
