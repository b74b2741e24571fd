"""The model of a report: sections of grids for people, one flat table and one object for programs.

Each report module builds a :class:`ReportDocument`; :mod:`harness.report.writers` writes it in every format.
"""

from __future__ import annotations

import functools
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from harness.analysis.row_pricing import other_machine
from harness.analysis.table import Price, Row, Table
from harness.driver.records import Outcome
from harness.errors import counted
from harness.estimate import Estimate
from harness.results import pin_lock
from harness.untrusted import ForeignText, Text

MISSING = "—"
# Marks a system whose checkpoint is not the published one.
STAND_IN = "†"
FIRST_USE = "‡"
MIB = 2**20

# Makes foreign text inert in one format.
Escape = Callable[[Text], str]
# A cell for programs.
Value = Text | int | float | bool | None

Item = TypeVar("Item")
Other = TypeVar("Other")
# A column of a grid: its header, whether it is right-aligned, and the finished cell of an item.
GridColumn = tuple[str, bool, Callable[[Item], str]]


@dataclass(frozen=True)
class Grid:
    """Columns of finished texts under a caption; ``numeric`` columns are right-aligned.

    ``keys`` leading columns name the row.  Headers are plain texts, which the writer escapes.  ``tones``: of each row
    (``good``, ``doubtful``, ``bad``), for terminals that show colours.
    """

    caption: str
    headers: tuple[str, ...]
    numeric: tuple[bool, ...]
    cells: tuple[tuple[str, ...], ...]
    keys: int = 1
    tones: tuple[str, ...] = ()

    def select(self, columns: Sequence[int]) -> Grid:
        """Return the grid with only these columns, which hold all the naming ones."""
        headers = tuple(self.headers[column] for column in columns)
        numeric = tuple(self.numeric[column] for column in columns)
        cells = tuple(tuple(row[column] for column in columns) for row in self.cells)
        return Grid(self.caption, headers, numeric, cells, self.keys, self.tones)


def message_at(cells: Sequence[str]) -> int | None:
    """Return the column of a row's message: its last text, if at least two empty cells are behind it."""
    place = max((number for number, cell in enumerate(cells) if cell), default=0)
    return place if len(cells) - place > 2 else None


