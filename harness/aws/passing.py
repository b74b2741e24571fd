"""Failures of AWS that may pass by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from harness.errors import AwsError

# May be over with the next try, and says nothing about whether the thing was done.
PASSING = frozenset({"Busy", "Unreached"})
# How many in a row before it is given up: five minutes at the usual interval, each with boto3's own retries.
MOST_FAILURES = 30

Answer = TypeVar("Answer")


def until_answered(ask: Callable[[], Answer], say: Callable[[str], None], wait: Callable[[], None]) -> Answer:
    """What ``ask`` returns, which is asked again after each failure that may pass.

    Raises:
        AwsError: another failure, or too many in a row.
    """
    failures = 0
    while True:
        try:
            return ask()
        except AwsError as error:
            failures += 1
            if error.code not in PASSING or failures > MOST_FAILURES:
                raise
            if failures == 1:
                say(f"{error} - trying on")
        wait()
