"""Records that a reader of a dataset format returns, and functions that read its files.

Files may be plain, gzipped or packed with zstd; their names do not matter.
Every line has a place, ``FILE: line N``, that errors name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from harness import filesystem
from harness.datasets.answers import Answers
from harness.driver.adapter import MAX_ID_CHARS
from harness.driver.records import Filter, Query, Scalar
from harness.errors import FileError
from harness.evaluation.trec import judgement_rows
from harness.evaluation.trec_lines import DAMAGED, open_input, parse_grade
from harness.untrusted import bounded_lines, mistake, reading, reason_of

_Record = TypeVar("_Record")
_Item = TypeVar("_Item", dict[str, Any], str)
_SUFFIXES = ("", ".gz", ".zst")
_FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_MOST_NUMBER = 1 << 53
# More than any line, document or file of topics has: compression can hide any number of bytes in a small file.
MAX_TEXT_BYTES = 1 << 24


class SourceDocument(NamedTuple):
    """One document as its file has it; ``metadata`` are its fields, unchecked, which queries may filter on."""

    place: str
    doc_id: str
    title: str
    text: str
    metadata: object = None


@dataclass(frozen=True)
class DocumentStream:
    """A corpus as its files have it, to be streamed.

    ``label`` names it in errors; ``kind`` (how its files are read) and the ``files`` identify its content; ``read``
    streams it again at each call; ``total`` returns the number of documents (0: unknown), and may have to read for it.
    """

    label: str
    kind: str
    files: tuple[Path, ...]
    read: Callable[[], Iterator[SourceDocument]]
    total: Callable[[], int] = lambda: 0


@dataclass(frozen=True)
class CollectedQrels:
    """The text of a TREC qrels file, and the documents of judgements that repeated others."""

    content: bytes = b""
    repeated: tuple[str, ...] = ()


@dataclass(frozen=True)
class DatasetSource:
    """Documents, queries and judgements of a dataset: ``qrels``, or ``answers`` that decide relevance."""

    documents: DocumentStream
    queries: tuple[Query, ...]
    qrels: CollectedQrels = CollectedQrels()
    answers: Answers | None = None


@dataclass(frozen=True)
class Format:
    """A format of datasets: its name in messages, and the patterns of each kind of file; every kind is needed.

    ``splits`` finds a folder's splits, the user's choice of queries and judgements; ``None``: the format has none.
    ``default_split``: the split to read if the user names none; without it, the only one.  ``read`` reads a folder that
    has all files, and takes the split after it if the format has splits.
    """

    name: str
    files: tuple[tuple[str, ...], ...]
    read: Callable[..., DatasetSource]
    splits: Callable[[Path], dict[str, Path]] | None = None
    default_split: str | None = None


def find_files(folder: Path, patterns: Iterable[str]) -> list[Path]:
    """Return the files that match a pattern, plain or compressed; only the plain one of two."""
    paths: dict[Path, Path] = {}
    for pattern in patterns:
        for suffix in _SUFFIXES:
            for path in sorted(folder.glob(pattern + suffix)):
                litter = any(filesystem.is_litter(part) for part in path.relative_to(folder).parts)
                if path.is_file() and not litter:
                    paths.setdefault(path.parent / plain_name(path), path)
    return list(paths.values())


def find_one(folder: Path, patterns: Iterable[str]) -> Path:
    """Return the only file that matches a pattern; raise FileError if there are several."""
    paths = find_files(folder, patterns)
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise FileError(f"{folder}: it has several such files ({names}); leave one in the folder")
    return paths[0]


def plain_name(path: Path) -> str:
    """Return the file's name without ``.gz`` or ``.zst``."""
    return path.name.removesuffix(".gz").removesuffix(".zst")


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file's uncompressed content; raise FileError if it cannot be opened or is damaged."""
    with reading(path, "name or restore it", damage=DAMAGED), open_input(path) as (_, content):
        yield content


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each line with its number, from 1; skip a byte order mark.

    Raises:
        FileError: the file cannot be read, is damaged or is not UTF-8, or a line has more than 16 MiB.
    """
    number = 0
    with open_file(path) as file:
        try:
            for line in bounded_lines(file, MAX_TEXT_BYTES):
                number += 1
                if len(line) == MAX_TEXT_BYTES:
                    raise FileError(f"{path}: line {number} has more than {MAX_TEXT_BYTES >> 20} MiB; shorten it")
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise FileError(f"{path}: line {number}: {reason_of(error)}; save the file as UTF-8") from None
        except DAMAGED as error:
            raise FileError(f"{path}: cannot be read after line {number}: {reason_of(error)}; restore it") from error


def read_text(path: Path) -> str:
    """Read a whole text; raise FileError as :func:`read_lines`, or if it has more than 16 MiB."""
    lines, size = [], 0
    for _, line in read_lines(path):
        lines.append(line)
        size += len(line)
        if size > MAX_TEXT_BYTES:
            raise FileError(f"{path}: has more than {MAX_TEXT_BYTES >> 20} MiB; give a smaller file")
    return "".join(lines)


def read_json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each line's object with its place; skip empty lines.

    Raises:
        FileError: as :func:`read_lines`, or a line has no JSON object.
    """
    for number, line in read_lines(path):
        if not line.strip():
            continue
        place = f"{path}: line {number}"
        try:
            raw = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise FileError(f"{place}: not valid JSON: {reason_of(error)}; correct the line") from error
        if not isinstance(raw, dict):
            raise FileError(f"{place}: no object in curly brackets; correct the line")
        yield place, raw


