"""Read the lines of TREC files, plain or compressed, in blocks; name file and line of the first wrong one.

A block of regular lines is parsed as a whole.  Any other block is parsed line by line, with the same result or an
error.  Only ASCII white space separates fields (blanks, tabs, and so CRLF): other white space may be part of an id.
Empty lines and comments (first field ``#``, as in trec_eval's own files) are skipped.
"""

from __future__ import annotations

import errno
import re
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from harness.compression import UnreadArchive, content_of
from harness.errors import FileError
from harness.progress import Progress
from harness.untrusted import FileLimits, finite_number, open_regular, reason_of, whole_number

# Small blocks stay in the processor's caches: blocks of 4 MiB take three times as long.
BLOCK_BYTES = 1 << 16
# trec_eval keeps a count for each grade up to the largest; a larger number is an id in the wrong column.
MAX_GRADE = 65_535
# Errors of reading a file's content that say that it is damaged.
DAMAGED = (EOFError, OSError, zlib.error)
_MAX_LINE_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_COMMENT = b"#"
_NO_SPACE = bytes(code for code in range(256) if not bytes([code]).isspace())


@dataclass(frozen=True)
class NumberColumn:
    """Column of numbers: ``code`` is its array's type; ``read`` parses one, or raises ValueError with the reason."""

    name: str
    column: int
    code: str
    read: Callable[[bytes], float]


@dataclass(frozen=True)
class LineLayout:
    """Names of a line's fields, with the query first, and the numbers among them.

    ``tail``: the line may have further fields, which belong to the last one; these numbers prove that no earlier field
    is misplaced.  Without a tail, a line has exactly ``names``.  ``document``: the document's column.  ``headed``: the
    layout of a file whose first line ends with one of ``header``, by its number of fields.
    """

    names: tuple[str, ...]
    numbers: tuple[NumberColumn, ...]
    tail: tuple[NumberColumn, ...] = ()
    document: int = 2
    headed: tuple[LineLayout, ...] = ()
    header: frozenset[bytes] = frozenset()

    def below(self, first_line: bytes) -> LineLayout | None:
        """Return the layout of the lines below a header; ``None`` if the first line is not a header."""
        fields = first_line.removeprefix(_BOM).split()
        if not fields or fields[-1].lower() not in self.header:
            return None
        return next((layout for layout in self.headed if len(layout.names) == len(fields)), None)


@dataclass(slots=True)
class LineBlock:
    """Columns of some lines, and their line numbers in the file."""

    queries: Sequence[bytes]
    documents: list[str]
    numbers: Sequence[array[Any]]
    lines: array[int]

    def part(self, part: slice) -> LineBlock:
        """Return some of the lines, without their queries."""
        return LineBlock((), self.documents[part], [column[part] for column in self.numbers], self.lines[part])

    def extend(self, other: LineBlock) -> None:
        """Add the lines of another block."""
        self.documents += other.documents
        self.lines += other.lines
        for values, column in zip(self.numbers, other.numbers, strict=True):
            values.extend(column)


def read_blocks(
    path: Path, layout: LineLayout, progress: Progress | None = None, bound: FileLimits | None = None
) -> Iterator[LineBlock]:
    """Yield the lines of a file in blocks; ``bound`` limits a stored file.

    Raises:
        FileError: the file is missing or damaged, or a line is wrong; names the first such line.
    """
    number = 1
    with open_input(path, bound) as (raw, stream):
        seekable = raw.seekable()  # a pipe does not report its position
        try:
            for lines in _whole_lines(path, stream.read):
                content = lines.removeprefix(_BOM) if number == 1 else lines
                if number == 1 and (headed := layout.below(content.partition(b"\n")[0])):
                    layout, content = headed, content[content.find(b"\n") :] if b"\n" in content else b""
                yield _parse_block(layout, number, content) or _parse_lines(path, layout, number, content)
                number += content.count(b"\n")
                if bound is not None and number > bound.lines + 1:
                    raise FileError(f"{path}: more than {bound.lines:,} lines, which make no sense; restore it")
                if progress is not None and seekable:
                    progress(raw.tell())
        except DAMAGED as error:
            raise FileError(f"{path}: damaged after line {number - 1}: {reason_of(error)}; restore it") from error


