"""Bounded reads of files and text that measured systems and other people wrote.

Only regular files are read, never through a link, never more bytes than an honest file has.
"""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from harness import filesystem
from harness.records import MAX_PROBES, JobSpec

# Characters of a foreign text in a table or a message; JSON reports have all of it.
MAX_TEXT = 500


_HIT_BYTES = 2048  # an id of 256 characters, escaped, and a score
_SAMPLE_BYTES = 4096
_FREE_BYTES = 16 << 20

# The largest stored file that is read or hashed, and what may be in a packed one.
MAX_FILE_BYTES = 1 << 30
MAX_UNPACKED_BYTES = 1 << 30
_MAX_LEVELS = 64
_LARGEST = 1 << 63
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def escaped(text: str) -> str:
    """Write characters that are not printable as escapes."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def one_line(text: str, max_length: int | None = None) -> str:
    """Make foreign text safe to show on one line.

    White space becomes single spaces; control, bidirectional and other invisible characters become escapes, so that no
    text can move a cursor or reorder its surroundings.
    """
    if max_length is not None:
        text = text[: 8 * max_length]  # a log may be megabytes long
    text = escaped(" ".join(text.split()))
    return text if max_length is None or len(text) <= max_length else f"{text[: max_length - 1]}…"


def max_line_bytes(spec: JobSpec) -> int:
    """Return the bytes of the longest honest line of ``samples.jsonl``."""
    return _SAMPLE_BYTES + spec.k * _HIT_BYTES


def max_samples(spec: JobSpec) -> int:
    """Return the number of queries that a job may run, warm-up included."""
    return max(len(spec.warmup), spec.warmup_cap) + max_trials(spec) * len(spec.sample) + 2 * spec.repeats


def max_trials(spec: JobSpec) -> int:
    """Return the number of trials that a job may run."""
    return MAX_PROBES if spec.scenario == "server" else spec.trials


def max_output_bytes(spec: JobSpec) -> int:
    """Return a generous bound of the bytes that an honest job leaves in ``out/``."""
    return _FREE_BYTES + max_samples(spec) * max_line_bytes(spec)


@dataclass(frozen=True)
class FileLimits:
    """The maximum lines of a file, and its maximum bytes, packed and unpacked."""

    lines: int
    file_bytes: int = MAX_FILE_BYTES
    unpacked_bytes: int = MAX_UNPACKED_BYTES


def open_regular(path: Path, max_bytes: int | None = None) -> BufferedReader:
    """Open a regular file for reading; refuse a pipe, a device or a socket before opening.

    Raises:
        OSError: it is missing, a link or no regular file, or it has more than ``max_bytes``.
    """
    _check(path, os.lstat(path), None)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(path, os.fstat(descriptor), max_bytes)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check(path: Path, status: os.stat_result, max_bytes: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        number = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(number, f"is {kind}, no regular file", str(path))
    if max_bytes is not None and status.st_size > max_bytes:
        text = f"has {status.st_size:,} bytes, at most {max_bytes:,} make sense"
        raise OSError(errno.EFBIG, text, str(path))


def bounded_lines(file: IO[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yield lines of at most ``max_bytes``; a longer line is cut, has no newline, and is the last."""
    while line := file.readline(max_bytes):
        yield line
        if not line.endswith(b"\n"):
            return


def read_start(path: Path, max_bytes: int) -> bytes:
    """Read at most ``max_bytes`` from the start of a regular file."""
    with open_regular(path) as file:
        return file.read(max_bytes)


def read_whole(path: Path, max_bytes: int) -> bytes:
    """Read a regular file; OSError if it has more than ``max_bytes``."""
    with open_regular(path, max_bytes) as file:
        return file.read(max_bytes)


def unpacked(file: IO[bytes], max_bytes: int = MAX_UNPACKED_BYTES) -> BufferedReader:
    """Open the content of a gzipped file; reads raise OSError beyond ``max_bytes``."""
    return BufferedReader(_Unpacked(file, max_bytes), 1 << 16)


class _Unpacked(io.RawIOBase):
    """A gzipped stream that raises OSError beyond its limit."""

    def __init__(self, file: IO[bytes], max_bytes: int) -> None:
        self._content = gzip.GzipFile(fileobj=file, mode="rb")
        self._max_bytes = self._left = max_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._content.read(len(buffer))
        self._left -= len(piece)
        if self._left < 0:
            raise OSError(errno.EFBIG, f"holds more than {self._max_bytes:,} bytes, unpacked")
        buffer[: len(piece)] = piece
        return len(piece)


def sha256(path: Path, *, packed: bool = False) -> str:
    """Hash a stored file, or its unpacked content; OSError, EOFError or zlib.error if damaged."""
    with open_regular(path, MAX_FILE_BYTES) as file:
        return filesystem.sha256(unpacked(file) if packed else file)


def parse_json(content: bytes) -> Any:
    """Parse JSON, more strictly than Python does.

    Raises:
        ValueError: not JSON, or it has NaN, a number beyond 64 bits, half a surrogate pair, or too many levels.
    """
    try:
        value = json.loads(content.decode("utf-8"))
    except RecursionError:
        raise ValueError(f"more than {_MAX_LEVELS} levels deep") from None
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        part, level = waiting.pop()
        if isinstance(part, dict):
            waiting += ((inner, level + 1) for pair in part.items() for inner in pair)
        elif isinstance(part, list):
            waiting += ((inner, level + 1) for inner in part)
        elif isinstance(part, str):
            part.encode("utf-8")
        elif isinstance(part, int | float) and not -_LARGEST < part < _LARGEST:
            raise ValueError(f"the number {str(part)[:20]} is not finite, or beyond 64 bits")
        if level >= _MAX_LEVELS:
            raise ValueError(f"more than {_MAX_LEVELS} levels deep")
    return value
