"""`harness pool`, `harness qrels` and `harness leakage`, as a person types them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from harness.cli import main
from harness.evaluation import embeddings, judged_runs
from harness.evaluation.embeddings import Embeddings, sha256_of_texts
from harness.launch.fake import FakeLauncher
from tests.conftest import Bench, write_dataset

Call = Callable[..., Result]
HEAD = "query_id\tdoc_id\tgrade\n"


@pytest.fixture
def harness(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line beside the tiny dataset and two run files of it."""
    monkeypatch.setenv("HARNESS_CACHE", str(bench.cache))
    monkeypatch.chdir(bench.folder)
    for name, first in (("one", 1), ("two", 2)):
        lines = [
            f"q{n} Q0 d{(n + first + rank) % 10} {rank + 1} {-rank} {name}\n" for n in range(4) for rank in range(3)
        ]
        Path(f"{name}.run").write_text("".join(lines))

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, catch_exceptions=False)

    return call


FILES = ("one.run", "two.run", "--qrels", "tiny/qrels.trec")


def pooled(done: Result) -> list[dict[str, str]]:
    assert done.exit_code == 0, done.output
    return list(csv.DictReader(io.StringIO(done.stdout), dialect="excel-tab"))


def refused(done: Result, said: str) -> None:
    lines = [line for line in done.stderr.splitlines() if not line.endswith(": corpus ...")]
    assert (done.exit_code, len(lines)) == (2, 1), done.output
    assert said in done.stderr


def test_pool_of_stored_results_needs_only_their_folder(harness: Call, bench: Bench) -> None:
    bench.run(FakeLauncher(), bench.suite())
    done = harness("pool", "--depth", "3")
    lines = pooled(done)
    assert lines and {line["query"] for line in lines} <= {
        f"where is the {name}" for name in ("river", "glacier", "volcano", "desert")
    }
    assert all(line["document"] == f"all about the {line['title']}" and not line["grade"] for line in lines)
    assert "planted" not in done.stdout and "planted: " in done.stderr
    write_dataset(Path("tiny"))
    (Path("tiny") / "corpus.jsonl").write_text('{"_id": "d0", "title": "t", "text": "x"}\n')
    refused(harness("pool"), "its documents (")


def test_pool_of_run_files_is_written_with_or_without_texts(harness: Call) -> None:
    lines = pooled(harness("pool", *FILES, "--dataset", "tiny", "--depth", "1"))
    assert {(line["query_id"], line["doc_id"]) for line in lines} == {
        (f"q{n}", f"d{n + first}") for n in range(4) for first in (1, 2)
    }
    assert {line["query"] for line in lines if line["query_id"] == "q0"} == {"where is the river"}, "of the dataset"
    bare = pooled(harness("pool", *FILES, "--no-texts", "--depth", "1"))
    assert [line["pair"] for line in bare] == [line["pair"] for line in lines] and not bare[0]["document"]
    objects = [
        json.loads(line) for line in harness("pool", *FILES, "--no-texts", "--format", "jsonl").stdout.splitlines()
    ]
    assert objects[0]["document"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (FILES, "name their --dataset, or say --no-texts"),
        ((*FILES, "--dataset", "none"), "unknown dataset 'none'"),
        ((*FILES, "--dataset", "tiny", "--no-texts"), "leave one of them out"),
        ((*FILES, "--dataset", "scifact"), "lacks documents of the runs, 7 ('d1', 'd2', 'd3', ...); name"),
        ((*FILES, "--dataset", "tiny", "-o", "one.run"), "one.run: is there already"),
        (
            ("one.run", "--no-texts"),
            "without judgements, nothing says which queries to pool for; name those with --que",
        ),
        (("one.run", "--no-texts", "--qrels", "none.trec"), "without judgements, nothing says which queries to pool"),
        (("one.run", "--no-texts", "--queries", "none.trec"), "none.trec:1: neither JSON nor"),
        (("one.run", "--no-texts", "--queries", "empty.tsv"), "harness: empty.tsv: "),
        (("one.run", "--dataset", "tiny", "--only", "one"), "--only is of stored results"),
        (("one.run", "--no-texts", "--queries", "q9.tsv"), "none of the 1 queries has a hit in these runs"),
        (("one.run", "--no-texts", "--qrels", "q9.trec"), "none of the 1 queries has a hit in these runs"),
        (("one.run", "--no-texts", "--qrels", "tiny"), "tiny: "),
        (("one.run", "--no-texts", "--qrels", "bad.gz"), "bad.gz: "),
    ],
)
def test_impossible_pools_are_refused(harness: Call, arguments: tuple[str, ...], said: str) -> None:
    Path("none.trec").write_text("# nobody has judged anything\n\n")
    Path("empty.tsv").touch()
    Path("q9.tsv").write_text("q9\ttext\n")
    Path("q9.trec").write_text("q9 0 d1 1\n")
    Path("bad.gz").write_bytes(b"q9 0 d1 1\n")
    refused(harness("pool", *arguments), said)


