"""Recompute every printed Dynascore from the accuracies, latencies and costs that the paper prints."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.analysis import leaderboard, row_pricing
from harness.analysis import published as published_tables
from harness.analysis.leaderboard import Leaderboard, LeaderboardQuery, RankedRow
from harness.analysis.published import PaperDataset, Published, Scored, ScoreTable
from harness.analysis.table import Table
from harness.estimate import Estimate
from harness.pricing.prices import Snapshot


@dataclass(frozen=True)
class RecomputedScores:
    """A table of printed scores, and the leaderboard that follows from the printed figures by its weights and rates."""

    dataset: PaperDataset
    table: ScoreTable
    lines: tuple[Scored, ...]
    board: Leaderboard

    def pairs(self) -> list[tuple[Scored, RankedRow | None]]:
        """Return each printed line with its ranked row."""
        ranked = {(each.row.system, each.row.profile): each for each in self.board.ranked_rows}
        return [(line, ranked.get((line.system, profile(line)))) for line in self.lines]

    @property
    def largest_difference(self) -> float:
        """Return the largest distance of a score from the printed one."""
        scored = [(line, each.score) for line, each in self.pairs() if each is not None and each.score is not None]
        return max((abs(score - float(line.dynascore.value)) for line, score in scored), default=0.0)

    @property
    def other_ranks(self) -> int:
        """Return how many rows have another rank than printed."""
        return sum(each is None or each.rank != line.rank for line, each in self.pairs())


def recomputed_scores(published: Published, follows: Snapshot) -> tuple[RecomputedScores, ...]:
    """Recompute all scores from the accuracies, latencies and costs that the paper prints."""
    table = table_of_printed_costs(published, follows)
    found = []
    for dataset in published.about.datasets:
        for scored in dataset.scores if dataset.amrs else ():
            asked = LeaderboardQuery(dataset.name, "RR@10", weights=scored.weights, suite=published.about.name)
            board = leaderboard.build(table, {}, asked)
            found.append(RecomputedScores(dataset, scored, published.scores[scored.number], board))
    return tuple(found)


def table_of_printed_costs(published: Published, follows: Snapshot) -> Table:
    """Price Table 3 with its printed costs: the paper computed them from latencies before rounding."""
    table = row_pricing.price(published_tables.published_table(published, follows), row_pricing.tariff(follows))
    name = published.about.name
    printed = {
        f"{name}/table{dataset.table3}/{number}": Estimate(float(line.cost_usd_per_million.value))
        for dataset in published.about.datasets
        for number, line in enumerate(published.table3[dataset.name], start=1)
    }
    rows = (
        replace(row, cost=replace(row.cost, sequential=printed[row.key])) for row in table.rows if row.key in printed
    )
    return replace(table, rows=tuple(rows))


def profile(line: Scored) -> str:
    """Turn ``1 GPU, 16 CPU, 32 GB memory`` into the name of a hardware profile."""
    parts = {unit: count for count, unit in (words.split()[:2] for words in line.hardware.split(", "))}
    gpus = f"gpu{parts['GPU']}-" if "GPU" in parts else ""
    return f"{gpus}cpu{parts['CPU']}-mem{parts['GB']}"
