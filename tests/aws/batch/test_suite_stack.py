"""A suite's stack: what the template says, and how it is deployed and deleted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.aws import cloudformation, templates
from harness.aws.batch import suite_stack
from harness.aws.batch.suite_stack import StackRequirements, check_fit, command, container_mib, needs
from harness.aws.clients import Connections, parse_uri
from harness.aws.ec2.account import Account
from harness.errors import RemoteError, UsageError
from harness.pricing import instances
from tests.aws import server
from tests.aws.batch.conftest import AGENT, Make
from tests.support.messages import messages

KNOWN = instances.read_instances("aws")
OWNER = "0123456789ab"


def of(kind: str, made: StackRequirements) -> dict[str, dict[str, Any]]:
    """Properties by name, or by logical id."""
    found = templates.parsed(suite_stack.template(made))["Resources"]
    named = {key: each["Properties"] for key, each in found.items() if each["Type"] == f"AWS::{kind}"}
    word = f"{kind.rpartition('::')[2]}Name"
    return {each.get(word, key): each for key, each in named.items()}


def required(properties: dict[str, Any]) -> dict[str, str]:
    required = properties["ContainerProperties"]["ResourceRequirements"]
    return {each["Type"]: each["Value"] for each in required}


@pytest.mark.slow
def test_the_stack_makes_no_role_and_no_security_group_and_names_no_account(wanted: Make) -> None:
    text = suite_stack.template(wanted())
    kinds = {each["Type"].rpartition("::")[0] for each in templates.parsed(text)["Resources"].values()}
    assert kinds == {"AWS::EC2", "AWS::Batch"}
    assert list(of("EC2::LaunchTemplate", wanted())) == ["LaunchTemplate"]
    assert not [secret for secret in server.SECRETS if secret in text]
    assert "arn:aws:" not in text


def test_hosts_are_encrypted_tagged_and_one_hop_from_their_metadata(wanted: Make) -> None:
    [properties] = of("EC2::LaunchTemplate", wanted(disk_gib=300)).values()
    data = properties["LaunchTemplateData"]
    assert data["MetadataOptions"] == {
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 1,
        "HttpEndpoint": "enabled",
    }
    [disk] = data["BlockDeviceMappings"]
    assert disk["Ebs"]["Encrypted"] and disk["Ebs"]["DeleteOnTermination"] and disk["Ebs"]["VolumeSize"] == 300
    for each in data["TagSpecifications"]:
        assert {"Key": "harness:owner", "Value": {"Ref": "Owner"}} in each["Tags"], each["ResourceType"]


@pytest.mark.slow
def test_a_job_takes_its_whole_instance_unless_it_shares_it(wanted: Make) -> None:
    name = "harness-quick-cpu2-mem4"
    alone = required(of("Batch::JobDefinition", wanted())[name])
    shared = required(of("Batch::JobDefinition", wanted(shared=True))[name])
    assert alone == {"VCPU": "4", "MEMORY": "512"}
    assert shared == {"VCPU": "3", "MEMORY": str(4096 + 1024)}


def test_a_job_with_gpus_has_its_host_for_itself() -> None:
    envelope, instance = instances.hardware_profile("gpu1-cpu1-mem4"), KNOWN["g4dn.xlarge"]
    check_fit(envelope, instance, shared=False)
    with pytest.raises(UsageError, match="cannot share a GPU"):
        check_fit(envelope, instance, shared=True)


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


@pytest.mark.parametrize(("name", "registered"), REGISTERED.items())
def test_job_needs_no_more_memory_than_hosts_register(name: str, registered: int) -> None:
    """It would wait for ever."""
    assert container_mib(KNOWN[name]) <= registered - 32
    assert needs(instances.hardware_profile("cpu1-mem1"), KNOWN[name], shared=False) == (KNOWN[name].vcpus, 512)


@pytest.mark.slow
def test_the_filled_in_command_fits_into_what_ecs_takes(wanted: Make) -> None:
    """8192 characters of overrides: the command with its parameters, and the variables that Batch adds."""
    work = parse_uri("s3://" + "b" * 63 + "/" + "p" * 200)
    for properties in of("Batch::JobDefinition", wanted(suite="s" * 63, work=work)).values():
        container = properties["ContainerProperties"]
        assert container["Command"] == command(AGENT, work, server.REGION)
        filled = [("x" * 128 if word.startswith("Ref::") else word) for word in container["Command"]]
        own = {"name": "default", "command": filled, "environment": container["Environment"]}
        assert len(json.dumps({"containerOverrides": [own]})) < 7300
    with pytest.raises(UsageError, match="shorten the prefix"):
        suite_stack.template(wanted(work=parse_uri("s3://bucket/" + "/".join(["p" * 100] * 12))))


@pytest.mark.parametrize(("shared", "value"), [(False, "0"), (True, "1")])
def test_jobs_know_whether_their_host_is_shared(wanted: Make, shared: bool, value: str) -> None:
    for properties in of("Batch::JobDefinition", wanted(shared=shared)).values():
        variables = {each["Name"]: each["Value"] for each in properties["ContainerProperties"]["Environment"]}
        assert variables == {"HARNESS_SHARED_HOST": value, "HARNESS_GPUS": "0"}


@pytest.mark.slow
def test_only_a_hosts_failure_is_tried_again(wanted: Make) -> None:
    """What no rule matches Batch would try again, so the last rule matches everything."""
    exited, failed = "Essential container in task exited", "Task failed to start"
    for properties in of("Batch::JobDefinition", wanted()).values():
        retries = properties["RetryStrategy"]
        assert retries["Attempts"] == suite_stack.ATTEMPTS
        assert len(retries["EvaluateOnExit"]) <= 5
        assert ends_as(retries, status_reason="Host EC2 (instance i-1) terminated.") == "RETRY"
        assert ends_as(retries, status_reason=failed, reason="CannotPullContainerError: timeout") == "RETRY"
        assert ends_as(retries, status_reason=failed, reason="CannotStartContainerError: API error") == "RETRY"
        assert ends_as(retries, status_reason=failed, reason="DockerTimeoutError: Could not transition") == "RETRY"
        assert ends_as(retries, status_reason=exited, reason="") == "EXIT"
        assert ends_as(retries, status_reason=exited, reason="OutOfMemoryError: killed") == "EXIT"
        assert ends_as(retries, status_reason="Job attempt duration exceeded timeout", reason="x") == "EXIT"


def ends_as(retries: dict[str, Any], *, status_reason: str = "", reason: str = "") -> str:
    """As Batch reads the rules: the first whose conditions all hold; else it tries again."""
    reasons = {"OnStatusReason": status_reason, "OnReason": reason}
    for rule in retries["EvaluateOnExit"]:
        conditions = {key: value for key, value in rule.items() if key != "Action"}
        if all(fits(pattern, reasons[key]) for key, pattern in conditions.items()):
            return str(rule["Action"])
    return "RETRY"


def fits(pattern: str, text: str) -> bool:
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern


def test_environments_are_changed_in_place(wanted: Make) -> None:
    """CloudFormation would make a second environment of the same name, and remove one that a queue needs."""
    for properties in of("Batch::ComputeEnvironment", wanted()).values():
        assert properties["ReplaceComputeEnvironment"] is False
        assert "DesiredvCpus" not in properties["ComputeResources"]
        assert "ServiceRole" not in properties  # with another than Batch's own they cannot be changed in place


@pytest.mark.slow
def test_cloudformations_own_linter_finds_only_the_injected_mistake(wanted: Make, tmp_path: Path) -> None:
    """All templates in one call: it takes seconds to start."""
    gpu = (instances.hardware_profile("gpu1-cpu1-mem4"), KNOWN["g4dn.xlarge"])
    paths = [tmp_path / f"{name}.yaml" for name in ("account", "administrator", "suite")]
    for path in paths:
        path.write_text(templates.read(path.stem))
        assert len(path.read_bytes()) < 51_200, "CloudFormation takes no larger one in a request"
    for changes in ({}, {"spot": True, "max_instances": 9}, {"suite": "a.b_c-d"}):
        paths.append(tmp_path / f"clean-{len(paths)}.yaml")
        paths[-1].write_text(suite_stack.template(wanted(machines=(*wanted().machines, gpu), **changes)))
    document = templates.parsed(suite_stack.template(wanted()))
    document["Resources"]["LaunchTemplate"]["Properties"]["LaunchTemplateDate"] = {}
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(document))
    linter = Path(sys.executable).with_name("cfn-lint")
    words = [linter, "--regions", server.REGION, "--include-checks", "I", "--", *paths, wrong]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode in (2, 4, 6, 8), done.stderr
    found = done.stdout
    assert "LaunchTemplateDate" in found and str(wrong) in found
    assert not [path for path in paths if str(path) in found], found


def everything(connections: Connections) -> dict[str, Any]:
    """All that an account has of a suite, as AWS lists it."""
    batch, ec2 = connections.client("batch"), connections.client("ec2")
    return {
        "environments": batch.describe_compute_environments()["computeEnvironments"],
        "queues": batch.describe_job_queues()["jobQueues"],
        "definitions": batch.describe_job_definitions(status="ACTIVE")["jobDefinitions"],
        "templates": ec2.describe_launch_templates()["LaunchTemplates"],
        "stacks": cloudformation.find_tagged(connections, "harness:suite"),
        "instances": ec2.describe_instances()["Reservations"],
    }


def up(
    connections: Connections, made: StackRequirements, account: Account, *subnets: str, owner: str = OWNER
) -> list[str]:
    with messages() as lines:
        suite_stack.up(connections, made, account, owner, subnets)
    return lines


def test_stack_is_created_once_and_removed(
    logged: list[str], connections: Connections, wanted: Make, account: Account
) -> None:
    assert "made" in up(connections, wanted(), account)[-1]
    assert "unchanged" in up(connections, wanted(), account)[-1]
    there = {kind: len(each) for kind, each in everything(connections).items()}
    assert there == {"environments": 2, "queues": 2, "definitions": 2, "templates": 1, "stacks": 1, "instances": 0}
    assert suite_stack.down(connections, "quick") == []
    assert "removed" in logged[-1]
    assert not any(everything(connections).values())
    assert suite_stack.down(connections, "quick") == []
    assert "not there" in logged[-1]
    assert not [secret for secret in server.SECRETS if secret in "".join(logged)]


def test_failed_deletion_can_be_repeated(
    connections: Connections, wanted: Make, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stack's outputs still name the queue, of which Batch lists no jobs."""
    up(connections, wanted(), account)
    batch, name = connections.client("batch"), "harness-quick-c7g-xlarge"
    batch.update_job_queue(jobQueue=name, state="DISABLED")
    batch.delete_job_queue(jobQueue=name)
    with pytest.raises(RemoteError, match="does not exist"):
        suite_stack.listed(connections, name)
    found = cloudformation.find(connections, suite_stack.stack_name("quick"))
    assert found is not None and name in suite_stack.queues(found)
    deleted: list[str] = []
    monkeypatch.setattr(cloudformation, "delete", lambda _, stack: not deleted.append(stack))
    assert suite_stack.down(connections, "quick") == [] and deleted == [found.name]


