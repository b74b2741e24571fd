"""MS MARCO's passage files: ``collection.tsv``, ``queries.<split>.tsv`` and ``qrels.<split>.tsv``, no headers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.datasets import source
from harness.datasets.source import DatasetSource, DocumentStream, Format, SourceDocument


def _splits(folder: Path) -> dict[str, Path]:
    """Return the splits with both queries and judgements, and their queries."""
    judged = _by_split(folder, "qrels")
    return {split: path for split, path in _by_split(folder, "queries").items() if split in judged}


def _read(folder: Path, split: str) -> DatasetSource:
    """Read a folder that has all files; raise FileError if a query or judgement is wrong."""
    collection, queries_file = source.find_one(folder, ["collection.tsv"]), _splits(folder)[split]
    queries = source.collect_queries(
        (place, query_id, text) for place, (query_id, text) in source.read_columns(queries_file, ["id text"])
    )
    documents = DocumentStream(str(collection), "msmarco", (collection,), lambda: _documents(collection))
    return source.judged_source(documents, queries, _by_split(folder, "qrels")[split], queries_file)


def _documents(path: Path) -> Iterator[SourceDocument]:
    for place, (doc_id, text) in source.read_columns(path, ["id text"]):
        yield SourceDocument(place, doc_id, "", text)


def _by_split(folder: Path, kind: str) -> dict[str, Path]:
    paths = source.find_files(folder, [f"{kind}.*.tsv"])
    return {source.plain_name(path).removeprefix(f"{kind}.").removesuffix(".tsv"): path for path in paths}


FORMAT = Format("MS MARCO", (("collection.tsv",), ("queries.*.tsv",), ("qrels.*.tsv",)), _read, _splits)
