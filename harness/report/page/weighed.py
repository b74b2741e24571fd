"""What a page is weighed with: presets, and what the queries say of how far accuracies can be told apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from harness import axes, fronts, per_query, place, standings
from harness.axes import ACCURACY
from harness.leaderboard import PRESETS
from harness.pareto import BETTER, EQUAL, WORSE, Relations
from harness.per_query import PerQuery
from harness.place import Place
from harness.report.page.groups import Draws, KnownRates, Relation, Weighing
from harness.table import Row, Table

_LETTERS = {BETTER: "b", EQUAL: "e", WORSE: "w"}
# Of a leaderboard's 1,000 resamples and sets of weights, so many; none of larger groups: a file to send is small.
DRAWS, MOST_ROWS = 200, 1000
# A leaderboard's usual axes: its cut-off is of the rows that have all of them.
_NEEDED = (ACCURACY, "cost", "latency")


def weighing(table: Table, found: Mapping[str, PerQuery], rates: tuple[KnownRates, ...] = ()) -> Weighing:
    """As a leaderboard of each comparison group weighs, at the prices of this table.

    Args:
        table: priced rows.
        found: what they are made of, by :func:`harness.per_query.name`.
        rates: exchange rates that somebody published.
    """
    by_place: dict[Place, list[Row]] = defaultdict(list)
    for row in table.rows:
        by_place[place.of(row)].append(row)
    cutoffs: dict[tuple[Place, str], float] = {}
    relations: dict[tuple[Place, str], Relation] = {}
    resampled: dict[tuple[Place, str], Draws] = {}
    slower: dict[Place, Draws] = {}
    for where, rows in by_place.items():
        for measure in table.measures:
            needed = [axes.axis(name, measure) for name in _NEEDED]
            ranked = [row for row in rows if fronts.rankable(row, needed) is None]
            # Where no row has all of them, those with an accuracy can still be told apart.
            ranked = ranked or [row for row in rows if fronts.rankable(row, needed[:1]) is None]
            if not ranked:
                continue
            known = fronts.uncertainty(ranked, found, measure, table.rounded_to)
            cutoffs[where, measure] = known.cutoff
            if known.relations is not None:
                relations[where, measure] = _short(known.relations)
            if known.resampled is not None and len(ranked) <= MOST_ROWS:
                keys = [per_query.name(row) for row in ranked]
                resampled[where, measure] = _draws(keys, known.resampled.accuracy)
                slower.setdefault(where, _draws(keys, standings.slower(known.resampled)))
    presets = tuple((preset.name, preset.weights) for preset in PRESETS)
    return Weighing(presets, cutoffs, relations, resampled, slower, rates)


def _draws(keys: Sequence[str], values: NDArray[np.float64]) -> Draws:
    """The first draws of each row; all of its accuracies are known, and a latency that is not stays as it is."""
    return Draws(dict(zip(keys, np.nan_to_num(values[:DRAWS]).T, strict=True)))


def _short(relations: Relations) -> Relation:
    return Relation(relations.group, "".join(_LETTERS.get(int(sign), "u") for sign in relations.signs.ravel()))
