"""Time repricing: 10,000 stored jobs, as 2,000 cells of 5 jobs and as 10,000 cells of one.

``python -m benchmarks.reprice`` makes them in a temporary folder: a fake launcher measures one cell through the real
store, and its jobs are copied under other names, each with the key of its own spec.  Then whole processes are timed:
the first ``harness reprice`` (which reads every sample and judges every run), the ones after it, and ``harness
report``.  Nearly all of it goes into the two first ones.  Allowed for each ``reprice`` that is not the first: 1.2 s for
cells of five trials, as suites have them, and 2 s for five times as many rows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.table import verdict
from harness.jobs import orchestrator, suite
from harness.jobs.inputs import RunOptions, gather
from harness.launch.fake import FakeLauncher
from harness.results.isolation import CONTAINER
from harness.results.reader import RESULT, StoredJob, cell_path, read_jobs, result_adapter
from harness.results.schema import Cell, Result, job_key

# Jobs a cell -> seconds.
ALLOWED_S = {5: 1.2, 1: 2.0}
QUERIES = 300
_DATASETS = 4
_SUITE = """systems = ["bm25"]
datasets = ["./made-up"]
profiles = ["cpu1-mem1"]
build_profile = "cpu1-mem1"
overhead = false
[protocol]
trials = 5
sample_size = 300
warmup_queries = 10
"""


def main() -> int:
    """Time both shapes; exit code 1 when a warm start takes longer than allowed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=5, help="warm starts; their median and slowest are shown")
    arguments = parser.parse_args()
    slow: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = _measured(folder)
        for per_cell, allowed_s in ALLOWED_S.items():
            results = folder / f"results-{per_cell}"
            cells = arguments.jobs // per_cell
            _copy(models[:per_cell], results, cells)
            print(f"\n{arguments.jobs:,} stored jobs: {cells:,} cells of {per_cell}")
            slow += _time(results, folder / "cache", arguments.repeat, allowed_s)
    return verdict("bench-reprice", slow)


def _measured(folder: Path) -> Sequence[StoredJob]:
    """Measure one cell with a fake launcher; return its jobs."""
    data = folder / "made-up"
    data.mkdir()
    lines = [json.dumps({"_id": f"d{n}", "title": "", "text": f"document {n}"}) for n in range(1000)]
    (data / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    queries = [json.dumps({"_id": f"q{n}", "text": f"which is document {n}"}) for n in range(QUERIES + 20)]
    (data / "queries.jsonl").write_text("\n".join(queries) + "\n")
    (data / "qrels.trec").write_text("".join(f"q{n} 0 d{n} 1\n" for n in range(QUERIES)))
    path = folder / "bench.toml"
    path.write_text(_SUITE)
    options = RunOptions(folder / "model", folder / "cache", folder, None, False)
    orchestrator.run_suite(gather(suite.load(path), options), options, FakeLauncher())
    return read_jobs(folder / "model")


def _copy(models: Sequence[StoredJob], results: Path, cells: int) -> None:
    """Copy the models into cells whose systems, datasets, profiles and keys differ."""
    rng = random.Random(4)
    for number in range(cells):
        cpus, memory_gib = rng.choice((1, 2, 4, 8)), rng.choice((1, 2, 4, 8, 16))
        cell = Cell(
            "bench",
            f"system-{number // 20}",
            f"set-{number % _DATASETS}",
            "single_stream",
            f"cpu{cpus}-mem{number % 20}",
        )
        for model in models:
            _copy_one(model, results, _renamed(model.result, cell, len(models), cpus, memory_gib << 30))
    for name in ("qrels", "samples"):
        source = models[0].folder.parents[4] / name
        (results / "bench" / name).mkdir()
        for path in source.iterdir():
            os.link(path, results / "bench" / name / path.name)


def _renamed(result: Result, cell: Cell, jobs: int, cpus: int, memory_bytes: int) -> Result:
    envelope = replace(result.spec.envelope, name=cell.profile, cpus=cpus, memory_bytes=memory_bytes)
    # What a fake measured is never valid, and would not be ranked.
    spec = replace(result.spec, cell=cell, jobs=jobs, envelope=envelope, isolation=CONTAINER.name)
    return replace(result, spec=spec, key=job_key(spec))


def _copy_one(model: StoredJob, results: Path, made: Result) -> None:
    folder = results / cell_path(made.spec.cell) / made.key
    folder.mkdir(parents=True)
    for path in model.folder.iterdir():
        if path.name != RESULT:
            os.link(path, folder / path.name)
    (folder / RESULT).write_bytes(result_adapter().dump_json(made))


def _time(results: Path, cache: Path, repeat: int, allowed_s: float) -> list[str]:
    """Print the times; return the warm commands that were too slow."""
    reprice = ("reprice", str(results), "--as-of", "2022-12-05")
    print(f"  first reprice                {_seconds(cache, reprice):8.1f} s")
    slow = []
    for command in (reprice, (*reprice, "--format", "csv"), (*reprice, "--format", "json"), ("report", str(results))):
        taken = list(_warm(cache, command, repeat))
        text = (
            f"{' '.join((command[0], *command[4:])):28} {statistics.median(taken):8.2f} s (slowest {max(taken):.2f} s)"
        )
        if command[0] == "reprice":
            over = statistics.median(taken) > allowed_s
            slow += [" ".join((command[0], *command[4:]))] if over else []
            text += "  OVER" if over else "  ok"
        print(f"  {text}")
    return slow


def _warm(cache: Path, command: Sequence[str], repeat: int) -> Iterator[float]:
    for _ in range(repeat):
        yield _seconds(cache, command)


def _seconds(cache: Path, command: Sequence[str]) -> float:
    """Time a whole process."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "harness", *command],
        env={**os.environ, "HARNESS_CACHE": str(cache)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
