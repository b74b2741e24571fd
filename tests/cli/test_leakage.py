"""`harness leakage`, as a person types it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.evaluation import embeddings, judged_runs
from harness.evaluation.embeddings import Embeddings, sha256_of_texts
from tests.support.command_line import RUN_FILES, Call, assert_refused


@pytest.fixture
def harness(tiny_runs: Call) -> Call:
    return tiny_runs


def write_vectors(name: str, texts: str, last: tuple[float, ...] | None = None) -> None:
    """Write a vector of its own direction for each text of a file; ``last`` gives the last one's."""
    queries = judged_runs.read_queries(Path(texts))
    vectors = np.eye(6, dtype=np.float32)[: len(queries)]
    if last is not None:
        vectors[-1] = last
    result = Embeddings(tuple(queries), vectors, "minilm", "c" * 64, "query", sha256_of_texts(queries))
    embeddings.write(Path(name), result)


def test_leakage_compares_queries_by_their_vectors(harness: Call) -> None:
    Path("training.tsv").write_text("t0\twhere is the river?\nt1\twhich way to the glacier\nt2\tanything\n")
    write_vectors("sample", "tiny/queries.jsonl")
    write_vectors("training", "training.tsv", last=(-1,) * 6)
    options = ("leakage", "training.tsv", *RUN_FILES, "--queries", "tiny/queries.jsonl", "--measures", "P@3")
    done = harness(*options, "--embeddings", "sample", "training", "--write", "leaked.txt", "--format", "json")
    assert done.exit_code == 0, done.output
    (result,) = json.loads(done.stdout)["samples"]
    assert result["leaked"] == ["q0", "q1"] and Path("leaked.txt").read_text() == "q0\nq1\n"
    assert [(pair["query_id"], pair["training_id"], pair["same_text"]) for pair in result["pairs"]] == [
        ("q0", "t0", True),
        ("q1", "t1", False),
    ]
    assert result["encoder"] == "minilm" and [each["system"] for each in result["effects"]] == ["one", "two"]
    lines = list(csv.DictReader(io.StringIO(harness(*options, "--format", "csv").stdout)))
    assert [(line["query_id"], line["cosine"], line["same_text"]) for line in lines] == [("q0", "", "true")]


def test_vectors_of_other_texts_are_refused(harness: Call) -> None:
    Path("training.tsv").write_text("t0\twhere is the river?\nt1\tanything\n")
    Path("changed.tsv").write_text("t0\twhere is the river?\nt1\tsomething else\n")
    Path("more.tsv").write_text("t0\tx\nt1\ty\nt2\tz\n")
    write_vectors("sample", "tiny/queries.jsonl")
    for name in ("training", "changed", "more"):
        write_vectors(name, f"{name}.tsv")
    options = ("leakage", "training.tsv", *RUN_FILES, "--queries", "tiny/queries.jsonl", "--embeddings", "sample")
    message = "the vectors of the training set belong to other texts; embed its queries"
    assert_refused(harness(*options, "changed"), message)
    assert "Cannot check" not in harness(*options, "training").stdout
    some = harness(*options, "more")
    assert some.exit_code == 0 and "the file has 3 queries and 2 are compared" in some.stdout
    # The order of an index may be another than that of the file.
    result = embeddings.read(Path("training"))
    turned = replace(result, ids=result.ids[::-1], vectors=result.vectors[::-1])
    embeddings.write(Path("turned"), turned)
    assert "Cannot check" not in harness(*options, "turned").stdout
    bare = harness("leakage", "training.tsv", *RUN_FILES, "--embeddings", "sample", "training")
    assert bare.exit_code == 0 and "belong to its queries, because the queries have no texts" in bare.stdout
    assert "0 of 4 queries" not in bare.stdout, "vectors need no texts"


def test_leakage_share_counts_only_comparable_queries(harness: Call) -> None:
    Path("training.tsv").write_text("t0\twhere is the river?\n")
    Path("some.tsv").write_text("q0\twhere is the river\nq1\t\nq2\t?!\nq3\tother\n")
    options = ("leakage", "training.tsv", *RUN_FILES, "--queries", "some.tsv")
    done = harness(*options)
    assert "1 of 2 queries that could be compared (50.0%) are near duplicates" in done.stdout
    assert "2 (q1, q2) of 4 queries have no text, or no word in it, and could not be compared: name" in done.stdout
    (sample,) = json.loads(harness(*options, "--format", "json").stdout)["samples"]
    assert (sample["leaked"], sample["not_compared"], sample["queries"]) == (["q0"], ["q1", "q2"], 4)


@pytest.mark.parametrize(
    ("training", "options", "message"),
    [
        ("t0\tx\n", (), "qrels.trec: all 4 queries lack a text, so they cannot be compared; name a file of their"),
        ("", (), "training.tsv: has no query; name a file with lines"),
        ("\n", (), "training.tsv: has no query; name"),
        ("t0\t\nt1\t-\n", (), "training.tsv: all 2 queries lack a text, so they cannot be compared; name a file"),
        ("t0\tx\n", ("--threshold", "0.5"), "--threshold needs --embeddings; give both"),
        ("t0\tx\n", ("--threshold", "nan", "--embeddings", "a", "b"), "--threshold nan: is not a finite number"),
        ("t0\tx\n", ("--measures", "X@3"), "unknown measure 'X@3'"),
        ("t0\tx\n", ("--queries", "odd.jsonl", "--write", "ids"), "query ' q': cannot be written as one line"),
        ("t0\tx\n", ("--queries", "half.jsonl"), "half.jsonl:1: not JSON with _id and text (half of a surrogate pair"),
    ],
)
def test_leakage_refuses_unusable_input(harness: Call, training: str, options: tuple[str, ...], message: str) -> None:
    Path("training.tsv").write_text(training)
    Path("odd.jsonl").write_text('{"_id": " q", "text": "x"}\n{"_id": "q0", "text": "other"}\n')
    Path("half.jsonl").write_text('{"_id": "\\ud800", "text": "x"}\n')
    done = harness("leakage", "training.tsv", *RUN_FILES, *options)
    assert_refused(done, message)
    assert not done.stdout


def test_leakage_names_queries_left_out_of_a_run(harness: Call) -> None:
    Path("training.tsv").write_text("t0\tx\n")
    Path("queries.tsv").write_text("q1\tsome\n")
    done = harness("leakage", "training.tsv", *RUN_FILES, "--queries", "queries.tsv")
    assert "- one: 3 (q0, q2, q3) queries of the run are not to be judged and are left out" in done.stdout


def test_leakage_writes_every_leaked_query(harness: Call) -> None:
    texts = {f"q{n}": f"number {n}" for n in range(120)}
    Path("sample.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in texts.items()))
    Path("training.tsv").write_text("".join(f"t{name}\t{text.upper()}\n" for name, text in texts.items()))
    options = ("leakage", "training.tsv", *RUN_FILES, "--queries", "sample.tsv", "--write", "leaked")
    shown = harness(*options)
    assert shown.stdout.count("| yes ") == 50 and "70 more pairs: csv and json list all 120." in shown.stdout
    assert Path("leaked").read_text().split() == list(texts)
    (sample,) = json.loads(harness(*options, "--format", "json").stdout)["samples"]
    assert sample["leaked"] == list(texts) and [each["query_id"] for each in sample["pairs"]] == sorted(texts)
    assert len(harness(*options, "--format", "csv").stdout.splitlines()) == 121
