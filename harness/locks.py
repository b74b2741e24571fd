"""One process at a time: locks in a cache that several processes share."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
