r"""A table as LaTeX (booktabs): a fragment that a paper takes in with ``\input``.

Nothing in it depends on the document's encoding, fonts or columns.  A table that is a little too wide is scaled to the
line; a wider one comes in parts that repeat the row's name, and one that is longer than a page in further parts.
"""

from __future__ import annotations

import functools
import itertools
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.report.document import MISSING, Grid, Section, message_at
from harness.untrusted import MAX_TEXT, Text, escaped, one_line

# Characters that mean something to TeX, or that its fonts turn into others (``<`` into a question mark).
_SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",
    "`": r"\textasciigrave{}",
    # At the start of a row they would be taken for an argument of the row before.
    "[": "{[}",
    "*": "{*}",
}
# Two of them in a row become another character.
_JOINED = ("-", ",", "'")


def _named(characters: str, names: str, form: str) -> dict[str, str]:
    return {each: form.format(name) for each, name in zip(characters, names.split(), strict=True)}


_GLYPHS = {
    **_named(
        "—–…‘’“”§¶©®™£¡¿ßæÆœŒøØłŁı",
        "textemdash textendash textellipsis textquoteleft textquoteright textquotedblleft textquotedblright S P "
        "textcopyright textregistered texttrademark pounds textexclamdown textquestiondown ss ae AE oe OE o O l L i",
        r"\{}{{}}",
    ),
    # Mathematics where the symbol fonts of text may be bitmaps.
    **_named(
        "†‡•·µ±×÷≤≥≠≈∞←→↑↓",
        r"dagger ddagger bullet cdot mu pm times div leq geq neq approx infty leftarrow rightarrow uparrow downarrow",
        r"\ensuremath{{\{}}}",
    ),
    **_named("−°²³", r"- ^\circ ^2 ^3", r"\ensuremath{{{}}}"),  # the minus sign
}
# Combining marks, and the accents of TeX.
_ACCENTS = dict(
    zip("\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327", "`'^~=u.\"rHvc", strict=True)
)
_GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu"),
    *("xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
)
_BREAK = r"\allowbreak{}"
# In a finished text each special character is part of something that `escape` writes, or the mark of a footnote.
_MARKUP = re.compile(f"[{re.escape(''.join(_SPECIAL))}]")
_LOOSE = re.compile(
    rf"({'|'.join(map(re.escape, sorted((*_SPECIAL.values(), *_GLYPHS.values(), _BREAK), key=len, reverse=True)))}"
    rf"|\\ensuremath\{{\\(?:{'|'.join(_GREEK)})\}}|\\[{re.escape(''.join(_ACCENTS.values()))}]\{{[A-Za-z]\}}"
    r"|\{\}(?=[-,'])|\[[A-Z]?\d+\])"
    f"|{_MARKUP.pattern}"
)
# Words of more characters may break after each so many.
_LONG, _SHORT = 24, 8


@functools.lru_cache(maxsize=1 << 14)
def escape(text: Text) -> str:
    """Return foreign text as inert LaTeX on one line, for a paragraph, a cell or a caption.

    Text that prints more than ``MAX_TEXT`` characters is cut, because TeX cannot measure a caption of a few metres.
    """
    text = unicodedata.normalize("NFC", one_line(text, MAX_TEXT))
    printed = itertools.accumulate(length(glyph(character)) for character in text)
    kept = sum(end < MAX_TEXT for end in printed)
    return " ".join(_word(word) for word in (text if kept >= len(text) - 1 else f"{text[:kept]}…").split(" "))


def _word(word: str) -> str:
    parts = [_SPECIAL.get(character) or glyph(character) for character in word]
    for number, (before, character) in enumerate(itertools.pairwise(word), start=1):
        if character in _JOINED and character == before:
            parts[number] = f"{{}}{parts[number]}"
    if sum(len(glyph(character)) for character in word) <= _LONG:
        return "".join(parts)
    # A code point is as long as a word.
    step = 1 if any("U+" in part for part in parts) else _SHORT
    return _BREAK.join("".join(parts[start : start + step]) for start in range(0, len(parts), step))


