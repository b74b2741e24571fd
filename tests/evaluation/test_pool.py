"""A pool lists each unjudged pair once, in an order that no system, rank or score has a part in."""

from __future__ import annotations

import random

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.evaluation import judged_runs
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.pool import build_pool
from harness.evaluation.trec import Run

QUERIES = {"q1": "one", "q2": "two", "q3": "three"}
documents = st.lists(st.sampled_from([f"d{n}" for n in range(12)]), unique=True, max_size=8).map(tuple)
rankings = st.dictionaries(st.sampled_from(sorted(QUERIES)), documents)
QRELS = {"q1": {"d1": 1, "d2": 0}, "q2": {"d1": 2}}


def judged(*runs: dict[str, tuple[str, ...]], **changes: object) -> JudgedRuns:
    named = {f"s{number}": Run(run, ()) for number, run in enumerate(runs)}
    return JudgedRuns("set", QUERIES, QRELS, named, **changes)  # type: ignore[arg-type]


@given(st.lists(rankings, min_size=1, max_size=4), st.integers(1, 9), st.randoms(use_true_random=False))
def test_pool_order_does_not_reveal_systems(
    runs: list[dict[str, tuple[str, ...]]], depth: int, rng: random.Random
) -> None:
    made = build_pool([judged(*runs)], depth, seed=3)
    wanted = {(query, document) for run in runs for query, found in run.items() for document in found[:depth]}
    assert set(made.pairs) == {pair for pair in wanted if pair[1] not in QRELS.get(pair[0], {})}
    assert len(made.pairs) == len(set(made.pairs)), "each pair once"
    assert made.judged == len(wanted) - len(made.pairs)
    groups = [query for number, (query, _) in enumerate(made.pairs) if not number or made.pairs[number - 1][0] != query]
    assert len(groups) == len(set(groups)) == made.queries_to_judge, "a query's documents stand together"
    # Other systems, other ranks, other places among the runs: the same pairs are in the same order.
    shuffled = [
        {query: tuple(rng.sample(found[:depth], len(found[:depth]))) for query, found in run.items()} for run in runs
    ]
    rng.shuffle(shuffled)
    assert build_pool([judged(*shuffled)], depth, seed=3).pairs == made.pairs
    # One run less takes its own pairs away and moves no other.
    fewer = build_pool([judged(*runs[1:])], depth, seed=3).pairs
    assert [pair for pair in made.pairs if pair in set(fewer)] == list(fewer)


def test_the_seed_decides_the_order() -> None:
    runs = judged({query: tuple(f"d{n}" for n in range(3, 12)) for query in QUERIES})
    orders = {build_pool([runs], 9, seed=seed).pairs for seed in range(5)}
    assert len(orders) == 5 and len({frozenset(order) for order in orders}) == 1


def test_unjudged_hits_are_counted_for_each_system() -> None:
    found = build_pool([judged({"q1": ("d1", "d8", "d9"), "q3": ("d1",)}, {"q1": ("d2",)}, {})], 2, seed=1)
    counts = {name: (each.hits, each.unjudged, each.share) for name, each in found.systems}
    assert counts == {"s0": (3, 2, 0.75), "s1": (1, 0, 0.0), "s2": (0, 0, None)}


@given(rankings, st.integers(1, 9))
def test_share_is_one_minus_judged_of_ir_measures(run: dict[str, tuple[str, ...]], depth: int) -> None:
    judged_ones = [query for query in QRELS if run.get(query)]
    found = judged_runs.count_unjudged(Run(run, ()), QRELS, QRELS, depth)
    if not judged_ones:
        assert found.share is None
        return
    scores = {query: {document: float(-rank) for rank, document in enumerate(run[query])} for query in judged_ones}
    metrics = ir_measures.iter_calc([ir_measures.Judged @ depth], QRELS, scores)
    values = [metric.value for metric in metrics if metric.query_id in judged_ones]
    assert found.share == pytest.approx(1 - sum(values) / len(values))


def test_samples_of_one_collection_are_one_pool() -> None:
    one, other = judged({"q1": ("d5",)}), judged({"q1": ("d5",), "q2": ("d6",)})
    made = build_pool([one, other], 5, seed=1)
    assert set(made.pairs) == {("q1", "d5"), ("q2", "d6")}
    assert [name for name, _ in made.systems] == ["s0 (3 queries)", "s0 (3 queries)"]


def test_pool_without_queries_is_refused() -> None:
    with pytest.raises(UsageError, match="set: there are no queries to pool for; name them with --queries"):
        build_pool([JudgedRuns("set", {}, {}, {"s": Run({"q1": ("d1",)}, ())})], 5, seed=1)


def test_unpoolable_runs_are_refused() -> None:
    with pytest.raises(UsageError, match=r"runs of 2 collections \(set, set\): choose one with --only"):
        build_pool([judged({}, corpus_sha256="a"), judged({}, corpus_sha256="b")], 5, seed=1)
    with pytest.raises(UsageError, match="answers in the texts decide relevance"):
        build_pool([judged({}, hits_alone=True)], 5, seed=1)