def test_a_first_pool_needs_no_judgements(harness: Call) -> None:
    asked = ("pool", "one.run", "two.run", "--depth", "1")
    done = harness(*asked, "--dataset", "tiny")
    lines = pooled(done)
    assert {(line["query_id"], line["doc_id"]) for line in lines} == {
        (f"q{n}", f"d{n + first}") for n in range(4) for first in (1, 2)
    }
    assert "8 pairs of 4 queries to judge; 0 more" in done.stderr
    assert "  one: 4 of 4 hits unjudged (100.0%); mean over queries 100.0%\n" in done.stderr
    Path("queries.tsv").write_text("q1\tsome\nq9\tother\n")
    named = harness(*asked, "--no-texts", "--queries", "queries.tsv")
    assert {line["query_id"] for line in pooled(named)} == {"q1"}
    left = "  one: 3 (q0, q2, q3) queries of the run are not among those to be judged and are left out"
    assert f"{left}; the first is in one.run:1\n" in named.stderr
    Path("none.trec").write_text("# nobody has judged anything\n\n")
    again = harness(*asked, "--no-texts", "--queries", "queries.tsv", "--qrels", "none.trec")
    assert pooled(again) == pooled(named)
    # What is judged of it begins a file.
    judged = [f"{line['pair']}\t{line['query_id']}\t{line['doc_id']}\t1\n" for line in lines]
    Path("judged.tsv").write_text(f"pair\t{HEAD}" + "".join(judged))
    done = harness("qrels", "add", "judged.tsv", "--to", "none.trec", "-o", "first.trec", "--dataset", "tiny")
    assert done.exit_code == 0 and "first.trec: 8 added" in done.stdout
    assert "0 pairs of 0 queries" in harness(*asked, "--no-texts", "--qrels", "first.trec").stderr


@pytest.mark.parametrize("content", ["", "\ufeff# nobody has\n\n"])
def test_qrels_file_without_judgements_is_refused_in_any_form(harness: Call, content: str) -> None:
    for name, raw in (("plain", content.encode()), ("packed", gzip.compress(content.encode()))):
        Path(name).write_bytes(raw)
        refused(harness("pool", "one.run", "--no-texts", "--qrels", name), "without judgements, nothing says which")


def test_pool_prints_both_shares_and_names_omitted_queries(harness: Call) -> None:
    """One of one hit of q0 and one of four of q1 are unjudged; q7 has no judgements."""
    hits = ["q0 Q0 d9 1 1 t", *(f"q1 Q0 d{n} {n} {-n} t" for n in range(1, 5)), "q7 Q0 d1 1 1 t"]
    Path("some.run").write_text("".join(f"{line}\n" for line in hits))
    Path("few.trec").write_text("q0 0 d0 1\nq1 0 d1 1\nq1 0 d2 0\nq1 0 d3 0\n")
    done = harness("pool", "some.run", "--qrels", "few.trec", "--no-texts")
    assert "  some: 2 of 5 hits unjudged (40.0%); mean over queries 62.5%\n" in done.stderr
    left = "  some: 1 (q7) queries of the run are not among those to be judged and are left out"
    assert f"{left}; the first is in some.run:6\n" in done.stderr


