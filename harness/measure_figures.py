"""A measure as a figure: its value with the interval for queries like these, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from harness import stats
from harness.evaluate import Evaluation
from harness.table import Figure

# A measure is bounded, and its interval needs fewer than a latency's: a second of resampling for a hundred rows.
RESAMPLES = 1999
# One for all: the same values have the same interval, whichever command shows them.
SEED = 0
METHOD = f"95 % BCa bootstrap over queries, its reach in z Student's ({RESAMPLES:,} resamples, seed {SEED})"


def figure(judged: Evaluation, name: str) -> Figure:
    """A measure with its 95 % bootstrap interval over queries, where it is a mean over them."""
    value = judged.values[name]
    if value is None:
        none = None if judged.queries else "no query of the sample has judgements"
        return Figure(None, reason=none or judged.reasons.get(name))
    if name not in judged.means:
        return Figure(value, reason="no interval: it is no mean over queries")
    return replace(mean(judged.per_query[name]), value=value)


def mean(values: Mapping[str, float], seed: int = SEED) -> Figure:
    """The mean of a measure over some queries with that interval.

    Args:
        values: by query, at least one; they are taken in the order of their ids, as draws depend on it.
        seed: of the resampling.
    """
    ordered = np.asarray([values[query] for query in sorted(values)], dtype=np.float64)
    return stats.bootstrap_mean(ordered, seed, resamples=RESAMPLES)
