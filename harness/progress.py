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
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from io import StringIO
from statistics import fmean
from typing import TYPE_CHECKING, Protocol

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markup import escape

from harness.commands import words_of
from harness.untrusted import escaped

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

log = logging.getLogger(__name__)

_LOGGER = logging.getLogger("harness")
NOWHERE = Console(file=StringIO(), quiet=True)
_PHASES = {"start": "starting", "load": "loading", "warmup": "warming up", "close": "closing", "check": "checking"}
# Consoles that show messages and bars; the last one is in use.
_consoles: list[Console] = []
# Bars that are shown; tasks inside a task add theirs to the last ones.
_screens: list[_BarScreen] = []
# The width of a wide terminal; characters of a bar there and on other terminals.
_WIDE, _WIDE_BAR, _NARROW_BAR = 100, 20, 8
# Characters of the columns beside a title and its bar, so that they keep their places; a title has at most so many.
_COUNT, _REMARK, _ELAPSED, _TITLE = 11, 20, 7, 48
# Free at the end of a line: a terminal writes ^C there.
_MARGIN = 3
# Bars are drawn so often, because drawing must not disturb measurements.
_DRAWN_PER_S = 2
# Seconds of which the present speed is the mean, and the fewest seconds that show one.
_PACE_S, _LEAST_PACE_S = 60.0, 1.0
_HANGING = 4  # blanks before the further lines of a folded message
# The time left is known from this number of steps on, and changes at most by this factor when a step ends.
_LEAST_STEPS, _MOST_CHANGE = 2, 2
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_UNKNOWN = "time left unknown"


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
def task(title: str, *, line: bool = True, left: Callable[[], str] | None = None) -> Iterator[Progress]:
    """Show a bar while a task runs, below the bars of the tasks around it; without a terminal, log one line.

    A bar has the steps done of all steps, the phase, and the time left at the present speed.  ``line``: without a
    terminal, log that the task starts.  ``left``: returns the time left, or nothing while it is unknown.
    """
    if not console().is_interactive:
        if line:
            log.info("  %s ...", title)
        yield silent
        return
    with ExitStack() as stack:
        if not _screens or _screens[-1].console is not console():
            _screens.append(stack.enter_context(_BarScreen(console())))
            stack.callback(_screens.pop)
        yield stack.enter_context(_screens[-1].bar(_Bar(title, left))).step