@contextmanager
def open_input(path: Path, bound: FileLimits | None = None) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file or pipe; yield it as stored and its content (:func:`harness.compression.content_of`).

    ``bound`` is for stored files, which another person may have made: such a file must be a regular one.

    Raises:
        FileError: the file cannot be opened, or is an archive that harness does not read.
    """
    raw: IO[bytes]
    try:
        raw = path.open("rb") if bound is None else open_regular(path, bound.file_bytes)
    except FileNotFoundError:
        raise FileError(f"{path}: this file does not exist; restore it, or name the right file") from None
    except IsADirectoryError:
        raise FileError(f"{path}: is a folder; name a file") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}; name a readable file") from error
    with raw:
        try:
            opened = content_of(raw, sys.maxsize if bound is None else bound.unpacked_bytes)
        except UnreadArchive as archive:
            raise FileError(f"{path}: a {archive} archive; unpack it, or use gzip or zstd") from None
        except OSError as error:
            raise FileError(f"{path}: cannot be read: {reason_of(error)}; name a readable file") from error
        # A user may have named a plain file so; harness itself has packed each stored one.
        if bound is not None and path.suffix == ".gz" and opened[0] is opened[1]:
            raise FileError(f"{path}: damaged: it is not gzipped; restore or recreate it")
        yield opened


def read_named(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file or pipe that the user names.

    Raises:
        FileError: as :func:`open_input`.
        OSError, EOFError, zlib.error: it is damaged, or has more than ``max_bytes``.
    """
    with open_input(path) as (_, stream):
        content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"has more than {max_bytes:,} bytes", str(path))
    return content


def is_readable(path: Path) -> bool:
    """Return whether the path is a file or a pipe, not a folder."""
    return path.exists() and not path.is_dir()


def refuse_pipe(path: Path) -> None:
    """Raise FileError for a pipe: its content would be lost after the first of several reads."""
    if is_readable(path) and not path.is_file():
        raise FileError(f"{path}: is a pipe, but harness reads it more than once; write it to a file first")


def parse_integer(text: bytes) -> int:
    """Parse an integer as trec_eval writes it; raise ValueError for ``1_000`` and ``1.0`` too."""
    return whole_number(text.decode("utf-8", "replace"))


def parse_grade(text: bytes) -> int:
    """Parse a relevance grade, ``1`` or ``1.0``; a negative one is as irrelevant as 0."""
    value = parse_integer(re.sub(rb"\.0*\Z", b"", text) if text[-1:].isdigit() else text)
    if abs(value) > MAX_GRADE:
        raise ValueError(f"is beyond {MAX_GRADE:,}: is it an id?")
    return value


def parse_score(text: bytes) -> float:
    """Parse a finite number."""
    return finite_number(text.decode("utf-8", "replace"))


def parse_score_32(text: bytes) -> float:
    """Parse a number that is finite in 32 bits, as trec_eval stores scores."""
    value = parse_score(text)
    if (kept := array("f", [value])[0]) - kept != 0:
        raise ValueError("does not fit into the 32 bits of trec_eval's scores")
    return value


