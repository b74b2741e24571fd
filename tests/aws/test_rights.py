"""The evaluator says what IAM says, and refuses to guess."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.aws.rights import NeededRight, may, needed_rights, unused

PUT = {
    "Sid": "Put",
    "Effect": "Allow",
    "Action": ["s3:Put*", "s3:DeleteObject"],
    "Resource": "arn:aws:s3:::b/runs/*/jobs/*",
    "Condition": {"Null": {"s3:if-none-match": "false"}},
}


def policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def request(method: str, path: str, query: str = "", body: str = "", **headers: str) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {
        "who": "me",
        "service": "s3",
        "method": method,
        "path": path,
        "query": query,
        "headers": named,
        "body": body,
    }


def test_an_action_a_resource_and_a_condition_must_fit() -> None:
    assert may(policy(PUT), "s3:PutObject", "arn:aws:s3:::b/runs/r/jobs/k", s3_if_none_match="*")
    assert not may(policy(PUT), "s3:PutObject", "arn:aws:s3:::b/runs/r/jobs/k")
    assert not may(policy(PUT), "s3:PutObject", "arn:aws:s3:::b/runs/r/claims/k", s3_if_none_match="*")
    assert not may(policy(PUT), "s3:GetObject", "arn:aws:s3:::b/runs/r/jobs/k", s3_if_none_match="*")


def test_deny_statement_wins_over_allow() -> None:
    denied = {**PUT, "Sid": "No", "Effect": "Deny", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
    both = policy(PUT, denied)
    assert may(both, "s3:PutObject", "arn:aws:s3:::b/runs/r/jobs/k", s3_if_none_match="*", aws_SecureTransport="true")
    assert not may(
        both, "s3:PutObject", "arn:aws:s3:::b/runs/r/jobs/k", s3_if_none_match="*", aws_SecureTransport="false"
    )


def test_unknown_condition_is_an_error() -> None:
    with pytest.raises(AssertionError, match="DateLessThan is not known here"):
        may(policy({**PUT, "Condition": {"DateLessThan": {"aws:CurrentTime": "x"}}}), "s3:PutObject", PUT["Resource"])


def test_policy_variable_is_filled_from_the_request() -> None:
    own = {**PUT, "Resource": "arn:aws:s3:::b/${aws:userid}/*", "Condition": {}}
    assert may(policy(own), "s3:PutObject", "arn:aws:s3:::b/A:1/k", aws_userid="A:1")
    assert not may(policy(own), "s3:PutObject", "arn:aws:s3:::b/A:2/k", aws_userid="A:1")
    assert not may(policy(own), "s3:PutObject", "arn:aws:s3:::b/A:2/k", aws_userid="*"), "a value has no stars"
    assert not may(policy(own), "s3:PutObject", "arn:aws:s3:::b//k")


@pytest.mark.parametrize(
    ("condition", "context", "met"),
    [
        ({"StringEquals": {"ec2:InstanceType": ["a", "b"]}}, {"ec2_InstanceType": "b"}, True),
        ({"StringEquals": {"ec2:InstanceType": ["a", "b"]}}, {"ec2_InstanceType": "c"}, False),
        ({"StringEquals": {"ec2:InstanceType": ["a*"]}}, {"ec2_InstanceType": "ab"}, False),
        ({"StringEquals": {"ec2:InstanceType": ["a"]}}, {}, False),
        ({"StringEquals": {"aws:ResourceAccount": "${aws:PrincipalAccount}"}}, {}, True),
        ({"StringEquals": {"aws:ResourceAccount": "${aws:PrincipalAccount}"}}, {"aws_ResourceAccount": "2"}, False),
        ({"StringLike": {"aws:RequestTag/x": "*", "aws:RequestTag/y": "*"}}, {"aws_RequestTag/x": "1"}, False),
    ],
)
def test_conditions_are_read_as_iam_reads_them(condition: dict[str, Any], context: dict[str, str], met: bool) -> None:
    assert (
        may(policy({**PUT, "Condition": condition}), "s3:PutObject", "arn:aws:s3:::b/runs/r/jobs/k", **context) == met
    )


def sent(service: str, body: Any, path: str = "/", method: str = "POST", **more: Any) -> dict[str, Any]:
    target = more.pop("target", None)
    return {
        **{"who": "me", "service": service, "region": "r", "method": method, "path": path, "query": ""},
        "headers": {"x-amz-target": f"X.{target}"} if target else {},
        "body": body if isinstance(body, str) else json.dumps(body),
        **{"tags": {}, **more},
    }


@pytest.mark.parametrize(
    ("made", "needed"),
    [
        (
            sent("iam", "Action=CreateRole&RoleName=x&PermissionsBoundary=b&Tags.member.1.Key=k"),
            [("iam:CreateRole", "role/x"), ("iam:TagRole", "role/x")],
        ),
        (
            sent("iam", "Action=AddRoleToInstanceProfile&RoleName=x&InstanceProfileName=y"),
            [("iam:PassRole", "role/x"), ("iam:AddRoleToInstanceProfile", "instance-profile/y")],
        ),
        (
            sent("cloudformation", "Action=CreateStack&StackName=x&Tags.member.1.Key=k&RoleARN=arn:aws:iam::1:role/z"),
            [
                ("cloudformation:CreateStack", "stack/x/*"),
                ("cloudformation:TagResource", "stack/x/*"),
                ("iam:PassRole", "role/z"),
            ],
        ),
        (
            sent("lambda", {"FunctionName": "x", "Role": "arn:aws:iam::1:role/z"}, "/2015-03-31/functions"),
            [("lambda:CreateFunction", "function:x"), ("iam:PassRole", "role/z")],
        ),
        (
            sent("batch", {"jobQueue": "q", "jobDefinition": "d", "tags": {"k": "v"}}, "/v1/submitjob"),
            [
                ("batch:SubmitJob", "job-queue/q"),
                ("batch:TagResource", "job/*"),
                ("batch:SubmitJob", "job-definition/d"),
                ("batch:TagResource", "job/*"),
            ],
        ),
        (sent("sts", "Action=GetCallerIdentity"), []),
    ],
)
def test_a_request_of_another_service_needs_its_rights(made: dict[str, Any], needed: list[tuple[str, str]]) -> None:
    found = [(each.action, each.resource) for each in needed_rights([made], "me")]
    assert [action for action, _ in found] == [action for action, _ in needed]
    assert all(arn.endswith(resource) for (_, arn), (_, resource) in zip(found, needed, strict=True)), found


def test_a_request_brings_its_tags_and_its_boundary() -> None:
    [job] = needed_rights([sent("batch", {"jobId": "j"}, "/v1/terminatejob", tags={"j": {"harness:owner": "o"}})], "me")
    assert job.context["aws:resourcetag/harness:owner"] == "o"
    [role] = needed_rights([sent("iam", "Action=PutRolePolicy&RoleName=x", boundary="b")], "me")
    assert role.context["iam:permissionsboundary"] == "b"
    parameter = {"headers": {"x-amz-target": "AmazonSSM.GetParameter"}, "body": '{"Name": "/aws/x"}'}
    [own] = needed_rights([sent("ssm", "", userid="A:1") | parameter], "me")
    assert own.context["aws:userid"] == "A:1"


@pytest.mark.parametrize(
    ("made", "needed"),
    [
        (request("PUT", "/b/a/k", if_none_match="*"), [("s3:PutObject", "b/a/k")]),
        (request("GET", "/b", "list-type=2&prefix=runs%2F"), [("s3:ListBucket", "b")]),
        (request("HEAD", "/b/k%20x"), [("s3:GetObject", "b/k x")]),
        (request("POST", "/b/k", "uploads"), [("s3:PutObject", "b/k")]),
        (request("PUT", "/b/k", "uploadId=1&partNumber=2"), [("s3:PutObject", "b/k")]),
        (request("DELETE", "/b/k", "uploadId=1"), [("s3:AbortMultipartUpload", "b/k")]),
        (request("PUT", "/b/k", x_amz_copy_source="b/old"), [("s3:PutObject", "b/k"), ("s3:GetObject", "b/old")]),
        (
            request(
                "POST", "/b", "delete", "<Delete><Object><Key>x</Key></Object><Object><Key>y</Key></Object></Delete>"
            ),
            [("s3:DeleteObject", "b/x"), ("s3:DeleteObject", "b/y")],
        ),
    ],
)
def test_a_request_of_s3_needs_its_right(made: dict[str, Any], needed: list[tuple[str, str]]) -> None:
    assert [(each.action, each.resource) for each in needed_rights([made], "me")] == [
        (action, f"arn:aws:s3:::{name}") for action, name in needed
    ]
    assert list(needed_rights([made], "another")) == []


def test_unknown_request_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"unknown request to S3: PATCH /b"):
        list(needed_rights([request("PATCH", "/b")], "me"))


def test_unused_rights_are_listed() -> None:
    used = NeededRight("me", "s3:PutObject", "arn:aws:s3:::b/runs/r/jobs/k", {"s3:if-none-match": "*"})
    assert unused([policy(PUT)], [used]) == ["Put s3:DeleteObject"]
    assert unused([policy(PUT)], []) == ["Put s3:Put*", "Put s3:DeleteObject"]
