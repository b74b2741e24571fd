"""Rights of those who set up, run and work, held against requests as they are sent."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from harness.aws import clients, cloudformation
from harness.aws.clients import Connections, S3Uri
from harness.aws.ec2 import account, instances
from harness.aws.ec2 import instances as regions
from harness.aws.objects import Objects
from harness.errors import RemoteError
from tests.aws import policies, rights, server
from tests.aws.server import ACCOUNT, REGION

WORK = S3Uri("harness-work", "some/prefix")
NAME = account.stack_name(WORK, REGION)
OWNER = {clients.OWNER: "0123456789ab"}
TAGGED = {**OWNER, clients.EXPIRY: "2030-01-01T00:00:00Z"}
IAM = f"arn:aws:iam::{ACCOUNT}"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


class Account:
    """An account stack, and what IAM would have denied to a key since the last look."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        connections = Connections(REGION)
        up = functools.partial(account.up, connections, WORK, OWNER[clients.OWNER], ["m6i.large"])
        server.made_once(endpoint, "account", up)
        found = account.find(connections, WORK)
        assert found is not None
        self.made = found
        self.image = regions.ami(connections, "al2023", "x86_64", False).image_id
        self._looked = 0

    def client(self, service: str, key: str) -> Any:
        session = boto3.session.Session(key, server.SECRET_KEY, server.TOKEN, REGION)
        return session.client(service, endpoint_url=self.endpoint)

    def denied(self, key: str, given: list[rights.Policy], do: Callable[[], Any]) -> list[str]:
        """Actions that are denied of those that something asks; moto may refuse it too."""
        before = len(server.requests(self.endpoint))
        with contextlib.suppress(ClientError, RemoteError):
            do()
        made = server.requests(self.endpoint)[before:]
        return [right.action for right in rights.needed_rights(made, key) if not rights.allows(given, right)]


@pytest.fixture
def there(aws: str) -> Account:
    return Account(aws)


@pytest.fixture
def runner(there: Account) -> Callable[[Callable[[], Any]], list[str]]:
    given = [rights.of_policy(f"{NAME}-runner")]
    return lambda do: there.denied(server.RUNNER_KEY, given, do)


@pytest.fixture
def keeper(there: Account) -> Callable[[Callable[[], Any]], list[str]]:
    given = [account.policy("keeper", WORK, REGION, [])]
    return lambda do: there.denied(server.KEEPER_KEY, given, do)


def launch(there: Account, **changes: Any) -> Callable[[], Any]:
    """Ask for a worker as a run does, with these changes; ``tagged`` are its tags, ``None``: none."""
    marks = changes.pop("tagged", TAGGED)
    specifications = [
        {"ResourceType": kind, "Tags": clients.as_list(marks)} for kind in ("instance", "volume") if marks is not None
    ]
    request = {
        "ImageId": there.image,
        "InstanceType": "m6i.large",
        "MinCount": 1,
        "MaxCount": 1,
        "SecurityGroupIds": [there.made.security_group],
        "IamInstanceProfile": {"Name": there.made.worker_profile},
        "TagSpecifications": specifications,
        **changes,
    }
    return lambda: there.client("ec2", server.RUNNER_KEY).run_instances(**request)


def test_runner_may_launch_and_end_a_worker(there: Account, runner: Any) -> None:
    ids: list[str] = []
    assert runner(lambda: ids.append(launch(there)()["Instances"][0]["InstanceId"])) == []
    assert runner(lambda: there.client("ec2", server.RUNNER_KEY).terminate_instances(InstanceIds=ids)) == []


