"""The account stack: deployed, deployed again, refused, removed; and what lives beside it: shown, ended."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import CliRunner, Result

from harness.aws import clients, cloudformation, machines
from harness.aws.clients import Connections, S3Uri
from harness.aws.ec2 import account, instances
from harness.aws.ec2 import instances as regions
from harness.aws.objects import Objects
from harness.cli import main
from harness.errors import RemoteError
from harness.jobs.suite import Suite
from harness.pricing.prices import Snapshot
from harness.remote.journal import Journal
from harness.remote.records import RemoteRun
from tests.aws import policies, rights, server
from tests.aws.ec2.conftest import launched_and_terminated
from tests.aws.rights import NeededRight, allows
from tests.aws.server import REGION, SECRETS
from tests.conftest import Bench

WORK = S3Uri("harness-work", "some/prefix")
NAME = account.stack_name(WORK, REGION)


_types_of_suites = machines.types_of_suites
_chosen: dict[tuple[str, ...], list[str]] = {}


def _types_once(suites: Sequence[Suite], named: Collection[str], snapshot: Snapshot) -> list[str]:
    """Choose the types of all hardware profiles once at the same prices, which takes 0.4 s."""
    if suites:
        return _types_of_suites(suites, named, snapshot)
    key = (*named, str(snapshot))
    if key not in _chosen:
        _chosen[key] = _types_of_suites(suites, named, snapshot)
    return _chosen[key]


@pytest.fixture(autouse=True)
def cache(aws: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """moto makes each region with all of its machine images at the first request, which takes seconds.

    After every test as many instances were terminated as were launched.
    """
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    known = instances.regions(Connections(REGION))
    assert {REGION, "eu-west-1"} < set(known)
    monkeypatch.setattr(instances, "regions", lambda _connections: ["eu-west-1", REGION])
    monkeypatch.setattr(machines, "types_of_suites", _types_once)
    yield tmp_path
    launched, terminated = launched_and_terminated("eu-west-1", REGION)
    assert launched == terminated


def harness(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["ec2", *arguments])
    assert result.exit_code == code, result.output
    assert not [secret for secret in SECRETS if secret in result.output]
    return result


def up(*more: str, work: S3Uri = WORK, code: int = 0) -> str:
    return harness("up", str(work), "--instance", "m6i.large", *more, code=code).output


def find(work: S3Uri = WORK) -> account.Account:
    made = account.find(Connections(REGION), work)
    assert made is not None
    return made


def launchable() -> set[str]:
    """Return the instance types that the runner's policy is deployed with."""
    found = cloudformation.find(Connections(REGION), NAME)
    assert found is not None
    return set(found.parameters["InstanceTypes"].split(","))


def owner(region: str = REGION) -> str:
    from harness import config

    return clients.owner(Connections(region), config.cache_folder())


def start(region: str = REGION, owned_by: str | None = None, profile: str | None = None) -> str:
    client = boto3.client("ec2", region_name=region)
    marks = [{"Key": clients.OWNER, "Value": owned_by or owner(region)}, {"Key": clients.RUN, "Value": "r"}]
    image = regions.ami(Connections(region), "al2023", "x86_64", False).image_id
    answer = client.run_instances(
        ImageId=image,
        InstanceType="m6i.large",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": marks}],
        **({"IamInstanceProfile": {"Name": profile}} if profile else {}),
    )
    return str(answer["Instances"][0]["InstanceId"])


