"""Failures of AWS that may pass."""

from __future__ import annotations

import pytest

from harness.aws.passing import MOST_FAILURES, until_answered
from harness.errors import AwsError


class Asked:
    """Answers once it has failed as often as it was told."""

    def __init__(self, failures: int, code: str = "Busy") -> None:
        self.failures, self.code = failures, code
        self.said: list[str] = []
        self.waits = 0

    def answer(self) -> str:
        if self.waits < self.failures:
            raise AwsError("AWS is busy", self.code)
        return "answer"

    def wait(self) -> None:
        self.waits += 1

    def run(self) -> str:
        return until_answered(self.answer, self.said.append, self.wait)


def test_what_passes_is_waited_for_and_said_once() -> None:
    asked = Asked(MOST_FAILURES)
    assert asked.run() == "answer" and asked.waits == MOST_FAILURES
    assert asked.said == ["AWS is busy - trying on"]


def test_a_failure_that_lasts_is_given_up() -> None:
    asked = Asked(MOST_FAILURES + 1)
    with pytest.raises(AwsError, match="AWS is busy"):
        asked.run()
    assert asked.waits == MOST_FAILURES


def test_what_does_not_pass_is_not_waited_for() -> None:
    asked = Asked(1, "AccessDenied")
    with pytest.raises(AwsError):
        asked.run()
    assert asked.waits == 0 and asked.said == []
