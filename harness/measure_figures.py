"""A measure as a figure: its value with the interval for queries like these, or the reason why there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from harness import stats
from harness.evaluate import Evaluation
from harness.table import Figure

# A measure is bounded, and its interval needs fewer than a latency's: a second of resampling for a hundred rows.
RESAMPLES = 1999


def figure(judged: Evaluation, name: str, seed: int) -> Figure:
    """A measure with its 95 % bootstrap interval over queries, where it is a mean over them."""
    value = judged.values[name]
    if value is None:
        none = None if judged.queries else "no query of the sample has judgements"
        return Figure(None, reason=none or judged.reasons.get(name))
    if name not in judged.means:
        return Figure(value)
    found = stats.bootstrap_mean(np.asarray(list(judged.per_query[name].values())), seed, resamples=RESAMPLES)
    return replace(found, value=value, reason=None)
