"""What a file that somebody gave holds, plain or gzipped: how it begins tells which, as names may lie."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from harness.errors import FileError
from harness.untrusted import FileLimits, open_regular, unpacked

_GZIP = b"\x1f\x8b"
# How archives that are not read here begin.
_ARCHIVES = {b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
_LONGEST_MAGIC = max(map(len, (_GZIP, *_ARCHIVES)))


class _Joined(io.RawIOBase):
    """What was read of a pipe already, and the rest of it."""

    def __init__(self, begin: bytes, rest: IO[bytes]) -> None:
        self._begin, self._rest = begin, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._begin or self._rest.read(len(buffer))
        piece, self._begin = piece[: len(buffer)], piece[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)


def _from_start(raw: IO[bytes], begin: bytes) -> IO[bytes]:
    """A file again from its first byte on, of which ``begin`` was read."""
    if not raw.seekable():
        return io.BufferedReader(_Joined(begin, raw))
    raw.seek(0)
    return raw


@contextmanager
def opened(path: Path, bound: FileLimits | None = None) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The file as it lies there, and its content.  It may be a pipe, which is read once and from its start.

    A stored file, which a stranger may have made, has a ``bound`` and must be a regular file.

    Raises:
        FileError: it cannot be opened, or is of a kind that is not read.
    """
    raw: IO[bytes]
    try:
        raw = path.open("rb") if bound is None else open_regular(path, bound.file_bytes)
    except FileNotFoundError:
        raise FileError(f"{path}: no such file; restore it, or name the right one") from None
    except IsADirectoryError:
        raise FileError(f"{path}: is a folder; name a file") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}; name a file that can") from error
    with raw:
        begin = raw.read(_LONGEST_MAGIC)
        raw = _from_start(raw, begin)
        kind = next((name for magic, name in _ARCHIVES.items() if begin.startswith(magic)), None)
        if kind is not None:
            raise FileError(f"{path}: is packed by {kind}; unpack it, or gzip what it holds")
        if begin.startswith(_GZIP):
            packed = cast(IO[bytes], gzip.GzipFile(fileobj=raw, mode="rb"))
            yield raw, packed if bound is None else unpacked(raw, bound.unpacked_bytes)
        elif begin and path.suffix == ".gz":
            raise FileError(
                f"{path}: damaged, or named wrongly: it is called .gz and holds nothing gzipped; restore or rename it"
            )
        else:
            yield raw, raw


def is_there(path: Path) -> bool:
    """Whether there is something to read, be it a pipe; a folder is none."""
    return path.exists() and not path.is_dir()


def check_kept(path: Path) -> None:
    """Refuse a pipe, of which nothing is left when it was read, for what must be read again.

    Raises:
        FileError: it is one.
    """
    if is_there(path) and not path.is_file():
        raise FileError(f"{path}: is a pipe, and this is read more than once; write it into a file")
