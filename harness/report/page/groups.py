"""Comparison groups as a page's data: what rows have in common to be compared, and what they are weighed with."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.analysis import axes, leaderboard, pareto_front
from harness.analysis.axes import ACCURACY, ComparisonGroup
from harness.analysis.leaderboard import PRESETS
from harness.analysis.resampling import BETTER, EQUAL, WORSE, PairedSigns
from harness.analysis.table import Row, Table
from harness.evaluation.per_query import PerQuery
from harness.records import digest
from harness.untrusted import one_line

_LARGEST = 2**16 - 1


@dataclass(frozen=True)
class AccuracyRelation:
    """Comparisons of the accuracies of runs, pair by pair.

    ``runs`` gives the number of a row's run by :func:`harness.evaluation.per_query.per_query_key`.  ``pairs`` has
    ``b`` (better), ``w`` (worse), ``e`` (equal) or ``u`` (undecided) for the first against the second, at
    first x runs + second.
    """

    runs: Mapping[str, int]
    pairs: str


@dataclass(frozen=True)
class Draws:
    """Values of each row over resampled queries, by the row's key, each of shape (draws,)."""

    values: Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True)
class PublishedRates:
    """Exchange rates (AMRS) that somebody published: units of each metric for a point of ``measure``."""

    name: str
    dataset: str
    measure: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class RankingData:
    """Data that rankings need beside the rows.

    ``presets`` are weights by name; ``cutoffs`` the robust mode's, in points, by group and measure; ``relations``
    the comparisons of accuracies, by group and measure; ``resampled`` accuracies (points) over resampled queries, by
    group and measure; ``slower`` the latency of a row over the same resamples, as a multiple of its mean.
    """

    presets: tuple[tuple[str, Mapping[str, float]], ...]
    cutoffs: Mapping[tuple[ComparisonGroup, str], float] = field(default_factory=dict)
    relations: Mapping[tuple[ComparisonGroup, str], AccuracyRelation] = field(default_factory=dict)
    resampled: Mapping[tuple[ComparisonGroup, str], Draws] = field(default_factory=dict)
    slower: Mapping[ComparisonGroup, Draws] = field(default_factory=dict)
    rates: tuple[PublishedRates, ...] = ()


def group_numbers(rows: Iterable[Row]) -> dict[ComparisonGroup, int]:
    """Return the numbers of the groups, in the order of their first rows."""
    found: dict[ComparisonGroup, int] = {}
    for row in rows:
        found.setdefault(axes.comparison_group(row), len(found))
    return found


def group_id(where: ComparisonGroup) -> str:
    """Return a group's id: the same in every page of the same results, so that views stay valid."""
    return digest(json.dumps(where))[:8]


def group_records(
    found: Mapping[ComparisonGroup, int], measures: Sequence[str], rows: Mapping[str, int], ranking: RankingData
) -> list[dict[str, Any]]:
    """Return the record of each group.

    Args:
        found: the groups and their numbers.
        measures: names.
        rows: the numbers of rows, by :func:`harness.evaluation.per_query.per_query_key`.
        ranking: see there.
    """
    return [_group(each, found, measures, rows, ranking) for each in found]


def _group(
    each: ComparisonGroup,
    found: Mapping[ComparisonGroup, int],
    measures: Sequence[str],
    rows: Mapping[str, int],
    ranking: RankingData,
) -> dict[str, Any]:
    known = {name: ranking.relations.get((each, name)) for name in measures}
    drawn = {name: ranking.resampled.get((each, name)) for name in measures}
    return {
        "id": group_id(each),
        "dataset": one_line(each.dataset),
        "scenario": each.scenario,
        "label": one_line(_label(each, [other for other in found if other.dataset == each.dataset])),
        "cutoffs": {name: ranking.cutoffs[each, name] for name in measures if (each, name) in ranking.cutoffs},
        "relations": {
            name: {
                "runs": {str(rows[key]): run for key, run in relation.runs.items() if key in rows},
                "pairs": relation.pairs,
            }
            for name, relation in known.items()
            if relation is not None
        },
        "resampled": {name: _packed(draws, rows) for name, draws in drawn.items() if draws is not None},
        "slower": _packed(ranking.slower[each], rows) if each in ranking.slower else None,
        "rates": [
            {"name": known_as.name, "measure": known_as.measure, "values": dict(known_as.values)}
            for known_as in ranking.rates
            if known_as.dataset == each.dataset and known_as.measure in measures
        ],
    }


