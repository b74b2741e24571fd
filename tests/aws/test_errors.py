"""What AWS says when it refuses, as one line; and which requests are repeated."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from harness.aws.errors import aws_errors
from harness.errors import RemoteError
from harness.remote.failures import MOST_FAILURES, concealed, until_answered


@pytest.mark.parametrize(
    ("code", "expected", "words"),
    [
        ("ExpiredToken", "ExpiredToken", "log in again"),
        ("UnauthorizedOperation", "AccessDenied", "not permitted"),
        ("AccessDenied", "AccessDenied", "docs/guides/ec2.md"),
        ("InvalidClientTokenId", "NoCredentials", "does not know"),
        ("SlowDown", "Busy", "again later"),
        ("InternalError", "Busy", "again later"),
        ("RequestTimeTooSkewed", "ClockSkew", "clock"),
        ("InsufficientInstanceCapacity", "InsufficientInstanceCapacity", "InsufficientInstanceCapacity"),
    ],
)
def test_error_code_has_a_remedy(code: str, expected: str, words: str) -> None:
    error = {"Error": {"Code": code, "Message": "User: arn:aws:iam::123456789012:user/x\nmay not"}}
    with pytest.raises(RemoteError, match=words) as caught, aws_errors("launching c7g.large"):
        raise ClientError(error, "RunInstances")
    assert caught.value.code == expected
    assert str(caught.value).startswith("launching c7g.large: ")
    assert "\n" not in str(caught.value)
    assert "123456789012" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("Unavailable", 503, "Busy"),
        ("EC2ThrottledException", 400, "Busy"),
        ("RequestTimeout", 400, "Busy"),
        ("OperationAborted", 409, "Busy"),
        ("502", 502, "Busy"),
        ("504", 504, "Busy"),
        ("SomethingNew", 500, "Busy"),
        # A status of 500 that says more than that.
        ("InsufficientInstanceCapacity", 500, "InsufficientInstanceCapacity"),
        ("InsufficientVolumeCapacity", 500, "InsufficientVolumeCapacity"),
        ("NotImplemented", 501, "NotImplemented"),
        ("SomethingNew", 400, "SomethingNew"),
    ],
)
def test_passing_error_is_found_by_code_or_status(code: str, status: int, expected: str) -> None:
    error = {"Error": {"Code": code, "Message": "x"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    with pytest.raises(RemoteError) as caught, aws_errors("x"):
        raise ClientError(error, "X")
    assert caught.value.code == expected


def test_accounts_and_keys_are_concealed() -> None:
    text = "arn:aws:iam::123456789012:role/x AKIAIOSFODNN7EXAMPLE size 1234567890123"
    assert concealed(text) == "arn:aws:iam::<account>:role/x <access key> size 1234567890123"


def test_unreadable_answer_is_a_passing_error() -> None:
    with pytest.raises(RemoteError, match="no answer that can be read") as caught, aws_errors("listing"):
        raise ResponseParserError("invalid XML received: b'<!doctype html>'")
    assert caught.value.code == "Busy"


class FlakyCall:
    """Call that fails so many times and then answers."""

    def __init__(self, failures: int, code: str = "Busy") -> None:
        self.failures, self.code = failures, code
        self.waits = 0

    def answer(self) -> str:
        if self.waits < self.failures:
            raise RemoteError("AWS is busy", self.code)
        return "answer"

    def wait(self) -> None:
        self.waits += 1

    def run(self) -> str:
        return until_answered(self.answer, self.wait)


def test_passing_error_is_retried_and_logged_once(logged: list[str]) -> None:
    call = FlakyCall(MOST_FAILURES)
    assert call.run() == "answer" and call.waits == MOST_FAILURES
    assert logged == ["AWS is busy - trying on"]


def test_lasting_failure_is_raised() -> None:
    call = FlakyCall(MOST_FAILURES + 1)
    with pytest.raises(RemoteError, match="AWS is busy"):
        call.run()
    assert call.waits == MOST_FAILURES


def test_other_error_is_raised_at_once(logged: list[str]) -> None:
    call = FlakyCall(1, "AccessDenied")
    with pytest.raises(RemoteError):
        call.run()
    assert call.waits == 0 and logged == []