def test_up_deploys_everything_and_a_second_call_changes_nothing(aws: str) -> None:
    assert f"made: stack {NAME}" in up() and f"unchanged: stack {NAME}" in up()
    s3, iam, ec2 = boto3.client("s3"), boto3.client("iam"), boto3.client("ec2")
    blocked = s3.get_public_access_block(Bucket=WORK.bucket)["PublicAccessBlockConfiguration"]
    assert all(blocked.values()) and len(blocked) == 4
    rules = s3.get_bucket_lifecycle_configuration(Bucket=WORK.bucket)["Rules"]
    assert {rule["Filter"]["Prefix"]: rule["Expiration"]["Days"] for rule in rules} == {
        f"some/prefix/{folder}/": 90 for folder in ("inputs", "runs", "open", "workers")
    }
    encryption = s3.get_bucket_encryption(Bucket=WORK.bucket)["ServerSideEncryptionConfiguration"]
    assert encryption["Rules"][0]["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    made = find()
    [group] = ec2.describe_security_groups(GroupIds=[made.security_group])["SecurityGroups"]
    assert group["IpPermissions"] == [] and group["VpcId"] == made.vpc
    assert {"Key": clients.OWNER, "Value": owner()} in group["Tags"]
    for kind in ("worker", "host", "reaper"):
        role = iam.get_role(RoleName=f"{NAME}-{kind}")["Role"]
        bounded = role["PermissionsBoundary"]["PermissionsBoundaryArn"]
        assert bounded.endswith(f":policy/{NAME}-boundary")
        assert iam.list_attached_role_policies(RoleName=role["RoleName"])["AttachedPolicies"] == []
    worker = iam.get_role(RoleName=f"{NAME}-worker")["Role"]
    assert (made.worker_role_id, made.worker_role_arn) == (worker["RoleId"], worker["Arn"])
    for profile, role in ((made.worker_profile, "worker"), (made.host_profile_arn.rpartition("/")[2], "host")):
        [held] = iam.get_instance_profile(InstanceProfileName=profile)["InstanceProfile"]["Roles"]
        assert held["RoleName"] == f"{NAME}-{role}"


def test_bucket_of_harness_refuses_requests_without_tls(aws: str) -> None:
    up()
    tls = json.loads(boto3.client("s3").get_bucket_policy(Bucket=WORK.bucket)["Policy"])
    allowed = {"Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}, *tls["Statement"]]}
    for name in (WORK.bucket, f"{WORK.bucket}/some/prefix/runs/r/run.json"):
        plainly = NeededRight("", "s3:GetObject", f"arn:aws:s3:::{name}", {"aws:securetransport": "false"})
        assert not allows([allowed], plainly)
        assert allows([allowed], replace(plainly, context={"aws:securetransport": "true"}))


def test_deployed_policies_equal_the_printed_ones(aws: str) -> None:
    """The printed ones are of any account, and any security group."""
    up()
    printed = json.loads(harness("template", str(WORK), "--instance", "m6i.large", "--policy", "runner").output)
    deployed = json.dumps(rights.of_policy(f"{NAME}-runner")).replace(server.ACCOUNT, "*")
    assert json.loads(deployed.replace(find().security_group, "*")) == printed
    boundary = json.loads(harness("template", str(WORK), "--policy", "boundary").output)
    assert json.loads(json.dumps(rights.of_policy(f"{NAME}-boundary")).replace(server.ACCOUNT, "*")) == boundary
    [inline] = rights.of_role(f"{NAME}-worker")
    assert inline == policies.of_role("worker", WORK)


def test_policies_are_within_iams_limits(aws: str) -> None:
    """With a long prefix, many types and a registry in ECR."""
    work = S3Uri("a-bucket-of-a-name-that-has-forty-letters", "and/a/prefix/of/some/length")
    types = [f"m6gd.{number}xlarge" for number in range(40)]
    for which in ("runner", "boundary", "keeper"):
        made = account.policy(which, work, "us-gov-west-1", types, server.ACCOUNT)
        assert "arn:aws-us-gov:" in str(made)
        assert len(json.dumps(made, separators=(",", ":"))) <= 6144, "IAM's limit for a managed policy"


def deploy_as_printed(text: str, **choices: str) -> cloudformation.Stack:
    """Do what the command in the template's first line does, for an administrator who has no harness."""
    words = shlex.split(text.splitlines()[0].removeprefix("# "))
    assert words[:3] == ["aws", "cloudformation", "deploy"]
    name = words[words.index("--stack-name") + 1]
    given = dict(word.split("=", 1) for word in words[words.index("--parameter-overrides") + 1 :])
    cloudformation.deploy(
        Connections(REGION), name, text, {**given, **choices}, {clients.OWNER: owner()}, named_iam=True
    )
    made = cloudformation.find(Connections(REGION), name)
    assert made is not None
    return made


def test_printed_templates_deploy_what_up_deploys(aws: str) -> None:
    image = "999988887777.dkr.ecr.us-east-1.amazonaws.com/agent@sha256:0"
    deploy_as_printed(harness("template", str(WORK), "--administrator").output)
    most = rights.of_policy(f"{NAME}-boundary")
    assert most == account.policy("boundary", WORK, REGION, [], server.ACCOUNT)
    vpc = boto3.client("ec2").describe_vpcs()["Vpcs"][0]["VpcId"]
    options = ["--instance", "m6i.large", "--agent-image", image]
    found = deploy_as_printed(harness("template", str(WORK), *options).output, Vpc=vpc)
    assert policies.of_role("host", WORK, "us-east-1:999988887777:repository/agent") in rights.of_role(f"{NAME}-host")
    output = up("--agent-image", image)
    assert "boundary" not in output, "it is there"
    again = cloudformation.find(Connections(REGION), NAME)
    assert again is not None and again.parameters == found.parameters and again.outputs == found.outputs


def test_allowed_types_are_those_of_the_suites(aws: str, bench: Bench) -> None:
    suite = str(bench.suite())
    harness("up", str(WORK), suite)
    priced = launchable()
    assert priced and len(priced) <= 2  # its profile's, and its build profile's
    harness("up", str(WORK), suite, "--instance", "c7i.xlarge")
    assert launchable() == {*priced, "c7i.xlarge"}
    up()
    assert len(launchable()) > len(priced), "without a suite: all hardware profiles"
    assert "Did you mean" in harness("up", str(WORK), "--instance", "m6i.lrage", code=2).output


def test_up_leaves_an_existing_boundary_unchanged(aws: str) -> None:
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    boto3.client("iam").create_policy(PolicyName=f"{NAME}-boundary", PolicyDocument=document)
    assert "boundary" not in up()
    assert rights.of_policy(f"{NAME}-boundary")["Statement"] == [statement]


def test_down_removes_everything_but_the_boundary(aws: str) -> None:
    up()
    kept = Objects(Connections(REGION), WORK)
    kept.put("runs/r/run.json", b"{}")
    assert "kept: 1 objects" in harness("down", str(WORK)).output
    assert kept.size("runs/r/run.json") == 2
    assert f"made: stack {NAME}" in up()
    done = harness("down", str(WORK), "--results-too").output
    assert f"removed: bucket {WORK.bucket}" in done and f"kept: policy {NAME}-boundary" in done
    assert harness("down", str(WORK), "--results-too").output == f"not there: stack {NAME}\n"
    assert boto3.client("s3").list_buckets()["Buckets"] == []
    iam = boto3.client("iam")
    assert [role for role in iam.list_roles()["Roles"] if "aws-service-role" not in role["Path"]] == []
    assert iam.list_instance_profiles()["InstanceProfiles"] == []
    assert [each["PolicyName"] for each in iam.list_policies(Scope="Local")["Policies"]] == [f"{NAME}-boundary"]
    groups = boto3.client("ec2").describe_security_groups()["SecurityGroups"]
    assert [each["GroupName"] for each in groups] == ["default"]
    assert boto3.client("events").list_rules()["Rules"] == []
    assert boto3.client("lambda").list_functions()["Functions"] == []


def test_bucket_kept_by_down_keeps_its_policy(aws: str) -> None:
    """The next account stack does not own it, and cannot make it."""
    up()
    Objects(Connections(REGION), WORK).put("runs/r/run.json", b"{}")
    harness("down", str(WORK))
    assert "unchanged: bucket" not in up()
    assert "TlsAlone" in boto3.client("s3").get_bucket_policy(Bucket=WORK.bucket)["Policy"]
    assert len(boto3.client("s3").get_bucket_lifecycle_configuration(Bucket=WORK.bucket)["Rules"]) == 4
    harness("down", str(WORK), "--results-too")
    assert boto3.client("s3").list_buckets()["Buckets"] == []


def test_up_uses_the_vpc_of_the_subnet(aws: str) -> None:
    client = boto3.client("ec2", region_name=REGION)
    vpc = client.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = client.create_subnet(VpcId=vpc, CidrBlock="10.9.1.0/24")["Subnet"]["SubnetId"]
    assert f"--work {WORK} --subnet {subnet} --dry-run" in up("--region", REGION, "--subnet", subnet)
    assert find().vpc == vpc
    assert "no subnet subnet-0" in up("--subnet", "subnet-0", code=2)


def test_a_work_place_that_names_an_account_is_refused(aws: str) -> None:
    for place in ("s3://data-999988887777-use1/x", "s3://x999988887777", "s3://data/999988887777"):
        refused = harness("up", place, code=2).output
        assert "twelve digits" in refused and "999988887777" not in refused
    assert boto3.client("s3").list_buckets()["Buckets"] == []


def test_up_refuses_if_its_bucket_was_removed(aws: str) -> None:
    """CloudFormation compares templates, not what is there: it would make no second bucket."""
    up()
    boto3.client("s3", REGION).delete_bucket(Bucket=WORK.bucket)
    output = up(code=2)
    assert f"the bucket {WORK.bucket} is gone" in output and "harness ec2 down" in output
    harness("down", str(WORK))
    up()
    boto3.client("s3", REGION).head_bucket(Bucket=WORK.bucket)


def test_failed_bucket_policy_leaves_no_bucket(aws: str) -> None:
    """It would be taken for somebody else's, and never be removed."""
    s3 = boto3.client("s3")
    # The bucket is made before the group, which fails.
    boto3.client("iam").create_role(RoleName=f"{NAME}-worker", AssumeRolePolicyDocument="{}")
    assert "WorkerRole (AWS::IAM::Role)" in up(code=1)
    assert s3.list_buckets()["Buckets"] == []
    boto3.client("iam").delete_role(RoleName=f"{NAME}-worker")
    assert f"made: stack {NAME}" in up()


@pytest.mark.parametrize("whose", ["another's", "ours"])
def test_down_keeps_a_bucket_with_other_objects(aws: str, whose: str) -> None:
    if whose == "another's":
        boto3.client("s3").create_bucket(Bucket=WORK.bucket)
    assert ("unchanged: bucket" in up()) == (whose == "another's")
    other = Objects(Connections(REGION), S3Uri(WORK.bucket))
    other.put("theirs", b"x")
    removed = harness("down", str(WORK), "--results-too").output
    assert whose == "another's" or f"kept: bucket {WORK.bucket}" in removed
    assert other.size("theirs") == 1


def test_two_work_places_share_a_bucket(aws: str) -> None:
    other = S3Uri(WORK.bucket, "other")
    up()
    up(work=other)
    assert find().worker_role_arn != find(other).worker_role_arn
    harness("down", str(other), "--results-too")
    assert find() and boto3.client("s3").list_buckets()["Buckets"] == [], "an empty bucket of ours goes"


@pytest.mark.parametrize("region", [REGION, "eu-west-1"])
def test_down_refuses_while_an_instance_is_alive(aws: str, region: str) -> None:
    """The bucket is that of all regions."""
    up()
    start(region)
    refused = harness("down", str(WORK), "--region", REGION, code=2).output
    assert f"1 instances are alive in {region}" in refused and "harness ec2 reap" in refused
    harness("reap", "--yes")
    harness("down", str(WORK), "--region", REGION)


def test_down_refuses_while_other_owners_use_the_work_place(aws: str) -> None:
    up()
    start(owned_by="ffffffffffff", profile=find().worker_profile)
    refused = harness("down", str(WORK), code=2).output
    assert "1 instances are alive" in refused and "--all-owners" in refused
    harness("reap", "--yes", "--all-owners")
    start(owned_by="ffffffffffff")
    assert f"removed: stack {NAME}" in harness("down", str(WORK)).output
    harness("reap", "--yes", "--all-owners")


def test_down_names_a_security_group_in_use(aws: str) -> None:
    up()
    client = boto3.client("ec2")
    subnet = client.describe_subnets()["Subnets"][0]["SubnetId"]
    held = client.create_network_interface(SubnetId=subnet, Groups=[find().security_group])["NetworkInterface"]
    output = harness("down", str(WORK), code=1).output
    assert "SecurityGroup (AWS::EC2::SecurityGroup)" in output and "DependencyViolation" in output
    client.delete_network_interface(NetworkInterfaceId=held["NetworkInterfaceId"])
    assert f"removed: stack {NAME}" in harness("down", str(WORK)).output


def test_account_stack_of_another_version_is_not_found(aws: str) -> None:
    body = {"Resources": {"Group": {"Type": "AWS::EC2::SecurityGroup", "Properties": {}}}}
    vpc = boto3.client("ec2").describe_vpcs()["Vpcs"][0]["VpcId"]
    body["Resources"]["Group"]["Properties"] = {"GroupDescription": "x", "VpcId": vpc}
    cloudformation.deploy(Connections(REGION), NAME, json.dumps(body), {}, {})
    assert account.find(Connections(REGION), WORK) is None
    assert account.find(Connections(REGION), S3Uri("other")) is None


def test_every_request_to_the_work_place_names_its_owner(aws: str) -> None:
    up()
    Objects(Connections(REGION), WORK).put("runs/r/run.json", b"{}")
    before = len(server.requests(aws))
    harness("down", str(WORK), "--results-too")
    made = [each for each in server.requests(aws)[before:] if each["service"] == "s3" and not each["via"]]
    assert len(made) > 3
    assert {each["headers"].get("x-amz-expected-bucket-owner") for each in made} == {server.ACCOUNT}


def test_reap_ends_own_instances_in_all_regions_and_no_others(aws: str) -> None:
    mine = {start(), start("eu-west-1")}
    theirs = start(owned_by="ffffffffffff")
    volume = boto3.client("ec2", region_name="eu-west-1").create_volume(
        AvailabilityZone="eu-west-1a",
        Size=5,
        TagSpecifications=[{"ResourceType": "volume", "Tags": [{"Key": clients.OWNER, "Value": owner()}]}],
    )["VolumeId"]
    listed = harness("ls").output
    assert all(each in listed for each in (*mine, volume)) and theirs not in listed
    assert "1 instances of other owners are alive; --all-owners" in listed
    everybody = harness("ls", "--all-owners").output
    assert theirs in everybody and "another's" in everybody
    done = harness("reap", "--yes").output
    assert "all your instances and disks are gone" in done and volume in done and "1 instances of other owners" in done
    assert "no instance and no left-over disk" in harness("ls").output
    assert theirs in harness("ls", "--all-owners").output
    harness("reap", "--yes", "--all-owners")
    assert "no instance" in harness("ls", "--all-owners").output


def test_reap_needs_yes_and_reports_resources_that_stay(aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = start()
    assert "--yes" in harness("reap", "--region", REGION, code=2).output
    assert made in harness("ls", "--region", REGION).output
    with monkeypatch.context() as patch:
        patch.setattr(instances, "end", lambda *_: None)
        patch.setattr(instances, "WAIT_S", 0.0)
        left = harness("reap", "--region", REGION, "--yes", code=1).output
    assert "NOT GONE: i-" in left and "none of your" not in left
    harness("reap", "--region", REGION, "--yes")


def test_unread_region_is_reported(aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    really = instances.find

    def look(connections: Connections, region: str, marks: Any = None) -> list[instances.OwnedInstance]:
        if region == "eu-west-1":
            raise RemoteError("listing instances: not permitted", "AccessDenied")
        return really(connections, region, marks)

    monkeypatch.setattr(instances, "find", look)
    assert "not looked at: eu-west-1" in harness("ls", code=1).output
    assert "NOT GONE: eu-west-1" in harness("reap", "--yes", code=1).output


def test_closed_region_fails_only_with_an_open_run_in_it(aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    really, closed = instances.find, ["eu-west-1"]

    def look(connections: Connections, region: str, marks: Any = None) -> list[instances.OwnedInstance]:
        if region in closed:
            output = "listing instances: not permitted (User: x is not authorized to perform: ec2:DescribeInstances"
            raise RemoteError(f"{output} with an explicit deny in a service control policy)", "AccessDenied")
        return really(connections, region, marks)

    monkeypatch.setattr(instances, "find", look)
    up("--region", REGION)
    note = "closed to you by a policy, and not looked at: eu-west-1"
    assert note in harness("ls").output
    done = harness("reap", "--yes").output
    assert note in done and "all your instances and disks are gone" in done
    assert "not looked at: eu-west-1: " in harness("ls", "--region", "eu-west-1", code=1).output
    work = Objects(Connections(REGION), WORK)
    Journal(work, RemoteRun("r-1", "ec2", "r", "x", "y", (), {"region": "eu-west-1"})).begin()
    assert "not looked at: eu-west-1: " in harness("ls", "--work", str(WORK), code=1).output
    assert "NOT GONE: eu-west-1: " in harness("reap", "--yes", "--work", str(WORK), code=1).output
    assert note in harness("reap", "--yes", "--work", "s3://gone").output
    harness("down", str(WORK))
    closed.append(REGION)
    assert f"not looked at: {REGION}: " in harness("ls", code=1).output
    assert "Nothing was removed" in harness("down", str(WORK), code=1).output


def test_ls_shows_open_runs(aws: str) -> None:
    up()
    Journal(Objects(Connections(REGION), WORK), RemoteRun("r-1", "ec2", "r", "x", "y", (), {"region": REGION})).begin()
    shown = harness("ls", "--region", REGION, "--work", str(WORK)).output
    assert "open run r-1: 0 jobs" in shown
