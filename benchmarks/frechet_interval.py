"""Simulate the coverage of three intervals of a Frechet distance: ``python -m benchmarks.frechet_interval EMBEDDINGS``.

All documents of a collection are the population: one stands for the judged document of a query, its nearest neighbours
for what a system retrieved.  So the distance of all queries is known, and so is what samples of some have on average.
Each interval is asked how often it holds either.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from harness import stats
from harness.evaluation import embeddings, frechet_distance
from harness.evaluation.frechet_distance import VectorRows

_NEIGHBOURS = 10


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("embeddings", type=Path)
    parser.add_argument("--queries", type=int, nargs="+", default=[300, 1500])
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--bootstraps", type=int, default=120)
    arguments = parser.parse_args()
    vectors = embeddings.read(arguments.embeddings).vectors
    likeness = vectors @ vectors.T
    np.fill_diagonal(likeness, -np.inf)
    near = np.argsort(-likeness, axis=1)[:, :_NEIGHBOURS]
    print(f"distance of all {len(vectors):,}: {_distance(vectors, near, np.arange(len(vectors))):.4f}")
    for queries in arguments.queries:
        _show(vectors, near, queries, arguments.samples, arguments.bootstraps)
    return 0


def _distance(vectors: Any, near: Any, drawn: Any) -> float:
    return frechet_distance.distance_of_points(vectors[drawn], vectors[near[drawn].ravel()])


def _show(vectors: Any, near: Any, queries: int, samples: int, bootstraps: int) -> None:
    rng = np.random.default_rng(0)
    whole = _distance(vectors, near, np.arange(len(vectors)))
    others = [_distance(vectors, near, rng.integers(0, len(vectors), queries)) for _ in range(60)]
    mean = float(np.mean(others))
    print(f"\n{queries:,} queries: distance {mean:.4f} on average, standard deviation {np.std(others):.4f}")
    covered: dict[str, list[tuple[bool, bool]]] = {}
    for number in range(samples):
        drawn = rng.integers(0, len(vectors), queries)
        value = _distance(vectors, near, drawn)
        every = np.arange(queries)
        pair = (VectorRows(drawn, every), VectorRows(near[drawn].ravel(), np.repeat(every, _NEIGHBOURS)))
        (distances,) = frechet_distance.resample_distances(
            vectors, [pair], stats.draw_weights(queries, bootstraps, number)
        )
        low, high = np.quantile(distances, (0.025, 0.975))
        if not number:
            print(f"  a sample: distance {value:.4f}, its bootstraps {low:.4f} to {high:.4f}")
        middle = float(distances.mean())
        intervals = {
            "percentile": (low, high),
            "basic": (2 * value - high, 2 * value - low),
            "moved to the value": (value + low - middle, value + high - middle),
        }
        for name, (lowest, highest) in intervals.items():
            covered.setdefault(name, []).append((lowest <= mean <= highest, lowest <= whole <= highest))
    for name, held in covered.items():
        ours, theirs = np.mean(held, axis=0)
        print(f"  {name:20} holds that of as many queries in {ours:4.0%}, that of all in {theirs:4.0%} of {samples}")


if __name__ == "__main__":
    sys.exit(main())
