"""BEIR's format: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv`` with a header."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.datasets import native
from harness.datasets.source import (
    DatasetSource,
    collect_qrels,
    find_files,
    find_one,
    plain_name,
    read_columns,
    read_lines,
)
from harness.errors import FileError

NAME = "BEIR"
FILES = (("corpus.jsonl",), ("queries.jsonl",), ("qrels/*.tsv",))
DEFAULT_SPLIT = "test"
_COLUMNS = "query-id corpus-id score"


def splits(folder: Path) -> dict[str, Path]:
    """Return the splits that have judgements."""
    return {plain_name(path).removesuffix(".tsv"): path for path in find_files(folder / "qrels", ["*.tsv"])}


def read(folder: Path, split: str) -> DatasetSource:
    """Read a folder that has all files; raise FileError if a query or judgement is wrong."""
    queries_file = find_one(folder, ["queries.jsonl"])
    queries = native.read_json_queries(queries_file)
    return DatasetSource(
        native.json_documents(find_one(folder, ["corpus.jsonl"])),
        queries,
        collect_qrels(_qrels_rows(splits(folder)[split]), queries, queries_file.name),
    )


def _qrels_rows(path: Path) -> Iterator[tuple[str, str, str, str]]:
    first = next(read_lines(path), (1, ""))[1]
    if first.split() != _COLUMNS.split():
        raise FileError(f"{path}: line 1: no header '{_COLUMNS}', tabs between; add it as BEIR has it")
    for place, (query_id, doc_id, grade) in read_columns(path, [_COLUMNS], header=True):
        yield place, query_id, doc_id, grade
