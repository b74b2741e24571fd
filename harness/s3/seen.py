"""Which version of each object the mirror holds, so that no file need be read to know it.

What is remembered is only ever compared with S3's own listing; a record that is lost or damaged costs time alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.aws.objects import Stored
from harness.s3.names import Place

_TABLE = "CREATE TABLE IF NOT EXISTS seen (key TEXT PRIMARY KEY, etag TEXT, size INTEGER, stamp TEXT) WITHOUT ROWID"
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Version:
    """An object that was fetched, and the file that it became."""

    key: str
    etag: str
    size_bytes: int
    stamp: str


class Seen:
    """What is remembered of a place's mirror."""

    def __init__(self, place: Place) -> None:
        self._place = place
        # Beside all buckets: no bucket has a name that begins so.
        self._path = place.cache / "s3" / ".seen" / f"{place.uri.bucket}.sqlite"
        self._known = {each.key: each for each in self._read()}
        self._found: list[Stored] = []

    def holds(self, each: Stored, *, thorough: bool = False) -> bool:
        """Whether the mirror has exactly this version of an object.

        Args:
            each: as listed.
            thorough: read the file, whatever is remembered of it.
        """
        path = self._place.path(each.name)
        try:
            found = path.stat()
        except OSError:
            return False
        if found.st_size != each.size_bytes:
            return False
        known = self._known.get(each.name)
        if not thorough and known and (known.etag, known.stamp) == (each.etag, _stamp(found)):
            return True
        with contextlib.suppress(OSError):
            if _md5(path) == each.etag:
                self._found.append(each)
                return True
        return False

    def remember(self, held: Iterable[Stored]) -> None:
        """Remember that the mirror has these, and what was found there; silently not, where it cannot be written."""
        new = []
        for each in (*held, *self._found):
            with contextlib.suppress(OSError):
                stamp = _stamp(self._place.path(each.name).stat())
                version = Version(each.name, each.etag, each.size_bytes, stamp)
                if self._known.get(each.name) != version:
                    new.append((version.key, version.etag, version.size_bytes, version.stamp))
        if new:
            self._do(lambda database: database.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)", new))

    def _read(self) -> list[Version]:
        start = self._place.prefix
        # All keys that begin so: what comes after them all begins with "0", the character after "/".
        asked = "SELECT key, etag, size, stamp FROM seen WHERE ? = '' OR (key >= ? AND key < ?)"
        return [
            Version(*row)
            for row in self._do(lambda database: database.execute(asked, (start, start, f"{start[:-1]}0")))
        ]

    def _do(self, what: Callable[[sqlite3.Connection], sqlite3.Cursor]) -> list[tuple[str, str, int, str]]:
        """Ask or tell the database; one that is damaged is made anew at the next time."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(self._path, timeout=30)) as database, database:
                database.execute(_TABLE)
                return what(database).fetchall()
        except sqlite3.OperationalError:  # locked for long, no permission, no space: do without
            return []
        except sqlite3.DatabaseError:
            self._path.unlink(missing_ok=True)
            return []


def _stamp(found: os.stat_result) -> str:
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"


def _md5(path: Path) -> str:
    content = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK), b""):
            content.update(chunk)
    return content.hexdigest()
