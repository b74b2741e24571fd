"""Folders and files that are whole or absent, locks between processes, and file hashes.

A folder is written as ``<name>.<process>.partial`` and renamed when it is whole, so that a ``kill -9`` leaves nothing
that looks finished.  Processes share a cache: a leftover goes only if this user owns it and its process is dead for
certain.  Untrusted jobs may have written it: it may be arbitrarily deep, closed to us, and change while we remove it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path

from harness.errors import FileError, StoreError

# The file of a folder's hashes, as `sha256sum -c` reads it.
CHECKSUMS = "SHA256SUMS"
_SUFFIX = ".partial"
# Files that systems, archivers and editors leave among the user's files.
_LITTER = re.compile(
    r"\..*|thumbs\.db(:.*)?|ehthumbs\.db|desktop\.ini|icon\r|__macosx|.*~|~\$.*|#.*#|.*\.(swp|swo|bak|orig)", re.I
)
# The folder for temporary files is everybody's: ours begin with this.
_TEMPORARY_PREFIX = "harness-"


def is_litter(name: str) -> bool:
    """Return whether a file or folder of that name is left by a system, an archiver or an editor, not by its user.

    Examples: ``.DS_Store``, ``._a.tsv``, ``Thumbs.db``, ``desktop.ini``, ``a.tsv~`` and ``a.tsv.bak``.
    """
    return _LITTER.fullmatch(name) is not None


def without_litter(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the paths in their order, without litter."""
    return (path for path in paths if not is_litter(path.name))


# Removal attempts for a folder in which a process still writes.
_ROUNDS = 5
# Folders held open inside each other; deeper folders are moved up first.
_MAX_OPEN = 32
# A job that still lives could dig deeper for as long as we move up what it dug.
_MAX_MOVED = 100_000
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_WORDS = tuple(os.strerror(number).lower() for number in _FULL)


def sha256(source: Path | BufferedReader, deadline: float | None = None) -> str:
    """Hash a file's content.

    Args:
        deadline: on the monotonic clock.

    Raises:
        TimeoutError: the deadline passed.
    """
    digest = hashlib.sha256()
    with source.open("rb") if isinstance(source, Path) else nullcontext(source) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError
    return digest.hexdigest()


def write_checksums(folder: Path, parts: Iterable[str] = (".",)) -> int:
    """Write the hashes of files of a folder for `sha256sum -c`; return their number.

    Args:
        parts: names of files, and of folders with all files below them.

    Raises:
        StoreError, FileError: the disk is full, or the file cannot be written.
    """
    names: set[str] = set()
    for path in (folder / part for part in parts):
        found = [entry.path for entry in walk(path) if entry.is_file(follow_symlinks=False)] if path.is_dir() else []
        names.update(os.path.relpath(each, folder) for each in [*found, *([str(path)] if path.is_file() else [])])
    listed = sorted(name for name in names if name != CHECKSUMS and _SUFFIX not in name)
    with atomic_write(folder / CHECKSUMS) as target, target.open("w", encoding="utf-8") as file:
        file.writelines(f"{sha256(folder / name)}  {name}\n" for name in listed)
    return len(listed)


def lock(path: Path, *, wait: bool = True, shared: bool = False) -> ExitStack:
    """Lock a file or a folder, until the stack is closed or the process dies.

    A lock belongs to its opening: the same thread that locks again waits for ever.

    Raises:
        BlockingIOError: another holds it, and ``wait`` is off.
        OSError: it cannot be opened, or its file system has no locks.
    """
    # Over NFS an exclusive lock takes a file that is open for writing; a folder never is.
    descriptor = os.open(path, (os.O_RDONLY | os.O_DIRECTORY if path.is_dir() else os.O_RDWR) | os.O_CLOEXEC)
    with ExitStack() as opened:
        opened.callback(os.close, descriptor)
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        return opened.pop_all()


def cache_lock(cache: Path, name: str) -> ExitStack:
    """Wait for the lock ``name`` of a cache that processes share."""
    path = cache / "locks" / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return lock(path)