def test_judged_pool_becomes_judgements(harness: Call) -> None:
    assert harness("pool", *FILES, "--dataset", "tiny", "-o", "pool.tsv").exit_code == 0
    with Path("pool.tsv").open(newline="") as stream:
        lines = list(csv.DictReader(stream, dialect="excel-tab"))
    Path("judged.csv").write_text("".join(f"{line['pair']},{line['query_id']},{line['doc_id']},1\n" for line in lines))
    Path("judged.csv").write_text("pair,query_id,doc_id,grade\n" + Path("judged.csv").read_text())
    done = harness("qrels", "add", "judged.csv", "--to", "tiny", "-o", "more.trec", "--source", "an assessor")
    assert done.exit_code == 0 and done.stdout.startswith(f"more.trec: {len(lines)} added, 0 the same")
    again = harness("pool", "one.run", "two.run", "--qrels", "more.trec", "--no-texts")
    assert pooled(again) == [] and "0 pairs of 0 queries to judge" in again.stderr
    # Adding to the file itself: nothing new, and its record goes on.
    done = harness("qrels", "add", "judged.csv", "--to", "more.trec", "-o", "more.trec")
    assert done.exit_code == 0 and f"0 added, {len(lines)} the same as before" in done.stdout
    shown = json.loads(harness("qrels", "show", "more.trec", "--format", "json").stdout)
    assert [each["source"] for each in shown["merges"]] == ["an assessor", "judged.csv"]
    assert (shown["judgements"], shown["changed_after"]) == (4 + len(lines), [])
    with Path("more.trec").open("a") as stream:
        stream.write("q0 0 d9 1\n")
    assert "Something else changed the file after iteration 2." in harness("qrels", "show", "more.trec").stdout


def test_judgements_without_a_record_are_shown(harness: Call) -> None:
    done = harness("qrels", "show", "tiny/qrels.trec")
    assert done.exit_code == 0 and "4 judgements of 4 queries" in done.stdout and "iteration" not in done.stdout


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("q0\td1\tgood\n", (), "judged:2: grade 'good' is not a whole number"),
        ("q0\td0\t3\n", (), "1 grades differ from the existing ones: judged:2: 'q0', document 'd0': 3; "),
        ("q0\td99\t1\nq9\td1\t1\n", ("--dataset", "tiny"), "judged:2: document 'd99'; judged:3: query 'q9'"),
        ("q0\td1\t1\n", ("-o", "one.run"), "one.run: is there already; name another file"),
        ("q0\td1\t-1\n", (), "judged:2: grade '-1' is not a whole number of 0 or more"),
    ],
)
def test_unusable_judgements_are_refused(harness: Call, content: str, options: tuple[str, ...], said: str) -> None:
    Path("judged").write_text(HEAD + content)
    before = Path("tiny/qrels.trec").read_bytes()
    output = () if "-o" in options else ("-o", "new.trec")
    refused(harness("qrels", "add", "judged", "--to", "tiny/qrels.trec", *output, *options), said)
    assert not Path("new.trec").exists() and Path("tiny/qrels.trec").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("q0 0 d1 1\nq1 0 d2 -1\nq2 0 d3 -2\n", "judged:2: grade -1 is below 0; write 0 (not relevant), or remove"),
        ("# nothing yet\n", "judged: has no judgements; name a pool with grades"),
        ("", "judged: has no judgements; name a pool with grades"),
    ],
)
def test_unusable_trec_files_are_refused(harness: Call, content: str, said: str) -> None:
    Path("judged").write_text(content)
    refused(harness("qrels", "add", "judged", "--to", "tiny/qrels.trec", "-o", "new.trec"), said)
    assert not Path("new.trec").exists()


