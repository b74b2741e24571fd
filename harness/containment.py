"""Names and links in other people's folders and archives, none of which may lead out of its folder."""

from __future__ import annotations

import io
import os
import re
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from harness.errors import FileError
from harness.untrusted import MAX_TEXT, one_line

# Entries of a tar (tarfile takes 25 us for each), and the bytes of an entry's headers, which tarfile holds in memory.
_MAX_ENTRIES = 1 << 16
_MAX_HEADER_BYTES = 32 << 10
# The directory of a zip, which zipfile holds in memory some ten times: PyTorch's wheel has 20,000 files in 2 MiB.
_MAX_DIRECTORY_BYTES = 8 << 20
# Control characters, the separator of other systems, and bytes that are not UTF-8.
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")
_MAX_NAME = 1024


def is_plain_name(name: str) -> bool:
    """Return whether a relative path, written with ``/``, names something below its folder."""
    path = PurePosixPath(name)
    ordinary = 0 < len(name) <= _MAX_NAME and not _NOT_IN_NAMES.search(name) and str(path) == name != "."
    return ordinary and not path.is_absolute() and ".." not in path.parts


def inside(folder: Path, name: str | Path) -> Path:
    """Return the path of ``name`` in a folder that somebody else may have written.

    Raises:
        FileError: the name, or a link on its way, leads out of the folder.
    """
    path = folder / name
    if not is_plain_name(str(name)):
        raise FileError(f"{one_line(str(path), MAX_TEXT)}: a name must stay below {folder}; correct the name")
    try:
        real, root = path.resolve(), folder.resolve()
    except (OSError, RuntimeError) as error:  # a link to itself
        raise FileError(f"{path}: is a link that leads nowhere; remove it") from error
    if not real.is_relative_to(root):
        raise FileError(f"{path}: is a link out of {folder}, to {real}; put the file itself there")
    return path


def files_inside(folder: Path, pattern: str = "*") -> Iterator[Path]:
    """Yield the regular files below a folder whose names match, sorted; links to folders are not followed.

    Raises:
        FileError: one is a link out of the folder.
    """
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            if path.match(pattern) and path.is_file():
                yield inside(folder, path.relative_to(folder))


def tar_entries(
    source: IO[bytes], *, most_bytes: int, most_entries: int = _MAX_ENTRIES
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield the entries of a plain tar in their order, with the content of each regular file.

    Raises:
        tarfile.TarError: it is damaged, or its entries are too many or too large.
    """
    bounded, left = _TarStream(source), most_bytes
    with tarfile.open(fileobj=cast(IO[bytes], bounded), mode="r|") as tar:
        for number, entry in enumerate(tar, 1):
            left -= entry.size
            if entry.size < 0 or left < 0 or number > most_entries:
                raise tarfile.ReadError(f"more than {most_bytes >> 20} MiB or {most_entries:,} files")
            # tarfile passes over the content of files alone.
            bounded.left = _MAX_HEADER_BYTES + (entry.size if entry.isreg() else 0)
            yield entry, cast(IO[bytes], tar.extractfile(entry)) if entry.isreg() else None
            # tarfile would keep every entry and the headers meant for all entries.
            cast(Any, tar).members, tar.pax_headers = [], {}


class _TarStream:
    """A stream that gives ``left`` bytes and no more, so that no header fills the memory."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source, self.left = source, _MAX_HEADER_BYTES

    def read(self, size: int) -> bytes:
        """Read on; return at most ``left`` bytes."""
        self.left -= size
        if self.left < 0:
            raise tarfile.ReadError(f"an entry's header has more than {_MAX_HEADER_BYTES >> 10} KiB")
        return self._source.read(size)


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip to read its entries.

    Raises:
        zipfile.BadZipFile: it is damaged, or its directory has more than 8 MiB.
    """
    with _ZipStream(io.FileIO(path)) as file, zipfile.ZipFile(file) as opened:
        yield opened


class _ZipStream(io.BufferedReader):
    """A zip from which zipfile cannot read a large directory, which it reads in one piece."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read on; refuse to read more than 8 MiB at once."""
        if size is not None and size > _MAX_DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"its list of files has more than {_MAX_DIRECTORY_BYTES >> 20} MiB")
        return super().read(size)