def finished(text: str) -> str:
    """Return LaTeX whose own dashes and marks are ASCII too; what a report forgot to escape becomes inert."""
    text = escaped(text)
    if _MARKUP.search(text):
        text = _LOOSE.sub(lambda match: match[1] or _SPECIAL[match[0]], text)
    return text if text.isascii() else "".join(map(glyph, text))


@functools.lru_cache(maxsize=1 << 12)
def glyph(character: str) -> str:
    """Return a character without meaning to TeX, in ASCII."""
    if character.isascii():
        return character
    if character in _GLYPHS:
        return _GLYPHS[character]
    parts = unicodedata.normalize("NFD", character)
    if len(parts) == 2 and parts[1] in _ACCENTS and parts[0].isascii() and parts[0].isalpha():
        return f"\\{_ACCENTS[parts[1]]}{{{parts[0]}}}"
    greek = unicodedata.name(character, "").removeprefix("GREEK SMALL LETTER ").replace("LAMDA", "LAMBDA").lower()
    return f"\\ensuremath{{\\{greek}}}" if greek in _GREEK else f"{{[}}U+{ord(character):04X}]"


def length(text: str) -> int:
    """Return about how many characters a finished text prints."""
    text = text.replace(_BREAK, "").replace(r"\ensuremath", "")
    text = re.sub(r"\\(char34|[A-Za-z]+|.)", "x", text)
    return len(re.sub(r"[{}]", "", text))


_LABEL = "tab:harness"
PACKAGES = r"\usepackage{array,booktabs,graphicx}"
HEAD = f"% Made by harness.  Needs {PACKAGES}\n"

# Characters of \footnotesize in a line of an article, the gap of a column, and the widest text column.
_LINE, _GAP, _WIDEST = 80, 2, 28
# A table up to this factor wider than the line is scaled to it; a wider one is divided into parts, scaled less.
_WHOLE, _SCALED = 1.45, 1.25
# A table wider than this spans both columns of a two-column paper.
_ONE_COLUMN = 48
# Lines of a page that rows may fill.
_PAGE = 42
_PLAIN = (r"\par\medskip\noindent\begin{minipage}{\linewidth}", r"\end{minipage}\par\medskip")
# A caption outside of a float, with no package.
_IN_PLACE = (f"{_PLAIN[0]}\\makeatletter\\def\\@captype{{table}}\\makeatother", _PLAIN[1])


def write_sections(sections: Iterable[Section]) -> str:
    """Return finished sections as a fragment; the tables of a single section may float.

    Columns that are empty or the same in every row of a section's first grid are left out and named.
    """
    every = list(sections)
    single = len(every) == 1
    parts = [HEAD.rstrip("\n")]
    for number, section in enumerate(every, start=1):
        parts += _body(section, _LABEL if single else f"{_LABEL}-{number}", floating=single)
    return "\n\n".join(part for part in parts if part) + "\n"


def _body(section: Section, label: str, *, floating: bool) -> Iterator[str]:
    """Yield the paragraphs, tables and list of a section."""
    yield from map(finished, section.lead)
    left_out: list[str] = []
    if section.grids:
        first, left_out = _that_differ(section.grids[0])
        yield captioned(first, label, floating=floating)
    for grid in section.grids[1:]:
        yield captioned(grid, f"{label}-below", floating=floating)
    yield from map(finished, section.after)
    yield listed((*section.numbered, *section.notes, *left_out))


