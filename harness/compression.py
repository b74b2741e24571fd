"""Compressed files, read within bounds: a small file may not unpack to very much.  Pure."""

from __future__ import annotations

import errno
import io
import re
import sys
import zlib
from collections.abc import Callable
from io import BufferedReader
from typing import IO, Any, Literal

# What may be in a stored file.
MAX_UNPACKED_BYTES = 1 << 30
# Blocked gzip (bgzip) has a member for each 64 KiB, and any number of them.
_MAX_SMALL_MEMBERS, _SMALL_MEMBER_BYTES = 1 << 16, 1 << 10
# Runs, judgements and texts pack to a fifth; texts of a few equal words to a fiftieth.
_MAX_RATIO, _RATIO_FREE_BYTES = 100, 32 << 20
_PIECE_BYTES = 8192
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_WIDE_WINDOW = "its zstd window is over 128 MiB (--long=28 or more), and only --long=27 or less can be read"

Codec = Literal["gzip", "zstd"]
# First bytes of each codec, of a skippable frame of zstd too, and of archives that harness does not read.
_MAGIC: dict[Codec, re.Pattern[bytes]] = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
}
_ARCHIVES = {
    "zip": re.compile(rb"PK\x03\x04"),
    # "BZh" alone may begin a text.
    "bzip2": re.compile(rb"BZh[1-9](?:\x31\x41\x59\x26\x53\x59|\x17\x72\x45\x38\x50\x90)"),
    "xz": re.compile(rb"\xfd7zXZ"),
}
_MAGIC_BYTES = 10


class UnreadArchive(ValueError):
    """A file is an archive that harness does not read; the text is its kind."""


def content_of(raw: IO[bytes], max_bytes: int = sys.maxsize) -> tuple[IO[bytes], IO[bytes]]:
    """Return a file or pipe at its first byte, and its content: unpacked where its first bytes say gzip or zstd.

    The file's name does not matter.  Like :func:`unpacked`, reads of packed content raise OSError.

    Raises:
        UnreadArchive: it is a zip, bzip2 or xz archive.
        OSError: it cannot be read.
    """
    begin = b""
    while len(begin) < _MAGIC_BYTES and (more := raw.read(_MAGIC_BYTES - len(begin))):
        begin += more
    if raw.seekable():
        raw.seek(0)
    else:
        raw = BufferedReader(_Prefixed(begin, raw))
    if archive := next((name for name, magic in _ARCHIVES.items() if magic.match(begin)), None):
        raise UnreadArchive(archive)
    codec = next((name for name, magic in _MAGIC.items() if magic.match(begin)), None)
    return raw, raw if codec is None else unpacked(raw, max_bytes, codec)


class _Prefixed(io.RawIOBase):
    """Bytes already read from a pipe, followed by the rest of the pipe."""

    def __init__(self, begin: bytes, rest: IO[bytes]) -> None:
        self._begin, self._rest = begin, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._begin or self._rest.read(len(buffer))
        piece, self._begin = piece[: len(buffer)], piece[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)


def unpacked(
    file: IO[bytes], max_bytes: int = MAX_UNPACKED_BYTES, codec: Codec = "gzip", *, max_ratio: int = _MAX_RATIO
) -> BufferedReader:
    """Open the content of a compressed file.

    Reads raise OSError beyond ``max_bytes``, and where the content is more than ``max_ratio`` times its packed size: a
    few megabytes of equal lines would fill the memory of what keeps them.
    """
    packed = _Counted(file)
    unpack = _GzipMembers(packed).read if codec == "gzip" else _zstd(packed)
    return BufferedReader(_Unpacked(packed, max_bytes, max_ratio, unpack), 1 << 16)


class _Counted(io.RawIOBase):
    """A file that counts the bytes that were read from it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.bytes = file, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        piece = self._file.read(size)
        self.bytes += len(piece)
        return piece


class _Unpacked(io.RawIOBase):
    """A stream of unpacked bytes that raises OSError beyond its limits."""

    def __init__(self, packed: _Counted, max_bytes: int, max_ratio: int, unpack: Callable[[int], bytes]) -> None:
        self._packed, self._max_bytes, self._max_ratio, self._unpack = packed, max_bytes, max_ratio, unpack
        self._bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._unpack(len(buffer))
        self._bytes += len(piece)
        if self._bytes > self._max_bytes:
            raise OSError(errno.EFBIG, f"holds more than {self._max_bytes:,} bytes, unpacked")
        if self._bytes > _RATIO_FREE_BYTES + self._max_ratio * self._packed.bytes:
            raise OSError(errno.EFBIG, f"unpacks to more than {self._max_ratio} times its size")
        buffer[: len(piece)] = piece
        return len(piece)


def _zstd(packed: _Counted) -> Callable[[int], bytes]:
    import pyarrow as pa  # fails on a truncated file, as zstandard's reader does not

    stream = pa.CompressedInputStream(pa.PythonFile(packed, "r"), "zstd")

    def read(size: int) -> bytes:
        try:
            return bytes(stream.read(size))
        except OSError as error:
            if "too much memory" in str(error):
                raise OSError(errno.EFBIG, _WIDE_WINDOW) from error
            raise

    return read


class _GzipMembers:
    """The members of a gzipped file; OSError for too many small ones, because each takes time."""

    def __init__(self, file: _Counted) -> None:
        self._file = file
        self._members = self._bytes = 0
        self._packed = b""
        self._member: zlib._Decompress | None = None

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes; nothing at the end."""
        piece = b""
        while not piece and self._has_member():
            piece = self._unpack(size)
        self._bytes += len(piece)
        return piece

    def _has_member(self) -> bool:
        """Begin the next member where one has ended; return whether there is one."""
        if self._member is not None:
            return True
        while not self._packed and (more := self._file.read(_PIECE_BYTES)):
            # Zeros may fill up the end of a file.
            self._packed = more.lstrip(b"\0") if self._members else more
        if not self._packed:
            return False
        self._members += 1
        if self._members > _MAX_SMALL_MEMBERS and self._bytes < self._members * _SMALL_MEMBER_BYTES:
            raise OSError(errno.EFBIG, f"holds more than {_MAX_SMALL_MEMBERS:,} small gzipped parts")
        self._member = zlib.decompressobj(_GZIP_WINDOW)
        return True

    def _unpack(self, size: int) -> bytes:
        """Return at most ``size`` bytes of the current member; nothing at its end, or where more must be read."""
        assert self._member is not None
        if not self._packed:
            self._packed = self._file.read(_PIECE_BYTES)
            if not self._packed:
                raise EOFError("the compressed file ends within a part")
        piece = self._member.decompress(self._packed, size)
        self._packed = self._member.unconsumed_tail
        if self._member.eof:
            self._packed = self._member.unused_data.lstrip(b"\0")
            self._member = None
        return piece
