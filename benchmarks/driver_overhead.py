"""Measure what the driver adds to a query: its clock in a Python adapter, the protocol of a JSON-lines engine."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.spec import ENVELOPE, K, spec
from benchmarks.table import Line
from harness.driver import subprocess_adapter
from harness.driver.adapter import Adapter, Corpus
from harness.driver.output import SAMPLES, Output
from harness.driver.records import Hit, Measurement, Outcome
from harness.driver.scenarios import closed_loop, planned_queries
from harness.jobs.job_samples import read_samples
from harness.launch.base import LaunchRequest, Prepared
from harness.launch.images import catalog

ROUNDS = 15
QUERIES = 400

# The smallest engine that speaks JSON lines: all its cost is the protocol's.
ENGINE = """
import json, sys
HITS = [[f"d{n}", -float(n)] for n in range(10)]
for line in sys.stdin:
    verb = json.loads(line)["verb"]
    print(json.dumps({"hits": HITS} if verb == "search" else {}), flush=True)
"""


class Nothing(Adapter):
    """Answers at once."""

    hits: Sequence[Hit] = tuple(Hit(f"d{n}", -float(n)) for n in range(K))

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Nothing to build."""

    def load(self, index_dir: Path) -> None:
        """Nothing to load."""

    def search(self, query: str, k: int) -> Sequence[Hit]:  # noqa: ARG002 # an adapter's signature
        """Return the prepared answer."""
        return self.hits


def lines() -> list[Line]:
    """Measure both."""
    nothing = Nothing({}, ENVELOPE, Path())
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(everywhere)})  # one CPU, as the envelope says
    with tempfile.TemporaryDirectory() as folder:
        engine = Path(folder, "engine.py")
        engine.write_text(ENGINE, encoding="utf-8")
        piped = subprocess_adapter.command(sys.executable, str(engine))({}, ENVELOPE, Path())
        piped.load(Path(folder))
        ways: dict[str, Callable[[], list[int]]] = {
            "clock": _clock_alone,
            "bare": lambda: _bare_loop(nothing.search),
            "driver": lambda: _driver(nothing, Path(folder)),
            "piped": lambda: _driver(piped, Path(folder)),
        }
        rounds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                rounds[name].append(statistics.fmean(way()) / 1e3)
        piped.close()
    os.sched_setaffinity(0, everywhere)
    us = {name: statistics.median(values) for name, values in rounds.items()}

    def line(what: str, name: str, base: str, most_us: float) -> Line:
        more = us[name] - us[base]
        return Line(
            what, f"{us[name]:.2f} µs", f"{us[base]:.2f} µs", f"{more:+.2f} µs", f"{most_us:g} µs", more <= most_us
        )

    return [
        line("a query, Python adapter, against a bare loop around the same callable", "driver", "bare", 2),
        line("a query, Python adapter, against two clock reads alone", "driver", "clock", 2),
        line("a query, JSON-lines engine, against a bare loop around the same answer", "piped", "bare", 100),
    ]


def _clock_alone() -> list[int]:
    clock, taken = time.perf_counter_ns, []
    for _ in range(QUERIES):
        start = clock()
        taken.append(clock() - start)
    return taken


def _bare_loop(search: Callable[[str, int], object]) -> list[int]:
    clock, taken = time.perf_counter_ns, []
    for _ in range(QUERIES):
        start = clock()
        search("a query of some words", K)
        taken.append(clock() - start)
    return taken


def _driver(adapter: Adapter, folder: Path) -> list[int]:
    """Return the latencies that the driver writes."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        out = Output(Path(name))
        measured: Measurement[str] = Measurement(Outcome.OK, None, None)
        closed_loop(adapter, spec(QUERIES), out, partial(planned_queries, spec(QUERIES)), measured)
        out.close()
        no_image = Prepared(catalog.system("null"), "none", "none", "none")
        job = LaunchRequest(spec(QUERIES), no_image, Path(name), Path(name), Path(name))
        Path(name, "out").mkdir()
        Path(name, SAMPLES).rename(Path(name, "out", SAMPLES))
        samples, _ids, wrong = read_samples(job)
    if wrong:
        raise SystemExit(wrong)
    return [sample.latency_ns for sample in samples if sample.trial == 0]
