"""Kills at a memory limit, as the kernel logs each of them before it.

An engine may miss a kill, and a cgroup's counter goes with the cgroup.  The log keeps the last kills, and names
the cgroup whose limit was reached.  Only root may read it on many machines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LOG = Path("/dev/kmsg")
_RECORD_BYTES = 8192  # the kernel's longest


def has_kill(container: str) -> bool:
    """Return whether the log has a kill at the memory limit of the container with this id."""
    named = container.encode()
    return any(named in _limited(record) for record in _records(_LOG))


def _limited(record: bytes) -> bytes:
    """Return the path of the cgroup at its limit, if the record is about such a kill."""
    _, found, rest = record.partition(b"oom-kill:")
    return rest.partition(b",oom_memcg=")[2].partition(b",")[0] if found else b""


def _records(path: Path) -> Iterator[bytes]:
    """Yield what the log holds, one record a read."""
    with suppress(OSError):  # not readable here, or at its end
        log = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            while True:
                with suppress(BrokenPipeError):  # the kernel has overwritten the next record; go on after it
                    record = os.read(log, _RECORD_BYTES)
                    if not record:
                        return
                    yield record
        finally:
            os.close(log)
