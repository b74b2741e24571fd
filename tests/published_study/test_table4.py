"""Tables 4a and 4b follow from Tables 3a to 3c and the paper's exchange rates, row by row and rank by rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.analysis import leaderboard, row_pricing
from harness.analysis import published as published_tables
from harness.analysis.leaderboard import Leaderboard, LeaderboardQuery
from harness.analysis.published import Published, Scored
from harness.analysis.table import Table
from harness.pricing.prices import Snapshot
from harness.stats import Estimate

RATES = {
    "msmarco": {"latency": 33.0507, "cost": 10.4392},
    "xortydi": {"latency": 18.1102, "cost": 35.1647},
}
# The accuracies that the printed scores imply; the paper prints them to one digit.
SYSTEMS = ("BM25", "DPR", "BT-SPLADE-L", "S", "M", "L")
UNROUNDED = {
    "msmarco": dict(zip(SYSTEMS, (18.70, 31.70, 38.03, 39.40, 39.69, 39.68), strict=True)),
    "xortydi": dict(zip(SYSTEMS, (26.34, 16.90, 43.53, 41.79, 45.43, 47.44), strict=True)),
}
DATASETS = tuple(RATES)


@pytest.fixture(scope="module")
def table(published: Published, follows: Snapshot) -> Table:
    return row_pricing.price(published_tables.published_table(published, follows), row_pricing.tariff(follows))


def printed_costs(table: Table, published: Published, dataset: str) -> Table:
    """Costs as the paper prints them: they were made of latencies that it rounds."""
    lines = iter(published.table3[dataset])
    rows = [
        replace(row, usd_per_million=Estimate(float(next(lines).cost_usd_per_million.value)))
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


def profile(line: Scored) -> str:
    """``1 GPU, 16 CPU, 32 GB memory`` as a hardware profile is named."""
    parts = {words.split()[1]: words.split()[0] for words in line.hardware.split(", ")}
    gpus = f"gpu{parts['GPU']}-" if "GPU" in parts else ""
    return f"{gpus}cpu{parts['CPU']}-mem{parts['GB']}"


def each_row() -> list[tuple[str, int]]:
    return [(dataset, place) for dataset, count in (("msmarco", 28), ("xortydi", 24)) for place in range(count)]


@pytest.mark.parametrize(("dataset", "place"), each_row())
def test_every_score_follows_from_table_3(published: Published, table: Table, dataset: str, place: int) -> None:
    line = published.table4[dataset][place]
    board = leaderboard.build(
        printed_costs(table, published, dataset), {}, LeaderboardQuery(dataset, "RR@10", amrs=RATES[dataset])
    )
    assert scores(board)[line.system, profile(line)] == pytest.approx(float(line.dynascore.value), abs=0.025)


@pytest.mark.parametrize(("dataset", "off", "ranks"), [("msmarco", 0.034, 2), ("xortydi", 0.027, 0)])
def test_scores_of_recomputed_costs_differ_as_documented(
    published: Published, table: Table, dataset: str, off: float, ranks: int
) -> None:
    board = leaderboard.build(table, {}, LeaderboardQuery(dataset, "RR@10", amrs=RATES[dataset]))
    found = {(each.row.system, each.row.profile): each for each in board.ranked_rows}
    pairs = [(found[line.system, profile(line)], line) for line in published.table4[dataset]]
    farthest = max(abs((one.score or 0) - float(line.dynascore.value)) for one, line in pairs)
    assert off - 0.001 < farthest <= off
    assert sum(one.rank != line.rank for one, line in pairs) == ranks


@pytest.mark.parametrize(("dataset", "place"), each_row())
def test_with_unrounded_accuracies_scores_and_ranks_agree(
    published: Published, table: Table, dataset: str, place: int
) -> None:
    line = published.table4[dataset][place]
    exact = unrounded(printed_costs(table, published, dataset), dataset)
    board = leaderboard.build(exact, {}, LeaderboardQuery(dataset, "RR@10", amrs=RATES[dataset]))
    standing = next(
        each for each in board.ranked_rows if (each.row.system, each.row.profile) == (line.system, profile(line))
    )
    assert standing.score == pytest.approx(float(line.dynascore.value), abs=0.001)
    assert standing.rank == line.rank


def test_table_4_has_exactly_the_ranked_rows(published: Published, table: Table) -> None:
    for dataset in DATASETS:
        board = leaderboard.build(
            table, {}, LeaderboardQuery(dataset, "RR@10", amrs=RATES[dataset], suite="santhanam2023")
        )
        printed = {(line.system, profile(line)) for line in published.table4[dataset]}
        assert {(each.row.system, each.row.profile) for each in board.ranked_rows} == printed
        assert not board.left_out
