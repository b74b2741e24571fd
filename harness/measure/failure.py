"""What an exception out of an adapter is as an outcome, and in one line."""

from __future__ import annotations

from harness.measure.answers import BadAnswer
from harness.records import Outcome

# JVM and CUDA, PyTorch, the C library.
_REFUSED = (
    "OutOfMemoryError",
    "CUDA error: out of memory",
    "STATUS_ALLOC_FAILED",
    "can't allocate memory",
    "Cannot allocate memory",
)


def outcome_of(error: BaseException) -> Outcome:
    """Memory that the engine itself refused (a JVM heap, an allocator, a GPU) is ``oom`` like a kernel kill."""
    if isinstance(error, BadAnswer):
        return Outcome.BAD_OUTPUT
    said = f"{type(error).__name__} {error}"
    if isinstance(error, MemoryError) or any(each in said for each in _REFUSED):
        return Outcome.OOM
    return Outcome.CRASH


def one_line(error: BaseException) -> str:
    """The exception's name and text, at most 500 characters that any file can hold."""
    # A lone surrogate in foreign text would make the measurement unwritable.
    text = " ".join(str(error).encode("utf-8", "replace").decode("utf-8").split())
    return f"{type(error).__name__}: {text}"[:500]
