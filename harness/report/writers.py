"""Write a report as Markdown, CSV, JSON or LaTeX; print an answer on a terminal.

The same document always gives the same bytes: nothing here reads the clock, the machine or the environment.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.commands import SPAN, parts
from harness.errors import UnknownName
from harness.progress import breaks
from harness.report.document import Grid, ReportDocument, Section, Value, message_at
from harness.results.foreign import MARK
from harness.untrusted import Text, escaped, is_formula, one_line, raw_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text as RichText

FORMATS = ("md", "csv", "json", "latex")
# Between two columns of a plain table.
_GAP = 2


def write(document: ReportDocument, format: str) -> str:
    """Return the document in one of ``FORMATS`` as text that ends with a newline.

    Raises:
        UnknownName: the format is unknown.
    """
    writers = dict(zip(FORMATS, (write_markdown, write_csv, write_json, write_latex), strict=True))
    if format not in writers:
        raise UnknownName("format", format, FORMATS)
    return writers[format](document)


def write_markdown(document: ReportDocument) -> str:
    """Return the sections as Markdown (GitHub's dialect), one below the other."""
    sections = document.sections(markdown_escape)
    return "\n\n".join(markdown_section(section, padded=document.padded) for section in sections) + "\n"


def markdown_section(section: Section, *, padded: bool = True, heading: str = "**{}**") -> str:
    """Return a finished section as Markdown without a last newline; ``heading`` formats its title."""
    section = section.map(finished)
    blocks = [heading.format(section.title)] if section.title else []
    blocks += section.lead
    for grid in section.grids:
        blocks += [f"**{grid.caption}**"] if grid.caption else []
        cells = tuple(map(_message_last, grid.cells)) if grid.tones else grid.cells
        blocks.append("\n".join(markdown_grid(grid.headers, grid.numeric, cells, padded=padded)))
    blocks += section.after
    notes = "\n".join(f"- {text}" for text in (*section.numbered, *section.notes))
    return "\n\n".join([*blocks, notes] if notes else blocks)


def plain_escape(text: Text) -> str:
    """Return foreign text on one line, for terminals and for HTML that escapes it again."""
    return "".join(part for part, _ in parts(text))


def _message_last(cells: tuple[str, ...]) -> tuple[str, ...]:
    """Move a message, which has empty cells behind it, into the last column: Markdown has no cell over several."""
    if (place := message_at(cells)) is None:
        return cells
    return (*cells[:place], *[""] * (len(cells) - place - 1), cells[place])


@functools.lru_cache(maxsize=1 << 14)
def markdown_escape(text: Text) -> str:
    """Return foreign text as inert Markdown on one line: no table bars, HTML, links, code or emphasis.

    Commands of harness stay as they are, as code.
    """
    return "".join(part if whole else _inert(part) for part, whole in parts(text))


def _inert(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # A bracket opens a link only before another one, and a star behind a word closes what no other star has opened.
    text = re.sub(rf"([\\`|~]|(?!{_CLOSING_STAR})\*|\](?=[(\[:]))", r"\\\1", text)
    # An underscore inside a word does not emphasise in this dialect; an escaped one would be hard to read.
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)


# The mark behind a name, as in ``c7a.medium*``.
_CLOSING_STAR = r"(?<=\w)\*(?=[\s,.;:)]|$)"
_MARKUP = re.compile(r"[&<>`*|~\[\]_]")
# In a finished text markup is escaped, part of a command, the mark of a footnote, or a sign behind a blank.  A bracket
# opens a link only before another one, "<" a tag before a letter, "&" an entity where ";" ends it: `p < .001 [1, 2]` is
# text.
_LOOSE = re.compile(
    rf"(\\[^A-Za-z0-9\s]|{SPAN.pattern}|{SPAN.pattern.strip('`')}|\[[A-Z]?\d+\](?![(\[:])|&(?:amp|lt|gt);"
    rf"|(?<!\S)\*(?!\S)|(?<=, )\*(?=: )|{_CLOSING_STAR}|(?<![\w~])~(?=[\d:]))"
    r"|[`*|~]|^>|<(?=[A-Za-z/!?])|&(?=#|[A-Za-z][A-Za-z0-9]*;)|\](?=[(\[:])"
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"
)


@functools.lru_cache(maxsize=1 << 14)
def finished(text: str) -> str:
    """Return a finished text unchanged, and one that a report forgot to escape as inert Markdown on one line.

    Every text of a section comes through here, so that no table can bypass the escape.
    """
    text = escaped(text)
    return _LOOSE.sub(lambda match: match[1] or _alone(match[0]), text) if _MARKUP.search(text) else text


def _alone(character: str) -> str:
    """Return one character of markup as text."""
    return r"\]" if character == "]" else _inert(character)


def markdown_grid(
    headers: Sequence[str], numeric: Sequence[bool], cells: Sequence[Sequence[str]], *, padded: bool = False
) -> list[str]:
    """Return the lines of a table.

    Args:
        headers: any texts.
        numeric: the right-aligned columns.
        cells: rows of finished texts, already escaped.
        padded: columns line up, so that the table is readable where nothing renders it.
    """
    rows = [[markdown_escape(header) for header in headers], *cells]
    rules = ["---:" if right else "---" for right in numeric]
    if padded:
        widths = [max(3, *(len(row[column]) for row in rows)) for column in range(len(headers))]
        sides = list(zip(widths, numeric, strict=True))
        rules = ["-" * (width - 1) + ":" if right else "-" * width for width, right in sides]
        rows = [[_aligned(cell, *side) for cell, side in zip(row, sides, strict=True)] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (rows[0], rules, *rows[1:])]


def _aligned(cell: str, width: int, right: bool) -> str:
    return cell.rjust(width) if right else cell.ljust(width)


def write_csv(document: ReportDocument) -> str:
    """Return the lines as CSV: RFC 4180, but lines end with a newline alone."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([csv_cell(value) for value in line] for line in document.lines())
    return stream.getvalue()


def csv_cell(value: Value) -> str:
    """Return a cell: a number that reads back unchanged, a text on one line that no spreadsheet takes for a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Text):
        text = one_line(value)
        return f"'{text}" if is_formula(text) else text
    return repr(value)


