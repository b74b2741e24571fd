"""CPU time of just-in-time compiler threads, by the names that virtual machines give them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# The kernel keeps 15 characters of a thread's name.  HotSpot (Java) and CoreCLR (.NET) name theirs; V8's share threads
# with its garbage collector.
_NAMES = ("C1 CompilerThre", "C2 CompilerThre", "JVMCI CompilerT", ".NET Tiered Com")


class CompilerClock:
    """The compiler threads of this process and of its descendants.

    Args:
        proc: where the kernel shows processes.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._ran_ns: dict[str, int] = {}
        self._total_ns = 0
        self.seen = False  # whether there ever was such a thread

    def __call__(self) -> int:
        """Return the nanoseconds that they have run so far; those of threads that have ended since still count."""
        for thread in self._threads(str(os.getpid())):
            try:
                if (thread / "comm").read_text().rstrip("\n") not in _NAMES:
                    continue
                ran_ns = int((thread / "schedstat").read_text().split()[0])
            except (OSError, ValueError, IndexError):
                continue  # it has ended, or this kernel keeps no such statistics
            self.seen = True
            before_ns = self._ran_ns.get(thread.name, 0)
            # A number that runs backwards is another thread's, with the name of one that has ended.
            self._total_ns += ran_ns - before_ns if ran_ns >= before_ns else ran_ns
            self._ran_ns[thread.name] = ran_ns
        return self._total_ns

    def _threads(self, process: str) -> Iterator[Path]:
        try:
            threads = list((self._proc / process / "task").iterdir())
        except OSError:
            return
        for thread in threads:
            yield thread
            try:
                children = (thread / "children").read_text().split()
            except OSError:
                continue  # it has ended, or this kernel does not show children
            for child in children:
                yield from self._threads(child)
