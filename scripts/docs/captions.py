"""Texts that stand for the pictures of published results: each is made of the rows that its picture shows."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path

from harness.analysis import leaderboard, results_folder, row_pricing
from harness.analysis import published as published_tables
from harness.analysis.leaderboard import Leaderboard, LeaderboardQuery
from harness.analysis.pareto_front import FrontState
from harness.analysis.published import Published
from harness.analysis.table import Row, Table, processors
from harness.config import published_folder
from results.published.santhanam2023.study.statements import winning_regions, winning_shares

MEASURE = "RR@10"
# A picture of docs/ in Markdown: its text, its folder and its name.
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([\w./]*assets/)([\w-]+)\.png\)")
_MOST_NAMED = 3


def priced() -> tuple[Published, Table]:
    """Return the published tables of Santhanam et al. 2023 and their rows at the paper's prices."""
    folder = published_folder() / "santhanam2023"
    paper = published_tables.read(folder)
    return paper, row_pricing.price(results_folder.read(folder).table, row_pricing.tariff(paper.follows()))


@functools.cache
def captions() -> dict[str, str]:
    """Return the text of each picture of :mod:`scripts.docs.make_pictures` that shows published rows."""
    paper, table = priced()
    first, second = paper.about.datasets
    name = paper.about.name
    return {
        f"{first.name}-{name}-table2-cost": "Figure 1 of the paper, cost (Table 2) and accuracy (Table 1) on MS MARCO: "
        + _front(table, first.name, f"{name}-table2"),
        f"{first.name}-{name}-cost": f"Cost and accuracy on {first.label} (Table 3a): "
        + _front(table, first.name, name),
        f"{second.name}-cost": f"Cost and accuracy on {second.label} (Table 3b): " + _front(table, second.name, name),
        f"{first.name}-{name}-winners": f"Figure 2 of the paper, the weightings that each row wins on {first.label}: "
        + _winners(table, first.name, name),
        f"{second.name}-winners": f"Figure 2 of the paper, the weightings that each row wins on {second.label}: "
        + _winners(table, second.name, name),
        f"{second.name}-ranks": f"Ranks on {second.label}, and how far they move without each system and under other"
        " weights: " + _ranks(table, second.name, name),
        f"{first.name}-{name}-instances": f"Cost by instance type on {first.label}",
    }


def _board(table: Table, dataset: str, suite: str) -> Leaderboard:
    return leaderboard.build(table, {}, LeaderboardQuery(dataset, MEASURE, suite=suite))


def _front(table: Table, dataset: str, suite: str) -> str:
    """Name the systems of the Pareto front from the cheapest to the most accurate."""
    asked = LeaderboardQuery(dataset, MEASURE, suite=suite, rank_by="cost", front=("accuracy", "cost"))
    board = leaderboard.build(table, {}, asked)
    on_front = [each for each in board.ranked_rows if each.state is FrontState.FRONT]
    on_front.sort(key=lambda each: each.figures["cost"].value or 0.0)
    systems = list(dict.fromkeys(each.row.system for each in on_front))
    return f"the Pareto front goes from {systems[0]}, the cheapest, {_listed(systems[1:])}"


def _listed(systems: Sequence[str]) -> str:
    *others, last = systems
    return f"through {', '.join(others)} to {last}" if others else f"to {last}"


def _winners(table: Table, dataset: str, suite: str) -> str:
    """Name the systems that win most weightings, with their shares over all hardware."""
    regions = winning_regions(_board(table, dataset, suite))
    shares = sorted(winning_shares(regions).items(), key=lambda item: -item[1])
    return ", ".join(f"{system} {share:.0%}" for system, share in shares[:_MOST_NAMED])


def _ranks(table: Table, dataset: str, suite: str) -> str:
    first, second, *_ = (each.row for each in _board(table, dataset, suite).ranked_rows)
    return f"{_where(first)} is first, {_where(second)} second"


def _where(row: Row) -> str:
    return f"{row.system} on {processors(row.cpus, row.gpus)}"


def with_captions(page: Path) -> str:
    """Return a page with the texts of the pictures that it shows."""
    texts = captions()

    def captioned(match: re.Match[str]) -> str:
        text, folder, name = match.groups()
        return f"![{texts.get(name, text)}]({folder}{name}.png)"

    return _PICTURE.sub(captioned, page.read_text(encoding="utf-8"))
