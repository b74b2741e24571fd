"""Instructions that a job's threads execute in user mode, as the CPU counts them (``perf_event_open``).

They are nearly the same from process to process, so a small change of a program shows in them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.driver.procfs import read_text

_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
# The type and the number of the event, as perf_event_open(2) names them.
_INSTRUCTIONS = (0, 1)
# perf_event_open has no function in libc.
_NUMBERS = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTES = struct.Struct("=IIQQQQQ")
_ATTRIBUTES_BYTES = 128
_ENABLED_AND_RUNNING = 3
# Threads born later are counted too, and neither the kernel nor a hypervisor is.
_INHERIT_USER_ONLY = 1 << 1 | 1 << 5 | 1 << 6
_CLOSE_ON_EXEC = 8
_READING = struct.Struct("=QQQ")
_WHY = {
    errno.ENOENT: "this machine does not show the counters of its CPUs; few virtual machines do",
    errno.EOPNOTSUPP: "this machine does not show the counters of its CPUs; few virtual machines do",
    errno.ENOSYS: "the kernel has no perf_event_open",
}


@dataclass(frozen=True)
class CountedEvents:
    """Events of a job so far: of ``followed_ns`` CPU time of its threads, ``counted_ns`` were counted.

    A CPU has few counters, and its kernel shares them out if programs ask for more.
    """

    events: int
    followed_ns: int
    counted_ns: int


class EventCounter:
    """Counts in all threads of a job; made by :func:`following`."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []

    def follow(self, threads: Collection[int]) -> None:
        """Count from now on in these threads and in all that they start; further calls change nothing.

        Threads that another one starts during this call may be missed: then ``followed_ns`` is short.
        """
        if self._descriptors:
            return
        for thread in threads:
            with contextlib.suppress(OSError):  # it ended meanwhile
                self._descriptors.append(_open(thread))

    def read(self) -> CountedEvents | None:
        """Return what was counted so far; ``None``: nothing is followed."""
        try:
            read = [_READING.unpack(os.read(each, _READING.size)) for each in self._descriptors]
        except (OSError, struct.error):
            return None
        if not read:
            return None
        return CountedEvents(*map(sum, zip(*read, strict=True)))

    def close(self) -> None:
        """Stop counting."""
        while self._descriptors:
            os.close(self._descriptors.pop())


@contextmanager
def following() -> Iterator[EventCounter | None]:
    """Count instructions of a job while the block runs; ``None`` where :func:`reason_not_counted` has a reason."""
    if reason_not_counted():
        yield None
        return
    with contextlib.closing(EventCounter()) as counter:
        yield counter


def reason_not_counted() -> str | None:
    """Return why this process may not count instructions in processes of its user; ``None``: it may."""
    try:
        os.close(_open(0))
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            level = (read_text(_PARANOID) or "?").strip()
            return f"kernel.perf_event_paranoid is {level}; set it to 2 or less, or run as root"
        return _WHY.get(error.errno or 0, f"perf_event_open failed: {error.strerror}")
    return None


def _open(thread: int) -> int:
    """Return a descriptor that counts in a thread (0: the calling one).

    Raises:
        OSError: the kernel refuses.
    """
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    kind, event = _INSTRUCTIONS
    text = _ATTRIBUTES.pack(kind, _ATTRIBUTES_BYTES, event, 0, 0, _ENABLED_AND_RUNNING, _INHERIT_USER_ONLY)
    attributes = ctypes.create_string_buffer(text, _ATTRIBUTES_BYTES)
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    any_cpu, no_group = ctypes.c_long(-1), ctypes.c_long(-1)
    made = call(
        ctypes.c_long(number),
        attributes,
        ctypes.c_long(thread),
        any_cpu,
        no_group,
        ctypes.c_ulong(_CLOSE_ON_EXEC),
    )
    if made < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(made)
