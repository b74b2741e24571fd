"""The kernel's small files: read once or again and again, and what stands in them.

Standard library only: it is copied into every image.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

Read = Callable[[Path], "str | None"]


def read_text(path: Path) -> str | None:
    """A small file's content, None where it cannot be had."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None


class KeptOpen:
    """Reads the same files again and again without opening them again: for samplers."""

    _MOST_BYTES = 1 << 16

    def __init__(self) -> None:
        self._descriptors: dict[Path, int | None] = {}

    def __call__(self, path: Path) -> str | None:
        """The file's content now; None where it cannot be had, or is gone."""
        if path not in self._descriptors:
            self._descriptors[path] = _open(path)
        descriptor = self._descriptors[path]
        if descriptor is None:
            return None
        try:
            return os.pread(descriptor, self._MOST_BYTES, 0).decode("ascii")
        except (OSError, UnicodeDecodeError):
            return None

    def close(self) -> None:
        """Let go of the files."""
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
    """The number after a name that starts a line.  Searched for, not split: samplers call this often."""
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
    """``0-2,5`` -> ``{0, 1, 2, 5}``, the kernel's notation of CPUs and NUMA nodes."""
    found: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found.update(range(int(first), int(last or first) + 1))
    return found


def format_list(numbers: Iterable[int]) -> str:
    """``{0, 1, 2, 5}`` -> ``0-2,5``."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ",".join("-".join(map(str, each)) for each in ranges)
