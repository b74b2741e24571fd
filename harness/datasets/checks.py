"""What holds for the ids, topics and judgements of every format."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from harness.errors import FileError
from harness.measure.answers import MAX_ID_CHARS
from harness.records import Query


def check_id(place: str, value: str) -> None:
    """Refuse an id that a TREC run or a list of ids, one a line, cannot hold.

    Raises:
        FileError: it is empty, too long, or has a blank or something unprintable in it.
    """
    if not 0 < len(value) <= MAX_ID_CHARS or not value.isprintable() or " " in value:
        raise FileError(f"{place}: id {value!r} must be 1 to {MAX_ID_CHARS} characters with no blanks")


def topics(rows: Iterable[tuple[str, str, str]]) -> tuple[Query, ...]:
    """Queries from (place, id, text).

    Raises:
        FileError: an id is no good or comes twice.
    """
    found: dict[str, Query] = {}
    for place, query_id, text in rows:
        if query_id in found:
            raise FileError(f"{place}: id {query_id!r} comes twice")
        check_id(place, query_id)
        # A lone surrogate cannot be written as UTF-8; the corpus is treated alike.
        found[query_id] = Query(query_id, text.encode("utf-8", "replace").decode("utf-8"))
    return tuple(found.values())


def judgements(
    rows: Iterable[tuple[str, str, str, str]], queries: Iterable[Query] | None = None, topics_file: str = ""
) -> bytes:
    """The text of a TREC qrels file from (place, query, document, grade).

    Args:
        queries: refuse judgements of other queries; ``None``: take them as they come, they play no part.
        topics_file: what to call the file of the queries in errors.

    Raises:
        FileError: a grade is no whole number, a query is unknown, an id is no good, or a pair comes twice.
    """
    known: Collection[str] | None = None if queries is None else {query.query_id for query in queries}
    lines: list[str] = []
    seen: set[tuple[str, str]] = set()
    for place, query_id, doc_id, grade in rows:
        if not re.fullmatch(r"-?[0-9]+", grade):
            raise FileError(f"{place}: grade {grade!r} is no whole number")
        if known is not None and query_id not in known:
            raise FileError(f"{place}: query {query_id!r} is not in {topics_file}")
        if (query_id, doc_id) in seen:
            raise FileError(f"{place}: document {doc_id!r} is judged twice for {query_id!r}")
        check_id(place, query_id)
        check_id(place, doc_id)
        seen.add((query_id, doc_id))
        lines.append(f"{query_id} 0 {doc_id} {grade}\n")
    return "".join(lines).encode("utf-8")
