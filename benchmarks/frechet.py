"""Time bootstraps of a Frechet distance: 1,000 of 7,000 queries with 10 documents of 768 dimensions.

``python -m benchmarks.frechet`` draws vectors whose spectrum falls like an encoder's, resamples both sets, the
judged documents (one a query) and the retrieved ones, and prints wall and processor time and memory.  Then it holds a
few of them against what copied vectors give.  Allowed: 120 s on 2 CPUs with nothing else running.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from typing import Any

import numpy as np

from benchmarks.table import verdict
from harness import stats
from harness.evaluation import frechet_distance
from harness.evaluation.frechet_distance import VectorRows

ALLOWED_S = 120.0
CHECKED = 3


def main() -> int:
    """Time it; exit code 1 if it takes longer than allowed, or if a distance differs from the distance of copies."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, usual in (("queries", 7000), ("documents", 10), ("dimensions", 768), ("bootstraps", 1000)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    arguments = parser.parse_args()
    vectors, one, other = _made(arguments.queries, arguments.documents, arguments.dimensions)
    weights = stats.draw_weights(arguments.queries, arguments.bootstraps, 1)
    load, started = os.getloadavg()[0], time.perf_counter()
    (distances,) = frechet_distance.resample_distances(vectors, [(one, other)], weights)
    wall_s = time.perf_counter() - started
    own, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu_s = own.ru_utime + own.ru_stime + theirs.ru_utime + theirs.ru_stime
    size = f"{arguments.queries:,} queries x {arguments.documents} x {arguments.dimensions}"
    print(f"{arguments.bootstraps:,} bootstraps of {size}:")
    print(f"  wall {wall_s:.1f} s, processors {cpu_s:.1f} s, on {os.cpu_count()} CPUs; load before: {load:.2f}")
    print(f"  memory: {own.ru_maxrss / 2**20:.2f} GiB here, {theirs.ru_maxrss / 2**20:.2f} GiB in the largest process")
    off = 0.0
    for number in range(min(CHECKED, arguments.bootstraps)):
        copies = [vectors[np.repeat(points.rows, weights[number][points.query])] for points in (one, other)]
        off = max(off, abs(frechet_distance.distance_of_points(*copies) - float(distances[number])))
    print(f"  distances {distances.min():.4f} to {distances.max():.4f}; off by {off:.1e} at most from those of copies")
    limits = {
        f"{wall_s:.0f} s, allowed {ALLOWED_S:g}": wall_s > ALLOWED_S,
        f"off by {off:.1e}": off > 1e-4 * distances.mean(),
    }
    return verdict("bench-frechet", [what for what, over in limits.items() if over])


def _made(queries: int, documents: int, dimensions: int) -> tuple[Any, VectorRows, VectorRows]:
    rng = np.random.default_rng(1)
    spread = np.geomspace(1, 0.05, dimensions, dtype=np.float32)
    size = queries * (documents + 1)
    vectors = rng.standard_normal((size, dimensions), dtype=np.float32) * spread + 0.1
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    every = np.arange(queries)
    one = VectorRows(every, every)
    other = VectorRows(np.arange(queries, size), np.repeat(every, documents))
    return vectors, one, other


if __name__ == "__main__":
    sys.exit(main())