def read_records(path: Path, adapter: TypeAdapter[_Record]) -> Iterator[_Record]:
    """Yield a record of each line's object; raise FileError as :func:`read_json_lines`, or if an object is wrong."""
    for place, raw in read_json_lines(path):
        try:
            yield adapter.validate_json(json.dumps(raw))  # JSON: a dict is not a record in strict Python mode
        except ValidationError as error:
            raise FileError(f"{place}: {mistake(error)}") from None


def read_columns(path: Path, layouts: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the tab-separated fields of each line with their place; skip empty lines.

    Args:
        layouts: names of the columns, joined by a blank, for each allowed width.

    Raises:
        FileError: as :func:`read_lines`, or a line has another number of fields.
    """
    expected = {len(layout.split()): layout for layout in layouts}
    for number, ended in read_lines(path):
        line = ended.rstrip("\r\n")
        if not line:
            continue
        fields = line.split("\t")
        if len(fields) not in expected:
            allowed = " or ".join(f"'{layout}'" for layout in expected.values())
            raise FileError(f"{path}: line {number}: {len(fields)} fields between tabs, expected {allowed}; correct it")
        yield f"{path}: line {number}", fields


def id_field(place: str, raw: dict[str, Any], key: str) -> str:
    """Return the id under a key, a text or a whole number; raise FileError if it is missing or something else."""
    value = raw.get(key)
    return str(value) if type(value) is int else text_field(place, raw, key)


def text_field(place: str, raw: dict[str, Any], key: str) -> str:
    """Return the text under a key; raise FileError if it is missing or not a text."""
    value = raw.get(key)
    if not isinstance(value, str):
        fault = "is missing; add it" if value is None else "is not a text; write it in quotes"
        raise FileError(f"{place}: key '{key}' {fault}")
    return value


def list_field(
    place: str, raw: dict[str, Any], key: str, kind: type[_Item], missing: list[_Item] | None = None
) -> list[_Item]:
    """Return the list of objects or texts under a key, else ``missing``; raise FileError if it is something else."""
    value = raw.get(key, missing)
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        what = "objects" if kind is dict else "texts"
        raise FileError(f"{place}: key '{key}' is not a list of {what}; correct it")
    return value


def fields_of(place: str, key: str, value: object, only: Collection[str] | None = None) -> dict[str, Scalar]:
    """Return named values, none if they are missing; raise FileError if they are something else.

    Args:
        place: where they are.
        key: their name there.
        value: what the file has.
        only: the names to read; the others may have any values.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FileError(f"{place}: key '{key}' is not an object in curly brackets; correct it")
    chosen = {name: content for name, content in value.items() if only is None or name in only}
    for name, content in chosen.items():
        if not _FIELD_NAME.fullmatch(name):
            fault = f"{name[:80]!r} is not the name of a field (letters, digits, '_')"
            raise FileError(f"{place}: key '{key}': {fault}; rename it")
        number = isinstance(content, int | float) and abs(content) <= _MOST_NUMBER  # not nan either
        if not (number or isinstance(content, str)):
            fault = "is not a text, a number up to 2^53 or true or false"
            raise FileError(f"{place}: key '{key}': the value of {name!r} {fault}; correct it")
    return {name: encodable(content) if isinstance(content, str) else content for name, content in chosen.items()}


def collect_queries(rows: Iterable[tuple[str, str, str]]) -> tuple[Query, ...]:
    """Return queries from (place, id, text); raise FileError if an id is invalid or repeats."""
    return filtered_queries((*row, ()) for row in rows)


def filtered_queries(rows: Iterable[tuple[str, str, str, Filter]]) -> tuple[Query, ...]:
    """Return queries from (place, id, text, filter); raise FileError if an id is invalid or repeats."""
    queries: dict[str, Query] = {}
    for place, query_id, text, wanted in rows:
        if query_id in queries:
            raise FileError(f"{place}: id {query_id!r} comes twice; rename or remove one")
        check_query_id(place, query_id)
        queries[query_id] = Query(query_id, encodable(text), wanted)
    return tuple(queries.values())


def collect_qrels(
    rows: Iterable[tuple[str, str, str, str]], queries: Iterable[Query] | None = None, queries_file: str = ""
) -> CollectedQrels:
    """Return a TREC qrels file from (place, query, document, grade); a repeated judgement counts once.

    Args:
        rows: the judgements.
        queries: refuse judgements of other queries; ``None``: keep them, although they are ignored.
        queries_file: name of the queries' file for errors.

    Raises:
        FileError: a grade is not a whole number, a query is unknown, an id is invalid, or a pair has two grades.
    """
    ids: Collection[str] | None = None if queries is None else {query.query_id for query in queries}
    lines: list[str] = []
    repeated: list[str] = []
    grades: dict[tuple[str, str], int] = {}
    unknown: list[tuple[str, str]] = []
    for place, query_id, doc_id, text in rows:
        try:
            grade = parse_grade(text.encode("utf-8", "replace"))
        except ValueError as error:
            raise FileError(f"{place}: grade {text[:80]!r} {error}; correct it") from None
        if ids is not None and query_id not in ids:
            unknown.append((place, query_id))
            continue
        if (known := grades.get((query_id, doc_id))) is not None:
            if known != grade:
                raise FileError(f"{place}: document {doc_id!r} has grades {known}, {grade} for {query_id!r}; keep one")
            repeated.append(doc_id)
            continue
        check_query_id(place, query_id)
        check_id(place, doc_id)
        grades[query_id, doc_id] = grade
        lines.append(f"{query_id} 0 {doc_id} {grade}\n")
    if unknown:
        (place, query_id), total = unknown[0], len(unknown) + len(lines) + len(repeated)
        count = f" ({len(unknown):,} of {total:,} judgements name queries that it lacks)" if len(unknown) > 1 else ""
        remedy = "give both files the same ids" if len(unknown) == total > 1 else "add it or remove the line"
        raise FileError(f"{place}: query {query_id!r} is not in {queries_file}{count}; {remedy}")
    return CollectedQrels("".join(lines).encode("utf-8"), tuple(repeated))


def judged_source(
    documents: DocumentStream, queries: tuple[Query, ...], qrels: Path, queries_file: Path | None = None
) -> DatasetSource:
    """Return a dataset with a file of qrels; raise FileError as :func:`collect_qrels`.

    Args:
        documents: the corpus.
        queries: the queries.
        qrels: file of judgements.
        queries_file: refuse judgements of queries that this file lacks; ``None``: keep them.
    """
    known = (queries, queries_file.name) if queries_file else ()
    return DatasetSource(documents, queries, collect_qrels(judgement_rows(qrels), *known))


def encodable(text: str) -> str:
    """Return a text with ``?`` for each half surrogate pair, which UTF-8 cannot hold; the corpus is treated alike."""
    return text.encode("utf-8", "replace").decode("utf-8")


def check_id(place: str, value: str) -> None:
    """Raise FileError for an id that a TREC run or a list with one id a line cannot hold."""
    if not 0 < len(value) <= MAX_ID_CHARS or not value.isprintable() or " " in value:
        raise FileError(f"{place}: id {value[:80]!r} must be 1 to {MAX_ID_CHARS} characters with no blanks; rename it")


def check_query_id(place: str, value: str) -> None:
    """Raise FileError as :func:`check_id`, and for ``#``: a TREC file's line that begins with it is a comment."""
    check_id(place, value)
    if value == "#":
        raise FileError(f"{place}: id '#' begins a comment in TREC files, which results are; rename it")
