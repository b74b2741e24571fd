"""Reading what strangers wrote: regular files only, never through a link, never more than makes sense.

Strangers are the jobs that we run and whoever hands over a results folder.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, BinaryIO

from harness.records import MAX_PROBES, JobSpec

# MERGED harness.untrusted: Making a stranger's text safe to show.


LONGEST = 500


def one_line(text: str) -> str:
    """As :func:`printable`, and at most ``LONGEST`` characters; the rest is in the JSON report."""
    text = printable(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def printable(text: str) -> str:
    """One line of printable characters.

    White space runs become one space; control, bidirectional and other invisible characters are written
    as escapes, so that no text can move a cursor or reorder what is around it.
    """
    return escaped(" ".join(text.split()))


def escaped(text: str) -> str:
    """Write characters that are not printable as escapes."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


_HIT_BYTES = 2048  # an id of 256 characters, escaped, and a score
_SAMPLE_BYTES = 4096
_FREE_BYTES = 16 << 20

# The largest stored file that is read or hashed, and what may be in a packed one.
MOST_FILE_BYTES = 1 << 30
MOST_UNPACKED_BYTES = 1 << 30
_MOST_LEVELS = 64
_LARGEST = 1 << 63
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def most_line_bytes(spec: JobSpec) -> int:
    """The longest honest line of ``samples.jsonl``."""
    return _SAMPLE_BYTES + spec.k * _HIT_BYTES


def most_samples(spec: JobSpec) -> int:
    """Queries that a job of this spec may ask, warm-up included."""
    return max(len(spec.warmup), spec.warmup_cap) + most_trials(spec) * len(spec.sample) + 2 * spec.repeats


def most_trials(spec: JobSpec) -> int:
    """Trials that a job of this spec may run; the ``server`` scenario's search ends when it ends."""
    return MAX_PROBES if spec.scenario == "server" else spec.trials


def most_output_bytes(spec: JobSpec) -> int:
    """What a job of this spec can honestly leave in ``out/``, generously."""
    return _FREE_BYTES + most_samples(spec) * most_line_bytes(spec)


@dataclass(frozen=True)
class Bound:
    """The most lines that make sense in a file, and the most bytes, packed and unpacked."""

    lines: int
    file_bytes: int = MOST_FILE_BYTES
    unpacked_bytes: int = MOST_UNPACKED_BYTES


def open_regular(path: Path, most: int | None = None) -> BufferedReader:
    """Open a file for reading; a pipe, a device or a socket is not even opened.

    Raises:
        OSError: it is missing, a link or no regular file, or it has more than ``most`` bytes.
    """
    _check(path, os.lstat(path), None)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(path, os.fstat(descriptor), most)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check(path: Path, found: os.stat_result, most: int | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        number = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
        raise OSError(number, f"is {kind}, no regular file", str(path))
    if most is not None and found.st_size > most:
        raise _too_large(f"has {found.st_size:,} bytes, at most {most:,} make sense", path)


def _too_large(what: str, path: Path | None = None) -> OSError:
    return OSError(errno.EFBIG, what, None if path is None else str(path))


def lines_of(file: BinaryIO, longest: int) -> Iterator[bytes]:
    """Lines of at most ``longest`` bytes; a longer one comes cut, without its newline, and is the last."""
    while line := file.readline(longest):
        yield line
        if not line.endswith(b"\n"):
            return


def read_regular(path: Path, limit: int) -> bytes:
    """At most ``limit`` bytes of a regular file; OSError as :func:`open_regular`."""
    with open_regular(path) as file:
        return file.read(limit)


def read_whole(path: Path, most: int) -> bytes:
    """A regular file to its end; OSError as :func:`open_regular`."""
    with open_regular(path, most) as file:
        return file.read(most)


def unpacked(file: IO[bytes], most: int = MOST_UNPACKED_BYTES) -> BufferedReader:
    """The content of a gzipped file; reading on raises OSError where it has more than ``most`` bytes."""
    return BufferedReader(_Unpacked(file, most), 1 << 16)


class _Unpacked(io.RawIOBase):
    """A gzipped stream that ends in an error where it swells."""

    def __init__(self, file: IO[bytes], most: int) -> None:
        self._content, self._most, self._left = gzip.GzipFile(fileobj=file, mode="rb"), most, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._content.read(len(buffer))
        self._left -= len(piece)
        if self._left < 0:
            raise _too_large(f"holds more than {self._most:,} bytes, unpacked")
        buffer[: len(piece)] = piece
        return len(piece)


def sha256_of(path: Path, *, packed: bool = False) -> str:
    """The hash of a stored file, or of what is packed in it; OSError, EOFError or zlib.error where it is damaged."""
    with open_regular(path, MOST_FILE_BYTES) as file:
        return hashlib.file_digest(unpacked(file) if packed else file, "sha256").hexdigest()


def parse_json(content: bytes) -> Any:
    """Parse JSON of unknown origin, stricter than Python does.

    Raises:
        ValueError: it is no JSON, or holds NaN, a number beyond 64 bits, half a surrogate pair, or too many levels.
    """
    try:
        found = json.loads(content.decode("utf-8"))
    except RecursionError:
        raise ValueError(f"more than {_MOST_LEVELS} levels deep") from None
    waiting: list[tuple[Any, int]] = [(found, 0)]
    while waiting:
        each, level = waiting.pop()
        if isinstance(each, dict):
            waiting += ((part, level + 1) for pair in each.items() for part in pair)
        elif isinstance(each, list):
            waiting += ((part, level + 1) for part in each)
        elif isinstance(each, str):
            each.encode("utf-8")
        elif isinstance(each, int | float) and not -_LARGEST < each < _LARGEST:
            raise ValueError(f"the number {str(each)[:20]} is not finite, or beyond 64 bits")
        if level >= _MOST_LEVELS:
            raise ValueError(f"more than {_MOST_LEVELS} levels deep")
    return found


def plain(text: str) -> str:
    """Foreign text as one short line that no terminal obeys."""
    line = " ".join(text[:1000].split())[:500]
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)
