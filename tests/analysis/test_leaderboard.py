"""Which rows a leaderboard ranks, by what, and what it says of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.analysis import leaderboard, pareto_front
from harness.analysis.leaderboard import Asked, Bound, Leaderboard
from harness.analysis.pareto import State
from harness.analysis.table import Cause, Finding, Row, Table, Validity
from harness.errors import UnknownName, UsageError
from harness.evaluation.per_query import PerQuery
from harness.records import Isolation, Outcome
from harness.results.schema import Cell
from harness.stats import Estimate
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
    return [(each.rank, each.row.system) for each in board.standings]


def board(*rows: Row, **asked: Any) -> Leaderboard:
    return leaderboard.build(table(*rows), {}, Asked(rows[0].dataset, "RR@10", **{"amrs": AMRS, **asked}))


def test_systems_are_ranked_by_dynascore() -> None:
    found = board(row("a", 40, 100), row("b", 35, 20), row("c", 35, 10))
    assert ranked(found) == [(1, "a"), (2, "c"), (3, "b")]
    by_hand = 0.5 * 35 - 0.25 * 10 / 10 - 0.25 * 1 / 1
    assert next(each.score for each in found.standings if each.row.system == "c") == pytest.approx(by_hand)


def test_equal_scores_share_a_rank_and_stand_by_name() -> None:
    assert ranked(board(row("b", 40, 10), row("a", 40, 10), row("c", 10, 10))) == [(1, "a"), (1, "b"), (3, "c")]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"outcome": Outcome.OOM, "detail": "killed at 256 MiB"}, "oom: killed at 256 MiB"),
        ({"outcome": Outcome.TIMEOUT}, "timeout: no detail was stored"),
        (
            {
                "validity": Validity.INVALID,
                "findings": (Finding(Cause.SWAP, Validity.INVALID, "it swapped"),),
            },
            "invalid: it swapped",
        ),
        ({"measures": {"RR@10": Estimate(None, reason="no judgements")}}, "no RR@10: no judgements"),
        ({"latency_mean_s": Estimate(None, reason="lost")}, "no mean latency: lost"),
        ({"usd_per_million": Estimate(None, reason="no type")}, "no cost: no type"),
        ({"sample_sha256": "other"}, "not to be compared with the others: another query sample"),
        ({"isolation": Isolation.PROCESS}, "not to be compared with the others: another isolation"),
        ({"k": 100}, "not to be compared with the others: another number of hits asked for"),
    ],
)
def test_what_is_not_ranked_says_why(changes: dict[str, Any], reason: str) -> None:
    found = board(row("a", 40, 10), row("b", 30, 5), row("out", 99, 1, **changes))
    assert [each.row.system for each in found.standings] == ["a", "b"]
    assert [(each.row.system, each.reason) for each in found.left_out] == [("out", reason)]


def test_a_metric_without_weight_may_be_missing() -> None:
    priceless = row("b", 30, 5, usd_per_million=Estimate(None, reason="no type"))
    found = board(row("a", 40, 10), priceless, weights={"accuracy": 0.5, "latency": 0.5})
    assert [each.row.system for each in found.standings] == ["a", "b"]
    assert {each.row.system: each.state for each in found.standings} == {"a": State.FRONT, "b": None}


def test_thresholds_and_one_axis() -> None:
    rows = (
        row("a", 40, 100),
        row("b", 35, 20),
        row("c", 20, 10),
        row("d", 30, 51, latency_mean_s=Estimate(0.051, 0.049)),
    )
    found = board(*rows, bounds=(Bound("latency", at_most=50),), rank_by="accuracy")
    assert ranked(found) == [(1, "b"), (2, "c")] and found.rates == {}
    assert [(each.row.system, each.reason) for each in found.left_out] == [
        ("a", "mean latency 100 ms is above 50"),
        ("d", "mean latency 51 ms is above 50 (its interval reaches it)"),
    ]
    cheapest = board(*rows, bounds=(Bound("accuracy", at_least=30),), rank_by="latency")
    assert ranked(cheapest) == [(1, "b"), (2, "d"), (3, "a")]
    assert cheapest.left_out[0].reason == "RR@10 20 points is below 30"


def test_a_row_on_the_threshold_keeps_it() -> None:
    assert ranked(board(row("a", 40, 50), bounds=(Bound("latency", at_most=50),), rank_by="accuracy")) == [(1, "a")]


def test_unknown_names_are_refused_in_one_line() -> None:
    rows = (row("a", 40, 10),)
    with pytest.raises(UnknownName, match="unknown dataset 'scifac'; did you mean"):
        leaderboard.build(table(*rows), {}, Asked("scifac", "RR@10"))
    with pytest.raises(UnknownName, match="unknown axis 'speed'"):
        board(*rows, rank_by="speed")
    with pytest.raises(UnknownName, match="unknown measure"):
        leaderboard.build(table(*rows), {}, Asked(rows[0].dataset, "nDCG@10"))
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


def test_queries_say_how_far_ranks_hold() -> None:
    made, found = measured()
    by = leaderboard.build(made, found, Asked(made.rows[0].dataset, "RR@10", amrs=AMRS, rank_by="accuracy"))
    spans = {each.row.system: each.by_queries for each in by.standings}
    assert (spans["a"].best, spans["b"].best) == (1, 1) and spans["a"].worst == 2
    states = {each.row.system: each.state for each in by.standings}
    assert states["c"] is State.DOMINATED  # by a: worse on every query, and slower
    without = leaderboard.build(made, {}, Asked(made.rows[0].dataset, "RR@10", amrs=AMRS))
    assert {each.by_queries.reason for each in without.standings} == {"no samples by query"}
    assert by.cutoff > 0 and without.cutoff == 0


def test_published_rows_are_as_sure_as_they_are_rounded() -> None:
    rows = (row("a", 40, 10), row("b", 30, 5))
    found = leaderboard.build(table(*rows, rounded_to={"RR@10": 0.001}), {}, Asked(rows[0].dataset, "RR@10"))
    assert found.cutoff == pytest.approx(0.1)


def test_contested_cells_are_named() -> None:
    rows = (
        row("a", 40, 10, measures={"RR@10": Estimate(0.40, 0.35, 0.45)}),
        row("b", 39, 20, measures={"RR@10": Estimate(0.39, 0.34, 0.44)}),
        row("c", 10, 90, measures={"RR@10": Estimate(0.10, 0.09, 0.11)}),
        row("bad", 39, 20, outcome=Outcome.OOM),
    )
    b = rows[1]
    assert pareto_front.contested(table(*rows), {}, "RR@10") == {Cell(b.suite, "b", b.dataset, b.scenario, b.profile)}


def test_the_set_of_systems_is_told() -> None:
    assert board(row("b", 40, 10), row("a", 30, 5), replace(row("a", 30, 5), profile="p2")).systems == ("a", "b")
