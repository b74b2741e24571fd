"""A dataset that an option names."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.datasets import Dataset


def load(named: str, cache: Path) -> Dataset:
    """Load a dataset by its name or folder, with a bar while a large corpus is made ready.

    Raises:
        UnknownName: there is none.
        FileError: a file of it is missing or wrong.
    """
    from rich.console import Console

    from harness import datasets
    from harness.launch.base import Progress
    from harness.progress import Screen, Watcher

    watchers: list[Watcher] = []
    with ExitStack() as stack:

        def show_progress(done: int, total: int) -> None:
            if not watchers:
                watchers.append(stack.enter_context(Screen(Console(stderr=True)).task(f"{named}: corpus")))
            watchers[0](Progress("documents", done, total))

        return datasets.load(datasets.find(named, Path.cwd()), cache.expanduser().absolute(), show_progress)
