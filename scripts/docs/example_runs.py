"""Invented runs, for pages to show commands on: ``python -m scripts.docs.example_runs FOLDER``.

Six made-up systems rank 200 made-up queries; seeds are fixed, so the files are always the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

QUERIES = 200
# How well a system's scores tell relevant documents from others; how far that varies from query to query; how much
# more the first relevant document of each query gets than the rest.
SYSTEMS = {
    "alpha": (1.00, 0.7, 0.0),
    "beta": (1.30, 0.7, 0.0),
    "gamma": (0.85, 0.7, 1.6),
    "delta": (1.40, 0.7, 0.0),
    "epsilon": (1.42, 0.7, 0.0),
    "zeta": (2.00, 0.7, 0.0),
}
_OTHERS, _HITS = 60, 20


def write(folder: Path) -> Path:
    """Put ``qrels.txt``, ``queries.tsv`` and a run for each system there."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(2024)
    counts = 1 + rng.poisson(2, QUERIES)
    hard = rng.normal(0, 0.7, QUERIES)
    judged = [f"q{query:03} 0 r{number} 1\n" for query in range(QUERIES) for number in range(counts[query])]
    (folder / "qrels.txt").write_text("".join(judged))
    texts = [f"q{query:03}\tmade-up query {query} with {counts[query]} answers\n" for query in range(QUERIES)]
    (folder / "queries.tsv").write_text("".join(texts))
    for name, (skill, varies, first) in SYSTEMS.items():
        lines = []
        for query in range(QUERIES):
            relevant = rng.normal(skill + varies * rng.normal() - hard[query], 1, counts[query])
            relevant[0] += first
            scores = np.concatenate((relevant, rng.normal(0, 1, _OTHERS)))
            documents = [*(f"r{number}" for number in range(counts[query])), *(f"n{n}" for n in range(_OTHERS))]
            best = np.argsort(-scores)[:_HITS]
            lines += [
                f"q{query:03} Q0 {documents[index]} {rank} {scores[index]:.6f} {name}\n"
                for rank, index in enumerate(best, start=1)
            ]
        (folder / f"{name}.run").write_text("".join(lines))
    return folder


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