def test_stack_and_batch_have_what_the_template_says(connections: Connections, wanted: Make, account: Account) -> None:
    up(connections, wanted(), account)
    there = everything(connections)
    [found] = there["stacks"]
    assert found.tags["harness:suite"] == "quick" and found.tags["harness:owner"] == OWNER
    assert found.outputs["WorkPlace"] == "s3://bucket/work"
    assert suite_stack.queues(found) == ["harness-quick-m6gd-medium", "harness-quick-c7g-xlarge"]
    for found in there["environments"]:
        compute = found["computeResources"]
        assert compute["securityGroupIds"] == [account.security_group]
        assert compute["instanceRole"] == account.host_profile_arn
        assert len(compute["subnets"]) == 6
    container = there["definitions"][0]["containerProperties"]
    assert container["jobRoleArn"] == account.worker_role_arn
    assert container["command"] == command(AGENT, wanted().options.work, server.REGION)
    assert there["definitions"][0]["timeout"] == {"attemptDurationSeconds": 86_400}


def test_a_changed_suite_changes_its_stack(connections: Connections, wanted: Make, account: Account) -> None:
    up(connections, wanted(), account)
    assert "changed" in up(connections, wanted(machines=wanted().machines[1:]), account, owner="another")[-1]
    there = everything(connections)
    assert [each["jobQueueName"] for each in there["queues"]] == ["harness-quick-c7g-xlarge"]
    [found] = there["stacks"]
    assert found.tags["harness:owner"] == OWNER, "queues would be replaced for another tag"


