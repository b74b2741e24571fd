"""Measure harness itself at scale: ``python -m benchmarks.scale [DOCUMENTS] [QUERIES] [FOLDER]``; 45 minutes.

10 million documents of MS MARCO's length are generated, prepared and indexed by tantivy, PISA and Lucene, which answer
1,000 of 100,000 judged queries of one word; tantivy answers all.  A fifth of the documents is measured first.  This
shows phases that are not linear, and memory that grows with the corpus.  FOLDER takes some 2 GB for a million
documents.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness.results.reader import read_jobs

DOCUMENTS, QUERIES = 10_000_000, 100_000
# Generated documents have many equal scores, and of these Lucene and PISA look at all.
_SUITES = {"engines": (["tantivy", "pisa", "bm25"], 1000), "queries": (["tantivy"], QUERIES)}
_SUITE = """datasets = ["./large"]
profiles = ["wide"]
build_profile = "wide"
overhead = false
[hardware.wide]
cpus = 1
memory = "8GiB"
[protocol]
trials = 1
repeats = 0
"""
_PREPARE = "import sys; from pathlib import Path; from harness import datasets; datasets.load(*map(Path, sys.argv[1:]))"


@dataclass(frozen=True)
class _Phase:
    """A phase: its seconds and its peak memory (MiB), of the largest process or of a container's anonymous memory."""

    seconds: float
    mib: float


def main() -> None:
    """Measure both sizes and print the table."""
    given = [int(text) for text in sys.argv[1:3]]
    documents, queries = [*given, *(DOCUMENTS, QUERIES)[len(given) :]]
    found = {}
    for size in (documents // 5, documents):
        with tempfile.TemporaryDirectory(dir=sys.argv[3] if len(sys.argv) > 3 else None) as name:
            found[size] = _measured(Path(name).resolve(), size, queries)
    _show(found)


def _measured(folder: Path, documents: int, queries: int) -> dict[str, _Phase]:
    harness = [sys.executable, "-m", "harness"]
    made, cache = folder / "large", folder / "cache"
    phases = {}

    def run(name: str, command: Sequence[str]) -> None:
        started = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, "HARNESS_CACHE": str(cache)})
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
        phases[name] = _Phase(time.perf_counter() - started, usage.ru_maxrss / 1024)
        print(f"{documents:,} documents: {name}: {phases[name]}", flush=True)

    kind = ("--documents", str(documents), "--max-tokens", "94", "--passage-tokens", "5-47")
    run("generate", [*harness, "generate", "larger", "--from", "scifact", *kind, "--out", str(made)])
    _add_queries(made, queries)
    for name, (systems, sample_size) in _SUITES.items():
        text = f"systems = {json.dumps(systems)}\n{_SUITE}sample_size = {min(sample_size, queries)}\n"
        (folder / f"{name}.toml").write_text(text)
    time.sleep(3)  # a file that was written just now is hashed at each use
    run("prepare the corpus", [sys.executable, "-c", _PREPARE, str(made), str(cache)])
    run("plan", [*harness, "plan", "engines.toml"])
    run("run of three engines", [*harness, "run", "engines.toml"])
    run(f"run of {queries:,} queries", [*harness, "run", "queries.toml"])
    for job in read_jobs(folder / "results" / "engines"):
        result, name = job.result, job.result.spec.cell.system
        assert result.index is not None
        built = result.index.observed.memory.peak_anon_bytes or 0
        phases[f"index of {name}"] = _Phase(result.index.own_build_s, built / 2**20)
    for job in read_jobs(folder / "results" / "queries"):
        memory = job.result.observed.memory
        phases[f"job of {queries:,} queries"] = _Phase(job.result.wall_s, (memory.peak_anon_bytes or 0) / 2**20)
    run("run again, nothing to do", [*harness, "run", "queries.toml"])
    run(f"first report of {queries:,} queries", [*harness, "report", "results/queries", "--measures", "nDCG@10"])
    run("report again", [*harness, "report", "results/queries", "--measures", "nDCG@10"])
    return phases


def _add_queries(made: Path, count: int) -> None:
    """Add a query for each of the first documents, its rarest word among theirs, and judge that document."""
    with gzip.open(made / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in itertools.islice(lines, count)]
    words = Counter(word for document in documents for word in set(document["text"].split()))
    with (made / "queries.jsonl").open("a") as queries, (made / "qrels.trec").open("a") as qrels:
        for number, document in enumerate(documents):
            rarest = min(document["text"].split(), key=words.__getitem__)
            queries.write(json.dumps({"_id": f"made{number}", "text": rarest}) + "\n")
            qrels.write(f"made{number} 0 {document['_id']} 1\n")


def _show(found: dict[int, dict[str, _Phase]]) -> None:
    few, many = found
    table = Table(title=f"harness at {many:,} documents, and at {few:,}")
    for head in ("phase", "s", "s per million", "of fewer documents", "memory, MiB", "of fewer documents"):
        table.add_column(head, overflow="fold")
    for name, phase in found[many].items():
        before = found[few][name]
        table.add_row(
            name,
            f"{phase.seconds:.1f}",
            f"{phase.seconds / many * 1e6:.3g}",
            f"{before.seconds / few * 1e6:.3g}",
            f"{phase.mib:.0f}",
            f"{before.mib:.0f}",
        )
    Console(width=150 if not sys.stdout.isatty() else None).print(table)


if __name__ == "__main__":
    main()
