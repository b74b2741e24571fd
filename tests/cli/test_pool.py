"""`harness pool`, as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.launch.fake import FakeLauncher
from tests.conftest import Bench, write_dataset
from tests.support.command_line import HEAD, RUN_FILES, Call, assert_refused, pooled


@pytest.fixture
def harness(tiny_runs: Call) -> Call:
    return tiny_runs


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
    assert_refused(harness("pool"), "its documents (")


def test_pool_of_run_files_is_written_with_or_without_texts(harness: Call) -> None:
    lines = pooled(harness("pool", *RUN_FILES, "--dataset", "tiny", "--depth", "1"))
    assert {(line["query_id"], line["doc_id"]) for line in lines} == {
        (f"q{n}", f"d{n + first}") for n in range(4) for first in (1, 2)
    }
    assert {line["query"] for line in lines if line["query_id"] == "q0"} == {"where is the river"}, "of the dataset"
    bare = pooled(harness("pool", *RUN_FILES, "--no-texts", "--depth", "1"))
    assert [line["pair"] for line in bare] == [line["pair"] for line in lines] and not bare[0]["document"]
    objects = [
        json.loads(line) for line in harness("pool", *RUN_FILES, "--no-texts", "--format", "jsonl").stdout.splitlines()
    ]
    assert objects[0]["document"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (RUN_FILES, "name their --dataset, or say --no-texts"),
        ((*RUN_FILES, "--dataset", "none"), "unknown dataset 'none'"),
        ((*RUN_FILES, "--dataset", "tiny", "--no-texts"), "leave one of them out"),
        ((*RUN_FILES, "--dataset", "scifact"), "lacks documents of the runs, 7 ('d1', 'd2', 'd3', ...); name"),
        ((*RUN_FILES, "--dataset", "tiny", "-o", "one.run"), "one.run: is there already"),
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
def test_impossible_pools_are_refused(harness: Call, arguments: tuple[str, ...], message: str) -> None:
    Path("none.trec").write_text("# nobody has judged anything\n\n")
    Path("empty.tsv").touch()
    Path("q9.tsv").write_text("q9\ttext\n")
    Path("q9.trec").write_text("q9 0 d1 1\n")
    Path("bad.gz").write_bytes(b"q9 0 d1 1\n")
    assert_refused(harness("pool", *arguments), message)


def test_a_first_pool_needs_no_judgements(harness: Call) -> None:
    options = ("pool", "one.run", "two.run", "--depth", "1")
    done = harness(*options, "--dataset", "tiny")
    lines = pooled(done)
    assert {(line["query_id"], line["doc_id"]) for line in lines} == {
        (f"q{n}", f"d{n + first}") for n in range(4) for first in (1, 2)
    }
    assert "8 pairs of 4 queries to judge; 0 more" in done.stderr
    assert "  one: 4 of 4 hits unjudged (100.0%); mean over queries 100.0%\n" in done.stderr
    Path("queries.tsv").write_text("q1\tsome\nq9\tother\n")
    named = harness(*options, "--no-texts", "--queries", "queries.tsv")
    assert {line["query_id"] for line in pooled(named)} == {"q1"}
    left = "  one: 3 (q0, q2, q3) queries of the run are not among those to be judged and are left out"
    assert f"{left}; the first is in one.run:1\n" in named.stderr
    Path("none.trec").write_text("# nobody has judged anything\n\n")
    again = harness(*options, "--no-texts", "--queries", "queries.tsv", "--qrels", "none.trec")
    assert pooled(again) == pooled(named)
    # What is judged of it begins a file.
    judged = [f"{line['pair']}\t{line['query_id']}\t{line['doc_id']}\t1\n" for line in lines]
    Path("judged.tsv").write_text(f"pair\t{HEAD}" + "".join(judged))
    done = harness("qrels", "add", "judged.tsv", "--to", "none.trec", "-o", "first.trec", "--dataset", "tiny")
    assert done.exit_code == 0 and "first.trec: 8 added" in done.stdout
    assert "0 pairs of 0 queries" in harness(*options, "--no-texts", "--qrels", "first.trec").stderr


def test_pool_prints_both_shares_and_names_omitted_queries(harness: Call) -> None:
    """One of one hit of q0 and one of four of q1 are unjudged; q7 has no judgements."""
    hits = ["q0 Q0 d9 1 1 t", *(f"q1 Q0 d{n} {n} {-n} t" for n in range(1, 5)), "q7 Q0 d1 1 1 t"]
    Path("some.run").write_text("".join(f"{line}\n" for line in hits))
    Path("few.trec").write_text("q0 0 d0 1\nq1 0 d1 1\nq1 0 d2 0\nq1 0 d3 0\n")
    done = harness("pool", "some.run", "--qrels", "few.trec", "--no-texts")
    assert "  some: 2 of 5 hits unjudged (40.0%); mean over queries 62.5%\n" in done.stderr
    left = "  some: 1 (q7) queries of the run are not among those to be judged and are left out"
    assert f"{left}; the first is in some.run:6\n" in done.stderr
