"""`harness pool`, `harness qrels` and `harness leakage`, as a person types them."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from harness import embeddings
from harness.cli import main
from harness.embeddings import Embeddings
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


def test_a_pool_of_stored_results_needs_no_more_than_their_folder(harness: Call, bench: Bench) -> None:
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


def test_a_pool_of_run_files(harness: Call) -> None:
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
        (("one.run", "--dataset", "tiny"), "run files need their judgements"),
    ],
)
def test_pools_that_cannot_be_made(harness: Call, arguments: tuple[str, ...], said: str) -> None:
    refused(harness("pool", *arguments), said)


def test_a_pool_goes_round(harness: Call) -> None:
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
        ("q0\td1\tgood\n", (), "judged:2: grade 'good' is no whole number"),
        ("q0\td0\t3\n", (), "1 grades differ from those that there are: judged:2: 'q0', document 'd0': 3; "),
        ("q0\td99\t1\nq9\td1\t1\n", ("--dataset", "tiny"), "judged:2: document 'd99'; judged:3: query 'q9'"),
        ("q0\td1\t1\n", ("-o", "one.run"), "one.run: is there already; name another file"),
        ("q0\td1\t-1\n", (), "judged:2: grade '-1' is no whole number of 0 or more"),
    ],
)
def test_judgements_that_cannot_be_added(harness: Call, content: str, options: tuple[str, ...], said: str) -> None:
    Path("judged").write_text(HEAD + content)
    before = Path("tiny/qrels.trec").read_bytes()
    output = () if "-o" in options else ("-o", "new.trec")
    refused(harness("qrels", "add", "judged", "--to", "tiny/qrels.trec", *output, *options), said)
    assert not Path("new.trec").exists() and Path("tiny/qrels.trec").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("q0 0 d1 1\nq1 0 d2 -1\nq2 0 d3 -2\n", "judged:2: grade -1 is below 0; write 0 (not relevant), or remove"),
        ("# nothing yet\n", "judged: holds no judgements; name a pool that was filled in"),
        ("", "judged: holds no judgements; name a pool that was filled in"),
    ],
)
def test_trec_files_that_cannot_be_added(harness: Call, content: str, said: str) -> None:
    Path("judged").write_text(content)
    refused(harness("qrels", "add", "judged", "--to", "tiny/qrels.trec", "-o", "new.trec"), said)
    assert not Path("new.trec").exists()


def test_what_is_read_more_than_once_is_no_pipe(harness: Call) -> None:
    os.mkfifo("pipe")
    for arguments in (("add", "pipe", "--to", "tiny/qrels.trec", "-o", "new.trec"), ("show", "pipe")):
        refused(harness("qrels", *arguments), "pipe: is a pipe, and this is read more than once; write it into a file")
    refused(harness("report", "results", "--qrels", "pipe"), "pipe: is a pipe")


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
def test_every_command_says_where_grades_below_zero_stand(
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


def test_unknown_ids_are_told_where_a_dataset_is_added_to(harness: Call) -> None:
    Path("judged").write_text("q0 0 d77 1\n")
    refused(harness("qrels", "add", "judged", "--to", "tiny", "-o", "new.trec"), "judged:1: document 'd77'")
    Path("judged").write_text("q0 0 d7 1\n")
    assert harness("qrels", "add", "judged", "--to", "tiny", "-o", "new.trec.gz").exit_code == 0
    done = harness("qrels", "add", "judged", "--to", "tiny/qrels.trec", "-o", "other.trec")
    assert done.exit_code == 0 and done.stderr == "judged: its ids are taken as they are; --dataset checks them\n"
    said = "qrels.trc: no such file, and no dataset either; unknown dataset"
    refused(harness("qrels", "add", "judged", "--to", "qrels.trc", "-o", "third.trec"), said)
    assert harness("qrels", "show", "new.trec.gz").stdout.startswith("**new.trec.gz**: 5 judgements")


def test_leakage_by_vectors(harness: Call) -> None:
    Path("training.tsv").write_text("t0\twhere is the river?\nt1\twhich way to the glacier\nt2\tanything\n")
    for name, ids in (("sample", ("q0", "q1", "q2", "q3")), ("training", ("t0", "t1", "t2"))):
        vectors = np.eye(4, dtype=np.float32)[: len(ids)]
        if name == "training":
            vectors[2] = [-1, -1, -1, -1]
        embeddings.write(Path(name), Embeddings(ids, vectors, "minilm", "c" * 64, "query", "s"))
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


def test_no_leakage_is_said_and_so_are_queries_without_texts(harness: Call) -> None:
    Path("training.tsv").write_text("t0\tnothing of the kind\n")
    done = harness("leakage", "training.tsv", *FILES)
    assert "**qrels.trec: 0 of 4 queries (0.0%) are near duplicates" in done.stdout
    assert "4 queries have no text here: name a file of them with --queries" in done.stdout
    refused(harness("leakage", "none.tsv", *FILES), "none.tsv: cannot be read")
    refused(harness("leakage", "training.tsv", *FILES, "--measures", "X@3"), "unknown measure 'X@3'")
    assert harness("leakage", "training.tsv", *FILES, "--threshold", "0").exit_code == 2


def test_a_threshold_without_vectors_is_refused(harness: Call) -> None:
    Path("training.tsv").write_text("t1\tsomething\n")
    refused(harness("leakage", "training.tsv", *FILES, "--threshold", "0.8"), "--threshold is of cosines")
