"""The errors that harness raises on purpose.

HarnessError                 one line for the user; knows its exit code
├── UsageError          (2)  the request cannot be met
│   ├── FileError       (2)  a file is missing, unreadable or wrong: names file, place and fix
│   └── UnknownName     (2)  no system, profile, dataset ... has this name; offers the nearest
├── EngineError         (1)  the Docker engine does not answer or refuses
├── ImageError          (1)  an image or one of its assets could not be made
│   └── MissingWeights  (1)  the weights of an image cannot be had on this host
├── JobError            (1)  one job failed; the failure is stored as its outcome
├── StoreError          (1)  the results folder cannot be written, read or locked
└── RemoteError            (1)  AWS refuses or cannot be reached, or a resource has changed; knows the code
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from harness.driver.records import Outcome

# A longer message is cut in its middle: it quotes a file, and ends with what to do.
_MOST_CHARACTERS = 2000
# Two lines of a terminal: a message about an unknown name, after the place.
MOST_OF_A_NAME = 200
# The most of an unknown name that a message repeats; nothing is near to a longer one.
_MOST_QUOTED = 48


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
    """An unknown name, in at most 200 characters after the ``place``.

    The message has the nearest known name alone; without one, the first known names and the hint.  ``besides``: a
    sentence for both cases, on why the name may be right.
    """

    def __init__(
        self, kind: str, name: str, known: Iterable[str], hint: str = "", *, besides: str = "", place: str = ""
    ) -> None:
        head = f"unknown {kind} {quoted_name(name)}"
        left = MOST_OF_A_NAME - len(head) - (len(besides) + 2 if besides else 0)
        text = head + nearest_or_known(name, known, hint, room=left)
        if besides:
            text += f"{'' if text.endswith('?') else '.'} {besides}"
        if len(text) > MOST_OF_A_NAME:
            text = f"{text[: MOST_OF_A_NAME - 1]}…"
        super().__init__(f"{place}: {text}" if place else text)


class EngineError(HarnessError):
    """A failure of the container engine."""


class ImageError(HarnessError):
    """A failed build of an image."""


class MissingWeights(ImageError):
    """An image that cannot be made here, because neither a hub nor a folder has its weights."""


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


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a name, if one is similar at all."""
    near = difflib.get_close_matches(name, list(known), n=1) if len(name) <= MOST_OF_A_NAME else ()
    return near[0] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a second sentence, ``. Did you mean 'x'?``, for the nearest known name, or nothing."""
    near = nearest(name, known)
    return f". Did you mean {near!r}?" if near else ""


def nearest_or_known(name: str, known: Iterable[str], hint: str = "", *, label: str = "known", room: int = 150) -> str:
    """Return the end of a message about an unknown name: ``. Did you mean 'x'?``, else ``; known: a, b and 3 more``.

    Args:
        name: the unknown name.
        known: all names that would be right.
        hint: words on what else would be right; they follow the known names.
        label: words in front of the known names.
        room: the most characters that the known names and the hint take.
    """
    names = sorted(known)
    if near := did_you_mean(name, names):
        return near
    further = f"; {hint}" if hint else ""
    first = f"; {label}: "
    return f"{first}{listed(names, len(names), room=room - len(first) - len(further)) or 'none'}{further}"


def listed(names: Collection[str], most: int = 5, noun: str = "", *, separator: str = ", ", room: int = 2000) -> str:
    """Return the first names and the number of the others: ``a, b and 3 more``, ``a and 2 more systems``, ``3 names``.

    Args:
        names: all names.
        most: the most names to write.
        noun: one of the names in a word, such as `system`.
        separator: between two names.
        room: the most characters, for which fewer names are written, at last none.
    """
    all_names = list(names)
    for count in range(min(most, len(all_names), max(room, 0)), -1, -1):
        others = len(all_names) - count
        more = counted(others, f"more {noun}") if noun else f"{others:,} more"
        text = separator.join(all_names[:count]) + (f" and {more}" if others else "")
        if count and len(text) <= room:
            return text
    return counted(len(all_names), noun or "name") if all_names else ""


def quoted_name(name: str) -> str:
    """Return a name in quotes; of a long name its beginning."""
    text = repr(name)
    return text if len(text) <= _MOST_QUOTED else f"{text[: _MOST_QUOTED - 2]}…{text[-1]}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 row``, ``1,200 rows``, ``2 processes``, ``0 queries``."""
    if number == 1:
        return f"1 {noun}"
    several = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {several}"
