"""Ranked rows of a leaderboard, and the reasons for excluded ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness import stats
from harness.analysis import dynascore, leaderboard, pareto_front
from harness.analysis.dynascore import DynascoreOptions, Entry
from harness.analysis.leaderboard import Bound, Leaderboard, LeaderboardQuery, RankInterval
from harness.analysis.pareto_front import FrontState
from harness.analysis.resampling import Resampled
from harness.analysis.table import Cause, Finding, Row, Table, Validity
from harness.driver.records import Outcome
from harness.errors import UnknownName, UsageError
from harness.estimate import Estimate
from harness.evaluation.per_query import PerQuery
from harness.report.leaderboard import leaderboard_document
from harness.results.isolation import PROCESS
from harness.results.schema import Cell
from tests.support import sample_records

IDS = tuple(f"q{number:03}" for number in range(60))
AMRS = {"latency": 10.0, "cost": 1.0}


def row(system: str, accuracy: float, latency_ms: float, cost: float = 1.0, **changes: Any) -> Row:
    fields = {
        "system": system,
        "key": f"{system}-key",
        "measures": {"RR@10": Estimate(accuracy / 100)},
        "latency_mean_s": Estimate(latency_ms / 1e3),
        "usd_per_million": Estimate(cost),
        "profile": "cpu1-mem1",
    }
    return sample_records.row(**{**fields, **changes})


def table(*rows: Row, **changes: Any) -> Table:
    return sample_records.table(rows, **changes)


def ranked(board: Leaderboard) -> list[tuple[int | None, str]]:
    return [(each.rank, each.row.system) for each in board.ranked_rows]


def board(*rows: Row, **asked: Any) -> Leaderboard:
    return leaderboard.build(table(*rows), {}, LeaderboardQuery(rows[0].dataset, "RR@10", **{"amrs": AMRS, **asked}))


def test_systems_are_ranked_by_dynascore() -> None:
    found = board(row("a", 40, 100), row("b", 35, 20), row("c", 35, 10))
    assert ranked(found) == [(1, "a"), (2, "c"), (3, "b")]
    by_hand = 0.5 * 35 - 0.25 * 10 / 10 - 0.25 * 1 / 1
    assert next(each.score for each in found.ranked_rows if each.row.system == "c") == pytest.approx(by_hand)


def test_cost_on_another_architecture_is_marked() -> None:
    price = sample_records.price("a1.medium", 0.0255, 1, 2**31)
    same = replace(price, instance_type="c7a.medium", architecture="x86_64")
    machine = sample_records.MACHINE
    found = board(row("a", 40, 10, price=price, machine=machine), row("b", 30, 10, price=same, machine=machine))
    answer = leaderboard_document(found).answer
    assert answer is not None
    (section,) = answer(str)
    (grid,) = section.grids
    shown = grid.headers.index("US$/1M queries")
    assert [cells[shown] for cells in grid.cells] == ["1.00 (arm64)", "1.00"]


def test_equal_scores_share_a_rank_and_are_sorted_by_name() -> None:
    assert ranked(board(row("b", 40, 10), row("a", 40, 10), row("c", 10, 10))) == [(1, "a"), (1, "b"), (3, "c")]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"outcome": Outcome.OOM, "detail": "killed at 256 MiB"}, "oom: killed at 256 MiB"),
        ({"outcome": Outcome.TIMEOUT}, "timeout: no detail was stored"),
        (
            {"validity": Validity.INVALID, "findings": (Finding(Cause.SWAP, Validity.INVALID, "it swapped"),)},
            "invalid: it swapped",
        ),
        ({"measures": {"RR@10": Estimate(None, reason="no judgements")}}, "no RR@10: no judgements"),
        ({"latency_mean_s": Estimate(None, reason="lost")}, "no mean latency: lost"),
        ({"usd_per_million": Estimate(None, reason="no type")}, "no cost: no type"),
        ({"sample_sha256": "other"}, "not to be compared with the others: another query sample"),
        ({"isolation": PROCESS}, "not to be compared with the others: another isolation"),
        ({"k": 100}, "not to be compared with the others: another number of hits asked for"),
    ],
)
def test_excluded_rows_have_a_reason(changes: dict[str, Any], reason: str) -> None:
    found = board(row("a", 40, 10), row("b", 30, 5), row("out", 99, 1, **changes))
    assert [each.row.system for each in found.ranked_rows] == ["a", "b"]
    assert [(row.system, reason) for row, reason in found.left_out] == [("out", reason)]


def test_metric_without_weight_may_be_missing() -> None:
    priceless = row("b", 30, 5, usd_per_million=Estimate(None, reason="no type"))
    found = board(row("a", 40, 10), priceless, weights={"accuracy": 0.5, "latency": 0.5})
    assert [each.row.system for each in found.ranked_rows] == ["a", "b"]
    assert {each.row.system: each.state for each in found.ranked_rows} == {"a": FrontState.FRONT, "b": None}


def test_thresholds_and_a_single_axis() -> None:
    rows = (
        row("a", 40, 100),
        row("b", 35, 20),
        row("c", 20, 10),
        row("d", 30, 51, latency_mean_s=Estimate(0.051, 0.049)),
    )
    found = board(*rows, bounds=(Bound("latency", at_most=50),), rank_by="accuracy")
    assert ranked(found) == [(1, "b"), (2, "c")] and found.rates == {}
    assert [(row.system, reason) for row, reason in found.left_out] == [
        ("a", "mean latency 100 ms is above 50"),
        ("d", "mean latency 51 ms is above 50"),
    ]
    cheapest = board(*rows, bounds=(Bound("accuracy", at_least=30),), rank_by="latency")
    assert ranked(cheapest) == [(1, "b"), (2, "d"), (3, "a")]
    assert cheapest.left_out[0][1] == "RR@10 20 points is below 30"


def test_row_on_the_threshold_is_within_it() -> None:
    assert ranked(board(row("a", 40, 50), bounds=(Bound("latency", at_most=50),), rank_by="accuracy")) == [(1, "a")]


def test_unknown_names_are_refused_in_one_line() -> None:
    rows = (row("a", 40, 10),)
    with pytest.raises(UnknownName, match=r"unknown dataset 'scifac'. Did you mean"):
        leaderboard.build(table(*rows), {}, LeaderboardQuery("scifac", "RR@10"))
    with pytest.raises(UnknownName, match="unknown axis 'speed'"):
        board(*rows, rank_by="speed")
    with pytest.raises(UnknownName, match="unknown measure"):
        leaderboard.build(table(*rows), {}, LeaderboardQuery(rows[0].dataset, "nDCG@10"))
    with pytest.raises(UsageError, match="can be ranked; b: oom: no detail"):
        board(row("b", 40, 10, outcome=Outcome.OOM))
    with pytest.raises(UsageError, match="suite and scenario"):
        board(*rows, suite="other")


def per_query(key: str, accuracy: np.ndarray, latency_s: float = 0.01) -> PerQuery:
    return PerQuery(key, IDS, np.full(len(IDS), latency_s), {"RR@10": accuracy})


def measured() -> tuple[Table, dict[str, PerQuery]]:
    rng = np.random.default_rng(1)
    hard = rng.uniform(0.2, 0.8, len(IDS))
    values = {"a": hard, "b": hard + rng.normal(0, 0.3, len(IDS)), "c": hard - 0.1}
    rows = [row(name, 100 * float(each.mean()), 10 + 5 * place) for place, (name, each) in enumerate(values.items())]
    return table(*rows), {f"{name}-key": per_query(f"{name}-key", each) for name, each in values.items()}


def test_resampled_queries_give_rank_intervals() -> None:
    made, found = measured()
    by = leaderboard.build(made, found, LeaderboardQuery(made.rows[0].dataset, "RR@10", amrs=AMRS, rank_by="accuracy"))
    spans = {each.row.system: each.by_queries for each in by.ranked_rows}
    assert (spans["a"].best, spans["b"].best) == (1, 1) and spans["a"].worst == 2
    states = {each.row.system: each.state for each in by.ranked_rows}
    assert states["c"] is FrontState.DOMINATED  # by a: worse on every query, and slower
    without = leaderboard.build(made, {}, LeaderboardQuery(made.rows[0].dataset, "RR@10", amrs=AMRS))
    assert {each.by_queries.reason for each in without.ranked_rows} == {"no samples by query"}
    assert by.cutoff > 0 and without.cutoff == 0


def test_cutoff_of_published_rows_is_their_rounding() -> None:
    rows = (row("a", 40, 10), row("b", 30, 5))
    found = leaderboard.build(table(*rows, rounded_to={"RR@10": 0.001}), {}, LeaderboardQuery(rows[0].dataset, "RR@10"))
    assert found.cutoff == pytest.approx(0.1)


def test_contested_cells_are_named() -> None:
    rows = (
        row("a", 40, 10, measures={"RR@10": Estimate(0.40, 0.35, 0.45)}),
        row("b", 39, 20, measures={"RR@10": Estimate(0.39, 0.34, 0.44)}),
        row("c", 10, 90, measures={"RR@10": Estimate(0.10, 0.09, 0.11)}),
        row("bad", 39, 20, outcome=Outcome.OOM),
    )
    b = rows[1]
    assert pareto_front.contested_cells(table(*rows), {}, "RR@10") == {
        Cell(b.suite, "b", b.dataset, b.scenario, b.profile)
    }


WEIGHING = DynascoreOptions({"accuracy": 0.5, "latency": 0.5}, frozenset(), given={"latency": 10.0})
BY_SCORE = leaderboard.dynascore_scorer(WEIGHING)


def spans(*ends: tuple[int, int]) -> list[RankInterval]:
    return [RankInterval(*each) for each in ends]


def entry(system: str, accuracy: float, latency: float) -> Entry:
    return Entry(system, "p", system, accuracy, {"latency": latency, "cost": latency / 10})


def resampled(accuracy: list[list[float]], latency_s: list[list[float]]) -> Resampled:
    return Resampled(np.asarray(accuracy), np.asarray(latency_s))


def test_ranks_over_queries_follow_accuracy_and_latency() -> None:
    rows = [entry("a", 40, 10), entry("b", 39, 10), entry("c", 10, 10)]
    half = [[40.0, 39.0, 10.0]] * 50 + [[39.0, 40.0, 10.0]] * 50
    found = leaderboard.intervals_by_queries(rows, BY_SCORE, resampled(half, [[0.01] * 3] * 100))
    assert found == spans((1, 2), (1, 2), (3, 3))
    slow = [[0.01, 0.01, 0.01]] * 50 + [[0.03, 0.01, 0.01]] * 50  # a's mean is 20 ms, so it moves between 5 and 15 ms
    same = [[40.0, 39.9, 10.0]] * 100
    moved = leaderboard.intervals_by_queries(rows, BY_SCORE, resampled(same, slow))
    assert moved[:2] == spans((1, 2), (1, 2))


def test_cost_from_throughput_does_not_change_with_latency() -> None:
    by_cost = leaderboard.axis_scorer("cost", higher=False)
    rows = [entry("a", 40, 10), entry("b", 39, 12)]
    slow = resampled([[40.0, 39.0]] * 100, [[0.01, 0.02]] * 50 + [[0.02, 0.01]] * 50)
    assert leaderboard.intervals_by_queries(rows, by_cost, slow) == spans((1, 2), (1, 2))
    assert leaderboard.intervals_by_queries(rows, by_cost, slow, ("latency",)) == spans((1, 1), (2, 2))


def test_rare_rank_is_outside_the_95_percent() -> None:
    rows = [entry("a", 40, 10), entry("b", 39, 10)]
    rare = [[40.0, 39.0]] * 99 + [[38.0, 39.0]]
    found = leaderboard.intervals_by_queries(rows, BY_SCORE, resampled(rare, [[0.01, 0.01]] * 100))
    assert found == spans((1, 1), (2, 2))


def test_rows_without_latencies_by_query_keep_their_latency() -> None:
    rows = [entry("a", 40, 10), entry("b", 39, 90)]
    nan = float("nan")
    found = leaderboard.intervals_by_queries(rows, BY_SCORE, resampled([[40.0, 39.0]] * 100, [[nan, nan]] * 100))
    assert found == spans((1, 1), (2, 2))


def test_removing_a_system_changes_only_the_order_of_the_rest() -> None:
    rows = [entry("a", 40, 10), entry("b", 30, 10), entry("c", 20, 10)]
    fixed = leaderboard.intervals_by_systems(rows, BY_SCORE)
    assert fixed == spans((1, 1), (2, 2), (3, 3))  # with fixed rates no one's score hangs on the others


def test_removing_the_system_that_sets_the_rate_reorders_others() -> None:
    free = DynascoreOptions({"accuracy": 0.5, "latency": 0.5}, frozenset())
    rows = [entry("a", 40, 120), entry("b", 30, 20), entry("c", 28, 10), entry("d", 41, 5000)]
    scores = leaderboard.dynascore_scorer(free)(rows)
    assert stats.competition_ranks(scores, descending=True) == [1, 3, 4, 2]
    # Without d a point of accuracy is worth few milliseconds, and a falls behind b and c.
    assert leaderboard.intervals_by_systems(rows, leaderboard.dynascore_scorer(free))[:3] == spans(
        (1, 3), (2, 3), (3, 4)
    )


def test_other_weights_raise_the_rows_that_they_favour() -> None:
    rows = [entry("good", 40, 300), entry("fast", 11, 10), entry("bad", 5, 500)]
    rates = dynascore.rates(rows, WEIGHING)
    assert [dynascore.score(row, WEIGHING, rates) for row in rows] == [5.0, 5.0, -22.5]
    assert leaderboard.intervals_by_weights(rows, WEIGHING, rates) == spans((1, 2), (1, 2), (3, 3))


def test_ranks_are_missing_with_a_reason_without_a_rate() -> None:
    free = DynascoreOptions({"accuracy": 0.5, "latency": 0.5}, frozenset())
    rows = [entry("a", 40, 10)]
    none = [RankInterval(None, None, "no scores")]
    rates = dynascore.rates(rows, free)
    assert leaderboard.intervals_by_weights(rows, free, rates) == none
    assert leaderboard.intervals_by_systems(rows, leaderboard.dynascore_scorer(free)) == none
