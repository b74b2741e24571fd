"""The figures of a row: each has one entry, from which every table, file, page and text takes what it shows.

CSV and data frames, the first screen, the wide table (Markdown, LaTeX), the page, repricing, ``harness explain`` and
docs/reference/columns.md select from these entries.  :mod:`harness.report.row_figures` holds them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from harness.analysis.table import Row
from harness.estimate import Estimate, Varies
from harness.report.columns import Column, Kind, Read, reader
from harness.report.document import MIB, MISSING, Escape, Footnotes, Value, bounded, number
from harness.report.hardware import size

_NOT_IN_PASSPORT = "the passport does not have it"
_NOT_MEASURED, _UNSEEN = "not measured", "harness does not see the machine of a service that ran already"


class Place(Enum):
    """Place where a figure is shown; ``FIRST`` and ``PAGE_TABLE`` have little room."""

    PROGRAMS = "CSV, JSON, data frames and columns.md"
    FIRST = "the first screen, unasked"
    ON_REQUEST = "the first screen, by --columns"
    WIDE = "the table with all columns"
    PAGE = "the evidence of a row on the page"
    PAGE_TABLE = "the table of the page"
    EXPLAIN = "a paragraph of its own on a row"


EVERYWHERE = frozenset(Place) - {Place.FIRST, Place.PAGE_TABLE}
FIRST = EVERYWHERE | {Place.FIRST}
FOREMOST = FIRST | {Place.PAGE_TABLE}
DATA = frozenset({Place.PROGRAMS})


class Prices(Enum):
    """Prices that a figure depends on."""

    NONE = "none"
    HOUR = "the instance's price of an hour, which multiplies it"
    OTHER = "the price of tokens, storage or another machine"


@dataclass(frozen=True)
class FirstScreen:
    """Form of a figure on the first screen, where it differs from the other places.

    ``heading`` says the cell in the heading, where all rows have the same; ``dropped``: its turn to be left out on a
    narrow terminal (0: never); ``bounds``: with the interval, where the wide table has it.
    """

    header: str = ""
    cell: Callable[[Row], str] | None = None
    heading: Callable[[str], str] | None = None
    dropped: int = 0
    bounds: bool = True


def always(_: Row) -> bool:
    """Return that any row may have the figure."""
    return True


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of a row.

    Args:
        name: its column in files.
        meaning: what it is, in a line of columns.md.
        read: gives the value or the estimate of a row, in ``unit``.
        kind: kind of its values.
        unit: empty for a fraction, a text or a date.
        interval: what its interval is; empty: it has none, and files no columns for it.
        ends_alone: files have the interval's ends and not the value.
        label: what people call it; by default its name.
        header: heading of the wide table; by default made of label, bounds and unit.
        bounds: what headings call its interval, where people see it: ``95 %``.
        decimals: by default those that show three significant digits.
        percent: people see a hundred times the value.
        higher: more is better.
        optional: its column is there only where some row has a value.
        varies: what gives it another value when the system is measured again.
        applies: tells the kind of row that may have it.
        noted: the reason of a known value becomes a footnote.
        remark: a text after the number in the wide table.
        cell: the cell of the wide table, where it is more than a number.
        prices: what it depends on.
        method: how it is made.
        told: title of the paragraph of ``harness explain`` that tells it; empty: it has a paragraph of its own.
        short: name in ``--columns``, ``harness explain`` and on the page; by default its name.
        screen: how the first screen shows it.
        places: where it is shown.
    """

    name: str
    meaning: str
    read: Callable[[Row], Any]
    kind: Kind = Kind.NUMBER
    unit: str = ""
    interval: str = ""
    ends_alone: bool = False
    label: str = ""
    header: str = ""
    bounds: str = ""
    decimals: int | None = None
    percent: bool = False
    higher: bool = False
    optional: bool = False
    varies: Varies = Varies.CLOCK
    applies: Callable[[Row], bool] = always
    noted: bool = True
    remark: Callable[[Row, Escape], str] | None = None
    cell: Callable[[Row, Footnotes], str] | None = None
    prices: Prices = Prices.NONE
    method: str = ""
    told: str = ""
    short: str = ""
    screen: FirstScreen = field(default=FirstScreen())
    places: frozenset[Place] = EVERYWHERE

    @property
    def alias(self) -> str:
        """Name in ``--columns``, in ``harness explain`` and on the page."""
        return self.short or self.name

    @property
    def title(self) -> str:
        """Name for people."""
        return self.label or self.name.replace("_", " ")

    @property
    def wide_header(self) -> str:
        """Heading of the wide table: ``latency mean (95 %), ms``."""
        return self.header or self.title + (f" ({self.bounds})" if self.bounds else "") + self._unit

    @property
    def short_header(self) -> str:
        """Heading of the first screen."""
        return self.screen.header or self.title + self._unit

    @property
    def _unit(self) -> str:
        unit = "%" if self.percent else self.unit
        return f", {unit}" if unit else ""

    def estimate(self, row: Row) -> Estimate:
        """Return the figure of a row; a value that its kind of row should have and lacks has a reason."""
        found = self.read(row)
        if isinstance(found, Estimate):
            return found
        return Estimate(found, reason=_reason(row) if found is None and self.applies(row) else None)

    def written(self, item: Estimate) -> str:
        """Return a figure for people, with its interval where they see one."""
        scale = 100.0 if self.percent else 1.0
        if item.value is None:
            return MISSING
        if self.bounds:
            return bounded(item, scale, self.decimals)
        return number(item.value, scale) if self.decimals is None else f"{item.value * scale:.{self.decimals}f}"

    def on_screen(self, row: Row) -> str:
        """Return the cell of the first screen."""
        if self.screen.cell:
            return self.screen.cell(row)
        item = self.estimate(row)
        if self.unit == "MiB" and item.value is not None:
            return size(item.value * MIB)
        return self.written(item if self.screen.bounds else Estimate(item.value))

    def columns(self) -> tuple[Column[Row], ...]:
        """Return the columns of files: the value, and the ends of the interval if there is one."""
        read = self.read
        if not self.interval:
            return (Column(self.name, self.kind, self.unit, self.meaning, self.value),)

        def end(name: str, words: str) -> Column[Row]:
            get = operator.attrgetter(name)
            meaning = f"{words} end of its {self.interval}"
            return Column(f"{self.name}_{name}", self.kind, self.unit, meaning, lambda row: get(read(row)))

        value = Column(self.name, self.kind, self.unit, self.meaning, self.value)
        return (*(() if self.ends_alone else (value,)), end("low", "lower"), end("high", "upper"))

    def value(self, row: Row) -> Value:
        """Return the value of a row for programs."""
        found = self.read(row)
        return found.value if isinstance(found, Estimate) else found

    def number(self, row: Row) -> float | None:
        """Return the value of a row as a number; ``None``: it is missing, or no number."""
        found = self.value(row)
        return float(found) if isinstance(found, int | float) else None

    def only(self, applies: Callable[[Row], bool]) -> Figure:
        """Return the figure for one kind of row."""
        return self if self.applies is not always else replace(self, applies=applies)