@pytest.mark.parametrize(
    ("changes", "denied"),
    [
        ({"tagged": None}, {"ec2:RunInstances"}),
        ({"tagged": OWNER}, {"ec2:RunInstances"}),
        ({"tagged": {clients.EXPIRY: "2030-01-01T00:00:00Z"}}, {"ec2:RunInstances"}),
        ({"InstanceType": "m6i.xlarge"}, {"ec2:RunInstances"}),
        ({"IamInstanceProfile": {"Name": "admin"}}, {"iam:PassRole"}),
        ({"IamInstanceProfile": {"Name": f"{NAME}-reaper"}}, {"iam:PassRole"}),
        ({"SecurityGroupIds": ["sg-00000000"]}, {"ec2:RunInstances"}),
        ({"KeyName": "mine"}, {"ec2:RunInstances"}),
    ],
)
def test_runner_may_not_launch_an_unplanned_worker(
    there: Account, runner: Any, changes: dict[str, Any], denied: set[str]
) -> None:
    """A worker without an expiry would outlive its cap, one without an owner could not be ended."""
    assert set(runner(launch(there, **changes))) == denied


def test_runner_may_not_end_or_tag_other_resources(there: Account, runner: Any) -> None:
    """A right to tag any instance would be a right to end it."""
    mine = boto3.client("ec2", region_name=REGION)
    foreign = mine.run_instances(ImageId=there.image, MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    client = there.client("ec2", server.RUNNER_KEY)
    marks = clients.as_list(OWNER)
    assert runner(lambda: client.terminate_instances(InstanceIds=[foreign])) == ["ec2:TerminateInstances"]
    mine.run_instances(ImageId=there.image, MinCount=1, MaxCount=1)
    other = mine.run_instances(ImageId=there.image, MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    assert runner(lambda: client.create_tags(Resources=[other], Tags=marks)) == ["ec2:CreateTags"]
    volume = mine.create_volume(AvailabilityZone=f"{REGION}a", Size=1)["VolumeId"]
    assert runner(lambda: client.delete_volume(VolumeId=volume)) == ["ec2:DeleteVolume"]


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("create_role", {"RoleName": f"{NAME}-more", "AssumeRolePolicyDocument": json.dumps(TRUST)}),
        ("put_role_policy", {"RoleName": f"{NAME}-worker", "PolicyName": "harness", "PolicyDocument": "{}"}),
        ("attach_role_policy", {"RoleName": f"{NAME}-worker", "PolicyArn": f"{IAM}:policy/{NAME}-runner"}),
        ("update_assume_role_policy", {"RoleName": f"{NAME}-worker", "PolicyDocument": json.dumps(TRUST)}),
        ("delete_role_permissions_boundary", {"RoleName": f"{NAME}-worker"}),
        ("create_policy_version", {"PolicyArn": f"{IAM}:policy/{NAME}-runner", "PolicyDocument": "{}"}),
        ("delete_role", {"RoleName": f"{NAME}-worker"}),
    ],
)
def test_runner_may_not_create_or_change_a_role(
    there: Account, runner: Any, call: str, arguments: dict[str, Any]
) -> None:
    iam = there.client("iam", server.RUNNER_KEY)
    name = "".join(word.capitalize() for word in call.split("_"))
    assert runner(lambda: getattr(iam, call)(**arguments)) == [f"iam:{name}"]


def stack_of(kind: str, **properties: Any) -> str:
    """Return a template of one resource."""
    return json.dumps({"Resources": {"Made": {"Type": kind, "Properties": properties}}})


def deploy(monkeypatch: pytest.MonkeyPatch, name: str, body: str, key: str) -> Callable[[], Any]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    connections = Connections(REGION)
    return lambda: cloudformation.deploy(connections, name, body, {}, OWNER, named_iam=True)


