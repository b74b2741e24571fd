"""BEIR's format: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv`` with a header."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.datasets import native, source
from harness.datasets.source import DatasetSource, Format
from harness.errors import FileError

_COLUMNS = "query-id corpus-id score"


def _splits(folder: Path) -> dict[str, Path]:
    """Return the splits that have judgements."""
    return {
        source.plain_name(path).removesuffix(".tsv"): path for path in source.find_files(folder / "qrels", ["*.tsv"])
    }


def _read(folder: Path, split: str) -> DatasetSource:
    """Read a folder that has all files; raise FileError if a query or judgement is wrong."""
    queries_file = source.find_one(folder, ["queries.jsonl"])
    queries = native.read_json_queries(queries_file)
    return DatasetSource(
        native.json_documents(source.find_one(folder, ["corpus.jsonl"])),
        queries,
        source.collect_qrels(_qrels_rows(_splits(folder)[split]), queries, queries_file.name),
    )


def _qrels_rows(path: Path) -> Iterator[tuple[str, str, str, str]]:
    first = next(source.read_lines(path), (1, ""))[1]
    if first.split() != _COLUMNS.split():
        raise FileError(f"{path}: line 1: no header '{_COLUMNS}', tabs between; add it as BEIR has it")
    for place, (query_id, doc_id, grade) in source.read_columns(path, [_COLUMNS], header=True):
        yield place, query_id, doc_id, grade


FORMAT = Format("BEIR", (("corpus.jsonl",), ("queries.jsonl",), ("qrels/*.tsv",)), _read, _splits, default_split="test")
