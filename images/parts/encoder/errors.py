"""What is wrong with a checkpoint or with how it is asked for, in one line."""

from __future__ import annotations


class BadCheckpoint(ValueError):
    """The files of a checkpoint cannot be used as asked: what is wrong, and with which file."""


def one_line(error: BaseException) -> str:
    """The first sentence of a library's message, at most 200 characters."""
    text = " ".join(str(error).split())
    return (text[:200] + " ...") if len(text) > 200 else text or type(error).__name__
