"""Stacks on moto's CloudFormation: made, changed, rolled back, deleted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import boto3
import pytest

from harness.aws import cloudformation
from harness.aws.clients import Connections, S3Uri
from harness.aws.objects import Objects
from harness.errors import RemoteError
from tests.aws import server
from tests.aws.server import REGION

NAME = "harness-test"
TRUST = {"Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]}


def template(resources: Mapping[str, Any], **outputs: Any) -> str:
    return json.dumps({"Resources": resources, "Outputs": {key: {"Value": value} for key, value in outputs.items()}})


def deploy(body: str, *, tags: Mapping[str, str] = {}) -> Any:
    return cloudformation.deploy(Connections(REGION), NAME, body, {}, tags)


def find() -> cloudformation.Stack | None:
    return cloudformation.find(Connections(REGION), NAME)


def group(description: str = "nothing comes in") -> dict[str, Any]:
    vpc = boto3.client("ec2").describe_vpcs()["Vpcs"][0]["VpcId"]
    return {"Type": "AWS::EC2::SecurityGroup", "Properties": {"GroupDescription": description, "VpcId": vpc}}


def test_stack_is_created_found_updated_and_deleted(logged: list[str], aws: str) -> None:
    assert find() is None
    first = deploy(template({"Group": group()}, Id={"Ref": "Group"}), tags={"whose": "ours"})
    found = find()
    assert found and found.status == "CREATE_COMPLETE" and found.outputs == first and found.tags == {"whose": "ours"}
    [made] = boto3.client("ec2").describe_security_groups(GroupIds=[first["Id"]])["SecurityGroups"]
    assert {"Key": "whose", "Value": "ours"} in made["Tags"]
    assert deploy(template({"Group": group()}, Id={"Ref": "Group"}), tags={"whose": "ours"}) == first
    second = deploy(template({"Group": group("other")}, Id={"Ref": "Group"}))
    assert second["Id"] != first["Id"], "a description is of a new group"
    assert logged == [f"{word}: stack {NAME}" for word in ("made", "unchanged", "changed")]
    assert cloudformation.delete(Connections(REGION), NAME)
    assert find() is None and not cloudformation.delete(Connections(REGION), NAME)
    names = {each["GroupName"] for each in boto3.client("ec2").describe_security_groups()["SecurityGroups"]}
    assert not [name for name in names if name.startswith(NAME)]


def test_failed_creation_names_the_first_resource_and_is_repeated(aws: str) -> None:
    """Nothing of it is left but its name, which CloudFormation cannot update."""
    wrong = group()
    wrong["Properties"]["GroupName"] = "default"
    body = template({"First": group(), "Wrong": wrong})
    with pytest.raises(RemoteError, match=r"Wrong \(AWS::EC2::SecurityGroup\): .*default.*already exists") as caught:
        deploy(body)
    assert "\n" not in str(caught.value) and server.ACCOUNT not in str(caught.value)
    found = find()
    assert found and found.status == "ROLLBACK_COMPLETE"
    assert len(boto3.client("ec2").describe_security_groups()["SecurityGroups"]) == 1
    assert deploy(template({"First": group()}, Id={"Ref": "First"}))["Id"].startswith("sg-")


def test_unexecuted_change_set_is_replaced(logged: list[str], aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, drafts = cloudformation.find, [cloudformation.Stack(NAME, "REVIEW_IN_PROGRESS", {}, {}, {})] * 2
    monkeypatch.setattr(cloudformation, "find", lambda *given: drafts.pop() if drafts else usual(*given))
    assert deploy(template({"Group": group()}, Id={"Ref": "Group"}))["Id"].startswith("sg-")
    assert logged == [f"removed: stack {NAME}", f"made: stack {NAME}"]


def test_a_failed_update_is_rolled_back(aws: str) -> None:
    body = template({"Group": group()}, Id={"Ref": "Group"})
    first = deploy(body)
    wrong = group()
    wrong["Properties"]["GroupName"] = "default"
    with pytest.raises(RemoteError, match=r"Wrong .*default.*already exists"):
        deploy(template({"Added": group(), "Group": group(), "Wrong": wrong}, Id={"Ref": "Group"}))
    found = find()
    assert found and found.status == "UPDATE_ROLLBACK_COMPLETE" and found.outputs == first
    assert len(boto3.client("ec2").describe_security_groups()["SecurityGroups"]) == 2
    assert deploy(template({"Group": group(), "More": group()}, Id={"Ref": "Group"})) == first


def test_a_failed_deletion_names_the_resource(aws: str) -> None:
    deploy(template({"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "full"}}}))
    boto3.client("s3").put_object(Bucket="full", Key="x", Body=b"")
    with pytest.raises(RemoteError, match=r"Bucket \(AWS::S3::Bucket\): .*not empty"):
        cloudformation.delete(Connections(REGION), NAME)
    boto3.client("s3").delete_object(Bucket="full", Key="x")
    assert cloudformation.delete(Connections(REGION), NAME)


def test_iam_resources_need_named_iam(aws: str) -> None:
    role = {"Type": "AWS::IAM::Role", "Properties": {"RoleName": "r", "AssumeRolePolicyDocument": TRUST}}
    body = template({"Role": role}, Id={"Fn::GetAtt": ["Role", "RoleId"]})
    with pytest.raises(RemoteError, match="CAPABILITY_NAMED_IAM"):
        deploy(body)
    assert boto3.client("iam").list_roles()["Roles"] == []
    made = cloudformation.deploy(Connections(REGION), NAME, body, {}, {}, named_iam=True)
    assert made["Id"] == boto3.client("iam").get_role(RoleName="r")["Role"]["RoleId"]


def test_large_template_is_sent_through_s3(aws: str) -> None:
    body = json.loads(template({"Group": group()}, Id={"Ref": "Group"}))
    body["Metadata"] = {"much": "x" * 60_000}
    with pytest.raises(RemoteError, match="51200"):
        deploy(json.dumps(body))
    boto3.client("s3").create_bucket(Bucket="work")
    store = Objects(Connections(REGION), S3Uri("work", "some/prefix"))
    made = cloudformation.deploy(Connections(REGION), NAME, json.dumps(body), {}, {}, store=store)
    assert made["Id"].startswith("sg-")
    (stored,) = store.list("inputs/")
    assert stored.name == f"inputs/templates/{hashlib.sha256(json.dumps(body).encode()).hexdigest()}.yaml"
    cloudformation.deploy(Connections(REGION), "harness-again", json.dumps(body), {}, {}, store=store)
    assert list(store.list("inputs/")) == [stored]


def test_template_of_a_stranger_is_not_deployed(aws: str) -> None:
    """It would be deployed with the rights of whoever deploys."""
    body = json.loads(template({"Group": group()}, Id={"Ref": "Group"}))
    body["Metadata"] = {"much": "x" * 60_000}
    text, forged = json.dumps(body), template({"Other": group()}, Theirs={"Ref": "Other"})
    boto3.client("s3").create_bucket(Bucket="work")
    store = Objects(Connections(REGION), S3Uri("work", "some/prefix"))
    name = f"inputs/templates/{hashlib.sha256(text.encode()).hexdigest()}.yaml"
    store.put(name, forged.encode())
    assert cloudformation.deploy(Connections(REGION), NAME, text, {}, {}, store=store).keys() == {"Id"}
    assert store.get(name, 1 << 20) == forged.encode(), "and it is not replaced"