def test_runner_may_not_create_a_role_through_a_stack(
    there: Account, runner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CloudFormation acts with the rights of who calls it."""
    body = stack_of("AWS::IAM::Role", RoleName="more", AssumeRolePolicyDocument=TRUST)
    assert runner(deploy(monkeypatch, "harness-evil", body, server.RUNNER_KEY)) == ["iam:CreateRole", "iam:TagRole"]
    needs = [{"Type": "VCPU", "Value": "1"}, {"Type": "MEMORY", "Value": "100"}]
    container = {"Image": "x@sha256:1", "JobRoleArn": f"{IAM}:role/admin", "ResourceRequirements": needs}
    definition = {"JobDefinitionName": "harness-other-bm25", "Type": "container", "ContainerProperties": container}
    other = stack_of("AWS::Batch::JobDefinition", **definition)
    assert runner(deploy(monkeypatch, "harness-other", other, server.RUNNER_KEY)) == ["iam:PassRole"]
    change = deploy(monkeypatch, NAME, other, server.RUNNER_KEY)
    assert "cloudformation:UpdateStack" in runner(change), "the account stack is not his"


def test_runner_may_end_only_jobs_of_harness(there: Account, runner: Any) -> None:
    given = rights.of_policy(f"{NAME}-runner")
    job = f"arn:aws:batch:{REGION}:{ACCOUNT}:job/x"
    assert rights.allows(
        [given], rights.NeededRight("", "batch:TerminateJob", job, {"aws:resourcetag/harness:owner": "0"})
    )
    assert not rights.may(given, "batch:TerminateJob", job)
    assert not rights.may(given, "batch:CancelJob", job)
    assert not rights.may(given, "batch:TagResource", job), "only with our tag"


def test_keeper_may_deploy_all_but_the_boundary(there: Account, keeper: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An administrator makes the boundary once; the runner's policy is not changed under those who have it."""
    monkeypatch.setattr(instances, "regions", lambda _connections: [REGION])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.KEEPER_KEY)
    connections = Connections(REGION)

    def up(work: S3Uri, types: list[str]) -> Callable[[], Any]:
        return lambda: account.up(connections, work, OWNER[clients.OWNER], types)

    def down() -> None:
        account.down(connections, WORK, OWNER[clients.OWNER], results_too=True)

    assert keeper(up(WORK, ["m6i.large"])) == []
    assert set(keeper(up(WORK, ["m6i.xlarge"]))) == {"iam:CreatePolicyVersion"}
    assert keeper(down) == []
    assert keeper(up(WORK, ["m6i.large"])) == [] and keeper(down) == []
    boto3.client("iam").delete_policy(PolicyArn=f"{IAM}:policy/{NAME}-boundary")
    assert set(keeper(up(WORK, ["m6i.large"]))) == {"iam:CreatePolicy"}


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("create_role", {"RoleName": f"{NAME}-more", "AssumeRolePolicyDocument": json.dumps(TRUST)}),
        (
            "create_role",
            {
                "RoleName": f"{NAME}-more",
                "AssumeRolePolicyDocument": json.dumps(TRUST),
                "PermissionsBoundary": f"{IAM}:policy/{NAME}-runner",
            },
        ),
        ("put_role_policy", {"RoleName": "admin", "PolicyName": "harness", "PolicyDocument": "{}"}),
        ("delete_role_permissions_boundary", {"RoleName": f"{NAME}-worker"}),
        (
            "put_role_permissions_boundary",
            {"RoleName": f"{NAME}-worker", "PermissionsBoundary": f"{IAM}:policy/{NAME}-runner"},
        ),
        ("create_policy_version", {"PolicyArn": f"{IAM}:policy/{NAME}-boundary", "PolicyDocument": "{}"}),
        ("create_policy_version", {"PolicyArn": f"{IAM}:policy/{NAME}-runner", "PolicyDocument": "{}"}),
        ("delete_policy", {"PolicyArn": f"{IAM}:policy/{NAME}-boundary"}),
        ("attach_role_policy", {"RoleName": f"{NAME}-worker", "PolicyArn": "arn:aws:iam::aws:policy/Administrator"}),
        ("attach_user_policy", {"UserName": "me", "PolicyArn": f"{IAM}:policy/{NAME}-runner"}),
    ],
)
def test_keeper_may_not_create_a_role_without_the_boundary(
    there: Account, keeper: Any, call: str, arguments: dict[str, Any]
) -> None:
    iam = there.client("iam", server.KEEPER_KEY)
    name = "".join(word.capitalize() for word in call.split("_"))
    assert keeper(lambda: getattr(iam, call)(**arguments)) == [f"iam:{name}"]


