"""Kills at a memory limit, from the kernel's log.

An engine may miss a kill, and a cgroup's counter goes with the cgroup.  The log keeps both, and names the cgroup at its
limit.  On many machines only root may read it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

_LOG = Path("/dev/kmsg")
_RECORD_BYTES = 8192  # the kernel's longest
_LIMITED = re.compile(rb"oom-kill:.*?,oom_memcg=([^,]*)")


def has_kill(container: str) -> bool:
    """Return whether the log has a kill at the memory limit of the container with this id."""
    with suppress(OSError), os.fdopen(os.open(_LOG, os.O_RDONLY | os.O_NONBLOCK), "rb", 0) as log:
        while True:
            with suppress(BrokenPipeError):  # the kernel has overwritten the next record; go on after it
                record = log.read(_RECORD_BYTES)
                if not record:  # None at the log's end
                    return False
                limited = _LIMITED.search(record)
                if limited and container.encode() in limited[1]:
                    return True
    return False
