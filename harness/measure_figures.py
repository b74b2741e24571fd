"""A measure as a figure: its value with the interval for queries like these, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from harness import stats
from harness.evaluate import Evaluation
from harness.table import Figure

METHOD = (
    "95 % over queries, corrected for skew (Hall 1992); of values that are 0 or 1, or nearly all the same, Clopper and "
    "Pearson's"
)
# With fewer values beside the most frequent one, the spread of a sample says too little.
_FEWEST_OTHERS = 5


def figure(judged: Evaluation, name: str) -> Figure:
    """A measure with its 95 % interval over queries, where it is a mean over them."""
    value = judged.values[name]
    if value is None:
        none = None if judged.queries else "no query of the sample has judgements"
        return Figure(None, reason=none or judged.reasons.get(name))
    if name not in judged.means:
        return Figure(value, reason="no interval: it is no mean over queries")
    return replace(mean(judged.per_query[name]), value=value)


def mean(values: Mapping[str, float]) -> Figure:
    """The mean of a measure over some queries with that interval.

    Args:
        values: by query, at least one; they are added in the order of their ids.
    """
    ordered = np.asarray([values[query] for query in sorted(values)], dtype=np.float64)
    bounded = bool(ordered.min() >= 0 and ordered.max() <= 1)
    others = len(ordered) - int(np.unique(ordered, return_counts=True)[1].max())
    if not bounded and not others:
        return Figure(float(ordered[0]), reason="every query has the same value: no interval")
    if not bounded or len(ordered) < stats.INTERVAL_MIN_QUERIES:
        return stats.mean(ordered)
    if others < _FEWEST_OTHERS or np.isin(ordered, (0, 1)).all():
        return stats.proportion(float(ordered.sum()), len(ordered))
    return stats.mean(ordered, floor=0.0, ceiling=1.0)
