"""Measure time and memory of reading and scoring runs and qrels of ten million lines.

Run by hand: ``python -m benchmarks.read_runs [LINES] [FOLDER]``.  FOLDER takes some 70 bytes a line.  Each part is a
process of its own, so that its peak is its own.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness.errors import FileError
from harness.evaluation import evaluate, measure_names, trec

LINES = 10_000_000
DEPTH = 1000
MEASURES = ("RR@10", "nDCG@10", "AP", "R@1000")


def main(lines: int, folder: Path) -> None:
    """Make the files, then read and judge them."""
    run, qrels = folder / "run.trec", folder / "qrels.trec"
    _write(run, qrels, lines)
    print(f"{lines:,} lines; run {run.stat().st_size / 2**20:,.0f} MiB, qrels {qrels.stat().st_size / 2**20:,.0f} MiB")
    parts: dict[str, Callable[[Path, Path], object]] = {
        "start-up alone": _nothing,
        "run by score": _scored,
        "run by rank": _ranked,
        "judgements": _judged,
        "last line a duplicate": _duplicate,
        "both, and judged": _both,
    }
    for name, part in parts.items():
        process = multiprocessing.get_context("spawn").Process(target=_timed, args=(name, part, run, qrels))
        process.start()
        process.join()


def _write(run: Path, qrels: Path, lines: int) -> None:
    draw = random.Random(0)
    with run.open("w", encoding="ascii") as runs, qrels.open("w", encoding="ascii") as judged:
        for first in range(0, lines, DEPTH):
            query, depth = 1_000_000 + first // DEPTH, min(DEPTH, lines - first)
            documents = draw.sample(range(8_841_823), depth)
            scores = sorted((round(draw.uniform(5, 30), 6) for _ in documents), reverse=True)
            runs.writelines(
                f"{query} Q0 {document} {rank} {score} bm25\n"
                for rank, (document, score) in enumerate(zip(documents, scores, strict=True), 1)
            )
            judged.writelines(f"{query} 0 {document} {document % 4}\n" for document in documents)


def _timed(name: str, part: Callable[[Path, Path], object], run: Path, qrels: Path) -> None:
    start = time.perf_counter()
    kept = part(run, qrels)
    taken = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name}: {taken:.1f} s, peak {peak:,.0f} MiB{f'; {kept}' if isinstance(kept, str) else ''}", flush=True)


def _nothing(_run: Path, _qrels: Path) -> object:
    return None


def _scored(run: Path, _qrels: Path) -> object:
    return trec.read_scored_run(run)


def _ranked(run: Path, _qrels: Path) -> object:
    return trec.read_run(run)


def _judged(_run: Path, qrels: Path) -> object:
    return trec.read_qrels(qrels)


def _duplicate(run: Path, _qrels: Path) -> object:
    with run.open("r+b") as stream:
        first = stream.readline()
        size = stream.seek(0, 2)
        stream.write(first)
        stream.flush()
        try:
            trec.read_scored_run(run)
        except FileError as error:
            return str(error).replace(str(run), run.name)
        finally:
            stream.truncate(size)
    raise AssertionError("a duplicate was read")


def _both(run: Path, qrels: Path) -> object:
    judgements = trec.read_qrels(qrels)
    evaluation = evaluate.evaluate(
        trec.read_scored_run(run), judgements, list(judgements), measure_names.parse(MEASURES)
    )
    return ", ".join(f"{name} {value:.4f}" for name, value in evaluation.values.items() if value is not None)


if __name__ == "__main__":
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else LINES
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as name:
        main(lines, Path(name))