def test_pipe_is_refused_for_a_file_that_is_read_twice(harness: Call) -> None:
    os.mkfifo("pipe")
    for arguments in (("add", "pipe", "--to", "tiny/qrels.trec", "-o", "new.trec"), ("show", "pipe")):
        refused(
            harness("qrels", *arguments),
            "pipe: is a pipe, but harness reads it more than once; write it to a file first",
        )
    refused(harness("report", "results", "--qrels", "pipe"), "pipe: is a pipe")
    refused(harness("pool", "one.run", "--no-texts", "--qrels", "pipe"), "pipe: is a pipe")
    refused(harness("qrels", "add", "tiny/qrels.trec", "--to", "pipe", "-o", "new.trec"), "pipe: is a pipe")


@pytest.mark.parametrize(
    "asked",
    [
        ("pool", "one.run", "two.run", "--no-texts", "--queries", "queries.tsv"),
        ("compare", "one.run", "two.run", "--qrels", "tiny/qrels.trec", "--format", "csv"),
    ],
)
def test_run_files_may_be_pipes(harness: Call, asked: tuple[str, ...]) -> None:
    Path("queries.tsv").write_text("q1\tsome\n")
    done = harness(*asked)
    assert done.exit_code == 0, done.output
    for name in asked[1:3]:
        content = Path(name).read_bytes()
        Path(name).unlink()
        os.mkfifo(name)
        threading.Thread(target=Path(name).resolve().write_bytes, args=(content,), daemon=True).start()
    piped = harness(*asked)
    assert (piped.exit_code, piped.stdout) == (0, done.stdout), piped.output


BELOW = "2 grades are below 0, the first in below.trec:5: no more relevant than 0"


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "below.trec", "one.run"),
        ("compare", "one.run", "two.run", "--qrels", "below.trec", "--measures", "P@3"),
        ("robustness", "one.run", "two.run", "--qrels", "below.trec", "--measure", "P@3", "--resamples", "100"),
        ("leakage", "training.tsv", "one.run", "--qrels", "below.trec", "--queries", "tiny/queries.jsonl"),
        ("frechet", "one.run", "--qrels", "below.trec", "--embeddings", "vectors", "--bootstraps", "0"),
        ("pool", "one.run", "--qrels", "below.trec", "--no-texts"),
        ("report", "results", "--qrels", "below.trec"),
        ("compare", "planted", "planted2", "--qrels", "below.trec"),
        ("pool", "results", "--qrels", "below.trec"),
        ("qrels", "add", "new.trec", "--to", "below.trec", "-o", "more.trec"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_every_command_names_the_first_line_with_a_negative_grade(
    harness: Call, bench: Bench, arguments: tuple[str, ...]
) -> None:
    below = Path("tiny/qrels.trec").read_text() + "q0 0 d9 -2\nq1 0 d9 -1\n"
    if not {"one.run", "new.trec"}.intersection(arguments):
        bench.plant("planted2")
        bench.run(FakeLauncher(), bench.suite(systems=["planted", "planted2"]))
    Path("below.trec").write_text(below)
    Path("training.tsv").write_text("t0\tnothing of the kind\n")
    Path("new.trec").write_text("q0 0 d8 1\n")
    vectors = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    ids = tuple(f"d{n}" for n in range(10))
    embeddings.write(Path("vectors"), Embeddings(ids, vectors, "minilm", "c" * 64, "document", "s"))
    done = harness(*arguments)
    assert done.exit_code == 0, done.output
    assert done.output.count(BELOW) >= 1


def test_unknown_ids_have_a_note_if_a_dataset_is_extended(harness: Call) -> None:
    Path("judged").write_text("q0 0 d77 1\n")
    refused(harness("qrels", "add", "judged", "--to", "tiny", "-o", "new.trec"), "judged:1: document 'd77'")
    Path("judged").write_text("q0 0 d7 1\n")
    assert harness("qrels", "add", "judged", "--to", "tiny", "-o", "new.trec.gz").exit_code == 0
    done = harness("qrels", "add", "judged", "--to", "tiny/qrels.trec", "-o", "other.trec")
    assert done.exit_code == 0 and done.stderr == "judged: its ids are taken as they are; --dataset checks them\n"
    said = "qrels.trc: no such file, and no dataset either; unknown dataset"
    refused(harness("qrels", "add", "judged", "--to", "qrels.trc", "-o", "third.trec"), said)
    assert harness("qrels", "show", "new.trec.gz").stdout.startswith("**new.trec.gz**: 5 judgements")


def write_vectors(name: str, texts: str, last: tuple[float, ...] | None = None) -> None:
    """Write a vector of its own direction for each text of a file; ``last`` gives the last one's."""
    queries = judged_runs.read_queries(Path(texts))
    vectors = np.eye(6, dtype=np.float32)[: len(queries)]
    if last is not None:
        vectors[-1] = last
    found = Embeddings(tuple(queries), vectors, "minilm", "c" * 64, "query", sha256_of_texts(queries))
    embeddings.write(Path(name), found)


def test_leakage_compares_queries_by_their_vectors(harness: Call) -> None:
    Path("training.tsv").write_text("t0\twhere is the river?\nt1\twhich way to the glacier\nt2\tanything\n")
    write_vectors("sample", "tiny/queries.jsonl")
    write_vectors("training", "training.tsv", last=(-1,) * 6)
    asked = ("leakage", "training.tsv", *FILES, "--queries", "tiny/queries.jsonl", "--measures", "P@3")
    done = harness(*asked, "--embeddings", "sample", "training", "--write", "leaked.txt", "--format", "json")
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)["samples"]
    assert found["leaked"] == ["q0", "q1"] and Path("leaked.txt").read_text() == "q0\nq1\n"
    assert [(pair["query_id"], pair["training_id"], pair["same_text"]) for pair in found["pairs"]] == [
        ("q0", "t0", True),
        ("q1", "t1", False),
    ]
    assert found["encoder"] == "minilm" and [each["system"] for each in found["effects"]] == ["one", "two"]
    lines = list(csv.DictReader(io.StringIO(harness(*asked, "--format", "csv").stdout)))
    assert [(line["query_id"], line["cosine"], line["same_text"]) for line in lines] == [("q0", "", "true")]


