"""Measure time and memory of ``harness generate``: 100,000 documents of some 970 tokens from 210,000 passages."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from itertools import accumulate
from pathlib import Path

from benchmarks.table import Line
from harness import datasets
from harness.datasets.generate import wordpieces
from harness.datasets.generate.kinds import generate

DOCUMENTS = 100_000
_FILLERS = 110_000
_FEW = 10_000
_MOST_S = 60.0
_GROWTH = 1.25  # ids and candidates of the documents stay in memory, no texts


def lines() -> list[Line]:
    """Measure both, each in a fresh process on one CPU; the corpus is prepared before."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_source(folder / "source")
        datasets.load(folder / "source", folder / "cache")
        _, few_mib = _measured(folder, _FEW)
        seconds, mib = _measured(folder, DOCUMENTS)
    return [
        Line(
            f"processor time of {DOCUMENTS:,} generated documents",
            f"{seconds:.0f} s",
            "",
            "",
            "60 s",
            seconds < _MOST_S,
        ),
        Line(
            f"their memory, against {_FEW:,} documents of the same source",
            f"{mib:.0f} MiB",
            f"{few_mib:.0f} MiB",
            f"{mib / few_mib:.2f} x",
            f"{_GROWTH} x",
            mib < _GROWTH * few_mib,
        ),
    ]


def _write_source(folder: Path) -> None:
    """Write passages of 15 to 135 tokens; one for each query, and fillers."""
    folder.mkdir()
    rng = random.Random(0)
    words = [word for word in wordpieces.vocabulary() if word.isascii() and word.isalpha()]
    weights = list(accumulate(1 / (rank + 10) for rank in range(len(words))))  # Zipf's law
    names = ("corpus.jsonl", "queries.jsonl", "qrels.trec")
    corpus, queries, qrels = ((folder / name).open("w") for name in names)
    with corpus, queries, qrels:
        for number in range(DOCUMENTS + _FILLERS):
            text = " ".join(rng.choices(words, cum_weights=weights, k=rng.randint(15, 135)))
            print(json.dumps({"_id": f"d{number}", "title": "", "text": text}), file=corpus)
        for number in range(DOCUMENTS):
            print(json.dumps({"_id": f"q{number}", "text": f"which one is number {number}"}), file=queries)
            print(f"q{number} 0 d{number} 1", file=qrels)


def _measured(folder: Path, documents: int) -> tuple[float, float]:
    """Return processor seconds and MiB of a process that writes a collection."""
    command = [sys.executable, "-m", "benchmarks.generated", str(folder), str(documents)]
    seconds, mib = map(float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    return seconds, mib


def main() -> None:
    """Write a collection on one CPU; print processor seconds and the most memory in MiB."""
    folder, documents = Path(sys.argv[1]), int(sys.argv[2])
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    started = time.process_time()
    generate("far-relevant", folder / "source", folder / str(documents), folder / "cache", 0, {"queries": documents})
    print(time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main()
