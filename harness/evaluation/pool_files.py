"""What people judge, as files: tab-separated for a spreadsheet, JSON lines for a program; and back, filled in.

Tab-separated files are csv's dialect ``excel-tab``.  Each text is one printable line, and one that a spreadsheet would
take for a formula has an apostrophe in front, as all our tables have.  JSON lines keep texts as they are.
A spreadsheet also rewrites ids (``007`` becomes 7): the column ``pair`` names both ids by a hash, so that it shows.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harness.errors import FileError, UsageError
from harness.evaluation.pool import Pool
from harness.untrusted import one_line

COLUMNS = ("pair", "query_id", "query", "doc_id", "title", "document", "grade")
_NEEDED = ("query_id", "doc_id", "grade")
_FORMULA = ("=", "+", "-", "@")
# Of both ids together, in bytes: lines of more than 1 MiB are taken for no TREC file.
_LONGEST = 1 << 16
_GRADE = re.compile("[0-9]{1,4}", flags=re.ASCII)


@dataclass(frozen=True)
class Judged:
    """One line of a filled-in file; ``grade`` is ``None`` where nobody has filled it in."""

    place: str
    query_id: str
    doc_id: str
    grade: int | None


def mark(query_id: str, doc_id: str) -> str:
    """Names a pair.  A letter stands in front, so that no spreadsheet takes it for a number."""
    return "p" + hashlib.sha256(f"{query_id}\0{doc_id}".encode()).hexdigest()[:10]


def write(pool: Pool, documents: Mapping[str, Mapping[str, str]], form: str, stream: IO[str]) -> None:
    """Write what is to be judged.

    Args:
        pool: the pairs.
        documents: ``title`` and ``text`` by id; those of a document that is not there are missing.
        form: ``tsv`` or ``jsonl``.
        stream: takes it.

    Raises:
        UsageError: an id cannot stand in a table.
    """
    lines = _lines(pool, documents)
    if form == "jsonl":
        stream.writelines(json.dumps(line, ensure_ascii=True) + "\n" for line in lines)
        return
    writer = csv.writer(stream, dialect="excel-tab", lineterminator="\n")
    writer.writerow(COLUMNS)
    for line in lines:
        ids = {name: _id_cell(line[name]) for name in ("query_id", "doc_id")}
        cells = {name: "" if value is None else _cell(value) for name, value in line.items()} | ids
        writer.writerow([cells[name] for name in COLUMNS])


def _lines(pool: Pool, documents: Mapping[str, Mapping[str, str]]) -> Iterator[dict[str, Any]]:
    for query, doc_id in pool.pairs:
        document = documents.get(doc_id, {})
        texts = (pool.queries.get(query) or None, doc_id, document.get("title"), document.get("text"))
        yield dict(zip(COLUMNS, (mark(query, doc_id), query, *texts, None), strict=True))


def _cell(text: str) -> str:
    text = one_line(text)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _id_cell(text: str) -> str:
    """An id that :func:`_id` reads back."""
    if one_line(text) != text:
        raise UsageError(f"id {text!r} cannot stand in a table; write it with --format jsonl")
    return f"'{text}" if text.startswith((*_FORMULA, "'")) else text


def _id(cell: str) -> str:
    return cell[1:] if cell[:1] == "'" and cell[1:2] in (*_FORMULA, "'") else cell


def read(path: Path) -> tuple[Judged, ...] | None:
    """Read a file that :func:`write` began and people filled in; ``None``: it is of another kind.

    A spreadsheet may have saved it: with commas or semicolons, a byte order mark, or as UTF-16.

    Raises:
        FileError: it cannot be read, a grade is no whole number of 0 or more, an id is no longer what was
            written, or a pair has two grades; names file and line.
    """
    try:
        content = path.read_bytes()
        utf16 = content.startswith((b"\xff\xfe", b"\xfe\xff"))
        text = content.decode("utf-16" if utf16 else "utf-8-sig")
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}; name the file with the grades") from error
    except UnicodeDecodeError as error:
        if content.startswith(b"\x1f\x8b"):
            return None
        raise FileError(f"{path}: not UTF-8: {error}; save it as UTF-8") from error
    if text.lstrip().startswith("{"):
        lines = _json_lines(path, text)
    else:
        head = text.partition("\n")[0]
        delimiter = next((each for each in "\t,;" if set(_NEEDED) <= _header(head, each)), None)
        if delimiter is None:
            return None
        lines = _table_lines(path, text, delimiter)
    return _checked(lines)


def _header(line: str, delimiter: str) -> set[str]:
    return {cell.strip().strip('"') for cell in line.strip().split(delimiter)}


def _checked(lines: Iterator[tuple[str, Mapping[str, Any]]]) -> tuple[Judged, ...]:
    found: dict[tuple[str, str], Judged] = {}
    for place, line in lines:
        query, document = str(line["query_id"]), str(line["doc_id"])
        wrong = _unreadable(query, document)
        if wrong:
            raise FileError(f"{place}: query {query!r}, document {document!r}: {wrong}; mend it")
        named = str(line.get("pair") or "")
        if named and named != mark(query, document):
            raise FileError(
                f"{place}: query {query!r} and document {document!r} are not the pair that was written ({named}): "
                "a spreadsheet may have taken an id for a number; import its columns as text, or judge the JSON lines"
            )
        judged = Judged(place, query, document, _grade(place, line["grade"]))
        earlier = found.setdefault((query, document), judged)
        if earlier.grade is None:
            found[query, document] = judged
        elif judged.grade not in (None, earlier.grade):
            raise FileError(
                f"{place}: document {document!r} of query {query!r} has grade {judged.grade}, and {earlier.grade} in "
                f"{earlier.place}; leave one"
            )
    return tuple(found.values())


def _unreadable(query: str, document: str) -> str | None:
    """Why a line of judgements with these ids would not be read back as it was written; ``None``: it would."""
    try:
        ids = [each.encode() for each in (query, document)]
    except UnicodeEncodeError:
        return "an id has half a character in it, which UTF-8 cannot hold"
    # ASCII white space alone separates fields: other kinds may stand inside an id.
    if any(each.split() != [each] for each in ids):
        return "an id is empty or has a blank"
    if query == "#":
        return "a line of judgements that begins with # is a comment"
    if "\0" in f"{query}{document}" or "\ufeff" in f"{query}{document}":
        return "an id has a NUL or a byte order mark in it"
    if sum(map(len, ids)) > _LONGEST:
        return f"the ids have more than {_LONGEST:,} bytes"
    return None


def _grade(place: str, given: object) -> int | None:
    text = "" if given is None else str(given).strip()
    if not text:
        return None
    if isinstance(given, bool) or not _GRADE.fullmatch(text):
        raise FileError(
            f"{place}: grade {one_line(text)!r} is no whole number of 0 or more; write 0 (not relevant), 1 ..., or "
            "leave it empty"
        )
    return int(text)


def _json_lines(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(io.StringIO(text), start=1):
        if line.strip():
            try:
                raw = json.loads(line)
                for name in ("query_id", "doc_id"):
                    if isinstance(raw[name], bool) or not isinstance(raw[name], str | int):
                        raise TypeError(f"{name} is no text")
                yield f"{path}:{number}", {name: raw[name] for name in _NEEDED} | {"pair": raw.get("pair")}
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise FileError(
                    f"{path}:{number}: no JSON with {', '.join(_NEEDED)} ({error!r}); mend the line"
                ) from error


def _table_lines(path: Path, text: str, delimiter: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    before = csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))  # a document may be long
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        head = [cell.strip() for cell in next(reader)]
        for cells in reader:
            place = f"{path}:{reader.line_num}"
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(head):
                raise FileError(f"{place}: {len(cells)} fields, must be {len(head)} as in the first line; mend the row")
            line = dict(zip(head, cells, strict=True))
            ids: Sequence[str] = ("query_id", "doc_id")
            yield place, line | {name: _id(line[name].strip()) for name in ids}
    except csv.Error as error:
        raise FileError(f"{path}:{reader.line_num}: not a table: {error}; mend the row") from error
    finally:
        csv.field_size_limit(before)