def _that_differ(grid: Grid) -> tuple[Grid, list[str]]:
    """Drop columns that are empty or the same in every row; return the grid and notes on them."""
    kept, empty, same = list(range(grid.keys)), [], []
    for column in range(grid.keys, len(grid.headers)):
        values, header = list(dict.fromkeys(row[column] for row in grid.cells)), escape(grid.headers[column])
        if not any(values):
            continue
        if all(text.startswith(MISSING) for text in values):
            # Marks say why, even where the column is gone.
            marks = dict.fromkeys(mark for text in values for mark in text.removeprefix(MISSING).split())
            empty.append(" ".join((header, *marks)))
        elif len(values) == 1 and not grid.numeric[column] and len(grid.cells) > 1:
            same.append(f"{header}: {values[0]}")
        else:
            kept.append(column)
    notes = [f"Empty in every row: {'; '.join(empty)}."] if empty else []
    notes += [f"The same in every row: {'; '.join(same)}."] if same else []
    return grid.select(kept), notes


def is_whole(grid: Grid) -> bool:
    """Return whether a grid is one table as wide as a page at most, which is not divided."""
    columns, *_ = _columns(_that_differ(grid)[0])
    return len(_panels(columns, grid.keys)) == 1


def captioned(cells: Grid, label: str, *, floating: bool = False) -> str:
    """Return a grid as tables with its caption and label.

    Only one of a single part floats: LaTeX holds back a few floats, and a table may have hundreds of parts.
    """
    parts = list(_parts(cells))
    written = []
    for number, (width, lines) in enumerate(parts, start=1):
        of = "" if len(parts) == 1 else f" ({number} of {len(parts)})"
        named = [f"\\caption{{{finished(cells.caption or 'All stored results')}{of}}}"]
        named += [f"\\label{{{re.sub('[^A-Za-z0-9:.-]', '-', label)}}}"] if number == 1 else []
        kind = "table*" if width > _ONE_COLUMN else "table"
        begin, end = (f"\\begin{{{kind}}}[htbp]", f"\\end{{{kind}}}") if floating and not of else _IN_PLACE
        written.append("\n".join((begin, *named, *lines, end)))
    return "\n\n".join(written)


def write_in_place(section: Section, level: int) -> str:
    """Return a finished section under a heading; its tables stand between its paragraphs and have no number."""
    heading = ("section", "section", "subsection", "subsubsection")[min(level, 3)]
    parts = [f"\\{heading}*{{{finished(section.title)}}}"] if section.title else []
    parts += map(finished, section.lead)
    for grid in section.grids:
        parts += ("\n".join((_PLAIN[0], *lines, _PLAIN[1])) for _, lines in _parts(grid))
    parts += map(finished, section.after)
    parts += [listed(section.notes)] if section.notes else []
    return "\n\n".join(parts)


def listed(items: Sequence[str]) -> str:
    """Return finished texts as a list in small print; a mark ``[1]`` at the start becomes the label."""
    if not items:
        return ""
    lines = [re.sub(r"\A(\[[A-Z]?\d+\])?", _item, finished(text), count=1) for text in items]
    return "\n".join((r"{\footnotesize\sloppy", r"\begin{itemize}", *lines, r"\end{itemize}}"))


def _item(mark: re.Match[str]) -> str:
    return f"\\item[{{{mark[1]}}}]" if mark[1] else "\\item "


@dataclass(frozen=True)
class _TableColumn:
    """Setting of a column: right-aligned, as wide as its widest cell, or folded at ``width`` characters."""

    header: str
    right: bool
    width: int
    folded: bool

    @property
    def setting(self) -> str:
        if self.folded:
            return f">{{\\raggedright\\arraybackslash}}p{{{self.width / 2:g}em}}"
        return "r" if self.right else "l"


