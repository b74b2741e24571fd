"""Folders in the making: how they are named, and how those of dead processes go.

A folder is written as ``<name>.<owner>.partial`` and renamed when it is whole, so that a ``kill -9`` leaves nothing
that looks finished.  Only our own user's are removed, and only those whose owner is dead for certain: a cache may be
shared.  What untrusted jobs wrote into one may be arbitrarily deep, closed to us, and changed under our hands; it goes
all the same, and nothing else does.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from harness.errors import FileError, StoreError

# MERGED harness.filesystem: Signals that stop a run: all of them end it as Ctrl-C does, and none of them cuts off
# the cleaning up.


_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def stop_as_ctrl_c_does() -> None:
    """Let SIGTERM, SIGHUP and SIGQUIT raise KeyboardInterrupt; what is ignored (``nohup``) stays ignored."""
    for number in _STOPPING[1:]:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def ignore_ctrl_c() -> None:
    """Ignore further Ctrl-C: this process is ending already."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def held_back() -> Iterator[None]:
    """Hold these signals back until the block has ended, then stop; other threads than the main one get none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    heard = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda given, _: came.append(given)) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


# MERGED harness.filesystem: One process at a time: locks in a cache that several processes share.


@contextmanager
def alone(cache: Path, name: str) -> Iterator[None]:
    """Wait until nobody else holds the lock ``name``; the kernel lets go of it when a process dies.

    It is held by what opened it: the same thread that asks for it again waits for ever.
    """
    folder = cache / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# MERGED harness.filesystem: Whose is it?  What a dead process left is known by its owner's name from what a living one
# makes.


def me() -> str:
    """This process, by a name that no other process ever has."""
    return "_".join([_host(), _boot_id(), _pid_namespace(), str(os.getpid()), str(_start_time("self"))])


def dead(owner: str) -> bool:
    """Is the process that :func:`me` named there dead for certain?

    That cannot be said of one on another host; nor of one in another pid namespace, as a container has it that shares
    this host's name, its cache or its engine, while the host has not been started anew.
    """
    fields = owner.split("_")
    if len(fields) != 5:
        return False
    host, boot_id, namespace, pid, started = fields
    if host != _host() or not pid.isdecimal():
        return False
    if boot_id != _boot_id():
        return True
    return namespace == _pid_namespace() and _proc_is_ours() and _start_time(pid) != started


def _host() -> str:
    return re.sub("[^A-Za-z0-9-]", "-", socket.gethostname())


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)


def _proc_is_ours() -> bool:
    """Does /proc name processes as our own pid namespace does?  After a bare ``unshare --pid`` it does not."""
    return str(Path("/proc/self").readlink()) == str(os.getpid())


def _start_time(pid: str) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The command name may hold blanks and brackets; fields are counted from its end.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]  # a zombie is dead


_SUFFIX = ".partial"
# How the names begin of what we make in the folder of temporary files, which is everybody's.
_OURS = "harness-"
# How often a folder is gone through in which somebody still writes.
_ROUNDS = 5
# How many folders are held open inside each other; what lies deeper is moved up first.
_MOST_OPEN = 32
# A job that still lives could dig deeper for as long as we move up what it dug.
_MOST_MOVED = 100_000


def in_the_making(final: Path) -> Path:
    """The name under which this process makes ``final``; nothing is there yet.

    What dead processes left of the same kind beside it goes.
    """
    sweep(final.parent)
    partial = _partial(final)
    remove(partial)  # an earlier attempt of ours
    return partial


@contextlib.contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """An empty folder in ``parent``, gone afterwards; a name of its own each time.

    What dead processes left of the same kind beside it goes.
    """
    parent.mkdir(parents=True, exist_ok=True)
    sweep(parent, name)
    folder = _partial(parent / f"{name}-{secrets.token_hex(4)}")
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        remove(folder)


@contextlib.contextmanager
def temporary(kind: str) -> Iterator[Path]:
    """As :func:`scratch`, where this host has its temporary files."""
    with scratch(Path(tempfile.gettempdir()), _OURS + kind) as folder:
        yield folder


def sweep_all(cache: Path) -> None:
    """Remove what dead processes left half made in any folder of the cache, and among this host's temporary files."""
    for folder in cache.glob("*/"):
        sweep(folder)
    sweep(Path(tempfile.gettempdir()), _OURS)


def sweep(parent: Path, begins: str = "") -> None:
    """Remove what dead processes left half made in ``parent`` under such names; what a living one makes stays."""
    for leftover in parent.glob(f"*{_SUFFIX}"):
        owner = leftover.name.removesuffix(_SUFFIX).rpartition(".")[2]
        if leftover.name.startswith(begins) and dead(owner) and _is_ours(leftover):
            remove(leftover)


