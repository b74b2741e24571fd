"""Compare PLAID through harness with ``colbert.Searcher``, query by query, in one container.

``python -m benchmarks.fidelity_colbert [DOCUMENTS]`` takes the first documents of SciFact (1,000) and its queries, a
checkpoint that starts from a real encoder, one CPU.  Rankings must be identical, scores within 1e-4, and the medians
within 5 % or 0.2 ms.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import sys
import tempfile
from itertools import islice
from pathlib import Path

import docker
from rich.console import Console
from rich.table import Table

from benchmarks.table import Line
from harness.launch.images import assets, builder, catalog
from tests.support.container_output import output_of

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("HARNESS_CACHE", "~/.cache/ir-harness")).expanduser()
SCORES, SHARE, MILLISECONDS = 1e-4, 0.05, 0.2


def main(documents: int) -> int:
    """Measure, print the table; exit code 1 when something differs by more than allowed."""
    client = docker.from_env()
    image = builder.ImageBuilder(client, CACHE).ensure_engine(catalog.system("colbertv2-s"))
    minilm = catalog.system("minilm")
    start = assets.fetch("minilm", minilm.assets, CACHE, None) / minilm.assets[0].folder
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)  # this host does not know the image's user
        scifact = ROOT / "datasets" / "scifact"
        with gzip.open(scifact / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
            Path(name, "corpus.jsonl").write_text("".join(islice(lines, documents)), encoding="utf-8")
        mounts = {name: "/data", str(start): "/start", str(scifact): "/scifact"}
        mounts |= {str(ROOT / name): f"/src/{name}" for name in ("benchmarks", "checkpoints")}
        output = output_of(
            client,
            image.digest,
            ["-m", "benchmarks.colbert_inside", "/start", "/data/corpus.jsonl", "/scifact/queries.jsonl"],
            entrypoint=["python3"],
            working_dir="/src",
            network_mode="none",
            cpuset_cpus="0",
            environment={"OMP_NUM_THREADS": "1"},
            volumes={host: {"bind": inside, "mode": "ro"} for host, inside in mounts.items()},
        )
    (measured,) = [line for line in output.decode().splitlines() if line.startswith("measured ")]
    lines_ = _lines(json.loads(measured.removeprefix("measured ")))
    table = Table(title=f"PLAID through harness and called directly, {documents} documents")
    for head in ("what", "with harness", "without", "difference", "allowed", ""):
        table.add_column(head)
    for line in lines_:
        table.add_row(line.what, line.measured, line.against, line.figure, line.allowed, "ok" if line.ok else "OVER")
    Console(width=120).print(table)
    return 0 if all(line.ok for line in lines_) else 1


def _lines(measured: dict[str, dict[str, list[float]]]) -> list[Line]:
    lines = []
    for size, taken in measured.items():
        ours, theirs = (1e3 * statistics.median(taken[way]) for way in ("harness", "plain"))
        allowed = max(SHARE * theirs, MILLISECONDS)
        figure, limit = f"{ours - theirs:+.3f} ms", f"{allowed:.2f} ms"
        what = f"ColBERTv2-{size}, median of {len(taken['plain'])} queries"
        lines.append(Line(what, f"{ours:.3f} ms", f"{theirs:.3f} ms", figure, limit, abs(ours - theirs) <= allowed))
        score = float(taken["largest score difference"])  # type: ignore[arg-type]
        lines.append(
            Line(f"ColBERTv2-{size}, largest score difference", "", "", f"{score:.1e}", "1e-4", score <= SCORES)
        )
    return lines


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