class _Bar:
    """The line of a task: title, bar, steps, phase and time left, time passed."""

    def __init__(self, title: str, left: Callable[[], str] | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.title = escaped(title)
        self._left, self._clock = left, clock
        self._started = clock()
        self._done = self._total = 0
        self._phase = ""
        self._pace: deque[tuple[float, int]] = deque()

    def step(self, done: int, total: int = 0, phase: str = "", /) -> None:
        """Take the progress of the task."""
        now = self._clock()
        if (phase, total) != (self._phase, self._total) or done < self._done:
            self._pace.clear()
        if not self._pace or done > self._done:
            self._pace.append((now, done))
        while len(self._pace) > 2 and self._pace[0][0] < now - _PACE_S:
            self._pace.popleft()
        self._done, self._total, self._phase = done, total, phase

    @property
    def share(self) -> float:
        """Return the share that is done; 0 where the number of all steps is not known."""
        return self._done / self._total if self._known else 0.0

    @property
    def count(self) -> str:
        """Return the steps done, of all steps if these are known."""
        known = f"{self._done:,}/{self._total:,}"
        return known if self._known else f"{self._done:,}" if self._done else ""

    @property
    def remark(self) -> str:
        """Return the phase and the time left."""
        if self._left is not None:
            return self._left() or _UNKNOWN
        left = self._time_left()
        if self._phase == "build":  # the title says so
            return left or _UNKNOWN
        if phase := _phase(self._phase):
            return f"{phase}, {left.removeprefix('about ')}" if left else phase
        return left or _UNKNOWN

    @property
    def elapsed(self) -> str:
        """Return the time since the start, as ``0:12:34``."""
        seconds = int(self._clock() - self._started)
        return f"{seconds // _HOUR}:{seconds // _MINUTE % 60:02}:{seconds % _MINUTE:02}"

    @property
    def _known(self) -> bool:
        # Warm-up goes on until it is steady: beyond its total, only the count is known.
        return self._total > 0 and self._done <= self._total

    def _time_left(self) -> str:
        """Return the time left at the present speed; nothing while there is none, and once a step is overdue."""
        if not self._known or self._done == self._total or len(self._pace) < 2:
            return ""
        (first_s, first), (last_s, last) = self._pace[0], self._pace[-1]
        if last_s - first_s < _LEAST_PACE_S:
            return ""
        each_s = (last_s - first_s) / (last - first)
        left_s = each_s * (self._total - last) - (self._clock() - last_s)
        return time_left(left_s) if left_s > 0 else ""


class _BarScreen:
    """The bars at the bottom of a terminal, one line each, none of which is wider than the terminal."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bars: list[_Bar] = []

    def __enter__(self) -> _BarScreen:
        from rich.live import Live  # late, as only a terminal has bars

        self._live: Live = Live(
            console=self.console, transient=True, refresh_per_second=_DRAWN_PER_S, get_renderable=self.lines
        )
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @contextmanager
    def bar(self, bar: _Bar) -> Iterator[_Bar]:
        """Show a bar below the others."""
        self._bars.append(bar)
        try:
            yield bar
        finally:
            self._bars.remove(bar)

    def lines(self) -> Text:
        """Return the lines of all bars, their columns below one another."""
        from rich.text import Text

        bars, room = list(self._bars), max(1, self.console.width - _MARGIN)
        rows = [(bar, bar.count, bar.remark) for bar in bars]
        width = _WIDE_BAR if self.console.width >= _WIDE else _NARROW_BAR
        counts = max([_COUNT, *(cell_len(count) for _, count, _ in rows)])
        remarks = max([_REMARK, *(cell_len(remark) for *_, remark in rows)])
        titles = min(_TITLE, max(_NARROW_BAR, room - width - counts - remarks - _ELAPSED - 4))
        drawn = []
        for bar, count, remark in rows:
            text = Text(f"{_cut(bar.title, titles)} ", no_wrap=True, overflow="crop")
            text.append_text(self._drawn(bar.share, width))
            text.append(f" {count:>{counts}} ", "progress.download")
            text.append(f"{_cut(remark, remarks)} ", "dim")
            text.append(f"{bar.elapsed:>{_ELAPSED}}", "progress.elapsed")
            text.truncate(room)
            drawn.append(text)
        return Text("\n", no_wrap=True, overflow="crop").join(drawn)

    def _drawn(self, share: float, width: int) -> Text:
        """Return the bar itself; without colours its rest is blank."""
        from rich.text import Text

        mark = "━" if self.console.encoding.startswith("utf") else "-"
        plain = self.console.no_color or self.console.color_system is None
        full = int(share * width)
        rest = (" " if plain else mark) * (width - full)
        return Text.assemble((mark * full, "bar.complete"), (rest, "bar.back"))


def _cut(text: str, width: int) -> str:
    """Return a text in exactly so many columns; a cut one ends with an ellipsis."""
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


class TimeLeft:
    """Time left for steps of several kinds: unknown until two ended, and changing smoothly from then on.

    It passes from the begin of a step to its end, not between two steps.
    """

    def __init__(self, kinds: Iterable[Hashable], clock: Callable[[], float] = time.monotonic) -> None:
        self._waiting = Counter(kinds)
        self._clock = clock
        self._spent: dict[Hashable, list[float]] = defaultdict(list)
        self._seconds: float | None = None
        self._at: float | None = None

    def begins(self) -> None:
        """Record that a step begins."""
        self._at = self._clock()

    def ended(self, kind: Hashable, seconds: float) -> None:
        """Record a finished step. Kinds without a finished step are estimated by the mean of the others."""
        expected = self.seconds
        self._spent[kind].append(seconds)
        self._waiting[kind] -= 1
        self._at = None
        means = {each: fmean(times) for each, times in self._spent.items()}
        usual = fmean(means.values())
        if sum(map(len, self._spent.values())) < _LEAST_STEPS:
            return
        found = sum(count * means.get(each, usual) for each, count in self._waiting.items())
        if expected:
            found = min(max(math.sqrt(expected * max(found, 1)), expected / _MOST_CHANGE), expected * _MOST_CHANGE)
        self._seconds = found

    @property
    def seconds(self) -> float | None:
        """Seconds left now, if known; the running step may be late, but the others still need their time."""
        if self._seconds is None:
            return None
        return max(self._seconds - self._passed, self._others)

    def text(self) -> str:
        """Return ``about 3 min left``; ``over 3 min left`` while the running step is late; nothing while unknown."""
        if self._seconds is None:
            return ""
        if self._passed <= self._seconds - self._others:
            return time_left(self._seconds - self._passed)
        # How long a late step still needs is not known.
        return time_left(self._others, at_least=True) if self._others else ""

    @property
    def _passed(self) -> float:
        return 0.0 if self._at is None else self._clock() - self._at

    @property
    def _others(self) -> float:
        """Return the seconds of the steps behind the running one."""
        waiting = max(1, self._waiting.total())
        return (self._seconds or 0.0) * (waiting - 1) / waiting


def time_left(seconds: float, *, at_least: bool = False) -> str:
    """Return ``about 3 min left``, or ``over 3 min left`` for a bound, in steps that a person can follow."""
    about = "over" if at_least else "about"
    if seconds < 5:
        return f"{about} {math.ceil(seconds)} s left" if at_least else "nearly done"
    if seconds < 95:
        return f"{about} {max(1, round(seconds / 10)) * 10} s left"
    if seconds < 5400:
        return f"{about} {round(seconds / _MINUTE)} min left"
    return f"{about} {seconds / _HOUR:.1f} h left"


@contextmanager
def bar(title: str, phase: str, least: int = 0, *, line: bool = False) -> Iterator[Progress]:
    """Show a bar from the first step on whose total is at least ``least``; ``line``: log one without a terminal."""
    opened: list[Progress] = []
    with ExitStack() as stack:

        def step(done: int, total: int = 0, _phase: str = "", /) -> None:
            if total < least or not (line or console().is_interactive):
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


def duration_range(least_s: float, most_s: float) -> str:
    """Return a range of time in one unit: ``3 to 11 min``."""
    if most_s < 2 * _MINUTE:
        return f"{least_s:.0f} to {most_s:.0f} s"
    if most_s < 2 * _HOUR:
        return f"{max(1, round(least_s / _MINUTE))} to {math.ceil(most_s / _MINUTE)} min"
    return f"{least_s / _HOUR:.1f} to {most_s / _HOUR:.1f} h"


def _phase(name: str) -> str:
    if name.startswith("trial-"):
        return f"trial {int(name[6:]) + 1}" if name[6:].isdecimal() else "trial"
    return _PHASES.get(name, name)


def breaks(text: str, width: int, hanging: int = 0) -> list[int]:
    """Return the places where a line of text is folded: before words, never inside a command or a word.

    Args:
        width: columns of a line.
        hanging: columns that the further lines leave free.
    """
    places, used = [], 0
    for start, word in words_of(text):
        if used and used + cell_len(word.rstrip()) > width:
            places.append(start)
            used = hanging
        used += cell_len(word)
    return places


def folded(line: str, console: Console) -> str:
    """Return a message as it is, and for a terminal folded between words, its further lines indented."""
    if not console.is_interactive:
        return line
    places = breaks(line, console.width, _HANGING)
    parts = [line[start:end].rstrip() for start, end in zip((0, *places), (*places, None), strict=True)]
    return f"\n{' ' * _HANGING}".join(parts)


class _Lines(logging.Handler):
    """Prints each message as plain lines on the console, above its bars."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message unless a later console took over."""
        if console() is self._console:
            lines = (folded(escaped(line), self._console) for line in record.getMessage().split("\n"))
            self._console.print(escape("\n".join(lines)), highlight=False, soft_wrap=True)