def is_stream(path: Path) -> bool:
    """Return whether a path names a device, a pipe, or a stream of this process such as ``/dev/stdout``.

    A rename would replace the name itself.
    """
    if path.is_symlink():
        folder = path.parent.resolve()  # of /dev/fd it is one in /proc; /dev/shm has files
        return folder == Path("/dev") or folder.is_relative_to("/proc")
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a path to write; it is renamed to ``path`` if the block ends well, else removed.

    Raises:
        StoreError: the disk is full.
        FileError: the path is a folder or a device, or another error of the file system.
    """
    if not path.name or path.is_dir():
        raise FileError(f"{path}: is a folder; name a file in it")
    if is_stream(path):
        raise FileError(f"{path}: is a device or a pipe, which cannot hold this; name a file")
    # In a stranger's folder a link may have any name that can be guessed.
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}{_SUFFIX}")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        full = error.errno in _FULL
        kind, remedy = (StoreError, "make room") if full else (FileError, "choose another place")
        raise kind(f"{path}: cannot be written: {error.strerror}; {remedy}") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def reports_full_disk(text: str) -> bool:
    """Check whether a program's output blames a full disk."""
    lower = text.lower()  # Go writes it without the capital
    return any(words in lower for words in _FULL_WORDS)


def raise_if_disk_full(what: str, output: str) -> None:
    """Raise StoreError if a host program blames a full disk: the measured system is not at fault."""
    if reports_full_disk(output):
        last = [line for line in output.splitlines() if reports_full_disk(line)][-1]
        raise StoreError(
            f"{what}: the disk is full: {' '.join(last.split())[-200:]}; make room; finished jobs are kept"
        )


def staging_path(final: Path) -> Path:
    """Return a free path in the folder of ``final``, to write and then rename.

    Removes what dead processes left in that folder.
    """
    remove_leftovers(final.parent)
    partial = _partial(final)
    remove_tree(partial)  # left by an earlier attempt of this process
    return partial


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield an empty folder in ``parent`` and remove it afterwards.

    Removes what dead processes left of the same name.
    """
    parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(parent, name)
    folder = _partial(parent / f"{name}-{secrets.token_hex(4)}")
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        remove_tree(folder)


@contextmanager
def fresh_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces ``target`` in one step if the block ends well."""
    with scratch_folder(target.parent, target.name) as scratch:
        fresh = scratch / "fresh"
        fresh.mkdir()
        yield fresh
        if target.exists():
            target.rename(scratch / "old")
        fresh.rename(target)


@contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """Yield an empty folder among the host's temporary files and remove it afterwards."""
    with scratch_folder(Path(tempfile.gettempdir()), _TEMPORARY_PREFIX + kind) as folder:
        yield folder


def remove_all_leftovers(cache: Path) -> None:
    """Remove what dead processes left in the cache and among the host's temporary files."""
    for folder in cache.glob("*/"):
        remove_leftovers(folder)
    remove_leftovers(Path(tempfile.gettempdir()), _TEMPORARY_PREFIX)


def remove_leftovers(parent: Path, prefix: str = "") -> None:
    """Remove what dead processes left in ``parent`` under names with ``prefix``."""
    for leftover in parent.glob(f"*{_SUFFIX}"):
        owner = leftover.name.removesuffix(_SUFFIX).rpartition(".")[2]
        with suppress(OSError):  # another process removed it
            if leftover.name.startswith(prefix) and has_died(owner) and leftover.lstat().st_uid == os.geteuid():
                remove_tree(leftover)


def _partial(final: Path) -> Path:
    return final.with_name(f"{final.name}.{this_process()}{_SUFFIX}")


def walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield every entry below a folder, folders included, without following links.

    ``os.walk`` and ``Path.rglob`` recurse (until Python 3.12): they fail at a thousand nested folders.

    Raises:
        OSError: a folder cannot be read, or is nested too deep for a path.
    """
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def link_tree(source: Path, target: Path, *, copies: bool) -> None:
    """Fill a new folder with the files below ``source``: links, or copies on request and where a link is impossible.

    Every user may read the folders and the copies, because a job's user is another.

    Raises:
        OSError: an entry is not a regular file, cannot be read, or finds no room.
    """
    target.mkdir()
    target.chmod(0o755)
    for entry, path in _with_folders(source, target):
        if path.is_dir():
            path.chmod(0o755)
        elif copies or not _linked(entry.path, path):
            shutil.copyfile(entry.path, path, follow_symlinks=False)
            path.chmod(0o644)


def copy_tree(source: Path, target: Path) -> None:
    """Copy the files below ``source`` into a new folder, each with its owner and mode.

    Raises:
        OSError: an entry is not a regular file, cannot be read, or finds no room.
    """
    target.mkdir()
    _as(source.lstat(), target)
    for entry, path in _with_folders(source, target):
        if not path.is_dir():
            shutil.copyfile(entry.path, path, follow_symlinks=False)
        _as(entry.stat(follow_symlinks=False), path)


def _with_folders(source: Path, target: Path) -> Iterator[tuple[os.DirEntry[str], Path]]:
    """Yield every entry below ``source`` and its path in ``target``, where folders are made."""
    for entry in walk(source):
        path = target / os.path.relpath(entry.path, source)
        if entry.is_dir(follow_symlinks=False):
            path.mkdir()
        elif not entry.is_file(follow_symlinks=False):  # a link could lead out of the folder
            raise OSError(errno.EINVAL, f"{entry.name!r} is not a regular file")
        yield entry, path


def _as(status: os.stat_result, path: Path) -> None:
    if os.getuid() == 0:
        os.chown(path, status.st_uid, status.st_gid)
    path.chmod(stat.S_IMODE(status.st_mode) & 0o777)


def _linked(source: str, target: Path) -> bool:
    with suppress(OSError):  # another file system or user
        os.link(source, target, follow_symlinks=False)
        return True
    return False


def remove_tree(folder: Path) -> None:
    """Remove a folder and all below it, at any depth and with any modes; ignore what cannot be removed.

    A container that could not be stopped may still replace a folder below by a link to a host folder, or by a pipe, at
    any moment.  So every step works on a descriptor, or to a name directly below one.  ``shutil.rmtree`` opens what
    such a link leads to before it looks (which harms a pipe or a device), and it recurses.
    """
    for _ in range(_ROUNDS):
        try:
            top = _opened(folder)
        except OSError:  # it is missing, or not a folder
            return
        with suppress(OSError):
            try:
                _take_apart(top)
            finally:
                os.close(top)
            folder.rmdir()
            return


@dataclass
class _Open:
    """An open folder, and the names of the folders still in it."""

    name: str
    descriptor: int
    folders: list[str] = field(default_factory=list)


def _take_apart(top: int) -> None:
    """Empty the folder ``top``, one folder after another; move folders that are nested too deep to the top."""
    way, moved = [_Open("", top, _without_files(top))], 0
    try:
        while True:
            here = way[-1]
            if not here.folders:
                if len(way) == 1:
                    return
                os.close(way.pop().descriptor)
                with suppress(OSError):
                    os.rmdir(here.name, dir_fd=way[-1].descriptor)
                continue
            name = here.folders.pop()
            with suppress(OSError):  # it went, or is another thing by now
                below = _Open(name, _opened(name, here.descriptor))
                if len(way) < _MAX_OPEN:
                    way.append(below)
                    below.folders += _without_files(below.descriptor)
                    continue
                os.close(below.descriptor)  # opening changed its mode: a closed folder cannot be moved
                if moved < _MAX_MOVED:
                    moved += 1
                    new = f"~{secrets.token_hex(8)}"
                    os.rename(name, new, src_dir_fd=here.descriptor, dst_dir_fd=top)
                    way[0].folders.append(new)
    finally:
        for folder in way[1:]:
            os.close(folder.descriptor)


def _opened(name: str | Path, within: int | None = None) -> int:
    """Open a folder of any mode, and return its descriptor.

    Raises:
        OSError: the folder is missing, is a link or a file, or belongs to another user.
    """
    # O_PATH opens folders that are closed to us; its name in /proc reopens the same folder.
    closed = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
    try:
        with suppress(OSError):  # another's, which may be open to us all the same
            os.chmod(f"/proc/self/fd/{closed}", 0o700)  # noqa: PTH101 # a descriptor's name, not a path
        return os.open(f"/proc/self/fd/{closed}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(closed)


def _without_files(folder: int) -> list[str]:
    """Unlink all files and links; return the names of the folders."""
    with os.scandir(folder) as entries:
        contents = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in contents:
        if not is_folder:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in contents if is_folder]


def this_process() -> str:
    """Name this process; no other process ever has the same name."""
    return "_".join([_host(), _boot_id(), _pid_namespace(), str(os.getpid()), str(_start_time("self"))])


def has_died(process: str) -> bool:
    """Check whether a process that :func:`this_process` named is dead for certain.

    A process of another host never is; nor one of another pid namespace, such as a container's, until the host reboots.
    """
    fields = process.split("_")
    if len(fields) != 5:
        return False
    host, boot_id, namespace, pid, started = fields
    if host != _host() or not pid.isdecimal():
        return False
    if boot_id != _boot_id():
        return True
    # After a bare ``unshare --pid``, /proc shows another pid namespace than ours.
    shows_ours = str(Path("/proc/self").readlink()) == str(os.getpid())
    return namespace == _pid_namespace() and shows_ours and _start_time(pid) != started


def _host() -> str:
    return re.sub("[^A-Za-z0-9-]", "-", socket.gethostname())


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)


def _start_time(pid: str) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The command name may hold blanks and brackets; fields are counted from its end.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]  # a zombie is dead
