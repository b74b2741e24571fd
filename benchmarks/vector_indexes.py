"""Measure ways to search vectors of one collection: ``python -m benchmarks.vector_indexes INDEX DATASET``.

INDEX is the folder ``data`` of a ``minilm`` index in the cache, DATASET the folder of its collection.  First the dense
engine's own kinds of index, each in a process of its own.  Then three HNSW libraries with one graph (16 neighbours,
100 candidates when building), called bare: faiss as the engine has it, hnswlib compiled for this very CPU, and usearch.
One thread searches for one query at a time; a time is the median over the queries, the lowest of three passes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.run_in_image import printed_by

_LIBRARIES = ("hnswlib==0.8.0", "usearch==2.26.6", "numkong==7.8.6", "tqdm==4.70.1")  # usearch needs the last two
_KINDS: dict[str, dict[str, str | int | bool]] = {
    "flat": {},
    "sq8": {"index": "sq8"},
    "sq8, rescore = 4": {"index": "sq8", "keep_vectors": True, "rescore": 4},
    "binary": {"index": "binary"},
    "binary, rescore = 4": {"index": "binary", "keep_vectors": True, "rescore": 4},
    "binary, rescore = 8": {"index": "binary", "keep_vectors": True, "rescore": 8},
    "binary, rescore = 16": {"index": "binary", "keep_vectors": True, "rescore": 16},
    "hnsw": {"index": "hnsw"},
}
_EFFORTS = (10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_SHARES = (0.9, 0.95, 0.99)

_SCRIPT = """
import json, shutil, subprocess, sys, zipfile
from pathlib import Path
import numpy
from encoder.model import Model

COMMON = '''
import json, statistics, sys, time
from pathlib import Path
import faiss, numpy
queries = numpy.load("/index/queries.npy")
def searched(search):
    passes = []
    for _ in range(3):
        times, rows = [], []
        for query in queries:
            start = time.perf_counter()
            found = search(query[None])
            times.append(time.perf_counter() - start)
            rows.append(found[0].tolist())
        passes.append(statistics.median(times) * 1e3)
    return min(passes), rows
'''
KIND = COMMON + '''
import faiss_index, parameters
given = json.loads(sys.argv[1])
settings = parameters.settings(parameters.complete({"document_tokens": 1, "query_tokens": 1, **given}))
folder = Path("/index/kind")
if sys.argv[2] == "build":
    folder.mkdir()
    faiss_index.build(faiss_index.Shards([Path("/index/shard")]), folder, settings, lambda rows: None)
else:
    faiss.omp_set_num_threads(1)
    def anonymous():
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))
    before, start = anonymous(), time.perf_counter()
    index = faiss_index.load(folder, settings, queries.shape[1])
    load = time.perf_counter() - start
    took, rows = searched(lambda query: index.search(query, 10)[1])
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(json.dumps([took, rows, load * 1e3, anonymous() - before, size / 2**20]))
'''
LIBRARY = COMMON + '''
sys.path.insert(0, "/index/libraries")
name, efforts = sys.argv[1], json.loads(sys.argv[2])
vectors = numpy.load("/index/shard/vectors.npy")
rows, dims = vectors.shape
if name == "faiss":
    faiss.omp_set_num_threads(2)
    index = faiss.IndexHNSWFlat(dims, 16, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = 100
    index.add(vectors)
    faiss.omp_set_num_threads(1)
    def search(query):
        return index.search(query, 10)[1]
elif name == "hnswlib":
    import hnswlib
    index = hnswlib.Index("ip", dims)
    index.init_index(rows, ef_construction=100, M=16)
    index.add_items(vectors, num_threads=2)
    index.set_num_threads(1)
    def search(query):
        return index.knn_query(query, 10)[0]
else:
    from usearch.index import Index
    index = Index(ndim=dims, metric="ip", dtype="f32", connectivity=16, expansion_add=100)
    index.add(numpy.arange(rows, dtype=numpy.uint64), vectors, threads=2)
    def search(query):
        return index.search(query[0], 10, threads=1).keys[None]
for effort in efforts:
    if name == "faiss":
        index.hnsw.efSearch = effort
    elif name == "hnswlib":
        index.set_ef(effort)
    else:
        index.expansion_search = effort
    print(json.dumps([effort, *searched(search)]), flush=True)
'''


