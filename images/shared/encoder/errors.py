"""Errors of checkpoints and their parameters, in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class BadCheckpoint(ValueError):
    """The files of a checkpoint cannot be used as asked: what is wrong, and with which file."""


def one_line(error: BaseException) -> str:
    """Return the first sentence of a library's message, at most 200 characters."""
    text = " ".join(str(error).split())
    return (text[:200] + " ...") if len(text) > 200 else text or type(error).__name__


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Blame the checkpoint for whatever a library raises while it reads one.

    Args:
        what: the file and what is wrong with it; the library's reason comes behind it.

    Raises:
        BadCheckpoint: something was raised.
        MemoryError: too small a machine is no fault of the checkpoint.
    """
    try:
        yield
    except (BadCheckpoint, MemoryError):
        raise
    except Exception as error:  # the libraries raise bare ones, and Rust's are no subclass of any other
        raise BadCheckpoint(f"{what}: {one_line(error)}") from error
