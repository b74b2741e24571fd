"""Measure time and memory of the search for near duplicates of training queries.

``python -m benchmarks.leakage [QUERIES] [TRAINING] [DIMENSIONS]`` makes vectors by seed, some of them in both sets, and
prints pairs, seconds and the process' peak memory.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from harness.evaluation import leakage
from harness.evaluation.embeddings import Embeddings

_BOTH = 1000


def main(queries: int = 7_000, training: int = 500_000, dimensions: int = 384) -> None:
    """Make both sets, and compare all pairs."""
    rng = np.random.default_rng(1)

    def made(count: int, prefix: str) -> Embeddings:
        vectors = rng.standard_normal((count, dimensions), dtype=np.float32)
        return Embeddings(tuple(f"{prefix}{n}" for n in range(count)), vectors, "made", "c" * 64, "query", "made")

    sample, taught = made(queries, "q"), made(training, "t")
    both = min(_BOTH, queries, training)
    taught.vectors[:both] = sample.vectors[:both]
    began = time.perf_counter()
    pairs = leakage.near_pairs(sample, taught, 0.9)
    took_s = time.perf_counter() - began
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{queries:,} x {training:,} x {dimensions}: {len(pairs):,} pairs in {took_s:.1f} s, peak {peak_gib:.2f} GiB")
    assert len(pairs) == both


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
