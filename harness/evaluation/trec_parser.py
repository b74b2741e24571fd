"""Lines of TREC files: streamed in blocks, checked, and named by file and number where one is wrong.

A block whose lines are all regular is taken at once; any other goes line by line, which either gives the same or
says which line is wrong.  Fields are separated by ASCII white space alone (blanks, tabs, and so CRLF): other kinds may
stand inside an id.  Empty lines and comments (first field ``#``, as in trec_eval's own files) are left out.
"""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import FileError
from harness.evaluation import input_files
from harness.untrusted import FileLimits

# What a small block is cut into stays in the processor's caches: blocks of 4 MiB take three times as long.
BLOCK_BYTES = 1 << 16
_LONGEST_LINE = 1 << 20
_BOM = b"\xef\xbb\xbf"
_COMMENT = b"#"
_NO_SPACE = bytes(each for each in range(256) if not bytes([each]).isspace())
# trec_eval keeps a count for each grade up to the largest: what is larger is an id in the wrong column.
MOST_GRADE = 65_535

# Told after each block how many bytes of the file, as it lies there, have been read.
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Number:
    """A column of numbers: ``code`` is its array's type; ``read`` reads one, or raises ValueError, which says why."""

    what: str
    column: int
    code: str
    read: Callable[[bytes], float]


@dataclass(frozen=True)
class Layout:
    """Which fields a line has.

    ``tail``: where there are further ones, they belong to the last, and these numbers tell that no field before is
    out of its place; without them there may be none.
    """

    said: str
    query: int
    document: int
    numbers: tuple[Number, ...]
    tail: tuple[Number, ...] = ()

    @property
    def fields(self) -> int:
        """How many."""
        return len(self.said.split())


@dataclass(frozen=True)
class Block:
    """Some lines: their columns, and the number of each line in the file; ``longer`` lines have further fields."""

    queries: Sequence[bytes]
    documents: Sequence[str]
    numbers: tuple[array[Any], ...]
    lines: Sequence[int]
    longer: Sequence[int] = ()


def whole(text: bytes) -> int:
    """A whole number as trec_eval writes it; ValueError for all else, ``1_000`` and ``1.0`` too."""
    if not re.fullmatch(rb"[+-]?[0-9]{1,19}", text) or not -(1 << 63) <= int(text) < 1 << 63:
        raise ValueError("is no whole number, or one that 64 bits do not hold")
    return int(text)


def grade(text: bytes) -> int:
    """A grade of relevance; those below 0 are no more relevant than 0."""
    value = whole(text)
    if abs(value) > MOST_GRADE:
        raise ValueError(f"is beyond {MOST_GRADE:,}: is it an id?")
    return value


def score(text: bytes) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if value - value != 0 or b"_" in text:
        raise ValueError("is no finite number")
    return value


def score_32(text: bytes) -> float:
    """A finite number that 32 bits hold, as trec_eval keeps scores."""
    value = score(text)
    if (kept := array("f", [value])[0]) - kept != 0:
        raise ValueError("is beyond the 32 bits that trec_eval keeps of a score")
    return value


def blocks(
    path: Path, layout: Layout, progress: Progress | None = None, bound: FileLimits | None = None
) -> Iterator[Block]:
    """The lines of a file, plain or gzipped, some at a time; of a stored one, no more than its ``bound``.

    Raises:
        FileError: the file is missing or damaged, or a line is wrong; names the first such line.
    """
    number = 1
    with input_files.opened(path, bound) as (raw, stream):
        seekable = raw.seekable()  # a pipe does not say how much of it was read
        try:
            for content in _cut(path, stream.read):
                yield _block(path, layout, number, content.removeprefix(_BOM) if number == 1 else content)
                number += content.count(b"\n")
                if bound is not None and number > bound.lines + 1:
                    raise FileError(f"{path}: more than {bound.lines:,} lines, which make no sense; restore it")
                if progress is not None and seekable:
                    progress(raw.tell())
        except (OSError, EOFError, zlib.error) as error:
            raise FileError(
                f"{path}: damaged after line {number - 1}: {error}; restore it, or make it again"
            ) from error


def _cut(path: Path, read: Callable[[int], bytes]) -> Iterator[bytes]:
    """What is read, cut behind line ends."""
    rest = b""
    while piece := read(BLOCK_BYTES):
        end = piece.rfind(b"\n") + 1
        if end:
            yield rest + piece[:end]
            rest = piece[end:]
        else:
            rest += piece
        if len(rest) > _LONGEST_LINE:
            raise FileError(f"{path}: a line is longer than {len(rest):,} bytes; this is no TREC file")
    if rest:
        yield rest


def _block(path: Path, layout: Layout, first: int, content: bytes) -> Block:
    return _at_once(layout, first, content) or _one_by_one(path, layout, first, content)


def _at_once(layout: Layout, first: int, content: bytes) -> Block | None:
    """All lines of a block, where nothing about them is out of the ordinary."""
    found = None if b"\0" in content or _BOM in content else _columns(layout, first, content)
    if found is None:
        return None
    columns, lines, longer = found
    if _COMMENT in content and _COMMENT in columns[0]:
        return None
    try:
        if not content.isascii():
            content.decode("utf-8")
        documents = b"\n".join(columns[layout.document]).decode("utf-8").split("\n")
        numbers = tuple(_array(each, columns[each.column]) for each in layout.numbers)
    except (ValueError, OverflowError):
        return None
    return Block(columns[layout.query], documents, numbers, lines, longer)


