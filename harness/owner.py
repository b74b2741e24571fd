"""Whose is it?  What a dead process left is known by its owner's name from what a living one makes.

A name is ``<host>_<boot id>_<pid namespace>_<pid>_<start time>``, and may stand in a file name.  A host is known by
its own name alone: hosts that share a cache or an engine need different ones.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path


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
