"""Which CPUs of this host other harnesses have for their jobs, where several measure there at once.

Each would choose the same ones.  A CPU is taken by locking its file in a folder that all of them see: the kernel lets
go of it when a process dies.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from harness import locks
from harness.launch import topology
from harness.result import Placement

# Set by whoever starts several harnesses on one host (harness.batch): the folder that they share.
VARIABLE = "HARNESS_CPU_LEASES"
_WAIT_S = 1.0


@contextmanager
def placed(count: int) -> Iterator[Placement]:
    """Choose ``count`` CPUs for a job as :func:`topology.place` does, of those that no other harness has.

    Waits until there are enough; they are ours until the context ends.
    """
    folder = os.environ.get(VARIABLE)
    if folder is None:
        yield topology.place(count)
        return
    with ExitStack() as leases:
        while (placement := _take(count, Path(folder), leases)) is None:
            time.sleep(_WAIT_S)
        yield placement


def _take(count: int, folder: Path, leases: ExitStack) -> Placement | None:
    mine = os.sched_getaffinity(0)
    with locks.alone(folder, "choosing"), ExitStack() as tried:
        free = _lock(mine, folder, tried)
        # Whoever asks for more than there ever will be is refused elsewhere, and waits for nothing here.
        if len(free) < min(count, len(mine)):
            return None
        placement = topology.place(count, free)
        tried.close()
        _lock(placement.cpus, folder, leases)
        return placement


def _lock(cpus: Iterable[int], folder: Path, held: ExitStack) -> set[int]:
    """Lock what is free of these, until ``held`` is closed."""
    taken = set()
    for cpu in cpus:
        file: IO[bytes] = (folder / f"cpu{cpu}.lock").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
        else:
            held.enter_context(file)
            taken.add(cpu)
    return taken
