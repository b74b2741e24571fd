"""MS MARCO's passage files: ``collection.tsv``, ``queries.<split>.tsv`` and ``qrels.<split>.tsv``, no headers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.datasets import line_files, prepare
from harness.datasets.records import Document, Documents, Source
from harness.records import Query


def splits(folder: Path) -> dict[str, Path]:
    """The splits that have both queries and judgements -> their queries."""
    judged = _by_split(folder, "qrels")
    return {split: path for split, path in _by_split(folder, "queries").items() if split in judged}


def read(folder: Path, split: str) -> Source:
    """Read a folder whose files are known to be there.

    Raises:
        FileError: a line of the queries or judgements is wrong.
    """
    (collection,) = line_files.find(folder, ["collection.tsv"])
    topics = splits(folder)[split]
    queries = tsv_topics(topics)
    rows = (
        (place, query_id, doc_id, grade)
        for place, (query_id, _, doc_id, grade) in line_files.columns(
            _by_split(folder, "qrels")[split], ["query 0 passage grade"]
        )
    )
    return Source(tsv_documents(collection), queries, prepare.judgements(rows, queries, topics.name))


def tsv_topics(path: Path) -> tuple[Query, ...]:
    """Queries of ``id<tab>text`` a line."""
    return prepare.topics((place, query_id, text) for place, (query_id, text) in line_files.columns(path, ["id text"]))


def tsv_documents(path: Path) -> Documents:
    """A corpus of ``id<tab>text`` a line, no titles."""
    return Documents(str(path), "msmarco", (path,), lambda: _documents(path))


def _documents(path: Path) -> Iterator[Document]:
    for place, (doc_id, text) in line_files.columns(path, ["id text"]):
        yield Document(place, doc_id, "", text)


def _by_split(folder: Path, kind: str) -> dict[str, Path]:
    found = line_files.find(folder, [f"{kind}.*.tsv"])
    return {line_files.plain_name(path).removeprefix(f"{kind}.").removesuffix(".tsv"): path for path in found}
