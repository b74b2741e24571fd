"""The errors that harness raises on purpose.

HarnessError                 one line for the user; knows its exit code
├── UsageError          (2)  the request cannot be met
│   ├── FileError       (2)  a file is missing, unreadable or wrong: names file, place and fix
│   └── UnknownName     (2)  no system, profile, dataset ... has this name; offers the nearest
├── EngineError         (1)  the Docker engine does not answer or refuses
├── ImageError          (1)  an image or one of its assets could not be made
├── JobError            (1)  one job failed; the failure is stored as its outcome
├── StoreError          (1)  the results folder cannot be written, read or locked
└── RemoteError            (1)  AWS refuses or cannot be reached, or a resource has changed; knows the code
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from harness.driver.records import Outcome

# A longer message is cut in its middle: it quotes a file, and ends with what to do.
_MOST_CHARACTERS = 2000


class HarnessError(Exception):
    """Base class; its text is one line: the problem, its cause, the next step."""

    exit_code = 1

    def __init__(self, text: str = "") -> None:
        half = _MOST_CHARACTERS // 2
        super().__init__(text if len(text) <= _MOST_CHARACTERS else f"{text[:half]} ... {text[-half:]}")

    def __str__(self) -> str:
        """Return the text in characters that every file can hold: a path may have bytes that are not UTF-8."""
        return super().__str__().encode("utf-8", "backslashreplace").decode("utf-8")


class UsageError(HarnessError):
    """A request that cannot be met."""

    exit_code = 2


class FileError(UsageError):
    """A missing or wrong file of the user."""


class UnknownName(UsageError):
    """An unknown name.  The message has the nearest known name alone; without one, all known names and the hint.

    ``besides``: a sentence for both cases, on why the name may be right.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "", *, besides: str = "") -> None:
        names = sorted(known)
        listed = "; ".join(filter(None, (f"known: {', '.join(names) or 'none'}", hint)))
        said = did_you_mean(name, names) or f"; {listed}{'.' if besides else ''}"
        super().__init__(" ".join(filter(None, (f"unknown {kind} {name!r}{said}", besides))))


class EngineError(HarnessError):
    """A failure of the container engine."""


class ImageError(HarnessError):
    """A failed build of an image."""


class StoreError(HarnessError):
    """A failure of the results folder."""


class RemoteError(HarnessError):
    """A failure of AWS.  ``code``: AWS's error code, or one of harness (``ExpiredToken``, ``AccessDenied``,
    ``NoCredentials``, ``Busy``, ``ClockSkew``, ``Unreached`` ...).
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class JobError(HarnessError):
    """A failed job, with the outcome that is stored for it."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a second sentence, ``. Did you mean 'x'?``, for the nearest known name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f". Did you mean {near[0]!r}?" if near else ""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 row``, ``1,200 rows``, ``2 processes``, ``0 queries``."""
    if number == 1:
        return f"1 {noun}"
    several = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {several}"
