"""Where the paper's exchange rates are from: one of the orders in which an unstable sort may leave equal accuracies."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.analysis.published import Published
from tests.published_study.test_scores import RATES, UNROUNDED

Sums = NDArray[np.float64]


def rates_of_every_order(published: Published, dataset: str, accuracies: Mapping[str, float]) -> Sums:
    """The rates (latency, cost) that the reference mode may find, shape (distinct outcomes, 2).

    Only which row ends a group of equal accuracies and which one begins the next matters.
    """
    groups: dict[float, list[tuple[float, float]]] = {}
    for line in published.table3[dataset]:
        accuracy = accuracies[line.system.removeprefix("ColBERTv2-")]
        figures = (float(line.latency_ms.value), float(line.cost_usd_per_million.value))
        groups.setdefault(accuracy, []).append(figures)
    ordered = sorted(groups)
    sums = {first: np.zeros((1, 2)) for first in range(len(groups[ordered[0]]))}
    for low, high in pairwise(ordered):
        following = {}
        for first, after in enumerate(groups[high]):
            parts = []
            for last, before in enumerate(groups[low]):
                # A group's first row is its last as well only if it is alone.
                found = np.concatenate([sums[each] for each in sums if each != last or len(groups[low]) == 1])
                parts.append(found + np.abs(np.subtract(after, before)) / (high - low))
            following[first] = np.unique(np.concatenate(parts).round(9), axis=0)
        sums = following
    return np.unique(np.concatenate(list(sums.values())) / (len(ordered) - 1), axis=0)


@pytest.fixture(scope="module")
def outcomes(published: Published) -> dict[str, Sums]:
    # Medium and large must differ by less than 1e-4 of their accuracy, else their pair would decide the whole mean.
    tied = {**UNROUNDED["msmarco"], "M": 39.68, "L": 39.68}
    return {
        "msmarco": rates_of_every_order(published, "msmarco", tied),
        "xortydi": rates_of_every_order(published, "xortydi", UNROUNDED["xortydi"]),
    }


@pytest.mark.slow
@pytest.mark.parametrize("dataset", RATES)
def test_some_order_gives_the_published_rates(outcomes: dict[str, Sums], dataset: str) -> None:
    printed = np.asarray([RATES[dataset]["latency"], RATES[dataset]["cost"]])
    off = np.abs(outcomes[dataset] / printed - 1).max(axis=1)
    assert off.min() < 1e-4
    assert (off < 1e-3).mean() < 1e-3  # and hardly any other does


@pytest.mark.slow
def test_other_orders_give_the_range_of_rates_in_the_docs(outcomes: dict[str, Sums]) -> None:
    """The figures that docs/method/leaderboards.md prints."""
    low, high = outcomes["msmarco"].min(axis=0), outcomes["msmarco"].max(axis=0)
    assert [f"{value:.3g}" for value in (*low, *high)] == ["1.6", "1.03", "422", "182"]
    low, high = outcomes["xortydi"].min(axis=0), outcomes["xortydi"].max(axis=0)
    assert [f"{value:.3g}" for value in (*low, *high)] == ["1.36", "2.82", "219", "92.6"]
