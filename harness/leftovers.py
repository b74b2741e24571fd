"""Folders in the making: how they are named, and how those of dead processes go.

A folder is written as ``<name>.<owner>.partial`` and renamed when it is whole, so that a ``kill -9`` leaves nothing
that looks finished.  Only our own user's are removed, and only those whose owner is dead for certain: a cache may be
shared.  What untrusted jobs wrote into one may be arbitrarily deep and closed to us; it goes all the same.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness.owner import dead, me

_SUFFIX = ".partial"
# How the names begin of what we make in the folder of temporary files, which is everybody's.
_OURS = "harness-"


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

    ``shutil.rmtree`` recurses: a thousand nested folders are more than it can take.
    """
    # The plain case costs one call; a hostile tree is taken apart level by level.
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(folder)
    if not folder.is_dir() or folder.is_symlink():
        return
    with contextlib.suppress(OSError):
        _take_apart(folder)


def _take_apart(top: Path) -> None:
    """Empty one folder after another; each folder found further down is first moved up, so that no path grows long."""
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        folder.chmod(0o700)
        with os.scandir(folder) as entries:
            found = [(Path(entry.path), entry.is_dir(follow_symlinks=False)) for entry in entries]
        for path, is_folder in found:
            if not is_folder:
                path.unlink()
                continue
            path.chmod(0o700)  # a folder that is closed to us cannot be moved elsewhere
            waiting.append(path if folder == top else path.rename(top / f"~{secrets.token_hex(8)}"))
        if folder != top:
            folder.rmdir()
    top.rmdir()


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
