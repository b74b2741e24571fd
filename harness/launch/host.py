"""This host: its CPUs and memory, its page cache, and the harness's own threads."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from harness.driver.records import Envelope
from harness.launch.monitor import gpu
from harness.results.schema import Placement

# Share of pages that may stay in the cache of a dropped folder.
_MAX_RESIDENT = 0.01


def cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    """Return the physical memory of the host."""
    return psutil.virtual_memory().total


def cannot_provide(envelope: Envelope) -> str | None:
    """Return why this host does not have that envelope, GPUs included."""
    if envelope.cpus > cpus():
        return f"profile {envelope.name} needs {envelope.cpus} CPUs, this host gives {cpus()}"
    if envelope.memory_bytes > memory_bytes():
        return f"profile {envelope.name} needs {envelope.memory_bytes >> 20} MiB, this host has {memory_bytes() >> 20}"
    if envelope.gpus and len((gpus := gpu.probe()).models) < envelope.gpus:
        return gpus.reason or f"{len(gpus.models)} GPUs on this host, the profile needs {envelope.gpus}"
    return None


def forget_pages(folder: Path) -> str | None:
    """Drop a folder's files from the page cache, so that each job finds them alike (measuring rule 6).

    Returns:
        ``dropped`` where the kernel shows that (nearly) no page is left, ``None`` where some stayed or it hides them.
    """
    pages = resident = 0
    for path in folder.rglob("*"):
        if not path.is_file() or path.is_symlink():
            continue
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            os.fdatasync(descriptor)  # a page that waits to be written is never dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            of_file, left = _pages(descriptor)
        except (OSError, ValueError):
            return None
        finally:
            os.close(descriptor)
        pages, resident = pages + of_file, resident + left
    return "dropped" if resident <= _MAX_RESIDENT * pages else None


def _pages(descriptor: int) -> tuple[int, int]:
    """Return a file's pages and those in the page cache (``mincore``), without touching any.

    Advice is not obeyed where another process has the page mapped, or the file system is memory itself.

    Raises:
        OSError, ValueError: the file cannot be mapped, or the kernel does not say.
    """
    size = os.fstat(descriptor).st_size
    if not size:
        return 0, 0
    pages = -(-size // mmap.PAGESIZE)
    there = (ctypes.c_ubyte * pages)()
    # Private and writable, because ctypes gives no address of what is read-only; nothing is written.
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY) as mapped:
        start = ctypes.c_char.from_buffer(mapped)
        libc = ctypes.CDLL(None, use_errno=True)
        refused = libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), there)
        del start  # else the mapping could not be closed
    if refused:
        raise OSError(ctypes.get_errno(), "mincore")
    return pages, bytes(there).count(1)


@contextmanager
def aside(placement: Placement) -> Iterator[None]:
    """Keep all threads of this process, and their children, to the harness's CPUs."""
    mine, before = set(placement.harness_cpus), {}
    for thread in _threads():
        with suppress(OSError):  # it has ended
            before[thread] = os.sched_getaffinity(thread)
            os.sched_setaffinity(thread, mine)
    usable = before[threading.get_native_id()]
    try:
        yield
    finally:
        for thread in _threads():
            with suppress(OSError):
                os.sched_setaffinity(thread, before.get(thread, usable))


def _threads() -> list[int]:
    return [thread.id for thread in psutil.Process().threads()]
