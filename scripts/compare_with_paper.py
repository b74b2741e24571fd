"""Compare every number of a folder of published tables with the text of the paper.

``python -m scripts.compare_with_paper results/published/NAME PAPER.txt``.  Tables with a ``source`` of their own in
``published.toml`` are not the paper's and are left out.  The text holds tables as lines of cells with
``|`` or tabs between them.  Each CSV file (without ``errata.csv``) is compared with the one table of the text that
holds most of its numbers: a row with the line that holds the most of its cells in their order.  A column that the text
prints on one line, without its table, counts if the line holds the whole column in order.  The rows of a file without
a table, and of one with a column ``value``, are looked up in the sentences: one must hold the row's first cell and all
its numbers.

Prints cells compared, cells wrong, and each wrong cell; exits with 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ERRATA = "errata.csv"
# A column whose cells are compared as text if they have a digit, as versions and commits do; others are our own words.
VALUE = "value"
# Ends the name of a gain that stands in the cell of a figure.
GAIN = ", gain"
# A cell spread over the lines of a table: its parts.
_PARTS = re.compile(r"<br>|\\\\")
# A figure with the marks of significance and the gain beside it: 0.416a (+5.5%); and one that the text does not show.
_FIGURE = re.compile(r"([+-]?[0-9]*\.?[0-9]+)[a-z]{0,4}(?: \(([+-][0-9]+\.[0-9]+)%\))?")
_LOST = "?"
_NUMBER = re.compile(r"(?<![\w.])[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?<=\d)[KMB]?(?![\w])", flags=re.ASCII)
_MARKUP = re.compile(r"\\(?:begin|end)\{\w+\}|\\[a-z]+|\^\{?\w+\}?|</?\w+>|[${}\\*&]")
_SENTENCES = re.compile(r"(?<=[.!?:])\s+")
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_SPELLED = {word: str(number) for number, word in enumerate(_WORDS, start=1)}
# Tables are tried in the order of how many of a file's numbers they hold.
_TRIED = 6


@dataclass(frozen=True)
class Cell:
    """A shipped cell: its column and text, and whether it is a number."""

    column: str
    text: str
    is_number: bool

    @property
    def is_compared(self) -> bool:
        """Return whether the text of the paper must hold the cell."""
        return self.is_number or (self.column == VALUE and any(map(str.isdigit, self.text)))

    @property
    def token(self) -> str:
        """Text to look for."""
        return plain_number(self.text) if self.is_number else plain_name(self.text)


@dataclass(frozen=True)
class Line:
    """A line of a table of the text: its number, and names and numbers in their order."""

    number: int
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class Wrong:
    """A cell that the text does not hold where it should be; ``line``: the line of the text that is nearest."""

    file: str
    row: int
    cell: Cell
    line: int | None

    def __str__(self) -> str:
        where = "no line is near" if self.line is None else f"line {self.line} is nearest"
        return f"{self.file}, row {self.row}: {self.cell.column} {self.cell.text} is not in the text ({where})"


@dataclass(frozen=True)
class Compared:
    """Result for one file: how many numbers and names it has, the wrong numbers, the names that read differently."""

    file: str
    numbers: int
    wrong: tuple[Wrong, ...]
    other_names: tuple[Wrong, ...]
    where: str


def plain_number(text: str) -> str:
    """Write a number without sign of plus, thousands commas and the zero before the point."""
    sign, digits = ("-", text[1:]) if text[0] == "-" else ("", text.lstrip("+"))
    return sign + (re.sub(r"^0+(?=\.)", "", digits).replace(",", ""))


def plain_name(text: str) -> str:
    """Write a name in small letters and digits alone."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def numbers_of(text: str) -> list[str]:
    """List the numbers of a text in their order; digits inside words are none."""
    return [plain_number(found) for found in _NUMBER.findall(_MARKUP.sub(" ", text.replace("\N{MINUS SIGN}", "-")))]


