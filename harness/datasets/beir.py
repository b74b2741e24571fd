"""BEIR's format: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv`` with a header."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.datasets import line_files, native, prepare
from harness.datasets.records import Source
from harness.errors import FileError

_COLUMNS = "query-id corpus-id score"


def splits(folder: Path) -> dict[str, Path]:
    """The splits that have judgements."""
    return {
        line_files.plain_name(path).removesuffix(".tsv"): path for path in line_files.find(folder / "qrels", ["*.tsv"])
    }


def read(folder: Path, split: str) -> Source:
    """Read a folder whose files are known to be there.

    Raises:
        FileError: a line of the queries or judgements is wrong.
    """
    (corpus,), (topics,) = (line_files.find(folder, [name]) for name in ("corpus.jsonl", "queries.jsonl"))
    queries = native.json_topics(topics)
    return Source(
        native.json_documents(corpus), queries, prepare.judgements(_rows(splits(folder)[split]), queries, topics.name)
    )


def _rows(path: Path) -> Iterator[tuple[str, str, str, str]]:
    first = next(line_files.lines(path), (1, ""))[1]
    if first.split() != _COLUMNS.split():
        raise FileError(f"{path}: line 1: no header '{_COLUMNS}', tabs between; add it as BEIR has it")
    for place, (query_id, doc_id, grade) in line_files.columns(path, [_COLUMNS], header=True):
        yield place, query_id, doc_id, grade
