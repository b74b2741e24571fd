"""Judging pools: their order shows no system, and their files read back."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from pathlib import Path

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import FileError, UsageError
from harness.evaluation import judged_runs
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.pool import (
    COLUMNS,
    Ensemble,
    GradedPair,
    JudgingPool,
    build_pool,
    pair_id,
    pool_candidates,
    read_graded_pool,
    write_candidates,
    write_pool,
)
from harness.evaluation.trec import Run

QUERIES = {"q1": "one", "q2": "two", "q3": "three"}
documents = st.lists(st.sampled_from([f"d{n}" for n in range(12)]), unique=True, max_size=8).map(tuple)
rankings = st.dictionaries(st.sampled_from(sorted(QUERIES)), documents)
QRELS = {"q1": {"d1": 1, "d2": 0}, "q2": {"d1": 2}}


def judged(*runs: dict[str, tuple[str, ...]], **changes: object) -> JudgedRuns:
    named = {f"s{number}": Run(run, ()) for number, run in enumerate(runs)}
    return JudgedRuns("set", QUERIES, QRELS, named, **changes)


@pytest.mark.slow
@given(st.lists(rankings, min_size=1, max_size=4), st.integers(1, 9), st.randoms(use_true_random=False))
def test_pool_order_does_not_reveal_systems(
    runs: list[dict[str, tuple[str, ...]]], depth: int, rng: random.Random
) -> None:
    pool = build_pool([judged(*runs)], depth, seed=3)
    wanted = {(query, document) for run in runs for query, found in run.items() for document in found[:depth]}
    assert set(pool.pairs) == {pair for pair in wanted if pair[1] not in QRELS.get(pair[0], {})}
    assert len(pool.pairs) == len(set(pool.pairs)), "each pair once"
    assert pool.judged == len(wanted) - len(pool.pairs)
    groups = [query for number, (query, _) in enumerate(pool.pairs) if not number or pool.pairs[number - 1][0] != query]
    assert len(groups) == len(set(groups)) == pool.queries_to_judge, "a query's documents stand together"
    # Other systems, other ranks, other places among the runs: the same pairs are in the same order.
    shuffled = [
        {query: tuple(rng.sample(found[:depth], len(found[:depth]))) for query, found in run.items()} for run in runs
    ]
    rng.shuffle(shuffled)
    assert build_pool([judged(*shuffled)], depth, seed=3).pairs == pool.pairs
    # One run less takes its own pairs away and moves no other.
    fewer = build_pool([judged(*runs[1:])], depth, seed=3).pairs
    assert [pair for pair in pool.pairs if pair in set(fewer)] == list(fewer)


def test_the_seed_decides_the_order() -> None:
    runs = judged({query: tuple(f"d{n}" for n in range(3, 12)) for query in QUERIES})
    orders = {build_pool([runs], 9, seed=seed).pairs for seed in range(5)}
    assert len(orders) == 5 and len({frozenset(order) for order in orders}) == 1


def test_unjudged_hits_are_counted_for_each_system() -> None:
    pool = build_pool([judged({"q1": ("d1", "d8", "d9"), "q3": ("d1",)}, {"q1": ("d2",)}, {})], 2, seed=1)
    counts = {name: (each.hits, each.unjudged, each.share) for name, each in pool.systems}
    assert counts == {"s0": (3, 2, 0.75), "s1": (1, 0, 0.0), "s2": (0, 0, None)}


@pytest.mark.slow
@given(rankings, st.integers(1, 9))
def test_unjudged_share_is_one_minus_judged_of_ir_measures(run: dict[str, tuple[str, ...]], depth: int) -> None:
    judged_ones = [query for query in QRELS if run.get(query)]
    found = judged_runs.count_unjudged(Run(run, ()), QRELS, QRELS, depth)
    if not judged_ones:
        assert found.share is None
        return
    scores = {query: {document: float(-rank) for rank, document in enumerate(run[query])} for query in judged_ones}
    metrics = ir_measures.iter_calc([ir_measures.Judged @ depth], QRELS, scores)
    values = [metric.value for metric in metrics if metric.query_id in judged_ones]
    assert found.share == pytest.approx(1 - sum(values) / len(values))


def test_samples_of_one_collection_form_one_pool() -> None:
    one, other = judged({"q1": ("d5",)}), judged({"q1": ("d5",), "q2": ("d6",)})
    pool = build_pool([one, other], 5, seed=1)
    assert set(pool.pairs) == {("q1", "d5"), ("q2", "d6")}
    assert [name for name, _ in pool.systems] == ["s0 (3 queries)", "s0 (3 queries)"]


def test_unpoolable_runs_are_refused() -> None:
    with pytest.raises(UsageError, match="set: the set has no queries to pool for; name some with --queries"):
        build_pool([JudgedRuns("set", {}, {}, {"s": Run({"q1": ("d1",)}, ())})], 5, seed=1)
    with pytest.raises(UsageError, match=r"runs of 2 collections \(set, set\): choose one with --only"):
        build_pool([judged({}, corpus_sha256="a"), judged({}, corpus_sha256="b")], 5, seed=1)
    with pytest.raises(UsageError, match="answers in the texts judge every hit"):
        build_pool([judged({}, hits_alone=True)], 5, seed=1)


def test_an_ensemble_chooses_the_best_mean_of_all_runs() -> None:
    """Two rerankers, of which none alone has this order; judged documents compete too."""
    runs = judged({"q1": ("d1", "d3", "d5"), "q2": ("d6",)}, {"q1": ("d2", "d4")}, {"q1": ("d9",)})
    assert pool_candidates([runs], 2) == {"q1": {"d1", "d2", "d3", "d4", "d9"}, "q2": {"d6"}, "q3": set()}
    one = {"q1": {"d1": 0.9, "d2": 0.8, "d3": 0.1, "d4": 0.5, "d9": 0.5}, "q2": {"d6": 0.0}}
    two = {"q1": {"d1": 0.9, "d2": 0.0, "d3": 0.7, "d4": 0.5, "d9": 0.3}, "q2": {"d6": 0.0}}
    ensemble = Ensemble({"one": one, "two": two}, 3)  # d1 .9, d4 .5, then d2, d3 and d9 .4: the first id
    pool = build_pool([runs], 2, 1, ensemble)
    assert set(pool.pairs) == {("q1", "d4"), ("q2", "d6")} and (pool.judged, pool.candidates) == (2, 6)
    again = build_pool([runs], 2, 1, ensemble, again=True)
    assert set(again.pairs) == {("q1", "d1"), ("q1", "d2"), ("q1", "d4"), ("q2", "d6")} and again.judged == 0
    order = [pair for pair in build_pool([runs], 2, 1, again=True).pairs if pair in set(again.pairs)]
    assert list(again.pairs) == order, "scores choose documents, and order none"
    del two["q1"]["d9"]
    with pytest.raises(UsageError, match=r"reranker two has no score for 1 of 6 candidates, e\.g\. query 'q1'"):
        build_pool([runs], 2, 1, ensemble)


def test_candidates_are_written_in_the_order_of_their_ids() -> None:
    stream = io.StringIO()
    write_candidates({"q2": {"d6"}, "q1": {"d9", "d1"}, "q3": set()}, stream)
    assert stream.getvalue() == "q1 Q0 d1 1 2 pool\nq1 Q0 d9 2 1 pool\nq2 Q0 d6 1 1 pool\n"


ids = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=6)
PAIR = pair_id("q1", "d1")


def pool_text(pairs: list[tuple[str, str]], form: str, text: str = "t", query: str = "q") -> str:
    pool = JudgingPool(tuple(pairs), {each: query for each, _ in pairs}, 0, (), 5)
    stream = io.StringIO()
    documents = {document: {"title": text, "text": text} for _, document in pairs}
    write_pool(pool, documents, form, stream)
    return stream.getvalue()


def read_back(folder: Path, content: str | bytes) -> list[tuple[str, str, int | None]] | None:
    path = folder / "judged"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    pairs = read_graded_pool(path)
    return None if pairs is None else [(each.query_id, each.doc_id, each.grade) for each in pairs]


@pytest.mark.slow
@given(
    st.lists(st.tuples(ids.filter("#".__ne__), ids), unique=True, max_size=5),
    st.text(),
    st.sampled_from(["tsv", "jsonl"]),
)
def test_ids_read_back_with_any_texts(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], text: str, form: str
) -> None:
    written = pool_text(pairs, form, text, text)
    folder = tmp_path_factory.mktemp("pool")
    assert (read_back(folder, written) or []) == [(*pair, None) for pair in pairs]
    if form == "tsv":
        assert written.count("\n") == len(pairs) + 1, "one line a pair, whatever breaks a text has"
        cells = [cell for row in csv.reader(io.StringIO(written), dialect="excel-tab") for cell in row]
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells), "nothing is computed"
        assert all(cell.isprintable() for cell in cells)
    else:
        assert written.isascii()
        assert all(json.loads(line)["document"] == text for line in written.splitlines())


def test_pool_file_holds_only_pair_texts_and_grade() -> None:
    assert pool_text([("q1", "d1")], "tsv").splitlines()[0].split("\t") == list(COLUMNS)
    (line,) = pool_text([("q1", "d1")], "jsonl").splitlines()
    assert tuple(json.loads(line)) == COLUMNS and json.loads(line)["grade"] is None


def test_missing_texts_are_written_as_missing() -> None:
    stream = io.StringIO()
    write_pool(JudgingPool((("q1", "d1"),), {"q1": ""}, 0, (), 5), {}, "jsonl", stream)
    found = json.loads(stream.getvalue())
    assert (found["query"], found["title"], found["document"]) == (None, None, None)


def test_id_that_tsv_cannot_hold_needs_jsonl() -> None:
    assert pool_text([("q1", "d\N{ZERO WIDTH SPACE}1")], "jsonl")
    with pytest.raises(UsageError, match=r"; write it with --format jsonl"):
        pool_text([("q1", "d\N{ZERO WIDTH SPACE}1")], "tsv")


@pytest.mark.parametrize(
    "content",
    [
        f"pair\tquery_id\tdoc_id\tgrade\n{PAIR}\tq1\td1\t2\n",
        f"pair,query_id,doc_id,grade\r\n{PAIR},q1,d1,2\r\n",
        f'"grade";"pair";"doc_id";"query_id"\n 2 ;"{PAIR}";"d1";"q1"\n;;;\n',
        "query_id\tdoc_id\tgrade\nq1\td1\t2\nq1\td1\t\n",
        "\ufeffquery_id\tdoc_id\tgrade\n\nq1\td1\t2\n",
        "query_id\tdoc_id\tgrade\nq1\td1\t2\n".encode("utf-16"),
        '\ufeff\n{"query_id": "q1", "doc_id": "d1", "grade": "2"}\n\n',
        f'{{"pair": "{PAIR}", "query_id": "q1", "doc_id": "d1", "grade": 2, "more": []}}\n',
    ],
)
def test_files_saved_by_other_programs_read_back(tmp_path: Path, content: str | bytes) -> None:
    assert read_back(tmp_path, content) == [("q1", "d1", 2)]


def test_long_document_reads_back(tmp_path: Path) -> None:
    before = csv.field_size_limit(131_072)  # the usual one, whatever a reader of other files left
    try:
        assert read_back(tmp_path, pool_text([("q1", "d1")], "tsv", "x" * 200_000)) == [("q1", "d1", None)]
        assert csv.field_size_limit() == 131_072
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize("content", ["q1 0 d1 1\n", gzip.compress(b"q1 0 d1 1\n", mtime=0), ""])
def test_other_kinds_of_files_are_recognised(tmp_path: Path, content: str | bytes) -> None:
    assert read_back(tmp_path, content) is None


HEAD = "query_id\tdoc_id\tgrade\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (f"pair\t{HEAD}{pair_id('007', 'd1')}\t7\td1\t1\n", r"judged:2: query '7' and document 'd1' are not the pair"),
        (f"{HEAD}q1\td1\t1\nq1\td2\tyes\n", r"judged:3: grade 'yes' is not a whole number from 0 on"),
        (f"{HEAD}q1\td1\t-1\n", r"judged:2: grade '-1' is not a whole number"),
        (f"{HEAD}q1\td1\t1.0\n", r"judged:2: grade '1.0' is not a whole number"),
        (f"{HEAD}q1\td1\t1\nq1\td1\t2\n", r"judged:3: document 'd1' of query 'q1' has grade 2, and 1 in .*judged:2"),
        (f"{HEAD}q1\td1\n", r"judged:2: 2 fields, must be 3"),
        (f"{HEAD}\td1\t1\n", r"judged:2: .* an id is empty or has a blank"),
        (f"{HEAD}q 1\td1\t1\n", r"judged:2: .* an id is empty or has a blank"),
        (f'{HEAD}q1\t"d1\t1\n', r"judged:\d: not a table"),
        ('{"query_id": "q1", "doc_id": "d1", "grade": true}\n', r"judged:1: grade 'True'"),
        (f"{HEAD}#\tq\t1\n", r"judged:2: query '#', .*: a qrels line that begins with # is a comment"),
        ('{"query_id": " q", "doc_id": "d1", "grade": 1}\n', r"judged:1: .* an id is empty or has a blank"),
        ('{"query_id": "q", "doc_id": "\\ufeffd", "grade": 1}\n', r"judged:1: .* a byte order mark"),
        ('{"query_id": "q", "doc_id": "\\ud800", "grade": 1}\n', r"judged:1: .* half a character"),
        (f'{{"query_id": "q", "doc_id": "{"d" * 70_000}", "grade": 1}}\n', r"judged:1: .* more than 65,536 bytes"),
        ('{"query_id": null, "doc_id": "d1", "grade": 1}\n', r"judged:1: not JSON with .*query_id is not a text"),
        ('{"query_id": "q1", "doc_id": "d1"}\n', r"judged:1: not JSON with query_id, doc_id, grade"),
        ('{"query_id": "q1", "doc_id": "d1", "grade": 1}\n[]\n', r"judged:2: not JSON"),
        (b"query_id\tdoc_id\tgrade\n\xff\n", r"judged:2: byte 0xff is not UTF-8; save the file as UTF-8"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, content: str | bytes, why: str) -> None:
    with pytest.raises(FileError, match=why):
        read_back(tmp_path, content)


def test_a_missing_pool_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="none: this file does not exist"):
        read_graded_pool(tmp_path / "none")


def test_each_judgement_has_its_line_number(tmp_path: Path) -> None:
    (tmp_path / "judged").write_text(f"{HEAD}q1\td1\t1\nq1\td2\t\n")
    place = tmp_path / "judged"
    assert read_graded_pool(place) == (
        GradedPair(f"{place}:2", "q1", "d1", 1),
        GradedPair(f"{place}:3", "q1", "d2", None),
    )


@pytest.mark.slow
def test_file_of_grades_is_bounded(tmp_path: Path) -> None:
    with (tmp_path / "pool").open("wb") as file:
        file.truncate(1 << 33)
    with pytest.raises(FileError, match="has more than 134,217,728 bytes; name the file with the grades"):
        read_graded_pool(tmp_path / "pool")