def shipped(path: Path) -> list[list[Cell]]:
    """Read the cells of a CSV file, without empty ones, which the paper does not print, and lost ones."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))

    def cells(name: str, text: str) -> Iterator[Cell]:
        figure = None if name == VALUE or _NUMBER.fullmatch(text) else _FIGURE.fullmatch(text)
        if figure is None:
            yield Cell(name, text, name != VALUE and _NUMBER.fullmatch(text) is not None)
            return
        yield Cell(name, figure[1], True)
        if figure[2]:
            yield Cell(f"{name}{GAIN}", figure[2], True)

    return [
        [cell for name, text in row.items() if text not in ("", _LOST) for cell in cells(name, text)] for row in rows
    ]


def lines_outside_tables(text: str) -> list[str]:
    """List the lines of a text that are not lines of cells."""
    return [line for line in text.splitlines() if "|" not in line and "\t" not in line]


def tables(text: str) -> list[list[Line]]:
    """Find the tables of a text: neighbouring lines of cells; a line of cells with several parts becomes several."""
    found: list[list[Line]] = [[]]
    above: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("|") or "\t" in line:
            cells = line.strip()[1:].removesuffix("|").split("|") if line.startswith("|") else line.split("\t")
            for parts in _spread(cells):
                above = _merged(parts, above)
                tokens = (token for part in above for token in (plain_name(_MARKUP.sub(" ", part)), *numbers_of(part)))
                found[-1].append(Line(number, tuple(filter(None, tokens))))
        elif line.strip() and found[-1]:
            found.append([])
            above = []
    return [table for table in found if table]


def _spread(cells: Sequence[str]) -> Iterator[list[str]]:
    """Yield the lines that a line of cells stands for: the parts of each; a cell without parts belongs to all."""
    parts = [_PARTS.split(cell) for cell in cells]
    most = max(map(len, parts))
    for index in range(most):
        yield [own[index] if len(own) == most else cell for cell, own in zip(cells, parts, strict=True)]


def _merged(cells: Sequence[str], above: Sequence[str]) -> list[str]:
    """Fill empty cells with the cell above, which covers several lines; those behind the last text stay empty."""
    last = max((place for place, cell in enumerate(cells) if cell.strip()), default=0)
    return [
        above[place] if not cell.strip() and place < last and len(above) == len(cells) else cell
        for place, cell in enumerate(cells)
    ]


def same(cell: Cell, token: str) -> bool:
    """Return whether a token of the text is a cell's; names may be shortened at their end."""
    if cell.is_number:
        return cell.token == token
    return len(token) > 2 and not token.isdigit() and (cell.token in token or cell.token.startswith(token))


def held(cells: Sequence[Cell], line: Line) -> frozenset[int]:
    """Return which cells a line holds in their order: the most, a number counting more than a name."""
    best: list[tuple[int, frozenset[int]]] = [(0, frozenset())] * (len(line.tokens) + 1)
    for index, cell in enumerate(cells):
        after = [best[0]]
        for place, token in enumerate(line.tokens):
            choice = max(after[-1], best[place + 1], key=lambda each: each[0])
            if same(cell, token):
                # A cell of the text may hold two names, such as a system and who reported it.
                score, chosen = best[place] if cell.is_number else best[place + 1]
                taken = (score + (4 if cell.is_number else 3), chosen | {index})
                choice = max(choice, taken, key=lambda each: each[0])
            after.append(choice)
        best = after
    return best[-1][1]


def _weight(cells: Sequence[Cell], indexes: frozenset[int]) -> int:
    return sum(4 if cells[index].is_number else 3 for index in indexes)


def match(rows: Sequence[Sequence[Cell]], table: Sequence[Line]) -> list[tuple[frozenset[int], Line]]:
    """Find for each row the line that holds most of it; of several the next one after the row before."""
    found, last = [], 0
    for cells in rows:
        choices = [(held(cells, line), place) for place, line in enumerate(table)]
        # Later lines first, the nearest of them first.
        indexes, place = max(
            choices, key=lambda each: (_weight(cells, each[0]), each[1] > last or each[1] == 0, -abs(each[1] - last))
        )
        found.append((indexes, table[place]))
        last = place
    return found


def whole_columns(rows: Sequence[Sequence[Cell]], lines: Sequence[str]) -> set[str]:
    """Name the columns of numbers that one line outside tables prints from first to last."""
    columns: dict[str, list[str]] = {}
    for row in rows:
        for cell in row:
            columns.setdefault(cell.column, []).append(cell.token)
    return {name for name, tokens in columns.items() if len(tokens) > 4 and _on_one_line(tokens, lines)}


def whole_row(cells: Sequence[Cell], lines: Sequence[str]) -> bool:
    """Return whether a line outside tables prints all numbers of a row, four or more, from first to last."""
    tokens = [cell.token for cell in cells if cell.is_number]
    return len(tokens) > 3 and _on_one_line(tokens, lines)


