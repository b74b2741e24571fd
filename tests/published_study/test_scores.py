"""All 208 Dynascores follow from Tables 3a to 3c and the paper's exchange rates, row by row and rank by rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.analysis import leaderboard, row_pricing
from harness.analysis import published as published_tables
from harness.analysis.leaderboard import Leaderboard, LeaderboardQuery
from harness.analysis.published import PaperDataset, Published, ScoreTable
from harness.analysis.table import Table
from harness.estimate import Estimate
from harness.pricing.prices import Snapshot
from results.published.santhanam2023.study.scores import profile
from tests.support import sample_records
from tests.support.published import shipped

RATES = {"msmarco": {"latency": 33.0507, "cost": 10.4392}, "xortydi": {"latency": 18.1102, "cost": 35.1647}}
# The accuracies that the printed scores imply; the paper prints them to one digit.
SYSTEMS = ("BM25", "DPR", "BT-SPLADE-L", "S", "M", "L")
UNROUNDED = {
    "msmarco": dict(zip(SYSTEMS, (18.70, 31.70, 38.03, 39.40, 39.69, 39.68), strict=True)),
    "xortydi": dict(zip(SYSTEMS, (26.34, 16.90, 43.53, 41.79, 45.43, 47.44), strict=True)),
}


@pytest.fixture(scope="module")
def table(published: Published, follows: Snapshot) -> Table:
    return row_pricing.price(published_tables.published_table(published, follows), row_pricing.tariff(follows))


def printed_costs(table: Table, published: Published, dataset: str) -> Table:
    """Costs as the paper prints them: they were made of latencies that it rounds."""
    lines = iter(published.table3[dataset])
    rows = [
        sample_records.row_with(row, usd_per_million=Estimate(float(next(lines).cost_usd_per_million.value)))
        for row in table.rows
        if (row.dataset, row.suite) == (dataset, "santhanam2023")
    ]
    return replace(table, rows=tuple(rows))


def unrounded(table: Table, dataset: str) -> Table:
    known = UNROUNDED[dataset]
    rows = [
        replace(row, measures={"RR@10": Estimate(known[row.system.removeprefix("ColBERTv2-")] / 100)})
        for row in table.rows
    ]
    return replace(table, rows=tuple(rows))


def scores(board: Leaderboard) -> dict[tuple[str, str], float]:
    return {(each.row.system, each.row.profile): each.score for each in board.ranked_rows if each.score is not None}


EACH = [(dataset, table) for dataset in shipped().about.datasets for table in dataset.scores]
IDS = [table.number for _, table in EACH]


def board_of(table: Table, dataset: PaperDataset, scored: ScoreTable) -> Leaderboard:
    """By the paper's weights and, as nothing else is asked for, its rates."""
    board = leaderboard.build(table, {}, LeaderboardQuery(dataset.name, "RR@10", weights=scored.weights))
    assert {name: rate.value for name, rate in board.rates.items()} == RATES[dataset.name]
    return board


def test_208_scores_are_shipped_and_their_weights_are_presets(published: Published) -> None:
    assert sum(len(published.scores[table.number]) for _, table in EACH) == 208
    assert [(table.number, table.again) for _, table in EACH if table.again] == [("4a", "7a"), ("4b", "8a")]
    weights = [preset.weights for preset in leaderboard.PRESETS]
    for dataset in published.about.datasets:
        assert [table.weights for table in dataset.scores] == weights


@pytest.mark.parametrize(("dataset", "scored"), EACH, ids=IDS)
def test_every_score_follows_from_table_3(
    published: Published, table: Table, dataset: PaperDataset, scored: ScoreTable
) -> None:
    found = scores(board_of(printed_costs(table, published, dataset.name), dataset, scored))
    # Accuracies are printed to one digit: half of it, times its weight, and as much again for latency and cost.
    most = 0.05 * scored.weights["accuracy"] + 0.005
    for line in published.scores[scored.number]:
        assert found[line.system, profile(line)] == pytest.approx(float(line.dynascore.value), abs=most), line


@pytest.mark.parametrize(("dataset", "scored"), EACH, ids=IDS)
def test_with_unrounded_accuracies_every_score_and_rank_agrees(
    published: Published, table: Table, dataset: PaperDataset, scored: ScoreTable
) -> None:
    exact = unrounded(printed_costs(table, published, dataset.name), dataset.name)
    board = board_of(exact, dataset, scored)
    ranked = {(each.row.system, each.row.profile): each for each in board.ranked_rows}
    lines = published.scores[scored.number]
    assert len(lines) == len(ranked) and not board.left_out
    for line in lines:
        found = ranked[line.system, profile(line)]
        assert found.score == pytest.approx(float(line.dynascore.value), abs=0.001), line
        assert found.rank == line.rank, line


@pytest.mark.parametrize(("dataset", "off", "ranks"), [("msmarco", 0.034, 2), ("xortydi", 0.027, 0)])
def test_scores_of_recomputed_costs_differ_as_documented(
    published: Published, table: Table, dataset: str, off: float, ranks: int
) -> None:
    board = leaderboard.build(table, {}, LeaderboardQuery(dataset, "RR@10"))
    found = {(each.row.system, each.row.profile): each for each in board.ranked_rows}
    number = {"msmarco": "4a", "xortydi": "4b"}[dataset]
    pairs = [(found[line.system, profile(line)], line) for line in published.scores[number]]
    farthest = max(abs((one.score or 0) - float(line.dynascore.value)) for one, line in pairs)
    assert off - 0.001 < farthest <= off
    assert sum(one.rank != line.rank for one, line in pairs) == ranks


@pytest.mark.parametrize(
    "asked",
    [{"mode": "reference"}, {"mode": "robust"}, {"measure": "Success@10"}, {"rank_by": "cost"}],
    ids=lambda asked: next(iter(asked)),
)
def test_other_rates_are_computed_where_they_are_asked_for(table: Table, asked: dict[str, str]) -> None:
    board = leaderboard.build(table, {}, LeaderboardQuery("msmarco", **{"measure": "RR@10", **asked}))
    assert board.rates_source is None
    assert all(rate.value not in RATES["msmarco"].values() for rate in board.rates.values())


def test_given_rates_win_over_the_papers(table: Table) -> None:
    board = leaderboard.build(table, {}, LeaderboardQuery("msmarco", "RR@10", amrs={"cost": 1.0}))
    assert board.rates_source is None and board.rates["cost"].value == 1.0
    assert board.rates["latency"].value != RATES["msmarco"]["latency"]


def test_rates_are_not_of_another_table(table: Table) -> None:
    board = leaderboard.build(table, {}, LeaderboardQuery("msmarco", "RR@10", suite="santhanam2023-table2"))
    assert board.rates_source is None