def _columns(
    layout: Layout, first: int, content: bytes
) -> tuple[Sequence[Sequence[bytes]], Sequence[int], Sequence[int]] | None:
    """A block's columns, the numbers of its lines and of its longer ones, where each has the fields that it must."""
    count, lines = layout.fields, content.count(b"\n")
    # One separator between fields and one line end: where that holds, no line can have more fields than it must, and
    # where all together have enough, each has.
    spaces = content.translate(None, _NO_SPACE)
    pattern = spaces[:count]
    if pattern.find(b"\n") == count - 1 and spaces == pattern * lines:
        fields = content.split()
        columns = [fields[place::count] for place in range(count)]
        return (columns, range(first, first + lines), ()) if len(fields) == count * lines else None
    numbered = [(number, row) for number, line in enumerate(content.split(b"\n"), start=first) if (row := line.split())]
    longer = [number for number, row in numbered if len(row) != count]
    if not numbered or (longer and not all(len(row) == count or _has_tail(layout, row) for _, row in numbered)):
        return None
    cut = [row[:count] for _, row in numbered] if longer else [row for _, row in numbered]
    return list(zip(*cut, strict=True)), [number for number, _ in numbered], longer


def _has_tail(layout: Layout, row: Sequence[bytes]) -> bool:
    """Whether a line plainly has further fields and none out of its place; what is less plain may have them too."""
    if not layout.tail or len(row) < layout.fields:
        return False
    first, value = layout.tail[0].column, row[layout.tail[-1].column]
    further = row[first + 1 : first + 1 + len(row) - layout.fields]  # where the first number may be as well
    whole_there = any(each.lstrip(b"+-").isdigit() for each in further)
    return row[first].isdigit() and len(row[first]) < 19 and b"." in value and not whole_there


def _array(number: Number, column: Sequence[bytes]) -> array[Any]:
    """A column at once, or ValueError: what it raises where ``number.read`` would, and it may raise where not."""
    import numpy as np

    if b"_" in b"".join(column):
        raise ValueError("_")
    values = array(number.code, map(float if number.code in "fd" else int, column))
    known = np.frombuffer(values, dtype=number.code)
    if number.read is grade and len(known) and np.abs(known).max() > MOST_GRADE:
        raise ValueError("grade")
    if number.code in "fd" and not np.isfinite(known).all():
        raise ValueError("not finite")
    return values


def _one_by_one(path: Path, layout: Layout, first: int, content: bytes) -> Block:
    """The same line by line: the first that is wrong is named."""
    queries: list[bytes] = []
    documents: list[str] = []
    numbers: tuple[array[Any], ...] = tuple(array(each.code) for each in layout.numbers)
    kept: list[int] = []
    longer: list[int] = []
    ended = content.endswith(b"\n")
    lines = content.split(b"\n")
    for place, line in enumerate(lines, start=first):
        fields = line.split()
        where = f"{path}:{place}"
        _check_text(where, line)
        if not fields or fields[0] == _COMMENT:
            continue
        if len(fields) != layout.fields and b"\r" in line.rstrip():
            raise FileError(f"{where}: a carriage return within the line, where it may end; save it with line feeds")
        if len(fields) > layout.fields and layout.tail:
            if said := _misplaced(layout, fields):
                raise FileError(f"{where}: {_counted(layout, fields)}: {said}; mend the line")
            longer.append(place)
        elif len(fields) != layout.fields:
            last = not ended and place == first + len(lines) - 1
            raise FileError(f"{where}: {_miscounted(layout, fields, line, last=last)}")
        for number, values in zip(layout.numbers, numbers, strict=True):
            text = fields[number.column]
            try:
                values.append(number.read(text))
            except ValueError as error:
                raise FileError(f"{where}: {number.what} {text.decode()!r} {error}; mend or remove the line") from None
        queries.append(fields[layout.query])
        documents.append(fields[layout.document].decode())
        kept.append(place)
    return Block(queries, documents, numbers, kept, longer)


def _misplaced(layout: Layout, fields: list[bytes]) -> str | None:
    """Why a line with further fields may have them in front of its last one, within an id; ``None``: it has not."""
    for number in layout.tail:
        if why := _wrong(number, fields[number.column]):
            return f"{number.what} {fields[number.column].decode()!r} {why}; is there a blank in an id"
    first = layout.tail[0]
    for more in range(1, len(fields) - layout.fields + 1):
        if not any(_wrong(number, fields[number.column + more]) for number in layout.tail):
            shown = " ".join(field.decode() for field in fields[layout.document : first.column + more])
            return f"{shown!r} may be one id with a blank, or a line's end is missing"
    return None


def _wrong(number: Number, text: bytes) -> str | None:
    """Why a field is no such number, where it is none."""
    try:
        number.read(text)
    except ValueError as error:
        return str(error)
    return None


def _check_text(where: str, line: bytes) -> None:
    if b"\0" in line or line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileError(f"{where}: a NUL or a mark of UTF-16: no UTF-8 text; save the file as UTF-8")
    if _BOM in line:
        raise FileError(f"{where}: a byte order mark within the file, as joined files have; remove it")
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{where}: not UTF-8: {error}; mend the line") from error


def _miscounted(layout: Layout, fields: list[bytes], line: bytes, *, last: bool) -> str:
    said = _counted(layout, fields)
    other = next((name for sign, name in ((b",", "commas"), (b";", "semicolons")) if sign in line), None)
    if len(fields) < layout.fields and other is not None:
        return f"{said}, with blanks or tabs between, not {other}; mend the line"
    if len(fields) < layout.fields and last:
        return f"{said}, and the file ends there: cut off? restore it, or remove the line"
    return f"{said}; mend the line"


def _counted(layout: Layout, fields: list[bytes]) -> str:
    return f"{len(fields)} fields, must be {layout.fields} ({layout.said})"