def _on_one_line(tokens: Sequence[str], lines: Sequence[str]) -> bool:
    return any(f" {' '.join(tokens)} " in f" {' '.join(numbers_of(line))} " for line in lines)


def in_sentence(cells: Sequence[Cell], sentences: Sequence[str]) -> bool:
    """Return whether one sentence holds a row's first cell and its numbers."""
    wanted = [cell for cell in cells[1:] if cell.is_compared]

    def holds(sentence: str) -> bool:
        spelled = {_SPELLED[word] for word in sentence.lower().split() if word in _SPELLED}
        words = set(re.findall(r"[\w.]*\w", sentence)) | set(sentence.split()) | set(numbers_of(sentence)) | spelled
        return all((cell.token if cell.is_number else cell.text) in words for cell in wanted)

    name = cells[0].token
    return any(name in plain_name(sentence) and holds(sentence) for sentence in sentences)


def compare(path: Path, text: str) -> Compared:
    """Compare the cells of one CSV file with a text."""
    rows = shipped(path)
    numbers = sum(cell.is_compared for cells in rows for cell in cells)
    lines = lines_outside_tables(text)
    sentences = [each for line in lines for each in _SENTENCES.split(line)]
    said = [in_sentence(cells, sentences) for cells in rows]
    wanted = {cell.token for cells in rows for cell in cells}
    likely = sorted(tables(text), key=lambda table: -len(wanted & {token for line in table for token in line.tokens}))
    if not likely or all(said) or any(cell.column == VALUE for cell in rows[0]):
        unsaid = (
            Wrong(path.name, number, cell, None)
            for number, (cells, found) in enumerate(zip(rows, said, strict=True), 1)
            for cell in cells
            if not found and cell.is_compared
        )
        return Compared(path.name, numbers, tuple(unsaid), (), "sentences")
    matched = max(
        (match(rows, table) for table in likely[:_TRIED]),
        key=lambda found: sum(_weight(cells, indexes) for cells, (indexes, _) in zip(rows, found, strict=True)),
    )
    whole = whole_columns(rows, lines)
    # A line of several rows may be broken between a figure and what belongs to it.
    beside: dict[int, set[str]] = {}
    for line in itertools.chain.from_iterable(likely):
        beside.setdefault(line.number, set()).update(line.tokens)
    missing = [
        Wrong(path.name, number, cell, line.number)
        for number, (cells, (indexes, line)) in enumerate(zip(rows, matched, strict=True), 1)
        if not whole_row(cells, lines)
        for index, cell in enumerate(cells)
        if index not in indexes and cell.column not in whole
        if not (cell.column.endswith(GAIN) and cell.token in beside[line.number])
    ]
    places = [line.number for _, line in matched]
    return Compared(
        path.name,
        numbers,
        tuple(each for each in missing if each.cell.is_compared),
        tuple(each for each in missing if not each.cell.is_compared),
        f"lines {min(places)} to {max(places)}",
    )


def files_of_others(folder: Path) -> set[str]:
    """Return the files whose tables are not from the paper."""
    about = folder / "published.toml"
    tables = tomllib.loads(about.read_text(encoding="utf-8")).get("tables", []) if about.is_file() else []
    return {table["file"] for table in tables if "source" in table}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison; return 1 if a number is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a folder of published tables")
    parser.add_argument("text", type=Path, help="the paper's text")
    parser.add_argument("--names", action="store_true", help="also list the names that the text writes in another way")
    options = parser.parse_args(arguments)
    text = options.text.read_text(encoding="utf-8")
    others = {ERRATA, *files_of_others(options.folder)}
    results = [compare(path, text) for path in sorted(options.folder.glob("*.csv")) if path.name not in others]
    for each in results:
        names = f", {len(each.other_names)} names are written in another way" if each.other_names else ""
        print(f"{each.file}: {each.numbers} cells compared, {len(each.wrong)} wrong ({each.where} of the text){names}")
        for wrong in (*each.wrong, *(each.other_names if options.names else ())):
            print(f"  {wrong}")
    wrong_cells = sum(len(each.wrong) for each in results)
    print(f"{options.folder.name}: {sum(each.numbers for each in results)} cells compared, {wrong_cells} wrong")
    return int(wrong_cells > 0)


if __name__ == "__main__":
    sys.exit(main())