def test_vectors_of_other_texts_are_refused(harness: Call) -> None:
    Path("training.tsv").write_text("t0\twhere is the river?\nt1\tanything\n")
    Path("changed.tsv").write_text("t0\twhere is the river?\nt1\tsomething else\n")
    Path("more.tsv").write_text("t0\tx\nt1\ty\nt2\tz\n")
    write_vectors("sample", "tiny/queries.jsonl")
    for name in ("training", "changed", "more"):
        write_vectors(name, f"{name}.tsv")
    asked = ("leakage", "training.tsv", *FILES, "--queries", "tiny/queries.jsonl", "--embeddings", "sample")
    said = "the vectors of the training set are of other texts than its queries"
    refused(harness(*asked, "changed"), said)
    assert "not checked" not in harness(*asked, "training").stdout
    some = harness(*asked, "more")
    assert some.exit_code == 0 and "they are of 3 queries, of which 2 are compared" in some.stdout
    # The order of an index may be another than that of the file.
    found = embeddings.read(Path("training"))
    turned = replace(found, ids=found.ids[::-1], vectors=found.vectors[::-1])
    embeddings.write(Path("turned"), turned)
    assert "not checked" not in harness(*asked, "turned").stdout
    bare = harness("leakage", "training.tsv", *FILES, "--embeddings", "sample", "training")
    assert bare.exit_code == 0 and "of the sample are of its queries is not checked: there are no texts" in bare.stdout
    assert "0 of 4 queries" not in bare.stdout, "vectors need no texts"


def test_leakage_reports_that_there_is_none(harness: Call) -> None:
    Path("training.tsv").write_text("t0\tnothing of the kind\nt1\t?\n")
    done = harness("leakage", "training.tsv", *FILES, "--queries", "tiny/queries.jsonl")
    assert done.exit_code == 0 and "**qrels.trec: 0 of 6 queries (0.0%) are near duplicates" in done.stdout
    assert done.stderr == "training.tsv: 1 (t1) queries have no word and are like no other\n"


