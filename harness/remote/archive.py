"""Tar archives: reproducible bytes, and unpacking writes below its folder alone."""

from __future__ import annotations

import errno
import gzip
import io
import shutil
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from harness.compression import unpacked
from harness.containment import is_plain_name, tar_entries
from harness.errors import RemoteError
from harness.untrusted import reason_of

# Fast: images and indexes are large, and the worker waits for them.
_LEVEL = 1
# What a tar itself brings about: by its names, or by more parts than are read (EFBIG); None: of gzip.
_OF_NAMES = {errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EFBIG, None}
# Names, and a file or its content; a name that ends in "/" is a folder's.
Entries = Iterable[tuple[str, Path | bytes]]
Allowed = Callable[[str], bool]


def write(target: IO[bytes], entries: Entries) -> None:
    """Write a tar with executable bits, without owners and times."""
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in entries:
            entry = tarfile.TarInfo(name)  # of mode 0o644
            if name.endswith("/"):
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            elif isinstance(content, bytes):
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
            else:
                with content.open("rb") as file:
                    status = content.stat()
                    entry.size, entry.mode = status.st_size, 0o755 if status.st_mode & 0o100 else 0o644
                    tar.addfile(entry, file)


def write_gz(path: Path, entries: Entries) -> None:
    """Write a compressed tar into a file."""
    with compressed(path) as target:
        write(target, entries)


@contextmanager
def compressed(path: Path) -> Iterator[IO[bytes]]:
    """Open a compressed file that records no time or name."""
    with (
        path.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=_LEVEL, mtime=0) as target,
    ):
        yield cast(IO[bytes], target)


def unpack_gz(source: IO[bytes], folder: Path, *, what: str, most_bytes: int, allowed: Allowed | None = None) -> None:
    """Unpack a compressed tar; see :func:`unpack`, which bounds its content."""
    content = unpacked(source, sys.maxsize, max_ratio=sys.maxsize)
    unpack(content, folder, what=what, most_bytes=most_bytes, allowed=allowed)


def unpack(source: IO[bytes], folder: Path, *, what: str, most_bytes: int, allowed: Allowed | None = None) -> None:
    """Unpack a plain tar below an existing folder.

    ``allowed`` gets a folder's name with "/" at its end.

    Raises:
        RemoteError: ``what`` is damaged, has more than ``most_bytes``, a link, or a name that is not allowed.
    """
    try:
        for entry, content in tar_entries(source, most_bytes=most_bytes):
            name = entry.name.removesuffix("/") if entry.isdir() else entry.name
            if not is_plain_name(name) or (allowed and not allowed(f"{name}/" if entry.isdir() else name)):
                raise tarfile.ReadError(f"{name[:80]!r} does not belong in it")
            if entry.isdir():
                (folder / name).mkdir(parents=True, exist_ok=True)
                continue
            if content is None or entry.issparse():
                raise tarfile.ReadError(f"{name[:80]!r} is not a regular file")
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # Exclusive: no name comes twice, and no file of another entry is written through.
            with content, path.open("xb") as file:
                shutil.copyfileobj(content, file)
            path.chmod(0o755 if entry.mode & 0o100 else 0o644)
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno not in _OF_NAMES:
            raise  # the disk's
        raise RemoteError(
            f"{what}: {reason_of(error)}; it is damaged, or another program wrote it", "BadTar"
        ) from error