def write_json(document: ReportDocument) -> str:
    """Return the content as JSON in ASCII, so that foreign control characters reach no terminal; texts are whole."""
    content = document.content()
    return json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False, default=raw_text) + "\n"


def write_latex(document: ReportDocument) -> str:
    """Return the sections as a LaTeX fragment, numbered ``tab:harness-1`` and on; a single one may float."""
    from harness.report import latex  # late: one form of four

    return latex.write_sections((document.printed or document.sections)(latex.escape))


# A figure of others, wherever it is.
_FOREIGN = rf"\S+{MARK}"
_STYLES = {"good": "green", "doubtful": "yellow", "bad": "red"}
# Tones of lines by their first word.
_TONES = {"ok": "good", "warn": "doubtful", "noisy:": "doubtful", "fail": "bad", "invalid:": "bad"}


def print_answer(section: Section, console: Console) -> None:
    """Print an answer: heading, tables without rules, and lines; in colour where the console shows colours."""
    from rich.cells import cell_len
    from rich.text import Text

    section = section.map(escaped)
    grids = [replace(grid, headers=tuple(map(plain_escape, grid.headers))) for grid in section.grids]
    for paragraph in (section.title, *section.lead):
        if paragraph:
            console.print(Text(paragraph, style="bold"))
    for number, grid in enumerate(grids):
        if number or section.title or section.lead:
            console.print()
        if grid.caption:
            console.print(Text(grid.caption, style="bold"))
        head, *lines = plain_table(grid)
        if console.is_terminal and max(map(cell_len, (head, *lines))) > console.width:
            console.print(_folded(grid))
            continue
        console.print(Text(head, style="dim"), soft_wrap=True)
        for line, tone in zip(lines, grid.tones or [""] * len(lines), strict=True):
            text = Text(line, style=_STYLES.get(tone, ""))
            text.highlight_regex(_FOREIGN, "magenta")
            console.print(text, soft_wrap=True)
    if (section.after or section.notes) and (section.grids or section.lead):
        console.print()
    for line in (*section.after, *section.notes):
        first = line.partition(" ")[0]
        print_paragraph(Text.assemble((first, _STYLES.get(_TONES.get(first, ""), "")), line[len(first) :]), console)


def print_paragraph(text: RichText, console: Console) -> None:
    """Print a text, folded where a terminal ends; no line end comes into a command, which a shell would end there."""
    offsets = breaks(text.plain, console.width) if console.is_terminal else []
    for line in text.divide(offsets):
        line.rstrip()
        console.print(line, soft_wrap=True)


def _folded(grid: Grid) -> Table:
    """Return a table whose cells have several lines, because it is wider than the terminal."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    for number, (header, right) in enumerate(zip(grid.headers, grid.numeric, strict=True)):
        texts = (header, *(row[number] for row in grid.cells)) if number < grid.keys else ()
        longest = max((cell_len(word) for text in texts for word in text.split()), default=None)
        table.add_column(Text(header), justify="right" if right else "left", overflow="fold", min_width=longest)
    for row, tone in zip(grid.cells, grid.tones or [""] * len(grid.cells), strict=True):
        table.add_row(*map(Text, row), style=_STYLES.get(tone))
    return table


def narrowed(grid: Grid, dropped: Sequence[str], width: int | None) -> Grid:
    """Return the grid with as many columns as fit the terminal.

    Args:
        grid: all columns.
        dropped: how headers begin of columns that may be left out, the least needed first.
        width: of the terminal; ``None``: there is no limit.
    """
    for header in dropped:
        if fits(grid, width):
            break
        grid = grid.select([place for place, each in enumerate(grid.headers) if not each.startswith(header)])
    return grid


def fits(grid: Grid, width: int | None) -> bool:
    """Return whether a grid fits a terminal of this width."""
    from rich.cells import cell_len

    return width is None or max(map(cell_len, plain_table(grid))) <= width


def plain_table(grid: Grid) -> list[str]:
    """Return the header and the rows as aligned lines; a message may be wider than its column."""
    from rich.cells import cell_len

    rows = [(row, message_at(row)) for row in (grid.headers, *grid.cells)]
    widths = [
        max(cell_len(row[column]) for row, message in rows if column != message) for column in range(len(grid.headers))
    ]
    lines = []
    for row, message in rows:
        cells = []
        for column, (cell, width, right) in enumerate(zip(row, widths, grid.numeric, strict=True)):
            room = " " * (width - cell_len(cell))
            cells.append(room + cell if right and column != message else cell + room)
        lines.append((" " * _GAP).join(cells).rstrip())
    return lines
