"""harness' own format: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels.trec``; BEIR's layout with TREC's judgements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.datasets import line_files, prepare
from harness.datasets.records import Document, Documents, Source
from harness.errors import FileError
from harness.records import Query


def read(folder: Path) -> Source:
    """Read a folder whose files are known to be there.

    Raises:
        FileError: a line of the queries or judgements is wrong.
    """
    (corpus,), (topics,), (qrels,) = (
        line_files.find(folder, [name]) for name in ("corpus.jsonl", "queries.jsonl", "qrels.trec")
    )
    queries = json_topics(topics)
    judged = prepare.judgements(trec_rows(qrels), queries, "queries.jsonl")
    return Source(json_documents(corpus), queries, judged)


def json_documents(path: Path) -> Documents:
    """A corpus of ``{"_id", "title", "text"}`` a line; the title may be missing or null."""
    return Documents(str(path), "jsonl", (path,), lambda: _documents(path))


def _documents(path: Path) -> Iterator[Document]:
    for place, raw in line_files.json_lines(path):
        title = line_files.text_of(place, raw, "title") if raw.get("title") is not None else ""
        yield Document(place, line_files.text_of(place, raw, "_id"), title, line_files.text_of(place, raw, "text"))


def json_topics(path: Path) -> tuple[Query, ...]:
    """Queries of ``{"_id", "text"}`` a line."""
    return prepare.topics(
        (place, line_files.text_of(place, raw, "_id"), line_files.text_of(place, raw, "text"))
        for place, raw in line_files.json_lines(path)
    )


def trec_rows(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """(place, query, document, grade) of a TREC qrels file.

    Raises:
        FileError: a line has not four fields.
    """
    for number, line in line_files.lines(path):
        fields = line.split()
        if fields and len(fields) != 4:
            raise FileError(f"{path}: line {number}: {len(fields)} fields, expected 'query 0 document grade'")
        if fields:
            yield f"{path}: line {number}", fields[0], fields[2], fields[3]
