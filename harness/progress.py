"""What a person sees while a suite runs: bars on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from harness.launch.base import Progress as Step

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
        with Progress(*columns, console=self.console, transient=True, refresh_per_second=2) as bars:
            yield Watcher(bars, bars.add_task(escape(label), total=None), escape(label))


class Watcher:
    """Takes the steps of one job."""

    def __init__(self, bars: Progress | None, task: TaskID, label: str = "") -> None:
        self._bars = bars
        self._task = task
        self._label = label

    def __call__(self, step: Step) -> None:
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