def lines_of(script, *arguments):
    command = [sys.executable, "-c", script, *arguments]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in output.splitlines()]


model = Model.load(Path("/opt/assets/all-minilm-l6-v2"), "mean", "onnxruntime-int8", params={"normalise": True})
texts = [json.loads(line)["text"] for line in open("/job/queries.jsonl")]
queries = numpy.concatenate([model([text], 256) for text in texts]).astype("f4")
numpy.save("/index/queries.npy", queries)
Path("/index/shard").mkdir()
vectors = numpy.fromfile("/job/vectors.f32", dtype="<f4").reshape(-1, queries.shape[1])
numpy.save("/index/shard/vectors.npy", vectors)
for name, given in KINDS.items():
    lines_of(KIND, json.dumps(given), "build")
    print("said", json.dumps(["kind", name, *lines_of(KIND, json.dumps(given), "search")[0]]), flush=True)
    shutil.rmtree("/index/kind")
for wheel in Path("/job").glob("*.whl"):
    zipfile.ZipFile(wheel).extractall("/index/libraries")
for name in ("faiss", "hnswlib", "usearch"):
    for said in lines_of(LIBRARY, name, json.dumps(EFFORTS)):
        print("said", json.dumps(["library", name, *said]), flush=True)
"""


def _wheels() -> dict[str, bytes]:
    """Fetch or compile the other libraries, by file name."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, *_LIBRARIES]
        subprocess.run(command, check=True)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def main() -> int:
    """Measure all, print the tables in Markdown."""
    if len(sys.argv) != 3:
        sys.exit("usage: python -m benchmarks.vector_indexes INDEX DATASET")
    index, dataset = map(Path, sys.argv[1:])
    if not (index / "vectors.f32").is_file():
        sys.exit(f"{index}: no vectors.f32 here; name the folder `data` of an exact minilm index")
    files = {
        "vectors.f32": (index / "vectors.f32").read_bytes(),
        "queries.jsonl": (dataset / "queries.jsonl").read_bytes(),
        **_wheels(),
    }
    script = f"KINDS = {_KINDS!r}\nEFFORTS = {_EFFORTS!r}\n{_SCRIPT}"
    said = printed_by("minilm", script, files=files, memory="6g", cpuset="0,1")
    kinds = [line[1:] for line in said if line[0] == "kind"]
    exact = next(rows for name, _, rows, *_ in kinds if name == "flat")

    def share(rows: list[list[int]]) -> float:
        found = sum(len(set(ours) & set(best)) for ours, best in zip(rows, exact, strict=True))
        return found / sum(map(len, exact))

    print("| index | of the exact ten | a search | load | anonymous memory | size |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, took, rows, load, anonymous, size in kinds:
        print(f"| {name} | {share(rows):.1%} | {took:.2f} ms | {load:.0f} ms | {anonymous:.0f} MiB | {size:.0f} MiB |")
    print("\n| library | " + " | ".join(f"{wanted:.0%} of the exact ten" for wanted in _SHARES) + " |")
    print("|---|" + "---:|" * len(_SHARES))
    points: dict[str, list[tuple[float, float]]] = {}
    for _, library, _, took, rows in (line for line in said if line[0] == "library"):
        points.setdefault(library, []).append((share(rows), took))
    for library, found in points.items():
        least = [min((took for reached, took in found if reached >= wanted), default=None) for wanted in _SHARES]
        cells = ["not reached" if took is None else f"{took:.2f} ms" for took in least]
        print(f"| {library} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
