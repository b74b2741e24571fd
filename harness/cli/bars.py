"""A bar for what takes some seconds and runs no suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(title: str, phase: str) -> Iterator[Callable[[int, int], None]]:
    """What it yields takes how many of how many are done; nothing is shown where stderr is no terminal."""
    from rich.console import Console

    from harness.launch.base import Progress
    from harness.progress import Screen

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _done, _total: None
        return
    with Screen(console).task(title) as watcher:
        yield lambda done, total: watcher(Progress(phase, done, total))
