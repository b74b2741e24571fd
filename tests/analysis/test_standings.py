"""Ranks, and how far they hold."""

from __future__ import annotations

import numpy as np

from harness.analysis import dynascore, rank_stability
from harness.analysis.dynascore import Entry, Weighing
from harness.analysis.rank_stability import Span
from harness.analysis.resampling import Resampled

WEIGHING = Weighing({"accuracy": 0.5, "latency": 0.5}, frozenset(), given={"latency": 10.0})


def entry(system: str, accuracy: float, latency: float) -> Entry:
    return Entry(system, "p", system, accuracy, {"latency": latency, "cost": latency / 10})


def resampled(accuracy: list[list[float]], latency_s: list[list[float]]) -> Resampled:
    return Resampled(np.asarray(accuracy), np.asarray(latency_s))


def test_ranks_over_queries_follow_accuracy_and_latency() -> None:
    rows = [entry("a", 40, 10), entry("b", 39, 10), entry("c", 10, 10)]
    half = [[40.0, 39.0, 10.0]] * 50 + [[39.0, 40.0, 10.0]] * 50
    found = rank_stability.by_queries(rows, rank_stability.dynascores(WEIGHING), resampled(half, [[0.01] * 3] * 100))
    assert found == [Span(1, 2), Span(1, 2), Span(3, 3)]
    slow = [[0.01, 0.01, 0.01]] * 50 + [[0.03, 0.01, 0.01]] * 50  # a's mean is 20 ms, so it moves between 5 and 15 ms
    same = [[40.0, 39.9, 10.0]] * 100
    moved = rank_stability.by_queries(rows, rank_stability.dynascores(WEIGHING), resampled(same, slow))
    assert moved[:2] == [Span(1, 2), Span(1, 2)]


def test_a_cost_that_is_made_of_a_throughput_does_not_move_with_latency() -> None:
    by_cost = rank_stability.single("cost", higher=False)
    rows = [entry("a", 40, 10), entry("b", 39, 12)]
    slow = resampled([[40.0, 39.0]] * 100, [[0.01, 0.02]] * 50 + [[0.02, 0.01]] * 50)
    assert rank_stability.by_queries(rows, by_cost, slow) == [Span(1, 2), Span(1, 2)]
    assert rank_stability.by_queries(rows, by_cost, slow, ("latency",)) == [Span(1, 1), Span(2, 2)]


def test_a_rare_rank_is_no_part_of_the_95_percent() -> None:
    rows = [entry("a", 40, 10), entry("b", 39, 10)]
    rare = [[40.0, 39.0]] * 99 + [[38.0, 39.0]]
    found = rank_stability.by_queries(rows, rank_stability.dynascores(WEIGHING), resampled(rare, [[0.01, 0.01]] * 100))
    assert found == [Span(1, 1), Span(2, 2)]


def test_rows_without_latencies_by_query_keep_theirs() -> None:
    rows = [entry("a", 40, 10), entry("b", 39, 90)]
    nan = float("nan")
    found = rank_stability.by_queries(
        rows, rank_stability.dynascores(WEIGHING), resampled([[40.0, 39.0]] * 100, [[nan, nan]] * 100)
    )
    assert found == [Span(1, 1), Span(2, 2)]


def test_taking_a_system_out_moves_only_the_order_of_the_rest() -> None:
    rows = [entry("a", 40, 10), entry("b", 30, 10), entry("c", 20, 10)]
    fixed = rank_stability.without_each_system(rows, rank_stability.dynascores(WEIGHING))
    assert fixed == [Span(1, 1), Span(2, 2), Span(3, 3)]  # with fixed rates no one's score hangs on the others


def test_a_system_that_makes_the_rate_moves_others() -> None:
    free = Weighing({"accuracy": 0.5, "latency": 0.5}, frozenset())
    rows = [entry("a", 40, 120), entry("b", 30, 20), entry("c", 28, 10), entry("d", 41, 5000)]
    scores = rank_stability.dynascores(free)(rows)
    assert dynascore.ranks(scores) == [1, 3, 4, 2]
    # Without d a point of accuracy is worth few milliseconds, and a falls behind b and c.
    assert rank_stability.without_each_system(rows, rank_stability.dynascores(free))[:3] == [
        Span(1, 3),
        Span(2, 3),
        Span(3, 4),
    ]


def test_other_weights_move_what_they_favour() -> None:
    rows = [entry("good", 40, 300), entry("fast", 11, 10), entry("bad", 5, 500)]
    rates = dynascore.rates(rows, WEIGHING)
    assert [dynascore.score(row, WEIGHING, rates) for row in rows] == [5.0, 5.0, -22.5]
    assert rank_stability.under_other_weights(rows, WEIGHING, rates) == [Span(1, 2), Span(1, 2), Span(3, 3)]


def test_without_a_rate_there_are_no_ranks_and_it_says_so() -> None:
    free = Weighing({"accuracy": 0.5, "latency": 0.5}, frozenset())
    rows = [entry("a", 40, 10)]
    none = [Span(None, None, "no scores")]
    rates = dynascore.rates(rows, free)
    assert rank_stability.under_other_weights(rows, free, rates) == none
    assert rank_stability.without_each_system(rows, rank_stability.dynascores(free)) == none


def test_one_axis_alone_ranks_in_its_direction() -> None:
    rows = [entry("a", 40, 30), entry("b", 30, 20)]
    assert dynascore.ranks(rank_stability.single("latency", False)(rows)) == [2, 1]
    assert dynascore.ranks(rank_stability.single("accuracy", True)(rows)) == [1, 2]
