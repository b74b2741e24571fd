"""Readers of run files, judgements, pools, queries, positions and vectors that a user names."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np

from harness.analysis import rejudge
from harness.datasets import passage_matching, passage_positions
from harness.datasets.passage_positions import RelevantPosition
from harness.errors import FileError
from harness.evaluation import embeddings, judged_runs, pool, qrels_merge, trec
from harness.evaluation.embeddings import Embeddings
from tests.fuzz.child import LINKED, NAMED, Reader

_RUN = "".join(f"q{query} Q0 d{rank} {rank} {-rank}.25 x\n" for query in range(10) for rank in range(1, 5))
_QRELS = "# a comment\n" + "".join(f"q{query} 0 d{doc} {doc % 3}\n" for query in range(10) for doc in range(4))


def _texts(**files: str) -> object:
    """Return a maker of text files; ``__`` in a name is a dot."""

    def make(folder: Path) -> None:
        for name, text in files.items():
            content = text.encode()
            path = folder / name.replace("__", ".")
            path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)

    return make


def _lines(*records: dict[str, object]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


_JSON_QUERIES = _lines(*({"_id": f"q{n}", "text": f"where is {n}?"} for n in range(10)))
_TSV_QUERIES = "".join(f"q{n}\twhere is {n}?\n" for n in range(10))
_JSON_POOL = _lines(*({"query_id": f"q{n}", "doc_id": f"d{n}", "grade": n % 3} for n in range(10)))
_TSV_POOL = "query_id\tdoc_id\tgrade\n" + "".join(f"q{n}\td{n}\t{n % 3}\n" for n in range(10))
_CSV_POOL = _TSV_POOL.replace("\t", ";")


def _make_qrels(folder: Path) -> None:
    """Write qrels into which others were merged, with their provenance."""
    path, more = folder / "base.qrels", folder / "more.qrels"
    path.write_text(_QRELS, encoding="utf-8")
    more.write_text("q0 0 other 1\n", encoding="utf-8")
    pairs = qrels_merge.read_graded_qrels(more)
    base = qrels_merge.read_base(path)
    merged = qrels_merge.merge_qrels(base, pairs, "refuse", source="us", date="2026-11-20", file=more)
    qrels_merge.write_merged(path, merged)


def _make_vectors(folder: Path) -> None:
    (folder / "embeddings").mkdir()
    vectors = np.arange(60, dtype=np.float32).reshape(20, 3)
    made = Embeddings(tuple(f"d{n}" for n in range(20)), vectors, "minilm", "c" * 64, "document", "s" * 64)
    embeddings.write(folder / "embeddings" / "one.parquet", made)


def _read_positions(folder: Path, _scratch: Path) -> object:
    path = passage_positions.find_positions(folder)
    if path is None:
        raise FileError(f"{folder}: has no positions")
    return list(passage_positions.read_positions(path)), passage_positions.positions_content(folder)


def _read_vectors(folder: Path, _scratch: Path) -> object:
    found = embeddings.find_embeddings(folder, "document", "s" * 64)
    read = embeddings.read(folder / "embeddings" / "one.parquet")
    return found, read.ids, read.encoder


_PLACE = RelevantPosition("q1", "d1", 3, 9, 12, 40, 100, 0.5, 100)
_POSITIONS = (_PLACE.to_line() * 5).decode()
_CHUNKS = _lines(
    *({"query": "q", "doc": f"d{n}", "chunk": n, "grade": n % 2, "start_token": 300 * n} for n in range(9))
)
_PASSAGES = _lines(*({"query": f"q{n}", "text": "some words", "doc": f"d{n}"} for n in range(9)))

READERS = (
    Reader(
        "run files",
        _texts(a__run=_RUN, b__run__gz=_RUN),
        lambda folder, _: [trec.read_scored_run(folder / name).rankings for name in ("a.run", "b.run.gz")],
        ("a.run", "b.run.gz"),
        skips=NAMED,
    ),
    Reader(
        "qrels files",
        _texts(a__qrels=_QRELS, b__qrels__gz=_QRELS),
        lambda folder, _: [trec.read_qrels_file(folder / name) for name in ("a.qrels", "b.qrels.gz")],
        ("a.qrels", "b.qrels.gz"),
        skips=NAMED,
    ),
    Reader(
        "merged qrels",
        _make_qrels,
        lambda folder, _: qrels_merge.read_base(folder / "base.qrels"),
        ("base.qrels", "base.qrels.*"),
        skips=NAMED,
    ),
    Reader(
        "graded pools",
        _texts(a__jsonl=_JSON_POOL, b__tsv=_TSV_POOL, c__csv=_CSV_POOL, d__jsonl__gz=_JSON_POOL),
        lambda folder, _: [pool.read_graded_pool(path) for path in sorted(folder.iterdir())],
        ("a.jsonl", "b.tsv", "c.csv", "d.jsonl.gz"),
        skips=NAMED,
    ),
    Reader(
        "queries",
        _texts(a__jsonl=_JSON_QUERIES, b__tsv=_TSV_QUERIES, c__tsv__gz=_TSV_QUERIES),
        lambda folder, _: [judged_runs.read_queries(path) for path in sorted(folder.iterdir())],
        ("a.jsonl", "b.tsv", "c.tsv.gz"),
        skips=NAMED,
    ),
    Reader(
        "leaked queries",
        _texts(a__txt="q1\nq2\n"),
        lambda folder, _: rejudge.read(None, folder / "a.txt"),
        ("a.txt",),
        skips=NAMED,
    ),
    Reader(
        "positions",
        _texts(positions__jsonl=_POSITIONS),
        _read_positions,
        ("positions.jsonl",),
        skips=LINKED,
    ),
    Reader(
        "judged chunks",
        _texts(a__jsonl=_CHUNKS, b__jsonl=_PASSAGES),
        lambda folder, _: (
            passage_matching.read_chunks(folder / "a.jsonl"),
            list(passage_matching.read_passages(folder / "b.jsonl")),
        ),
        ("a.jsonl", "b.jsonl"),
        skips=NAMED,
    ),
    Reader("vectors", _make_vectors, _read_vectors, ("embeddings/one.parquet",), skips=NAMED),
)
