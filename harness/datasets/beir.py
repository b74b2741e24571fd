"""BEIR's format: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv`` with a header."""

from __future__ import annotations

from pathlib import Path

from harness.datasets import native, source
from harness.datasets.source import DatasetSource, Format


def _splits(folder: Path) -> dict[str, Path]:
    """Return the splits that have judgements."""
    return {
        source.plain_name(path).removesuffix(".tsv"): path for path in source.find_files(folder / "qrels", ["*.tsv"])
    }


def _read(folder: Path, split: str) -> DatasetSource:
    """Read a folder that has all files; raise FileError if a query or judgement is wrong."""
    corpus, queries_file = source.find_one(folder, ["corpus.jsonl"]), source.find_one(folder, ["queries.jsonl"])
    queries = native.read_json_queries(queries_file)
    return source.judged_source(native.json_documents(corpus), queries, _splits(folder)[split], queries_file)


FORMAT = Format("BEIR", (("corpus.jsonl",), ("queries.jsonl",), ("qrels/*.tsv",)), _read, _splits, default_split="test")