def _packed(draws: Draws, rows: Mapping[str, int]) -> dict[str, Any]:
    """Return draws as whole numbers of two bytes, in units of ``scale``."""
    scale = max((float(values.max()) for values in draws.values.values()), default=0.0) / _LARGEST or 1.0
    return {
        "scale": scale,
        "rows": {
            str(rows[key]): base64.b64encode(np.rint(values / scale).astype("<u2").tobytes()).decode("ascii")
            for key, values in draws.values.items()
            if key in rows
        },
    }


def _label(each: ComparisonGroup, others: Sequence[ComparisonGroup]) -> str:
    """Return the scenario, the isolation, and the facts in which groups of the dataset differ."""
    parts = [each.scenario, each.isolation, f"top {each.k}"]
    if each.suite is not None:
        parts.append(f"table {each.suite}")
    if each.latency_target_s is not None:
        parts.append(f"{each.latency_percentile:g} % within {each.latency_target_s * 1e3:g} ms")
    for name, hashes in (
        ("queries", [other.sample_sha256 for other in (each, *others)]),
        ("documents", [other.corpus_sha256 for other in (each, *others)]),
    ):
        if len(set(hashes)) > 1:
            parts.append(f"{name} {(hashes[0] or 'unknown')[:8]}")
    return ", ".join(parts)


_LETTERS = {BETTER: "b", EQUAL: "e", WORSE: "w"}
# Of a leaderboard's 1,000 resamples and sets of weights, so many; none of larger groups: a file to send is small.
DRAWS, MOST_ROWS = 200, 1000
# A leaderboard's usual axes: its cut-off is of the rows that have all of them.
_NEEDED = (ACCURACY, "cost", "latency")


def ranking_data(table: Table, found: Mapping[str, PerQuery], rates: tuple[PublishedRates, ...] = ()) -> RankingData:
    """Return the data that a leaderboard of each comparison group ranks with, at this table's prices.

    Args:
        table: priced rows.
        found: what they are made of, by :func:`harness.evaluation.per_query.per_query_key`.
        rates: exchange rates that somebody published.
    """
    by_place: dict[ComparisonGroup, list[Row]] = defaultdict(list)
    for row in table.rows:
        by_place[axes.comparison_group(row)].append(row)
    cutoffs: dict[tuple[ComparisonGroup, str], float] = {}
    relations: dict[tuple[ComparisonGroup, str], AccuracyRelation] = {}
    resampled: dict[tuple[ComparisonGroup, str], Draws] = {}
    slower: dict[ComparisonGroup, Draws] = {}
    for where, rows in by_place.items():
        for measure in table.measures:
            needed = [axes.axis(name, measure) for name in _NEEDED]
            ranked = [row for row in rows if pareto_front.reason_not_ranked(row, needed) is None]
            # Where no row has all of them, those with an accuracy can still be told apart.
            ranked = ranked or [row for row in rows if pareto_front.reason_not_ranked(row, needed[:1]) is None]
            if not ranked:
                continue
            known = pareto_front.uncertainty(ranked, found, measure, table.rounded_to)
            cutoffs[where, measure] = known.cutoff
            if known.relations is not None:
                relations[where, measure] = _short(known.relations)
            if known.resampled is not None and len(ranked) <= MOST_ROWS:
                keys = [row.per_query_key for row in ranked]
                resampled[where, measure] = _draws(keys, known.resampled.accuracy)
                slower.setdefault(where, _draws(keys, leaderboard.latency_factors(known.resampled)))
    presets = tuple((preset.name, preset.weights) for preset in PRESETS)
    return RankingData(presets, cutoffs, relations, resampled, slower, rates)


def _draws(keys: Sequence[str], values: NDArray[np.float64]) -> Draws:
    """Return the first draws of each row; accuracies are complete, and an unknown latency counts as unchanged."""
    return Draws(dict(zip(keys, np.nan_to_num(values[:DRAWS]).T, strict=True)))


def _short(relations: PairedSigns) -> AccuracyRelation:
    return AccuracyRelation(relations.group, "".join(_LETTERS.get(int(sign), "u") for sign in relations.signs.ravel()))
