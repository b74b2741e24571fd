"""`harness pool`, as a person types it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from harness.launch.fake import FakeLauncher
from tests.conftest import Bench, write_dataset
from tests.support.command_line import HEAD, RUN_FILES, Call, assert_refused, pooled

FIRST_HITS = {(f"q{n}", f"d{n + first}") for n in range(4) for first in (1, 2)}


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
    assert_refused(harness("pool"), "holds other documents (")


def test_pool_of_run_files_is_written_with_or_without_texts(harness: Call) -> None:
    lines = pooled(harness("pool", *RUN_FILES, "--dataset", "tiny", "--depth", "1"))
    assert {(line["query_id"], line["doc_id"]) for line in lines} == FIRST_HITS
    assert {line["query"] for line in lines if line["query_id"] == "q0"} == {"where is the river"}, "of the dataset"
    bare = pooled(harness("pool", *RUN_FILES, "--no-texts", "--depth", "1"))
    assert [line["pair"] for line in bare] == [line["pair"] for line in lines] and not bare[0]["document"]
    objects = [
        json.loads(line) for line in harness("pool", *RUN_FILES, "--no-texts", "--format", "jsonl").stdout.splitlines()
    ]
    assert objects[0]["document"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (RUN_FILES, "name their --dataset, or say --no-texts"),
        ((*RUN_FILES, "--dataset", "none"), "unknown dataset 'none'"),
        ((*RUN_FILES, "--dataset", "tiny", "--no-texts"), "remove one of the two"),
        ((*RUN_FILES, "--dataset", "scifact"), "lacks documents of the runs: 7 ('d1', 'd2', 'd3', ...); name"),
        ((*RUN_FILES, "--dataset", "tiny", "-o", "one.run"), "one.run: exists already"),
        (("one.run", "--no-texts"), "without judgements the queries to pool for are unknown; name them with --que"),
        (("one.run", "--no-texts", "--qrels", "none.trec"), "without judgements the queries to pool for are unknown"),
        (("one.run", "--no-texts", "--queries", "none.trec"), "none.trec:1: neither JSON nor"),
        (("one.run", "--no-texts", "--queries", "empty.tsv"), "harness: empty.tsv: "),
        (("one.run", "--dataset", "tiny", "--only", "one"), "--only needs stored results"),
        (("one.run", "--no-texts", "--queries", "q9.tsv"), "none of the 1 queries has a hit in these runs"),
        (("one.run", "--no-texts", "--qrels", "q9.trec"), "none of the 1 queries has a hit in these runs"),
        (("one.run", "--no-texts", "--qrels", "tiny"), "tiny: "),
        (("one.run", "--no-texts", "--qrels", "bad.gz"), "bad.gz: "),
        ((*RUN_FILES, "--no-texts", "--keep", "3"), "--keep needs --reranker"),
        ((*RUN_FILES, "--no-texts", "--round", "2"), "--round needs --package; give both, or leave --round out"),
        ((*RUN_FILES, "--no-texts", "--package", "9"), "name a folder for them with -o"),
        ((*RUN_FILES, "--no-texts", "--package", "9", "-o", "one.run"), "one.run: is a file; name a folder"),
        ((*RUN_FILES, "--no-texts", "--package", "9", "-o", "tiny"), "tiny: is not empty"),
        ((*RUN_FILES, "--no-texts", "--package", "9", "--round", "2", "-o", "p"), "p: has no package; harness pool"),
        ((*RUN_FILES, "--no-texts", "--reranker", "one.run"), "reranker one has no score for "),
        ((*RUN_FILES, "--no-texts", "--candidates", "one.run"), "one.run: exists already"),
    ],
)
def test_impossible_pools_are_refused(harness: Call, arguments: tuple[str, ...], message: str) -> None:
    Path("none.trec").write_text("# nobody has judged anything\n\n")
    Path("empty.tsv").touch()
    Path("q9.tsv").write_text("q9\ttext\n")
    Path("q9.trec").write_text("q9 0 d1 1\n")
    Path("bad.gz").write_bytes(gzip.compress(b"q9 0 d1 1\n")[:-9])
    assert_refused(harness("pool", *arguments), message)


def test_a_first_pool_needs_no_judgements(harness: Call) -> None:
    options = ("pool", "one.run", "two.run", "--depth", "1")
    done = harness(*options, "--dataset", "tiny")
    lines = pooled(done)
    assert {(line["query_id"], line["doc_id"]) for line in lines} == FIRST_HITS
    assert "8 pairs of 4 queries to judge; 0 more" in done.stderr
    assert "  one: 4 of 4 hits unjudged (100.0%); mean over queries 100.0%\n" in done.stderr
    Path("queries.tsv").write_text("q1\tsome\nq9\tother\n")
    named = harness(*options, "--no-texts", "--queries", "queries.tsv")
    assert {line["query_id"] for line in pooled(named)} == {"q1"}
    left = "  one: 3 (q0, q2, q3) queries of the run are not to be judged and are left out"
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
    left = "  some: 1 (q7) queries of the run are not to be judged and are left out"
    assert f"{left}; the first is in some.run:6\n" in done.stderr


def fill(path: Path, grade: str) -> None:
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{line}\n" for line in [lines[0], *(f"{line}{grade}" for line in lines[1:])]))


def test_five_systems_an_ensemble_packages_and_checks(harness: Call) -> None:
    """The way of Qiu et al. 2022 (section 2.3, A.1, A.3), from runs to checked judgements."""
    done = harness("pool", *RUN_FILES, "--candidates", "candidates.run")
    assert done.exit_code == 0 and "candidates.run: 16 candidates of 4 queries, at most 4 a query" in done.stdout
    for name, sign in (("ernie.run", 1), ("bert.run", -0.5)):
        rows = [line.split() for line in Path("candidates.run").read_text().splitlines()]
        Path(name).write_text(
            "".join(f"{q} Q0 {d} {n} {sign * int(d[1:])} x\n" for n, (q, _, d, *_) in enumerate(rows))
        )
    rerankers = ("--reranker", "ernie.run", "--reranker", "bert.run")
    options = ("pool", *RUN_FILES, "--no-texts", *rerankers, "--keep", "3", "--again")
    lines = pooled(harness(*options))
    assert {line["doc_id"] for line in lines if line["query_id"] == "q0"} == {"d2", "d3", "d4"}
    packages = (*options, "--package", "8", "--check", "4", "-o", "pool")
    done = harness(*packages)
    assert done.exit_code == 0 and "pool: 2 packages of 8 pairs, 2 sheets of 4 pairs each, round 1" in done.stdout
    assert "12 pairs of 4 queries to judge, chosen by 2 rerankers from 16 candidates; 0 more" in done.stderr
    assert sorted(path.name for path in Path("pool").iterdir())[:3] == [
        "package-001.check-1-1.tsv",
        "package-001.check-1-2.tsv",
        "package-001.tsv",
    ]
    for path in Path("pool").iterdir():
        fill(path, "0" if path.name == "package-002.check-1-2.tsv" else "1")
    done = harness("qrels", "check", "pool")
    assert done.exit_code == 1 and "1 of 2 packages passed" in done.stdout and "--round 2" in done.stderr
    shown = json.loads(harness("qrels", "check", "pool", "--format", "json").stdout)
    assert [(each["accuracy"], each["passed"]) for each in shown["packages"]] == [(1.0, True), (0.5, False)]
    add = ("qrels", "add", "pool/package-002.tsv", "--to", "tiny/qrels.trec", "-o", "more.trec")
    assert_refused(harness(*add), "reviewers agree with 50.0% of its grades on average, below 93%")
    assert not Path("more.trec").exists()
    assert harness(*packages, "--round", "2").exit_code == 0
    for path in Path("pool").glob("*.check-2-*"):
        fill(path, "1")
    done = harness(*add, "--conflicts", "override")
    assert done.exit_code == 0, done.output
    shown = json.loads(harness("qrels", "show", "more.trec", "--format", "json").stdout)
    assert [review["same"] for review in shown["merges"][0]["reviews"]] == [4, 4]
    assert "100.0%" in harness("qrels", "show", "more.trec").stdout
    assert_refused(harness(*packages, "--round", "2"), "exists already and may hold grades")
    other = [*packages]
    other[other.index("--keep") + 1] = "2"
    assert_refused(harness(*other, "--round", "3"), "its packages hold other pairs than these runs")


def test_unchecked_packages_are_added_on_request(harness: Call) -> None:
    assert harness("pool", *RUN_FILES, "--no-texts", "--package", "99", "-o", "pool").exit_code == 0
    fill(Path("pool/package-001.tsv"), "1")
    add = ("qrels", "add", "pool/package-001.tsv", "--to", "tiny/qrels.trec", "-o", "more.trec")
    assert_refused(harness(*add), "grades are empty")
    assert harness(*add, "--unchecked").exit_code == 0
    assert_refused(harness("qrels", "check", "tiny/qrels.trec"), "has no reviewers' sheets next to it")