def _reason(row: Row) -> str:
    if row.isolation.of_passport:
        return _NOT_IN_PASSPORT
    return _UNSEEN if row.isolation.attached else _NOT_MEASURED


def figure_of(name: str, unit: str, meaning: str, read: Read, scale: float = 1, **more: Any) -> Figure:
    """Return a figure that is read from the row, times a factor."""
    return Figure(name=name, unit=unit, meaning=meaning, read=reader(read, scale), **more)


def fact(name: str, meaning: str, read: Read = "", kind: Kind = Kind.TEXT, unit: str = "") -> Figure:
    """Return a fact for programs, read from the attribute of its name by default."""
    return figure_of(name, unit, meaning, read or name, kind=kind, varies=Varies.NOTHING, places=DATA)


def amount(
    name: str, unit: str, meaning: str, read: Read = "", scale: float = 1, varies: Varies = Varies.CLOCK
) -> Figure:
    """Return a number for programs."""
    return figure_of(name, unit, meaning, read or name, scale, varies=varies, places=DATA)


# A number for programs that never varies, and one that each build of an index gives anew.
fixed = functools.partial(amount, varies=Varies.NOTHING)
built = functools.partial(amount, varies=Varies.BUILD)


def count_of(name: str, unit: str, meaning: str, read: str = "") -> Figure:
    """Return a whole number for programs."""
    return fact(name, meaning, read, Kind.COUNT, unit)