def test_role_of_a_keeper_is_limited_by_the_boundary(there: Account, keeper: Any) -> None:
    bounded = f"{IAM}:policy/{NAME}-boundary"
    iam = there.client("iam", server.KEEPER_KEY)
    made = {"RoleName": f"{NAME}-more", "AssumeRolePolicyDocument": json.dumps(TRUST), "PermissionsBoundary": bounded}
    assert keeper(lambda: iam.create_role(**made)) == []
    document = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
    inline = {"RoleName": f"{NAME}-more", "PolicyName": "all", "PolicyDocument": document}
    assert keeper(lambda: iam.put_role_policy(**inline)) == []
    most = account.policy("boundary", WORK, REGION, [], ACCOUNT)
    assert not rights.may(most, "iam:CreateRole", f"{IAM}:role/x") and not rights.may(most, "s3:GetObject", "x")


@pytest.mark.slow
def test_boundary_allows_the_rights_of_every_role() -> None:
    boundary = account.policy("boundary", WORK, REGION, [], ACCOUNT)
    most = {json.dumps(each) for each in boundary["Statement"]}
    roles = [policies.of_role(role, WORK) for role in ("worker", "host", "reaper")]
    given = {json.dumps(each) for role in roles for each in role["Statement"]}
    assert given <= most
    repository = "us-east-1:999988887777:repository/agent"
    login, fetch = policies.of_role("host", WORK, repository)["Statement"][-2:]
    assert fetch["Resource"] == f"arn:aws:ecr:{repository}"
    assert all(rights.may(boundary, action, fetch["Resource"]) for action in fetch["Action"])
    assert {each["Sid"] for each in map(json.loads, most - given)} == {login["Sid"], fetch["Sid"]}, "no more than that"


def worker_may(action: str, name: str, **context: str) -> bool:
    given = policies.of_role("worker", WORK)
    userid = {"aws_userid": "AROAROLE:i-1"}
    return rights.may(given, action, f"arn:aws:s3:::harness-work{name}", **{**userid, **context})


@pytest.mark.slow
def test_worker_may_write_only_its_own_folder() -> None:
    assert worker_may("s3:PutObject", "/some/prefix/workers/AROAROLE:i-1/jobs/k.tar")
    others = ("workers/AROAROLE:i-2/heartbeat.json", "workers/AROAROLE:i-11/x", "workers/x", "runs/r/run.json")
    others += ("runs/r/parts/0001.json", "runs/r/launches/0001.json", "open/r")
    for name in (*others, "inputs/indexes/k.tar.gz", "inputs/bundles/b.tar.gz", "workers/AROAROLE:i-1"):
        assert not worker_may("s3:PutObject", f"/some/prefix/{name}"), name
    assert not worker_may("s3:PutObject", "/other/workers/AROAROLE:i-1/x")
    assert not worker_may("s3:DeleteObject", "/some/prefix/workers/AROAROLE:i-1/x")


@pytest.mark.slow
def test_worker_may_read_inputs_and_runs_and_list_nothing() -> None:
    assert worker_may("s3:GetObject", "/some/prefix/inputs/images/i.tar.gz") and worker_may(
        "s3:GetObject", "/some/prefix/runs/r/run.json"
    )
    assert not worker_may("s3:GetObject", "/some/prefix/workers/AROAROLE:i-2/log.txt")
    assert not worker_may("s3:GetObject", "/elsewhere/inputs/x")
    for prefix in ("", "some/prefix/runs/", "some/prefix/workers/", "some/prefix/inputs/"):
        assert not worker_may("s3:ListBucket", "", s3_prefix=prefix)