def _partial(final: Path) -> Path:
    return final.with_name(f"{final.name}.{me()}{_SUFFIX}")


def _is_ours(folder: Path) -> bool:
    try:
        return folder.lstat().st_uid == os.geteuid()
    except OSError:  # another process removed it
        return False


def remove(folder: Path) -> None:
    """Remove a folder and all below it, however deep and whatever its modes; what cannot go stays, silently.

    A container that nobody could end may still swap a folder below for a link to one of the host's, or for a pipe, at
    any moment.  So whatever is done is done to a descriptor, or to a name directly below one.  ``shutil.rmtree`` opens
    what such a link leads to before it looks (a pipe or a device takes that amiss), and it recurses.
    """
    for _ in range(_ROUNDS):
        try:
            top = _opened(folder)
        except OSError:  # it is not there, or no folder
            return
        with contextlib.suppress(OSError):
            try:
                _take_apart(top)
            finally:
                os.close(top)
            folder.rmdir()
            return


@dataclass
class _Open:
    """A folder that is held open, and the names of the folders that are still in it."""

    name: str
    descriptor: int
    folders: list[str] = field(default_factory=list)


def _take_apart(top: int) -> None:
    """Empty the folder ``top``, one folder after another; what lies too deep to be held open is moved to the top."""
    way, moved = [_Open("", top, _without_files(top))], 0
    try:
        while True:
            here = way[-1]
            if not here.folders:
                if len(way) == 1:
                    return
                os.close(way.pop().descriptor)
                with contextlib.suppress(OSError):
                    os.rmdir(here.name, dir_fd=way[-1].descriptor)
                continue
            name = here.folders.pop()
            with contextlib.suppress(OSError):  # it went, or is another thing by now
                below = _Open(name, _opened(name, here.descriptor))
                if len(way) < _MOST_OPEN:
                    way.append(below)
                    below.folders += _without_files(below.descriptor)
                    continue
                os.close(below.descriptor)  # it was opened as one that is closed to us cannot be moved
                if moved < _MOST_MOVED:
                    moved += 1
                    new = f"~{secrets.token_hex(8)}"
                    os.rename(name, new, src_dir_fd=here.descriptor, dst_dir_fd=top)
                    way[0].folders.append(new)
    finally:
        for each in way[1:]:
            os.close(each.descriptor)


def _opened(name: str | Path, within: int | None = None) -> int:
    """The descriptor of a folder, which is open to us from now on.

    Raises:
        OSError: it is not there, it is a link or no folder at all, or it is not ours to open.
    """
    # Such a descriptor can be had of a folder that is closed to us; under its name in /proc the very same is opened.
    found = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
    try:
        with contextlib.suppress(OSError):  # another's, which may be open to us all the same
            os.chmod(f"/proc/self/fd/{found}", 0o700)  # noqa: PTH101 # a descriptor's name, no path
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(found)


def _without_files(folder: int) -> list[str]:
    """Unlink what is no folder; the names of those that are."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if not is_folder:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in found if is_folder]


def files(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Every entry below a folder, folders included, no link followed; as deep as paths can name.

    ``os.walk`` and ``Path.rglob`` recurse (until Python 3.12): a thousand nested folders are more than they can take.

    Raises:
        OSError: a folder cannot be read, or lies too deep for a path.
    """
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


# MERGED harness.filesystem: A file that is whole or absent, whatever happens while it is written.


_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_WORDS = tuple(os.strerror(number).lower() for number in _FULL)


def says_full(text: str) -> bool:
    """Return whether a program's words blame a full disk."""
    lower = text.lower()  # Go writes it without the capital
    return any(words in lower for words in _FULL_WORDS)


def refuse_full(what: str, said: str) -> None:
    """Raise StoreError where a program of this host blames a full disk: that says nothing of a system."""
    if says_full(said):
        last = next(line for line in reversed(said.splitlines()) if says_full(line))
        words = " ".join(last.split())[-200:]
        raise StoreError(f"{what}: the disk is full: {words}; make room, what was finished is kept")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Where to write what becomes ``path`` when all went well; nothing is left of it otherwise.

    Raises:
        StoreError: the disk is full.
        FileError: it cannot be written there.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        full = error.errno in _FULL
        kind, remedy = (StoreError, "make room") if full else (FileError, "choose another place")
        raise kind(f"{path}: cannot be written: {error.strerror}; {remedy}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
