"""What a table for people is made of: grids of finished texts, footnotes, numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from harness.analysis.table import Row
from harness.stats import Estimate

MISSING = "—"
# Marks a system whose checkpoint is not the published one.
STAND_IN = "†"
MIB = 2**20

Escape = Callable[[str], str]
# A column: its header, whether it holds numbers, and how a row's cell is written.
Column = tuple[str, bool, Callable[[Row], str]]


@dataclass(frozen=True)
class Grid:
    """Columns of finished texts under a caption; ``keys`` says how many leading columns name the row."""

    caption: str
    headers: tuple[str, ...]
    numeric: tuple[bool, ...]
    cells: tuple[tuple[str, ...], ...]
    keys: int


@dataclass(frozen=True)
class Sheet(Grid):
    """A table of finished texts, the smaller one that belongs below it, and what is said of both.

    ``footnotes`` are numbered from 1; cells hold their marks, ``[1]``.
    """

    below: Grid | None
    footnotes: tuple[str, ...]
    notes: tuple[str, ...]


def named(row: Row, escape: Escape) -> str:
    """A row's system, marked where its checkpoint is a stand-in; :func:`stand_ins` are the marks' notes."""
    return escape(row.system) + (f" {STAND_IN}" if row.stand_in else "")


def stand_ins(rows: Iterable[Row]) -> tuple[str, ...]:
    """What the marked systems were measured with, one sentence for each checkpoint."""
    by_text: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.stand_in:
            by_text.setdefault(row.stand_in, {})[row.system] = None
    return tuple(
        f"{STAND_IN} {', '.join(systems)}: not the published checkpoint but a stand-in: {text}"
        for text, systems in by_text.items()
    )


@dataclass
class Footnotes:
    """Numbers sentences in the order of their first use; equal sentences share a number."""

    escape: Escape
    numbers: dict[str, int] = field(default_factory=dict)
    _marks: dict[tuple[str | None, ...], str] = field(default_factory=dict)

    @property
    def texts(self) -> tuple[str, ...]:
        """The sentences, the first one's number being 1."""
        return tuple(self.numbers)

    def mark(self, *texts: str | None) -> str:
        """`` [1] [3]`` for the given sentences, or nothing."""
        if texts not in self._marks:
            self._marks[texts] = self._mark(*texts)
        return self._marks[texts]

    def _mark(self, *texts: str | None) -> str:
        marks = []
        for text in dict.fromkeys(self.escape(text) for text in texts if text):
            number = self.numbers.setdefault(text, len(self.numbers) + 1)
            marks.append(f" [{number}]")
        return "".join(marks)


def number(value: float) -> str:
    """Three significant digits, no exponent, no thousands separator: ``0.0116``, ``1.63``, ``12.3``, ``1024``."""
    return f"{value:.{decimals_of(value)}f}"


def bounded(figure: Estimate, scale: float = 1.0) -> str:
    """A number that is known and its interval, in the number's decimals: ``1.63 (1.56-1.72)``; ``?`` for a lost end."""
    assert figure.value is not None
    value = figure.value * scale
    decimals = decimals_of(value)
    shown = f"{value:.{decimals}f}"
    if figure.low is None and figure.high is None:
        return shown
    low, high = ("?" if end is None else f"{end * scale:.{decimals}f}" for end in (figure.low, figure.high))
    return f"{shown} ({low}–{high})"


def decimals_of(value: float) -> int:
    """Decimals that show three significant digits, and none of numbers above 100."""
    if value == 0 or abs(value) >= 100:
        return 0
    exponent = int(f"{value:.2e}".partition("e")[2])
    return min(2 - exponent, 12)