def _parts(cells: Grid) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the width and the lines of each part."""
    columns, rows, message = _columns(cells)
    for numbers in _panels(columns, cells.keys):
        chosen = [columns[number] for number in numbers]
        shown = [
            _spanned([row[number] for number in numbers]) if place in numbers else [row[number] for number in numbers]
            for row, place in zip(rows, message, strict=True)
        ]
        for page in _pages(shown, chosen):
            yield sum(column.width + _GAP for column in chosen), tuple(_tabular(chosen, page))


def _columns(cells: Grid) -> tuple[list[_TableColumn], list[list[str]], list[int | None]]:
    """Return the setting of each column, the finished rows, and the column of each row's message."""
    rows = [[finished(cell) for cell in row] for row in cells.cells]
    # A message is in place of figures.
    found = [message_at(row) if cells.tones else None for row in rows]
    message = [place if place is not None and place >= cells.keys else None for place in found]
    return [_column(cells, rows, message, number) for number in range(len(cells.headers))], rows, message


def _spanned(row: list[str]) -> list[str]:
    """Return a row whose last text has the room of all empty cells behind it."""
    place = max(number for number, cell in enumerate(row) if cell)
    return [*row[:place], f"\\multicolumn{{{len(row) - place}}}{{l@{{}}}}{{{row[place]}}}"]


def _column(cells: Grid, rows: Sequence[Sequence[str]], message: Sequence[int | None], number: int) -> _TableColumn:
    right = cells.numeric[number]
    words = max((len(word) for word in cells.headers[number].split()), default=0)
    figures = (row[number] for row, place in zip(rows, message, strict=True) if place != number)
    widest = max(map(length, figures), default=0)
    folded = not right and widest > _WIDEST
    width = max(min(widest, _WIDEST) if folded else widest, words)
    header = cells.headers[number]
    lines = textwrap.wrap(header, max(width, 11), break_long_words=False, break_on_hyphens=False) or [""]
    stacked = r"\\".join(finished(escape(line)) for line in lines)
    if len(lines) > 1:
        stacked = f"\\begin{{tabular}}[b]{{@{{}}{'r' if right else 'l'}@{{}}}}{stacked}\\end{{tabular}}"
    return _TableColumn(stacked, right, max(width, *map(len, lines)), folded)


def _panels(columns: Sequence[_TableColumn], keys: int) -> list[list[int]]:
    """Return the column numbers of each part: the ``keys`` naming columns, then as many others as fit."""
    widths = [column.width + _GAP for column in columns]
    room = _LINE * (_WHOLE if sum(widths) <= _LINE * _WHOLE else _SCALED)
    panels: list[list[int]] = []
    left = 0.0
    for number in range(keys, len(columns)):
        if widths[number] > left or not panels:
            panels.append(list(range(keys)))
            left = room - sum(widths[:keys])
        panels[-1].append(number)
        left -= widths[number]
    return panels or [list(range(keys))]


def _pages(rows: Sequence[list[str]], columns: Sequence[_TableColumn]) -> Iterator[list[list[str]]]:
    """Yield the rows of each page."""
    page: list[list[str]] = []
    filled = 0
    for row in rows:
        pairs = zip(row, columns, strict=False)  # a message takes the room of several columns
        high = max(1 + (length(cell) // column.width if column.folded else 0) for cell, column in pairs)
        if page and filled + high > _PAGE:
            yield page
            page, filled = [], 0
        page.append(row)
        filled += high
    yield page


def _tabular(columns: Sequence[_TableColumn], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield r"\centering\footnotesize\setlength{\tabcolsep}{4pt}%"
    # Scaled only where it is wider than the line.
    yield r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
    yield f"\\begin{{tabular}}{{@{{}}{''.join(column.setting for column in columns)}@{{}}}}"
    yield r"\toprule"
    yield _line([column.header for column in columns])
    yield r"\midrule"
    yield from (_line(row) for row in rows)
    yield r"\bottomrule"
    yield r"\end{tabular}}"


def _line(cells: Sequence[str]) -> str:
    # A row that begins with "[" or "*" would be taken for an argument of the line before.
    line = " & ".join(cell.strip() for cell in cells)
    return f"{'{}' if line.startswith(('[', '*')) else ''}{line} \\\\"