@pytest.mark.slow
def test_bucket_of_another_account_is_neither_read_nor_written() -> None:
    """Somebody may have taken a bucket's name after it was deleted."""
    away = {"aws_resourceaccount": "210987654321"}
    assert not worker_may("s3:PutObject", "/some/prefix/workers/AROAROLE:i-1/x", **away)
    assert not worker_may("s3:GetObject", "/some/prefix/inputs/x", **away)
    new = {"s3_if_none_match": "*"}
    assert runner_may("s3:PutObject", "inputs/x", **new) and not runner_may("s3:PutObject", "inputs/x", **new, **away)
    assert not runner_may("s3:GetObject", "inputs/x", **away) and not runner_may("s3:PutObject", "runs/r/x", **away)


def runner_may(action: str, name: str, **context: str) -> bool:
    given = account.policy("runner", WORK, REGION, [], ACCOUNT)
    # The evaluator reads an underscore as the colon of a service, or as a dash.
    creation = context.pop("creation", "")
    more = {"s3_ObjectCreationOperation": creation} if creation else {}
    return rights.may(given, action, f"arn:aws:s3:::harness-work/some/prefix/{name}", **context, **more)


@pytest.mark.slow
def test_runner_may_not_replace_or_delete_an_input() -> None:
    """What workers fetch is nobody's to change, whoever put it there."""
    for name in ("inputs/indexes/x.tar.gz", "inputs/bundles/x.tar.gz", "inputs/templates/x.yaml"):
        assert runner_may("s3:PutObject", name, s3_if_none_match="*", creation="true")
        assert not runner_may("s3:PutObject", name, creation="true"), "over the object that is there"
        assert not runner_may("s3:PutObject", name, s3_if_match="etag", creation="true")
        assert runner_may("s3:PutObject", name, creation="false"), "parts make no object yet"
        assert not runner_may("s3:DeleteObject", name)
        assert runner_may("s3:GetObject", name)


@pytest.mark.slow
def test_runner_may_write_runs_and_no_folder_of_a_worker() -> None:
    for name in ("runs/r/parts/0001.json", "open/r"):
        assert runner_may("s3:PutObject", name, creation="true") and runner_may("s3:DeleteObject", name)
    for name in ("workers/AROAROLE:i-1/jobs/k.tar", "elsewhere", "runs", "inputs"):
        for context in ({"creation": "true"}, {"creation": "false"}, {"s3_if_none_match": "*", "creation": "true"}):
            assert not runner_may("s3:PutObject", name, **context)
        assert not runner_may("s3:DeleteObject", name)
    assert runner_may("s3:GetObject", "workers/AROAROLE:i-1/jobs/k.tar")


def test_shipping_replaces_nothing_and_stays_within_the_rights_of_a_runner(
    there: Account, runner: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In one request, in parts, and as a copy of a worker's index."""
    monkeypatch.setattr("harness.aws.objects._LEAST_PART_BYTES", 5 << 20)
    for name, size in (("small", 5), ("large", (5 << 20) + 1)):
        (tmp_path / name).write_bytes(b"x" * size)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.RUNNER_KEY)
    objects = Objects(Connections(REGION), WORK)

    def ship() -> None:
        for name in ("small", "large"):
            objects.upload_new(f"inputs/images/{name}", tmp_path / name)
            objects.copy_new(f"inputs/images/{name}", f"inputs/indexes/{name}")

    assert runner(ship) == [] and len(list(objects.list("inputs/"))) == 4
    assert set(runner(lambda: objects.put("inputs/images/small", b"forged"))) == {"s3:PutObject"}
    assert runner(lambda: objects.delete(["inputs/images/small"])) == ["s3:DeleteObject"]
    assert set(runner(ship)) == {"s3:AbortMultipartUpload"}, "the bucket's rule drops the parts"
