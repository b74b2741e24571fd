"""Comparison groups as a page's data: the facts that make rows comparable, and the data that ranks them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.analysis import axes, leaderboard, pareto_front
from harness.analysis.axes import ACCURACY, ComparisonGroup
from harness.analysis.pareto_front import Uncertainty
from harness.analysis.resampling import BETTER, EQUAL, WORSE
from harness.analysis.table import PublishedRates, Table
from harness.driver.records import digest
from harness.evaluation.per_query import PerQuery
from harness.report.groups import group_words
from harness.untrusted import one_line

_LARGEST = 2**16 - 1
# How a run's accuracy compares with another's: better, equal, worse; ``u``: undecided.
_LETTERS = {BETTER: "b", EQUAL: "e", WORSE: "w"}
# A page holds the first draws of a leaderboard's 1,000, and none for larger groups, so that its file stays small.
DRAWS, MOST_ROWS = 200, 1000
# A leaderboard's usual axes, in the order of the page's sliders; its cut-off is computed from the rows that have all.
WEIGHED = (ACCURACY, "cost", "latency")


@dataclass(frozen=True)
class RankingData:
    """Keys of the rows that are ranked, with their uncertainty, by group and measure; and published rates."""

    ranked: Mapping[tuple[ComparisonGroup, str], tuple[Sequence[str], Uncertainty]]
    rates: tuple[PublishedRates, ...] = ()


def ranking_data(table: Table, found: Mapping[str, PerQuery]) -> RankingData:
    """Return the data that a leaderboard of each comparison group ranks with, at this table's prices.

    Args:
        table: priced rows.
        found: values by query, by :attr:`harness.analysis.table.Row.per_query_key`.
    """
    known = {}
    for group, rows in axes.group_rows(table.rows).items():
        for measure in table.measures:
            needed = [axes.axis(name, measure) for name in WEIGHED]
            ranked = [row for row in rows if pareto_front.reason_not_ranked(row, needed) is None]
            # If no row has all of them, the accuracies can still be compared.
            ranked = ranked or [row for row in rows if pareto_front.reason_not_ranked(row, needed[:1]) is None]
            if ranked:
                uncertainty = pareto_front.uncertainty(ranked, found, measure, table.rounded_to)
                known[group, measure] = [row.per_query_key for row in ranked], uncertainty
    return RankingData(known, table.rates)


def group_id(group: ComparisonGroup) -> str:
    """Return a group's id: the same in every page of the same results, so that views stay valid."""
    return digest(json.dumps(group))[:8]


def group_record(
    group: ComparisonGroup,
    groups: Iterable[ComparisonGroup],
    measures: Sequence[str],
    rows: Mapping[str, int],
    ranking: RankingData,
) -> dict[str, Any]:
    """Return the record of a group.

    Args:
        group: the group.
        groups: all groups of the page.
        measures: names.
        rows: the numbers of rows, by :attr:`harness.analysis.table.Row.per_query_key`.
        ranking: the data that ranks the rows.
    """
    ranked = {name: ranking.ranked[group, name] for name in measures if (group, name) in ranking.ranked}
    resampled = {
        name: ([rows[key] for key in keys], known.resampled)
        for name, (keys, known) in ranked.items()
        if known.resampled is not None and len(keys) <= MOST_ROWS
    }
    return {
        "id": group_id(group),
        "dataset": one_line(group.dataset),
        "scenario": group.scenario,
        "label": one_line(", ".join(group_words(groups, shown=3)[group][1:])),
        "cutoffs": {name: known.cutoff for name, (_, known) in ranked.items()},
        "relations": {
            name: {
                "runs": {str(rows[key]): run for key, run in known.relations.group.items()},
                "pairs": "".join(_LETTERS.get(sign, "u") for sign in known.relations.signs.ravel().tolist()),
            }
            for name, (_, known) in ranked.items()
            if known.relations is not None
        },
        "resampled": {name: _packed(numbers, drawn.accuracy) for name, (numbers, drawn) in resampled.items()},
        "slower": next(
            (_packed(numbers, leaderboard.latency_factors(drawn)) for numbers, drawn in resampled.values()), None
        ),
        "rates": [
            {"source": one_line(rates.source), "measure": rates.measure, "values": dict(rates.values)}
            for rates in ranking.rates
            if (rates.dataset, rates.suite) == (group.dataset, group.suite) and rates.measure in measures
        ],
    }


def _packed(numbers: Sequence[int], values: NDArray[np.float64]) -> dict[str, Any]:
    """Return the first draws of each row as whole numbers of two bytes, in units of ``scale``.

    Accuracies are complete, and an unknown latency counts as unchanged.
    """
    columns = np.nan_to_num(values[:DRAWS])
    scale = float(columns.max(initial=0.0)) / _LARGEST or 1.0
    texts = (base64.b64encode(column.tobytes()).decode("ascii") for column in np.rint(columns / scale).astype("<u2").T)
    return {"scale": scale, "rows": dict(zip(map(str, numbers), texts, strict=True))}
