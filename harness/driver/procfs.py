"""Readers of the kernel's small files below ``/proc`` and ``/sys``.

Standard library only: it is copied into every image.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ReadFile = Callable[[Path], "str | None"]

# The kernel keeps 15 characters of a thread's name.  HotSpot (Java) and CoreCLR (.NET) name theirs; V8's share threads
# with its garbage collector.
_NAMES = ("C1 CompilerThre", "C2 CompilerThre", "JVMCI CompilerT", ".NET Tiered Com")


def read_text(path: Path) -> str | None:
    """Return a small file's content; None if it is missing or unreadable."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None


class OpenFiles:
    """Files that a sampler reads again and again without opening them again."""

    _MAX_BYTES = 1 << 16

    def __init__(self) -> None:
        self._descriptors: dict[Path, int | None] = {}

    def __call__(self, path: Path) -> str | None:
        """Return the file's content now; None if it is missing or unreadable."""
        if path not in self._descriptors:
            self._descriptors[path] = _open(path)
        descriptor = self._descriptors[path]
        if descriptor is None:
            return None
        try:
            return os.pread(descriptor, self._MAX_BYTES, 0).decode("ascii")
        except (OSError, UnicodeDecodeError):
            return None

    def close(self) -> None:
        """Close the files."""
        while self._descriptors:
            _, descriptor = self._descriptors.popitem()
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def number_after(text: str | None, name: str) -> int | None:
    """Return the number after a name that starts a line; searching is quicker than splitting."""
    if text is None:
        return None
    start = 0 if text.startswith(name + " ") else text.find(f"\n{name} ") + 1
    if not start and not text.startswith(name + " "):
        return None
    start += len(name) + 1
    end = text.find("\n", start)
    value = text[start:] if end < 0 else text[start:end]
    return int(value) if value.isdigit() else None


def parse_list(text: str) -> set[int]:
    """Parse the kernel's notation of CPUs and NUMA nodes: ``0-2,5`` -> ``{0, 1, 2, 5}``."""
    numbers: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def format_list(numbers: Iterable[int]) -> str:
    """Format numbers in the kernel's notation: ``{0, 1, 2, 5}`` -> ``0-2,5``."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ",".join("-".join(map(str, bounds)) for bounds in ranges)


class CompilerClock:
    """CPU time of just-in-time compiler threads of this process and its descendants."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._ran_ns: dict[str, int] = {}
        self._total_ns = 0
        self.seen = False  # until such a thread exists

    def __call__(self) -> int:
        """Return the nanoseconds that they have run so far; threads that have ended count."""
        for thread in self._threads(str(os.getpid())):
            try:
                if (thread / "comm").read_text().rstrip("\n") not in _NAMES:
                    continue
                ran_ns = int((thread / "schedstat").read_text().split()[0])
            except (OSError, ValueError, IndexError):
                continue  # it has ended, or this kernel keeps no such statistics
            self.seen = True
            before_ns = self._ran_ns.get(thread.name, 0)
            # A number that falls belongs to a new thread with a reused id.
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
