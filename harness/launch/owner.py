"""Who started a container: so that a later run knows the leftovers of a dead one from the work of a living one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

LABEL = "ir-harness.owner"
HOST_LABEL = "ir-harness.host"


def me() -> str:
    """This process: boot id, pid and start time, which no later process can share."""
    return f"{_boot_id()}:{os.getpid()}:{_start_time(os.getpid())}"


def alive(owner: str) -> bool:
    """Does the process that :func:`me` named there still live?"""
    boot_id, _, rest = owner.partition(":")
    pid, _, started = rest.partition(":")
    return boot_id == _boot_id() and pid.isdigit() and _start_time(int(pid)) == started


def this_host() -> str:
    """The host's name: owners on other hosts of a shared engine are never judged."""
    return socket.gethostname()


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _start_time(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The command name may hold blanks and brackets; fields are counted from its end.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]  # a zombie is dead