@dataclass(frozen=True)
class Section:
    """Title, paragraphs, grids, further paragraphs, and a list of footnotes and notes.

    Every text is finished: escaped for the format that it is written in.  The writer of a format escapes a text that
    the report forgot.  Cells refer to footnotes by ``[1]``.
    """

    title: str = ""
    lead: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()
    after: tuple[str, ...] = ()
    footnotes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def map(self, change: Callable[[str], str]) -> Section:
        """Return the section with each finished text changed; headers, which are plain texts, stay."""

        def each(texts: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(map(change, texts))

        grids = tuple(
            replace(grid, caption=change(grid.caption), cells=tuple(map(each, grid.cells))) for grid in self.grids
        )
        return Section(
            change(self.title), each(self.lead), grids, each(self.after), each(self.footnotes), each(self.notes)
        )

    @property
    def numbered(self) -> list[str]:
        """Footnotes with their marks."""
        return [f"[{number}] {text}" for number, text in enumerate(self.footnotes, start=1)]


@dataclass(frozen=True)
class ReportDocument:
    """Report in three shapes, each built when it is written.

    Args:
        sections: build the sections for people with the escape of a format.
        lines: build the lines of the CSV, the header first.
        content: build the object of the JSON.
        answer: build the sections that people see first, where those are fewer.
        printed: build the sections for LaTeX, where they differ.
        padded: the columns of Markdown grids line up in a terminal.
        plain: the sections have no footnotes, so that a terminal shows them as it shows an answer.
    """

    sections: Callable[[Escape], Iterable[Section]]
    lines: Callable[[], Iterable[Sequence[Value]]]
    content: Callable[[], Mapping[str, Any]]
    answer: Callable[[Escape], Iterable[Section]] | None = None
    printed: Callable[[Escape], Iterable[Section]] | None = None
    padded: bool = True
    plain: bool = False


def grid_of(
    items: Sequence[Item],
    columns: Sequence[GridColumn[Item] | None],
    *,
    caption: str = "",
    keys: int = 1,
    tones: Iterable[str] = (),
    message: Callable[[Item], str | None] = lambda _: None,
) -> Grid:
    """Return a grid with a row for each item; cells are made row by row, so that footnotes are numbered in order.

    ``None`` among the columns: this grid does not need the column.  A row with a ``message`` has it behind its keys,
    and no other cell.
    """
    present = [column for column in columns if column is not None]

    def cells(item: Item) -> tuple[str, ...]:
        if (text := message(item)) is None:
            return tuple(cell(item) for _, _, cell in present)
        return (*(cell(item) for _, _, cell in present[:keys]), text, *[""] * (len(present) - keys - 1))

    return Grid(
        caption,
        tuple(header for header, _, _ in present),
        tuple(numeric for _, numeric, _ in present),
        tuple(map(cells, items)),
        keys,
        tuple(tones),
    )


def column_of(column: GridColumn[Item], read: Callable[[Other], Item]) -> GridColumn[Other]:
    """Return a column for items that hold the items of the given column."""
    header, numeric, cell = column
    return header, numeric, lambda each: cell(read(each))


def lines_of(items: Iterable[Item], columns: Sequence[tuple[str, Callable[[Item], Value]]]) -> Iterator[list[Value]]:
    """Yield the lines of a CSV: the names of the columns, then the values of each item."""
    yield [name for name, _ in columns]
    getters = [get for _, get in columns]
    for item in items:
        yield [get(item) for get in getters]


def lines_of_records(records: Iterable[Mapping[str, Value]], names: Sequence[str]) -> Iterator[list[Value]]:
    """Yield the lines of a CSV with these columns; a record may lack some of them."""
    return lines_of(records, [(name, operator.methodcaller("get", name)) for name in names])


def with_ends(name: str, estimate: Estimate) -> dict[str, float | None]:
    """Return an estimate's value and the ends of its interval, as cells of a CSV."""
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def joined_by_and(names: Sequence[str]) -> str:
    """Return names as a text: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join((*([", ".join(names[:-1])] if names[1:] else []), *names[-1:]))


# The most lines of notes that people see first, with the one that names the others.
MOST_LINES = 5


def few_lines(lines: Iterable[str], *last: str, most: int = MOST_LINES, rest: str = "--wide") -> tuple[str, ...]:
    """Return at most so many lines, which end with the ``last`` ones; another line counts the ``rest``."""
    known, room = list(lines), most - len(last)
    if len(known) > room:
        kept = max(0, room - 1)
        known[kept:] = [f"{len(known) - kept} more notes: {rest}"]
    return (*known, *last)


def usual_reason(left_out: Sequence[tuple[Row, str]]) -> str:
    """Return the most frequent reason of rows that are left out, if possible of rows that ran."""
    ran = Counter(reason for row, reason in left_out if row.outcome is Outcome.OK)
    return (ran or Counter(reason for _, reason in left_out)).most_common(1)[0][0]


def cut(text: str, longest: int = 60) -> str:
    """Return a text that a cell has room for."""
    return text if len(text) <= longest else f"{text[: longest - 4]} ..."


_MARK = re.compile(r" \[\d+\]")


def brief(sections: Iterable[Section]) -> tuple[Section, ...]:
    """Return sections without footnotes and methods; the last line says how many notes are hidden.

    A section without a table has the methods of all; of others the first notes stay.
    """
    shown, notes, hidden = [], list[str](), 0
    for section in sections:
        hidden += len(section.footnotes)
        if not section.grids and not section.lead and not section.title:
            hidden += len(section.notes)
            continue
        notes += section.notes
        grids = tuple(replace(grid, cells=tuple(map(_unmarked, grid.cells))) for grid in section.grids)
        shown.append(replace(section, grids=grids, footnotes=(), notes=()))
    kept = notes if len(notes) < MOST_LINES else notes[: MOST_LINES - 1]
    hidden += len(notes) - len(kept)
    return *shown, Section(notes=(*kept, *([f"{counted(hidden, 'more note')}: --wide"] if hidden else [])))


def _unmarked(cells: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_MARK.sub("", cell) for cell in cells)


@dataclass
class Footnotes:
    """Sentences numbered in the order of their first use; equal sentences share a number."""

    escape: Escape
    numbers: dict[str, int] = field(default_factory=dict)
    _marks: dict[tuple[str | None, ...], str] = field(default_factory=dict)

    @property
    def texts(self) -> tuple[str, ...]:
        """The sentences, from number 1."""
        return tuple(self.numbers)

    def mark(self, *texts: str | None) -> str:
        """Return `` [1] [3]`` for the given sentences, or nothing."""
        if texts not in self._marks:
            escaped = dict.fromkeys(self.escape(text) for text in texts if text)
            numbers = [self.numbers.setdefault(text, len(self.numbers) + 1) for text in escaped]
            self._marks[texts] = "".join(f" [{number}]" for number in numbers)
        return self._marks[texts]

    def missing(self, *reasons: str | None) -> str:
        """Return the mark of a missing value and of its reasons."""
        return MISSING + self.mark(*reasons)

    def price(self, row: Row, price: Price | None, note: str | None = None) -> str:
        """Return an instance type and its price by the hour: ``c7a.medium (0.05132) [1]``, or ``(arm64, 0.0255)``."""
        if price is None:
            return self.missing(note)
        other = other_machine(row, price)
        facts = f"{price.usd_per_hour:g}" if other is None else f"{other}, {price.usd_per_hour:g}"
        return f"{self.escape(price.instance_type)} ({facts}){self.mark(note)}"


def price_facts(table: Table) -> dict[str, str]:
    """Return which prices a table has, and which instance types it prefers."""
    names = ("provider", "region", "term", "date", "source", "architecture", "generation", "machine")
    return {name: getattr(table, f"price_{name}") for name in names}


def system_name(row: Row, escape: Escape) -> str:
    """Return a row's system, with the marks that :func:`stand_ins` explains."""
    marks = (
        f" {STAND_IN}" if row.stand_in else "",
        f" {FIRST_USE}" if row.pinned_at_first_use else "",
        " (predicted)" if row.predicted_from else "",
    )
    return escape(row.system) + "".join(marks)


def stand_ins(rows: Iterable[Row]) -> tuple[str, ...]:
    """Return one sentence for each stand-in checkpoint and its systems, and one for systems pinned at first use."""
    by_text: dict[ForeignText, dict[str, None]] = {}
    first_use: dict[str, None] = {}
    for row in rows:
        if row.stand_in:
            by_text.setdefault(row.stand_in, {})[row.system] = None
        if row.pinned_at_first_use:
            first_use[row.system] = None
    lines = [
        f"{STAND_IN} {', '.join(systems)}: not the published checkpoint but a stand-in: {text}"
        for text, systems in by_text.items()
    ]
    if first_use:
        lines.append(f"{FIRST_USE} {', '.join(first_use)}: pinned at first use; {pin_lock.FILE} has the hashes.")
    return tuple(lines)


def left_out_records(table: Table) -> tuple[str, ...]:
    """Return one sentence on the records that could not be read, if there are some."""
    are = "is" if len(table.unreadable) == 1 else "are"
    records = counted(len(table.unreadable), "record")
    text = f"{records} cannot be read and {are} left out; `harness verify` names each."
    return (text,) if table.unreadable else ()


def digits(value: float | None, form: str) -> str:
    """Return a number in a format such as ``.3f``, or the mark of a missing one."""
    return MISSING if value is None else format(value, form)


def number(value: float | None, scale: float = 1.0) -> str:
    """Return three significant digits without exponent: ``0.0116``, ``1.63``, ``12.3``, ``1024``."""
    return MISSING if value is None else f"{value * scale:.{decimals_of(value * scale)}f}"


@functools.lru_cache(maxsize=1 << 14)
def bounded(estimate: Estimate, scale: float = 1.0, decimals: int | None = None) -> str:
    """Return a number and its interval in the same decimals: ``1.63 (1.56–1.72)``; ``?``: no such end.

    An interval that is missing for a reason is a dash.

    ``decimals``: by default those that show three significant digits of the number.
    """
    if estimate.value is None:
        return MISSING
    value = estimate.value * scale
    form = f".{decimals_of(value) if decimals is None else decimals}f"
    if estimate.low is None and estimate.high is None:
        return format(value, form) + (f" ({MISSING})" if estimate.reason else "")
    low, high = ("?" if end is None else format(end * scale, form) for end in (estimate.low, estimate.high))
    return f"{value:{form}} ({low}–{high})"


def decimals_of(value: float) -> int:
    """Return the decimals that show three significant digits; none from 100 on."""
    if value == 0 or abs(value) >= 100:
        return 0
    exponent = int(f"{value:.2e}".partition("e")[2])
    return min(2 - exponent, 12)
