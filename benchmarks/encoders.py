"""Measure the cost of each inference backend for one real encoder: ``python -m benchmarks.encoders``.

all-MiniLM-L6-v2 on one CPU, each backend in a process of its own: queries one at a time (median of a pass over
100, the lowest of five passes, since another process on the machine can only add), then documents of 256 tokens in
batches of 16.  Times are of the processor: on an idle CPU they are the latency, on a shared one still comparable.
Memory is that of a search process: anonymous pages after the queries, and the most that was ever resident, weights that
are mapped from their file included.
"""

from __future__ import annotations

import sys

from benchmarks.run_in_image import SCIFACT, printed_by

_BACKENDS = ("torch", "torch-bf16", "onnxruntime", "onnxruntime-int8", "openvino", "openvino-bf16")

_SCRIPT = """
import gzip, json, shutil, subprocess, sys, time
from pathlib import Path
from encoder.prepare import prepare

MEASURE = '''
import gzip, json, statistics, sys, time
from pathlib import Path
import faiss
from encoder.model import Model
backend, folder = sys.argv[1:]
documents = [json.loads(line) for line in gzip.open("/job/corpus.jsonl.gz", "rt").read().splitlines()[:64]]
texts = [each["title"] + " " + each["text"] for each in documents]
queries = [json.loads(line)["text"] for line in open("/job/queries.jsonl")][:100]
start = time.process_time()
model = Model.load(Path(folder), "mean", backend, params={"normalise": True})
load = time.process_time() - start
vectors = [model([query], 256)[0] for query in queries]
medians = []
for _ in range(5):
    times = []
    for query in queries:
        start = time.process_time()
        model([query], 256)
        times.append(time.process_time() - start)
    medians.append(statistics.median(times))
# Queries alone: the memory of a search process.
status = dict(line.split(":") for line in open("/proc/self/status").read().splitlines() if ":" in line)
peak, anonymous = int(status["VmHWM"].split()[0]) / 1024, int(status["RssAnon"].split()[0]) / 1024
rows = model.many(texts, 256, 16)  # OpenVINO compiles its graph for each length that it meets first
start = time.process_time()
rows = model.many(texts, 256, 16)
rate = len(texts) / (time.process_time() - start)
scores = [[float(a @ b) for b in rows] for a in vectors]
print(json.dumps([load, min(medians) * 1e3, rate, anonymous, peak, scores]))
'''
for backend in sys.argv[1:] or BACKENDS:
    place = Path("/index") / backend
    shutil.copytree("/opt/assets/all-minilm-l6-v2", place / "m")
    prepare(place, {"model": "m", "pooling": "mean", "backend": backend, "document_backend": backend})
    size = sum(path.stat().st_size for path in (place / "m").iterdir()) / 1e6
    command = [sys.executable, "-c", MEASURE, backend, str(place / "m")]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    shutil.rmtree(place)
    print("said", json.dumps([backend, size, *said]))
"""


def main() -> int:
    """Measure all, print the table in Markdown."""
    files = {name: (SCIFACT / name).read_bytes() for name in ("corpus.jsonl.gz", "queries.jsonl")}
    measured = printed_by("minilm-torch", f"BACKENDS = {_BACKENDS!r}\n{_SCRIPT}", files=files)
    exact = next(scores for backend, *_, scores in measured if backend == "torch")
    print(
        "| backend | query | documents a second | load | anonymous / resident | weights |"
        " largest difference | ten best |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for backend, size, load, query_ms, rate, anonymous, resident, scores in measured:
        pairs = list(zip(exact, scores, strict=True))
        difference = max(abs(a - b) for ours, theirs in pairs for a, b in zip(ours, theirs, strict=True))
        agreement = sum(len(_best(ours) & _best(theirs)) for ours, theirs in pairs) / (10 * len(pairs))
        print(
            f"| `{backend}` | {query_ms:.1f} ms | {rate:.1f} | {load:.1f} s | {anonymous:.0f} / {resident:.0f} MiB "
            f"| {size:.0f} MB | {difference:.1e} | {agreement:.1%} |"
        )
    return 0


def _best(scores: list[float]) -> set[int]:
    return set(sorted(range(len(scores)), key=lambda number: -scores[number])[:10])


if __name__ == "__main__":
    sys.exit(main())
