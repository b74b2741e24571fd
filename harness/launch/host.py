"""What this host has to give."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.launch import gpu
from harness.records import Envelope
from harness.result import Placement


def cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    """Physical memory of the host."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def larger_than_host(envelope: Envelope) -> str | None:
    """Why the envelope does not fit on this host, or None."""
    if envelope.cpus > cpus():
        return f"profile {envelope.name} needs {envelope.cpus} CPUs, this host gives {cpus()}"
    if envelope.memory_bytes > memory_bytes():
        return f"profile {envelope.name} needs {envelope.memory_bytes >> 20} MiB, this host has {memory_bytes() >> 20}"
    return None


def cannot_provide(envelope: Envelope) -> str | None:
    """Why this host does not have that envelope, GPUs included, or None."""
    reason = larger_than_host(envelope)
    if reason or not envelope.gpus:
        return reason
    found = gpu.probe()
    if len(found.models) < envelope.gpus:
        return found.reason or f"{len(found.models)} GPUs on this host, the profile needs {envelope.gpus}"
    return None


def forget_pages(folder: Path) -> str | None:
    """Drop a folder's files from the page cache, so that each job finds them alike (measuring rule 18).

    Returns:
        ``dropped``, or ``None`` where the kernel would not.
    """
    for path in folder.rglob("*"):
        if not path.is_file() or path.is_symlink():
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)  # a page that waits to be written is never dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError:
            return None
        finally:
            os.close(descriptor)
    return "dropped"


@contextmanager
def aside(placement: Placement) -> Iterator[None]:
    """Keep all threads of this process, and those that they start, to the CPUs that are the harness's."""
    mine, before = set(placement.harness_cpus), {}
    for thread in _threads():
        with suppress(OSError):  # it ended meanwhile
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
    return [int(path.name) for path in Path("/proc/self/task").iterdir()]