def test_machines_do_not_change_under_jobs(
    connections: Connections, wanted: Make, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    up(connections, wanted(), account)
    monkeypatch.setattr(suite_stack, "unfinished_jobs", lambda *_: [suite_stack.BatchJob("j", "j", "RUNNING")] * 2)
    for changed in (wanted(disk_gib=300), wanted(max_instances=9), wanted(spot=True)):
        with pytest.raises(UsageError, match=r"2 jobs of quick are not finished, and their machines would change"):
            up(connections, changed, account)
    [subnet, *_] = connections.client("ec2").describe_subnets()["Subnets"]
    with pytest.raises(UsageError, match="2 jobs of quick are not finished"):
        up(connections, wanted(), account, subnet["SubnetId"])
    with pytest.raises(UsageError, match=r"2 jobs of quick are not finished; end them"):
        suite_stack.down(connections, "quick")
    up(connections, wanted(shared=True), account)  # jobs alone
    assert "unchanged" in up(connections, wanted(shared=True), account)[-1]


def test_subnets_are_of_the_account_stacks_vpc(connections: Connections, wanted: Make, account: Account) -> None:
    ec2 = connections.client("ec2")
    other = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=other, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    with pytest.raises(UsageError, match=f"name --subnet of {account.vpc}"):
        up(connections, wanted(), account, subnet)
    [own, *_] = ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [account.vpc]}])["Subnets"]
    up(connections, wanted(), account, own["SubnetId"])
    [environment, _] = everything(connections)["environments"]
    assert environment["computeResources"]["subnets"] == [own["SubnetId"]]
