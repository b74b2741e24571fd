"""A file that is whole or absent, whatever happens while it is written."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from harness.errors import FileError, StoreError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_WORDS = tuple(os.strerror(number).lower() for number in _FULL)


def says_full(text: str) -> bool:
    """Return whether a program's words blame a full disk."""
    lower = text.lower()  # Go writes it without the capital
    return any(words in lower for words in _FULL_WORDS)


def refuse_full(what: str, said: str) -> None:
    """Raise StoreError where a program of this host blames a full disk: that says nothing of a system."""
    if says_full(said):
        last = next(line for line in reversed(said.splitlines()) if says_full(line))
        words = " ".join(last.split())[-200:]
        raise StoreError(f"{what}: the disk is full: {words}; make room, what was finished is kept")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Where to write what becomes ``path`` when all went well; nothing is left of it otherwise.

    Raises:
        StoreError: the disk is full.
        FileError: it cannot be written there.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        full = error.errno in _FULL
        kind, remedy = (StoreError, "make room") if full else (FileError, "choose another place")
        raise kind(f"{path}: cannot be written: {error.strerror}; {remedy}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
