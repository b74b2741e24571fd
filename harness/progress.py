"""Messages and progress bars on the terminal.

Modules log with ``logging.getLogger(__name__)`` and take a :class:`Progress` for steps.  Neither shows anything until
:func:`show_progress` names a console, as the command line does.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from io import StringIO
from statistics import fmean
from typing import TYPE_CHECKING, Protocol

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markup import escape

from harness.untrusted import escaped

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

log = logging.getLogger(__name__)

_LOGGER = logging.getLogger("harness")
NOWHERE = Console(file=StringIO(), quiet=True)
_PHASES = {"start": "starting", "load": "loading", "warmup": "warming up", "close": "closing", "build": "building"}
# Consoles that show messages and bars; the last one is in use.
_consoles: list[Console] = []
# Bars that are shown; tasks inside a task add theirs to the last ones.
_bars: list[Bars] = []
# The width of a wide terminal; characters of a bar there and on other terminals, and of all columns but the title.
_WIDE, _WIDE_BAR, _NARROW_BAR, _REST = 100, 20, 10, 48
# The time left is known from this number of steps on, and changes at most by this factor when a step ends.
_LEAST_STEPS, _MOST_CHANGE = 2, 2
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


class Screen(Console):
    """A terminal, file or pipe; a width of 0 is unknown, and a reader that has gone does not end a run."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, emoji=False)  # a folder may be called ":b:"
        self._width = self._width or None  # COLUMNS=0 would hide every line

    def on_broken_pipe(self) -> None:
        """Write nothing more; on stdout, end the command as any program in a pipe ends."""
        self.quiet = True
        if not self.stderr:
            raise BrokenPipeError
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


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
def task(title: str, *, line: bool = True, left: Callable[[], str] = str) -> Iterator[Progress]:
    """Show a bar while a task runs, below the bars of the tasks around it; without a terminal, log one line.

    Bars are drawn twice a second only, because drawing must not disturb measurements.  ``line``: without a terminal,
    log that the task starts.  ``left``: returns the time left.
    """
    if not console().is_terminal:
        if line:
            log.info("  %s ...", title)
        yield silent
        return
    with ExitStack() as stack:
        inside = bool(_bars) and _bars[-1].console is console()
        if not inside:
            _bars.append(stack.enter_context(_open_bars()))
            stack.callback(_bars.pop)
        bars = _bars[-1]
        room = console().width - _REST
        label = title if cell_len(title) <= room else set_cell_size(title, room - 1) + "…"
        drawn = bars.add_task(escape(label), total=None, count="", phase="", left=left)
        if inside:
            stack.callback(bars.remove_task, drawn)

        def step(done: int, total: int = 0, phase: str = "", /) -> None:
            # Warm-up goes on until it is steady: beyond its total, only the count is known.
            known = total if done <= total else 0
            count = f"{done:,}/{known:,}" if known else f"{done:,}" if done else ""
            bars.update(drawn, completed=done, total=known or None, count=count, phase=_phase(phase))

        yield step


def _open_bars() -> Bars:
    # Late, as only a terminal has bars.
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    class Remark(ProgressColumn):
        """Column with the time left of a task, else its phase; of a build with the time left at its present speed."""

        def render(self, task: Task) -> Text:
            """Return the text of now."""
            remark = task.fields["left"]() or task.fields["phase"]
            if remark == _PHASES["build"] and task.time_remaining:  # other tasks' steps differ in length
                remark = f"{remark}, {duration(task.time_remaining)} left"
            return Text(remark, style="dim", no_wrap=True)

    width = _WIDE_BAR if console().width >= _WIDE else _NARROW_BAR
    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=width),
        TextColumn("{task.fields[count]}", justify="right"),
        Remark(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console(), transient=True, refresh_per_second=2)


class TimeLeft:
    """Time left for steps of several kinds: unknown until two ended, and changing smoothly from then on."""

    def __init__(self, kinds: Iterable[Hashable], clock: Callable[[], float] = time.monotonic) -> None:
        self._waiting = Counter(kinds)
        self._clock = clock
        self._spent: dict[Hashable, list[float]] = defaultdict(list)
        self._seconds: float | None = None
        self._at = 0.0

    def ended(self, kind: Hashable, seconds: float) -> None:
        """Record a finished step. Kinds without a finished step are estimated by the mean of the others."""
        expected = self.seconds
        self._spent[kind].append(seconds)
        self._waiting[kind] -= 1
        means = {each: fmean(times) for each, times in self._spent.items()}
        usual = fmean(means.values())
        if sum(map(len, self._spent.values())) < _LEAST_STEPS:
            return
        found = sum(count * means.get(each, usual) for each, count in self._waiting.items())
        if expected:
            found = min(max(math.sqrt(expected * max(found, 1)), expected / _MOST_CHANGE), expected * _MOST_CHANGE)
        self._seconds, self._at = found, self._clock()

    @property
    def seconds(self) -> float | None:
        """Seconds left now, if known; the running step may be late, but the others still need their time."""
        if self._seconds is None:
            return None
        waiting = max(1, self._waiting.total())
        return max(self._seconds - (self._clock() - self._at), self._seconds * (waiting - 1) / waiting)

    def text(self) -> str:
        """Return ``about 3 min left``; nothing while it is unknown."""
        seconds = self.seconds
        if seconds is None:
            return ""
        if seconds < 5:
            return "nearly done"
        if seconds < 95:
            return f"about {max(1, round(seconds / 10)) * 10} s left"
        return f"about {round(seconds / 60)} min left" if seconds < 5400 else f"about {seconds / 3600:.1f} h left"


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
    """Return a time in two figures or so: ``95`` -> ``1 min 35 s``, ``7500`` -> ``2.1 h``."""
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < 10 * _MINUTE:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _HOUR:
        return f"{whole / _MINUTE:.0f} min"
    return f"{whole / _HOUR:.1f} h" if whole < 2 * _DAY else f"{whole / _DAY:.1f} days"


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