def _whole_lines(path: Path, read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield the content in pieces that end at a line end."""
    rest = b""
    while piece := read(BLOCK_BYTES):
        end = piece.rfind(b"\n") + 1
        if end:
            yield rest + piece[:end]
            rest = piece[end:]
        else:
            rest += piece
        if len(rest) > _MAX_LINE_BYTES:
            raise FileError(f"{path}: a line has more than {len(rest):,} bytes; this is not a TREC file")
    if rest:
        yield rest


def _parse_block(layout: LineLayout, first: int, content: bytes) -> LineBlock | None:
    """Parse all lines at once; return ``None`` if a line is irregular."""
    if b"\0" in content or _BOM in content:
        return None
    try:
        if not content.isascii():
            content.decode("utf-8")
        split = _split_block(len(layout.names), first, content)
        if split is None or (_COMMENT in content and _COMMENT in split[0][0]):
            return None
        columns, lines = split
        documents = b"\n".join(columns[layout.document]).decode("utf-8").split("\n")
        numbers = [_parse_column(number, columns[number.column]) for number in layout.numbers]
    except (ValueError, OverflowError):
        return None
    return LineBlock(columns[0], documents, numbers, array("q", lines))


def _split_block(count: int, first: int, content: bytes) -> tuple[Sequence[Sequence[bytes]], Iterable[int]] | None:
    """Return a block's columns and line numbers; ``None`` if a line has another number of fields."""
    lines = content.count(b"\n")
    # With one separator between fields and one line end, no line can have too many fields, so the total proves each.
    spaces = content.translate(None, _NO_SPACE)
    pattern = spaces[:count]
    if pattern.find(b"\n") == count - 1 and spaces == pattern * lines:
        fields = content.split()
        columns = [fields[column::count] for column in range(count)]
        return (columns, range(first, first + lines)) if len(fields) == count * lines else None
    rows = {number: row for number, line in enumerate(content.split(b"\n"), start=first) if (row := line.split())}
    regular = rows and all(len(row) == count for row in rows.values())
    return (list(zip(*rows.values(), strict=True)), rows) if regular else None


def _parse_column(number: NumberColumn, column: Sequence[bytes]) -> array[Any]:
    """Parse a column at once; raise ValueError or OverflowError if ``number.read`` refuses a field, or may."""
    import numpy as np

    if b"_" in b"".join(column):
        raise ValueError("_")
    values = array(number.code, map(float if number.code in "fd" else int, column))
    numbers = np.frombuffer(values, dtype=number.code)
    for extreme in (numbers.min(), numbers.max()):  # both are nan if one number is
        number.read(str(extreme).encode())
    return values


def _parse_lines(path: Path, layout: LineLayout, first: int, content: bytes) -> LineBlock:
    """Parse a block line by line; raise FileError at the first wrong line."""
    queries = []
    block = LineBlock((), [], [array(number.code) for number in layout.numbers], array("q"))
    lines = content.split(b"\n")
    for line_number, line in enumerate(lines, start=first):
        fields = line.split()
        where = f"{path}:{line_number}"
        _check_text(where, line)
        if not fields or fields[0] == _COMMENT:
            if _is_judged_or_ranked(layout, fields):
                raise FileError(f"{where}: query '#' makes a comment of this line; rename the query or reword the line")
            continue
        if len(fields) != len(layout.names) and b"\r" in line.rstrip():
            raise FileError(f"{where}: a carriage return inside the line; save the file with line feeds")
        if len(fields) < len(layout.names) or (len(fields) > len(layout.names) and not layout.tail):
            # The content after the last line end is empty unless the file ends within a line.
            last = line_number == first + len(lines) - 1
            raise FileError(f"{where}: {_field_count(layout, fields)}{_hint(layout, fields, line, last=last)}")
        if len(fields) > len(layout.names) and (reason := _misplaced(layout, fields)):
            raise FileError(f"{where}: {_field_count(layout, fields)}: {reason}; correct the line")
        for number, values in zip(layout.numbers, block.numbers, strict=True):
            text = fields[number.column]
            try:
                values.append(number.read(text))
            except ValueError as error:
                message = f"{where}: {number.name} {text.decode()!r} {error}; correct or remove the line"
                raise FileError(message) from None
        queries.append(fields[0])
        block.documents.append(fields[layout.document].decode())
        block.lines.append(line_number)
    return replace(block, queries=queries)


def _is_judged_or_ranked(layout: LineLayout, fields: Sequence[bytes]) -> bool:
    """Return whether a comment is what programs write of a query that is called ``#``."""
    return (
        len(fields) == len(layout.names)
        and fields[1].upper() in (b"0", b"Q0")
        and not any(_fault(number, fields[number.column]) for number in layout.numbers)
    )


def _misplaced(layout: LineLayout, fields: Sequence[bytes]) -> str | None:
    """Return why the further fields of a line may belong to an id; ``None`` if they belong to the last field."""
    for number in layout.tail:
        if reason := _fault(number, fields[number.column]):
            return f"{number.name} {fields[number.column].decode()!r} {reason}; is there a blank in an id"
    first = layout.tail[0]
    for more in range(1, len(fields) - len(layout.names) + 1):
        if not any(_fault(number, fields[number.column + more]) for number in layout.tail):
            text = " ".join(field.decode() for field in fields[2 : first.column + more])
            return f"{text!r} may be one id with a blank, or a line's end is missing"
    return None


def _fault(number: NumberColumn, text: bytes) -> str | None:
    """Return why a field is not a number of its column, if it is not."""
    try:
        number.read(text)
    except ValueError as error:
        return str(error)
    return None


def _check_text(where: str, line: bytes) -> None:
    if b"\0" in line or line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileError(f"{where}: a NUL or a UTF-16 mark: not UTF-8 text; save the file as UTF-8")
    if _BOM in line:
        raise FileError(f"{where}: a byte order mark inside the file, as joined files have; remove it")
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{where}: {reason_of(error)}; save the file as UTF-8") from None


def _hint(layout: LineLayout, fields: Sequence[bytes], line: bytes, *, last: bool) -> str:
    """Return the remedy for a line with a wrong number of fields."""
    separator = next((name for sign, name in ((b",", "commas"), (b";", "semicolons")) if sign in line), None)
    if len(fields) < len(layout.names) and separator is not None:
        return f", separated by blanks or tabs, not {separator}; correct the line"
    headed = next((other for other in layout.headed if len(other.names) == len(fields)), None)
    if headed is not None and len(fields) != len(layout.names) and not last:
        return f", or below a header '{' '.join(headed.names)}'; correct the line or add the header"
    if len(fields) < len(layout.names) and last:
        return "; the file ends there: restore it if it is truncated, or remove the line"
    return "; correct the line"


def _field_count(layout: LineLayout, fields: Sequence[bytes]) -> str:
    return f"{len(fields)} fields, must be {len(layout.names)} ({' '.join(layout.names)})"
