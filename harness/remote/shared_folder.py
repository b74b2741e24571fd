"""A folder that machines share, as a storage: a local disk, NFS, Lustre, GPFS.

It relies on three things: a rename replaces a file at once, a hard link to a name fails if the name exists, and a file
that was closed is whole for whoever opens it later.  All hold on NFS, where a listing may be a minute old.
No name and no symbolic link leads out of the folder.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import BinaryIO

from harness import filesystem
from harness.containment import inside
from harness.errors import FileError, RemoteError, UsageError
from harness.remote.failures import NO_STORAGE
from harness.remote.storage import Clock, ObjectState, StoredObject, copied

# Names of files that are being written; no object begins so.
_PARTIAL = ".partial-"
_CODES = {
    errno.EACCES: "AccessDenied",
    errno.EPERM: "AccessDenied",
    errno.ENOSPC: "NoSpace",
    errno.EDQUOT: "NoSpace",
    # The file server restarts, or another machine has replaced the file.
    **dict.fromkeys((errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EIO, errno.EHOSTDOWN), "Unreached"),
}


class SharedFolder:
    """The files below a folder as objects; names are relative to it."""

    def __init__(self, folder: Path, prefix: str = "", clock: Clock | None = None) -> None:
        self._root, self._prefix = folder, prefix
        self.clock = clock or Clock()

    def ask_time(self) -> None:
        """Write a file and look at its time, which the file server sets."""
        with self._errors("asking for the time of", ""):
            path = self._root / f"{_PARTIAL}{secrets.token_hex(8)}"
            path.write_bytes(b"time")
            try:
                self.clock.note(path.stat().st_mtime)
            finally:
                path.unlink(missing_ok=True)

    def where(self, name: str = "") -> str:
        """Return the path of an object, or of the place."""
        return "/".join(filter(None, (str(self._root), self._prefix, name)))

    def below(self, *names: str) -> SharedFolder:
        """Return the storage below a folder of this place."""
        return SharedFolder(self._root, "/".join(filter(None, (self._prefix, *names))), self.clock)

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the files whose names begin with ``prefix``, sorted by name; links are left out."""
        top, _, _ = prefix.rpartition("/")
        base = self._path(top) if top or self._prefix else self._root
        found: list[StoredObject] = []
        with self._errors("listing", prefix):
            if not self._root.is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            for place, _folders, names in os.walk(base):
                for name in names:
                    path = Path(place, name)
                    relative = "/".join(filter(None, (top, path.relative_to(base).as_posix())))
                    if name.startswith(_PARTIAL) or not relative.startswith(prefix):
                        continue
                    with suppress(FileNotFoundError):  # removed or replaced meanwhile
                        status = path.lstat()
                        if stat.S_ISREG(status.st_mode):
                            found.append(_stored(relative, status))
        yield from sorted(found, key=lambda stored: stored.name)

    def get(self, name: str, most_bytes: int) -> bytes | None:
        """Return a file's content, or ``None`` if it does not exist."""
        with self._opened(name) as file:
            content = file.read(most_bytes + 1) if file else None
        if content is not None and len(content) > most_bytes:
            text = f"larger than {most_bytes >> 20} MiB; harness wrote no such file"
            raise RemoteError(f"{self.where(name)}: {text}", "TooLarge")
        return content

    def download(self, name: str, path: Path, most_bytes: int) -> str | None:
        """Copy a file and return its SHA-256, which is wrong if it has more than ``most_bytes``."""
        with self._opened(name) as file:
            if file is None:
                return None
            with path.open("wb") as sink:
                return copied(file, sink, most_bytes)

    def put(self, name: str, content: bytes) -> None:
        """Write a file, over an existing one."""
        with self._written(name) as (partial, sink):
            sink.write(content)
            self._sync(sink)
            partial.replace(self._path(name))

    def put_new(self, name: str, content: bytes) -> bool:
        """Write a file unless it exists; return whether it was written."""
        return self._write_new(name, BytesIO(content))

    def upload_new(self, name: str, path: Path) -> bool:
        """Write a copy of a file unless the name exists; return whether it was written."""
        with path.open("rb") as source:
            return self._write_new(name, source)

    def copy_new(self, name: str, to: str) -> bool:
        """Copy a file within the folder unless the target exists; return whether it was written."""
        with self._opened(name) as source:
            return source is not None and self._write_new(to, source)

    def size(self, name: str) -> int | None:
        """Return how many bytes a file has; ``None``: it does not exist."""
        with self._opened(name) as file:
            return os.fstat(file.fileno()).st_size if file else None

    def state(self, name: str) -> ObjectState | None:
        """Return size and SHA-256 of a file; nothing deletes old ones."""
        with self._opened(name) as file:
            if file is None:
                return None
            size = os.fstat(file.fileno()).st_size
            return ObjectState(size, hashlib.file_digest(file, "sha256").hexdigest(), timedelta())

    def checksum_of(self, path: Path) -> str:
        """Return the checksum that :meth:`state` gives of a file after :meth:`upload_new`."""
        return filesystem.sha256(path)

    def verified(self, name: str, sha256: str, size_bytes: int) -> ObjectState | None:
        """Return the state of a file if it has exactly this content, else ``None``."""
        state = self.state(name)
        return state if state and (state.checksum, state.size_bytes) == (sha256, size_bytes) else None

    def delete(self, names: Iterable[str]) -> int:
        """Delete files, present or not; return how many were named."""
        count = 0
        for count, name in enumerate(names, 1):  # noqa: B007 # the last number is returned
            with self._errors("deleting", name):
                self._path(name).unlink(missing_ok=True)
        return count

    def remove(self, name: str) -> None:
        """Remove a folder with all its files."""
        with self._errors("removing", name):
            filesystem.remove_tree(self._path(name))

    def _path(self, name: str) -> Path:
        """Return the path of a name; no name and no link on its way leads out of the folder."""
        try:
            return inside(self._root, "/".join(filter(None, (self._prefix, name))))
        except FileError as error:
            raise RemoteError(str(error), "BadName") from error

    @contextmanager
    def _opened(self, name: str) -> Iterator[BufferedReader | None]:
        """Open a regular file to read; ``None``: it does not exist."""
        with self._errors("reading", name), ExitStack() as stack:
            try:
                number = os.open(self._path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                if not self._root.is_dir():
                    raise
                yield None
                return
            file = stack.enter_context(os.fdopen(number, "rb"))
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            yield file

    @contextmanager
    def _written(self, name: str) -> Iterator[tuple[Path, BinaryIO]]:
        """Yield a new file in the target's folder, and remove its first name afterwards."""
        with self._errors("writing", name):
            if not self._root.is_dir():  # its owner makes it: a wrong path must not
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            folder = self._path(name).parent
            folder.mkdir(parents=True, exist_ok=True)
            partial = folder / f"{_PARTIAL}{secrets.token_hex(8)}"
            with partial.open("xb") as sink:
                try:
                    yield partial, sink
                finally:
                    partial.unlink(missing_ok=True)

    def _write_new(self, name: str, source: BinaryIO) -> bool:
        """Copy a source into a file unless the name exists; of several writers one wins."""
        with self._written(name) as (partial, sink):
            copied(source, sink)
            self._sync(sink)
            try:
                os.link(partial, self._path(name))
            except FileExistsError:
                # On NFS the answer to a link request may get lost, and the request is repeated.
                return partial.stat().st_nlink > 1
            return True

    def _sync(self, sink: BinaryIO) -> None:
        """Bring a file's content to the server, and take note of the server's time."""
        sink.flush()
        os.fsync(sink.fileno())
        self.clock.note(os.fstat(sink.fileno()).st_mtime)

    @contextmanager
    def _errors(self, what: str, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            place = f"{what} {self.where(name)}"
            if not self._root.is_dir():
                text = f"{place}: the folder {self._root} does not exist; make it, or name another --work"
                raise RemoteError(text, NO_STORAGE) from error
            raise RemoteError(f"{place}: {error.strerror or error}", _CODES.get(error.errno or 0, "Failed")) from error


def open_folder(path: Path) -> SharedFolder:
    """Return a shared folder as a storage.

    Raises:
        UsageError: it does not exist, or everyone may write there: workers run what they find in it.
    """
    folder = path.absolute()
    if not folder.is_dir():
        raise UsageError(f"{folder}: the shared folder does not exist; make it on the shared file system: mkdir -m 700")
    if folder.stat().st_mode & stat.S_IWOTH:
        raise UsageError(f"{folder}: everyone may write there, and workers run what they find; chmod o-w {folder}")
    return SharedFolder(folder.resolve())


def _stored(name: str, status: os.stat_result) -> StoredObject:
    etag = f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"
    return StoredObject(name, status.st_size, etag, datetime.fromtimestamp(status.st_mtime, UTC))
