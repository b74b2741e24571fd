"""Measure the time that joining two systems adds to a query: ``python -m benchmarks.joined``.

Two engines that answer at once, each with a ranking or scores made beforehand, are asked in two ways: in this process,
one call after the other, and as ``fusion`` and ``two-stage`` ask them, each a process behind a pipe.  The difference is
the pipes, the replies' JSON and the look at them; fusing and merging stand apart: such a system has that work anyway.
Rounds are interleaved; the median of the rounds counts.
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
from functools import partial
from pathlib import Path
from typing import Any

from harness.driver.adapter import Adapter, Corpus
from harness.driver.records import Envelope
from harness.launch.images import catalog

ROUNDS = 15
QUERIES = 200
DEPTHS = (10, 100, 1000)
QUERY, K = "a query of some words", 10
ENVELOPE = Envelope("bench", 1, 1 << 30)

ENGINE = """
import random
from harness.driver.adapter import Adapter
from harness.driver.records import Hit

class Ready(Adapter):
    def build(self, corpus, index_dir, progress): ...
    def load(self, index_dir):
        rng = random.Random(self.params["seed"])
        ids = rng.sample(range(1500), 1000)
        scores = sorted((rng.random() for _ in ids), reverse=True)
        self.hits = [Hit(f"document-{n}", score) for n, score in zip(ids, scores)]
        self.scores = dict(zip((hit.doc_id for hit in self.hits), rng.sample(scores, 1000)))
    def search(self, query, k):
        return self.hits[:k]
    def score(self, query, doc_ids):
        return [self.scores.get(doc_id, 0.0) for doc_id in doc_ids]

ENGINE = Ready
"""


def main() -> int:
    """Measure each engine and depth, and print a table."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one CPU, as the envelope says
    print(
        "| engine | depth | behind pipes, µs | the same calls in one process, µs | added, µs | fusing or merging, µs |"
    )
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "adapter.py").write_text(ENGINE, encoding="utf-8")
        for engine, (stage, params, bare) in ENGINES.items():
            for depth in DEPTHS:
                joined = _joined(work, engine, {**params, "depth": depth})
                first, second = (_ready(work, seed) for seed in (0, 1))
                print(
                    f"| {engine} | {depth} | "
                    + " | ".join(_row(joined, stage, partial(bare, first, second, depth)))
                    + " |"
                )
    return 0


def _both(first: Adapter, second: Adapter, depth: int) -> None:
    first.search(QUERY, depth)
    second.search(QUERY, depth)


def _in_turn(first: Adapter, second: Adapter, depth: int) -> None:
    second.score(QUERY, [hit.doc_id for hit in first.search(QUERY, depth)])


# The stage of the engine's own work, its parameters, and its calls to the components.
ENGINES: dict[str, tuple[str, dict[str, Any], Callable[[Adapter, Adapter, int], None]]] = {
    "fusion": ("fuse", {"method": "rrf"}, _both),
    "two-stage": ("merge", {}, _in_turn),
}


def _row(joined: Adapter, stage: str, bare: Callable[[], None]) -> list[str]:
    rounds: dict[str, list[float]] = {"piped": [], "here": [], "own": []}
    for _ in range(ROUNDS):
        taken: dict[str, list[float]] = {name: [] for name in rounds}
        for _ in range(QUERIES):
            whole = _timed(lambda: joined.search(QUERY, K))
            taken["own"].append(joined.stages_s()[stage])
            taken["piped"].append(whole - taken["own"][-1])
            taken["here"].append(_timed(bare))
        for name, values in taken.items():
            rounds[name].append(statistics.median(values) * 1e6)
    joined.close()
    piped, alone, own = (statistics.median(values) for values in rounds.values())
    return [f"{piped:.0f}", f"{alone:.0f}", f"{piped - alone:.0f}", f"{own:.0f}"]


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _ready(work: Path, seed: int) -> Adapter:
    made: Adapter = _module(work / "adapter.py").ENGINE({"seed": seed}, ENVELOPE, work)
    made.load(work)
    return made


def _joined(work: Path, engine: str, params: dict[str, Any]) -> Adapter:
    """Load a system of two engines."""
    folder = catalog.images_dir() / engine
    sys.path[:0] = [str(folder), str(folder.parent / "shared")]
    adapter = _module(folder / "adapter.py")
    variables = {"PYTHONPATH": os.pathsep.join([str(folder.parent.parent), str(work)]), "PATH": os.defpath}
    sha = hashlib.sha256((work / "adapter.py").read_bytes()).hexdigest()
    component: Any = importlib.import_module("joined.component")
    facts = [component.ComponentFacts(name, "ready", sha, variables) for name in ("first", "second")]
    component.read_components = lambda: facts
    made: Adapter = adapter.ENGINE({**params, "first.seed": 0, "second.seed": 1}, ENVELOPE, work)
    index = work / f"index-{engine}-{params['depth']}"
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