def test_leakage_share_counts_only_comparable_queries(harness: Call) -> None:
    Path("training.tsv").write_text("t0\twhere is the river?\n")
    Path("some.tsv").write_text("q0\twhere is the river\nq1\t\nq2\t?!\nq3\tother\n")
    asked = ("leakage", "training.tsv", *FILES, "--queries", "some.tsv")
    done = harness(*asked)
    assert "1 of 2 queries that could be compared (50.0%) are near duplicates" in done.stdout
    assert "2 (q1, q2) of 4 queries have no text, or no word in it, and could not be compared: name" in done.stdout
    (sample,) = json.loads(harness(*asked, "--format", "json").stdout)["samples"]
    assert (sample["leaked"], sample["not_compared"], sample["queries"]) == (["q0"], ["q1", "q2"], 4)


@pytest.mark.parametrize(
    ("training", "options", "said"),
    [
        ("t0\tx\n", (), "qrels.trec: none of 4 queries has a text, so nothing can be compared; name a file of their"),
        ("", (), "training.tsv: has no query; name a file with lines"),
        ("\n", (), "training.tsv: has no query; name"),
        ("t0\t\nt1\t-\n", (), "training.tsv: none of 2 queries has a text, so nothing can be compared; name a file"),
        ("t0\tx\n", ("--threshold", "0.5"), "--threshold is of cosines, which need vectors: name those with --emb"),
        ("t0\tx\n", ("--threshold", "nan", "--embeddings", "a", "b"), "--threshold nan is no cosine; say a number"),
        ("t0\tx\n", ("--measures", "X@3"), "unknown measure 'X@3'"),
        ("t0\tx\n", ("--queries", "odd.jsonl", "--write", "ids"), "query '\\ud800': cannot stand in a list of ids"),
    ],
)
def test_leakage_refuses_unusable_input(harness: Call, training: str, options: tuple[str, ...], said: str) -> None:
    Path("training.tsv").write_text(training)
    Path("odd.jsonl").write_text('{"_id": "\\ud800", "text": "x"}\n{"_id": "q0", "text": "other"}\n')
    done = harness("leakage", "training.tsv", *FILES, *options)
    refused(done, said)
    assert not done.stdout


def test_leakage_names_queries_left_out_of_a_run(harness: Call) -> None:
    Path("training.tsv").write_text("t0\tx\n")
    Path("queries.tsv").write_text("q1\tsome\n")
    done = harness("leakage", "training.tsv", *FILES, "--queries", "queries.tsv")
    assert "- one: 3 (q0, q2, q3) queries of the run are not among those to be judged and are left out" in done.stdout


def test_leakage_names_a_missing_file(harness: Call) -> None:
    refused(harness("leakage", "none.tsv", *FILES), "none.tsv: cannot be read")


@pytest.mark.parametrize("options", [("--threshold", "0", "--embeddings", "a", "b"), ("--seed", "-1")])
def test_leakage_refuses_malformed_numbers(harness: Call, options: tuple[str, ...]) -> None:
    Path("training.tsv").write_text("t0\tx\n")
    done = harness("leakage", "training.tsv", *FILES, *options)
    assert done.exit_code == 2 and options[0] in done.stderr and not done.stdout


def test_leakage_writes_every_leaked_query(harness: Call) -> None:
    texts = {f"q{n}": f"number {n}" for n in range(120)}
    Path("sample.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in texts.items()))
    Path("training.tsv").write_text("".join(f"t{name}\t{text.upper()}\n" for name, text in texts.items()))
    asked = ("leakage", "training.tsv", *FILES, "--queries", "sample.tsv", "--write", "leaked")
    shown = harness(*asked)
    assert shown.stdout.count("| yes ") == 50 and "70 more pairs: csv and json list all 120." in shown.stdout
    assert Path("leaked").read_text().split() == list(texts)
    (sample,) = json.loads(harness(*asked, "--format", "json").stdout)["samples"]
    assert sample["leaked"] == list(texts) and [each["query_id"] for each in sample["pairs"]] == sorted(texts)
    assert len(harness(*asked, "--format", "csv").stdout.splitlines()) == 121
