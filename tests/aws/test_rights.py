"""The evaluator says what IAM says, and refuses to guess."""

from __future__ import annotations

from typing import Any

import pytest

from tests.aws.rights import Asked, asked, may, unused

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


def test_what_is_denied_is_denied_whatever_allows_it() -> None:
    denied = {**PUT, "Sid": "No", "Effect": "Deny", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
    both = policy(PUT, denied)
    assert may(both, "s3:PutObject", "arn:aws:s3:::b/runs/r/jobs/k", s3_if_none_match="*", aws_SecureTransport="true")
    assert not may(
        both, "s3:PutObject", "arn:aws:s3:::b/runs/r/jobs/k", s3_if_none_match="*", aws_SecureTransport="false"
    )


def test_a_condition_that_is_not_known_is_no_guess() -> None:
    with pytest.raises(AssertionError, match="DateLessThan is not known here"):
        may(policy({**PUT, "Condition": {"DateLessThan": {"aws:CurrentTime": "x"}}}), "s3:PutObject", PUT["Resource"])


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
    assert [(each.action, each.resource) for each in asked([made], "me")] == [
        (action, f"arn:aws:s3:::{name}") for action, name in needed
    ]
    assert list(asked([made], "another")) == []


def test_a_request_of_another_kind_is_told() -> None:
    with pytest.raises(AssertionError, match=r"not known here: PATCH /b"):
        list(asked([request("PATCH", "/b")], "me"))


def test_rights_that_nobody_used_are_listed() -> None:
    used = Asked("me", "s3:PutObject", "arn:aws:s3:::b/runs/r/jobs/k", {"s3:if-none-match": "*"})
    assert unused([policy(PUT)], [used]) == ["Put s3:DeleteObject"]
    assert unused([policy(PUT)], []) == ["Put s3:Put*", "Put s3:DeleteObject"]
