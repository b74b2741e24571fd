"""Everything that harness raises on purpose.

HarnessError                 one line for the user; knows its exit code
├── UsageError          (2)  what was asked for cannot be done as asked
│   ├── FileError       (2)  a file is missing, unreadable or wrong: names file, place and fix
│   └── UnknownName     (2)  no such system, profile, dataset ...; offers the nearest name
├── EngineError         (1)  the Docker engine does not answer or refuses
├── ImageError          (1)  an image or one of its assets could not be made
├── JobError            (1)  one job went wrong in a way that is stored as its outcome
├── StoreError          (1)  the results folder cannot be written, read or locked
└── AwsError            (1)  AWS refuses, is not reached, or something of it is not as it was left; knows the code
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from harness.records import Outcome


class HarnessError(Exception):
    """Base of all; its text is one line that says what, why and what to do."""

    exit_code = 1


class UsageError(HarnessError):
    """The request itself is wrong."""

    exit_code = 2


class FileError(UsageError):
    """A file that the user gave is missing or wrong."""


class UnknownName(UsageError):
    """A name that nothing is known by."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        names = sorted(known)
        text = f"unknown {kind} {name!r}{did_you_mean(name, names)}; known: {', '.join(names) or 'none'}"
        super().__init__(f"{text}; {hint}" if hint else text)


class EngineError(HarnessError):
    """The container engine does not do its part."""


class ImageError(HarnessError):
    """An image could not be built."""


class StoreError(HarnessError):
    """The results folder does not do its part."""


class AwsError(HarnessError):
    """AWS does not do its part.  ``code`` is its own error code, or one of ours (``ExpiredToken``, ``AccessDenied``,
    ``NoCredentials``, ``Busy``, ``ClockSkew``, ``Unreached`` ...).
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class JobError(HarnessError):
    """One job failed; carries the outcome that is stored for it."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the nearest known name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
