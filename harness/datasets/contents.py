"""Files -> a name of their content.  Hashing gigabytes takes its time, so it is done once for each state of a file."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from harness import leftovers
from harness.errors import FileError
from harness.records import digest

_SETTLED_NS = 2_000_000_000


def key(kind: Sequence[object], files: Sequence[Path], cache: Path) -> str:
    """Names what files hold (as they lie there, compressed or not), and the way in which they are read.

    Args:
        kind: how they are read.
        files: in their order.
        cache: remembers hashes by name, inode, size and times of change; nothing else of a file is looked at then.

    Raises:
        FileError: a file cannot be read.
    """
    return digest([*kind, [_hash(path, cache) for path in files]])


def state(folder: Path) -> list[list[str | int]]:
    """What is known of all files of a folder without reading them; it differs once one of them was changed."""
    found = []
    # Collections of terabytes are linked into their places.
    for place, _, names in os.walk(folder, followlinks=True):
        for path in (Path(place, name) for name in names):
            if path.is_file():
                found.append(_stamp(path))
    return sorted(found)


def _hash(path: Path, cache: Path) -> str:
    started, stamp = time.time_ns(), _stamp(path)
    known = cache / "hashes" / f"{digest(stamp)[:32]}.txt"
    try:
        found = known.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        found = ""
    if len(found) == 64:
        return found
    try:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}; restore it") from error
    # Else somebody wrote to it meanwhile, or still may within one tick of the clock that stamps it.
    if _stamp(path) == stamp and started - path.stat().st_ctime_ns > _SETTLED_NS:
        with leftovers.scratch(known.parent, known.stem) as scratch:
            whole = scratch / known.name
            whole.write_text(content, encoding="ascii")
            whole.replace(known)
    return content


def _stamp(path: Path) -> list[str | int]:
    try:
        found = path.stat()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}; restore it") from error
    # The time of change alone can be set back (cp -p, tar, touch); the kernel's own time of it cannot.
    return [str(path.resolve()), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
