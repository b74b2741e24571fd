"""What a person sees while a suite runs: bars on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as Bars,
)


@dataclass(frozen=True)
class Progress:
    """How far a job is: phase, steps done, steps in all (0: unknown)."""

    phase: str
    done: int
    total: int


# MERGED harness.progress: A bar for what takes some seconds and runs no suite.


@contextmanager
def bar(title: str, phase: str) -> Iterator[Callable[[int, int], None]]:
    """What it yields takes how many of how many are done; nothing is shown where stderr is no terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _done, _total: None
        return
    with Screen(console).task(title) as watcher:
        yield lambda done, total: watcher(Progress(phase, done, total))


_PHASES = {"start": "starting", "load": "loading", "warmup": "warming up", "close": "closing", "build": "building"}


class Screen:
    """Tells how far a run is.  The bar is drawn twice a second: drawing must not disturb what is measured."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, text: str) -> None:
        """One line that stays."""
        self.console.print(escape(text), highlight=False, soft_wrap=True)

    @contextmanager
    def task(self, title: str, part: str = "") -> Iterator[Watcher]:
        """Show one job or build while it runs.

        Args:
            title: what runs.
            part: where in the whole it stands, e.g. ``3/6, about 2 min left``.
        """
        label = f"{title}  {part}".rstrip()
        if not self.console.is_terminal:
            self.say(f"  {label} ...")
            yield Watcher(None, TaskID(0))
            return
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
        )
        with Bars(*columns, console=self.console, transient=True, refresh_per_second=2) as bars:
            yield Watcher(bars, bars.add_task(escape(label), total=None), escape(label))


class Watcher:
    """Takes the steps of one job."""

    def __init__(self, bars: Bars | None, task: TaskID, label: str = "") -> None:
        self._bars = bars
        self._task = task
        self._label = label

    def __call__(self, step: Progress) -> None:
        """Show a step."""
        if self._bars is None:
            return
        phase = step.phase
        if phase.startswith("trial-"):
            phase = f"trial {int(phase[6:]) + 1}" if phase[6:].isdecimal() else "trial"
        text = f"{self._label} [dim]{escape(_PHASES.get(phase, phase))}[/dim]"
        self._bars.update(self._task, description=text, completed=step.done, total=step.total or None)


def duration(seconds: float) -> str:
    """``95`` -> ``1 min 35 s``."""
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"
