"""Measure what joining two systems adds to a query: ``python -m benchmarks.fusion``.

Two engines that answer at once, each with a ranking made beforehand, are asked in two ways: in this process, one call
after the other, and as the fusion asks them, each a process behind a pipe.  The difference is the pipes, the replies'
JSON and the look at them; the fusing itself stands apart, as it is work that a hybrid has anyway.  Rounds are
interleaved; the median of the rounds counts.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.driver.adapter import Adapter, Corpus
from harness.launch.images import catalog
from harness.records import Envelope

ROUNDS = 15
QUERIES = 200
DEPTHS = (10, 100, 1000)
QUERY, K = "a query of some words", 10
ENVELOPE = Envelope("bench", 1, 1 << 30)

ENGINE = """
import random
from harness.driver.adapter import Adapter
from harness.records import Hit

class Ready(Adapter):
    def build(self, corpus, index_dir, progress): ...
    def load(self, index_dir):
        rng = random.Random(self.params["seed"])
        ids = rng.sample(range(1500), 1000)
        scores = sorted((rng.random() for _ in ids), reverse=True)
        self.hits = [Hit(f"document-{n}", score) for n, score in zip(ids, scores)]
    def search(self, query, k):
        return self.hits[:k]

ENGINE = Ready
"""


def main() -> int:
    """Measure each depth and print a table."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one CPU, as the envelope says
    print(
        "| depth | both systems behind pipes, µs | the same calls in one process, µs | added, µs | fusing (rrf), µs |"
    )
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "adapter.py").write_text(ENGINE, encoding="utf-8")
        for depth in DEPTHS:
            print("| " + " | ".join(_row(work, depth)) + " |", flush=True)
    return 0


def _row(work: Path, depth: int) -> list[str]:
    fusion, here = _fusion(work, depth), [_ready(work, seed) for seed in (0, 1)]
    rounds: dict[str, list[float]] = {"piped": [], "here": [], "fuse": []}
    for _ in range(ROUNDS):
        taken: dict[str, list[float]] = {name: [] for name in rounds}
        for _ in range(QUERIES):
            whole = _timed(lambda: fusion.search(QUERY, K))
            taken["fuse"].append(fusion.stages_s()["fuse"])
            taken["piped"].append(whole - taken["fuse"][-1])
            taken["here"].append(_timed(lambda: [adapter.search(QUERY, depth) for adapter in here]))
        for name, values in taken.items():
            rounds[name].append(statistics.median(values) * 1e6)
    fusion.close()
    piped, alone, fuse = (statistics.median(values) for values in rounds.values())
    return [str(depth), f"{piped:.0f}", f"{alone:.0f}", f"{piped - alone:.0f}", f"{fuse:.0f}"]


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _ready(work: Path, seed: int) -> Adapter:
    made: Adapter = _module(work / "adapter.py").ENGINE({"seed": seed}, ENVELOPE, work)
    made.load(work)
    return made


def _fusion(work: Path, depth: int) -> Adapter:
    """Load a fusion of two engines."""
    folder = catalog.images_dir() / "fusion"
    sys.path[:0] = [str(folder), str(folder.parent / "shared")]
    adapter = _module(folder / "adapter.py")
    variables = {"PYTHONPATH": os.pathsep.join([str(folder.parent.parent), str(work)]), "PATH": os.defpath}
    sha = hashlib.sha256((work / "adapter.py").read_bytes()).hexdigest()
    joined: Any = importlib.import_module("joined.component")
    facts = [joined.ComponentFacts(name, "ready", sha, variables) for name in ("first", "second")]
    joined.read_components = lambda: facts
    params = {"method": "rrf", "depth": depth, "first.seed": 0, "second.seed": 1}
    made: Adapter = adapter.ENGINE(params, ENVELOPE, work)
    index = work / f"index-{depth}"
    index.mkdir()
    made.build(Corpus(work / "no-corpus", 0), index, lambda _: None)
    made.load(index)
    return made


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_adapter", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
