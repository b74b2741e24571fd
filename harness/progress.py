"""Messages and progress bars on the terminal.

Modules log with ``logging.getLogger(__name__)`` and take a :class:`Progress` for steps.  Neither shows anything until
:func:`shown` names a console, which the command line does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import StringIO
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

from harness.untrusted import escaped

log = logging.getLogger(__name__)

_LOGGER = logging.getLogger("harness")
NOWHERE = Console(file=StringIO(), quiet=True)
_PHASES = {"start": "starting", "load": "loading", "warmup": "warming up", "close": "closing", "build": "building"}
# Consoles that show messages and bars; the last one is in use.
_consoles: list[Console] = []


class Progress(Protocol):
    """Takes the progress of a task: steps done, steps in all (0: unknown), and the phase."""

    def __call__(self, done: int, total: int = 0, phase: str = "", /) -> None:
        """Show a step."""


def silent(_done: int, _total: int = 0, _phase: str = "", /) -> None:
    """Show no step."""


def part_of(progress: Progress, number: int, count: int) -> Progress:
    """Report the steps of one of ``count`` equal parts as steps of the whole."""

    def step(done: int, total: int = 0, phase: str = "", /) -> None:
        progress(number * total + done, count * total, phase)

    return step


@contextmanager
def show_progress(screen: Console) -> Iterator[None]:
    """Show the messages of ``harness`` and bars on this console alone; ``NOWHERE`` hides them."""
    handler, level = _Lines(screen), _LOGGER.level
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.INFO)
    _consoles.append(screen)
    try:
        yield
    finally:
        _consoles.pop()
        _LOGGER.setLevel(level)
        _LOGGER.removeHandler(handler)


@contextmanager
def filtering(change: Callable[[str], str | None]) -> Iterator[None]:
    """Pass each message through a function, which may change it, or hide it by ``None``."""

    def keep(record: logging.LogRecord) -> bool:
        text = change(record.getMessage())
        if text is not None:
            record.msg, record.args = text, ()
        return text is not None

    handlers = tuple(_LOGGER.handlers)
    for handler in handlers:
        handler.addFilter(keep)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(keep)


def console() -> Console:
    """Return the console in use, or one that shows nothing."""
    return _consoles[-1] if _consoles else NOWHERE


@contextmanager
def task(title: str, part: str = "") -> Iterator[Progress]:
    """Show a bar while a task runs; without a terminal, log one line.

    The bar is drawn twice a second only, because drawing must not disturb measurements.  ``part``: the position in the
    whole, e.g. ``3/6, about 2 min left``.
    """
    label = f"{title}  {part}".rstrip()
    if not console().is_terminal:
        log.info("  %s ...", label)
        yield silent
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Bars(*columns, console=console(), transient=True, refresh_per_second=2) as bars:
        drawn = bars.add_task(escape(label), total=None)

        def step(done: int, total: int = 0, phase: str = "", /) -> None:
            text = f"{escape(label)} [dim]{escape(_phase(phase))}[/dim]"
            bars.update(drawn, description=text, completed=done, total=total or None)

        yield step


@contextmanager
def bar(title: str, phase: str, least: int = 0, *, line: bool = False) -> Iterator[Progress]:
    """Show a bar from the first step on whose total is at least ``least``; ``line``: log one without a terminal."""
    opened: list[Progress] = []
    with ExitStack() as stack:

        def step(done: int, total: int = 0, _phase: str = "", /) -> None:
            if total < least or not (line or console().is_terminal):
                return
            if not opened:
                opened.append(stack.enter_context(task(title)))
            opened[0](done, total, phase)

        yield step


def duration(seconds: float) -> str:
    """``95`` -> ``1 min 35 s``."""
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"


def _phase(name: str) -> str:
    if name.startswith("trial-"):
        return f"trial {int(name[6:]) + 1}" if name[6:].isdecimal() else "trial"
    return _PHASES.get(name, name)


class _Lines(logging.Handler):
    """Prints each message as plain lines on the console, above its bars."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message unless a later console took over."""
        if console() is self._console:
            text = "\n".join(map(escaped, record.getMessage().split("\n")))
            self._console.print(escape(text), highlight=False, soft_wrap=True)
