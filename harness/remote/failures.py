"""Failures of a storage or a backend: which pass, and how long to try again."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

from harness.errors import RemoteError

log = logging.getLogger(__name__)

# May be over with the next try; says nothing about whether the request was carried out.
PASSING = frozenset({"Busy", "Unreached"})
# The user logs in or sets the clock, and gives the command again.
OURS_TO_MEND = frozenset({"ExpiredToken", "NoCredentials", "ClockSkew", "NoRegion"})
# The work place does not exist.
NO_STORAGE = "NoStorage"
# Passing errors in a row before giving up: five minutes at the usual interval, each with the client's own retries.
MOST_FAILURES = 30
_ATTEMPTS = 6
_PAUSE_S = 0.1

_ACCOUNT = re.compile(r"\b\d{12}\b")
ACCESS_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")

Answer = TypeVar("Answer")


@contextmanager
def ignoring(*codes: str) -> Iterator[None]:
    """Leave the block on a RemoteError of one of these codes."""
    try:
        yield
    except RemoteError as error:
        if error.code not in codes:
            raise


def concealed(text: str) -> str:
    """Return a text without account ids and access keys."""
    return ACCESS_KEY.sub("<access key>", _ACCOUNT.sub("<account>", text))


def _back_off(failures: int, _error: RemoteError) -> None:
    time.sleep(_PAUSE_S * 2**failures)


def retry(
    call: Callable[[], Answer],
    transient: Collection[str] | None,
    attempts: int = _ATTEMPTS,
    between: Callable[[int, RemoteError], None] = _back_off,
) -> Answer:
    """Return the value of ``call``; call again after errors of ``transient`` codes, at most ``attempts`` times.

    ``transient`` is ``None`` for all codes.  ``between`` is called before each further attempt, with the number of
    failures so far and the last one.
    """
    for failures in range(1, attempts):
        try:
            return call()
        except RemoteError as error:
            if transient is not None and error.code not in transient:
                raise
            between(failures, error)
    return call()


def until_answered(ask: Callable[[], Answer], wait: Callable[[], None]) -> Answer:
    """Return the value of ``ask``; log the first passing error, and wait after each."""

    def between(failures: int, error: RemoteError) -> None:
        if failures == 1:
            log.info(f"{error} - trying on")
        wait()

    return retry(ask, PASSING, MOST_FAILURES + 1, between)
