"""Compare adapters with their engines called directly: ``python -m benchmarks.fidelity [SYSTEM ...]``.

``bm25`` against Anserini's ``SimpleSearcher``; ``minilm-torch`` against a plain script of transformers and faiss;
``minilm`` against one of tokenizers, ONNX Runtime and faiss over the vectors of its own index; ``bt-splade-l-small``
(of ``make small``) against one of transformers and Anserini's ``SimpleImpactSearcher``.  Both ways run in one process
in the system's container on one CPU, over documents of SciFact, and answer the same queries in turn, so that a machine
that drifts favours none.  Both are warmed for 15 s with other queries than the timed ones: a compiler that has seen the
very queries flatters.  Exit code 1 when ids differ, a score differs by more than 1e-4, or the adapter's median or mean
latency is more than 5 % and more than 0.2 ms above the script's; CPU time is printed beside it, because other work on
the machine hardly changes it.  (ColBERT: ``fidelity_colbert``.)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.run_in_image import SCIFACT, printed_by

_SMALL = Path(__file__).resolve().parents[1] / "build" / "small"
_QUERIES = "bt-splade-l-query"

_BUILD = """
import gzip, json, os, statistics, time
from pathlib import Path
import adapter
from harness.driver.adapter import Corpus
from harness.records import Envelope

params = json.loads(Path("/job/params.json").read_text())
lines = gzip.open("/job/corpus.jsonl.gz", "rt").read().splitlines()[:DOCUMENTS]
Path("/index/corpus.jsonl").write_text("\\n".join(lines) + "\\n")
queries = [json.loads(line)["text"] for line in open("/job/queries.jsonl")]
warm, queries = queries[:100], queries[100:]
corpus = Corpus(Path("/index/corpus.jsonl"), len(lines))
index = Path("/index/made")
index.mkdir()
def engine():
    return adapter.ENGINE(params, Envelope("fidelity", 1, 3 << 30), Path("/opt/assets"))
child = os.fork()  # the searching process never held what a build holds
if not child:
    engine().build(corpus, index, lambda done: None)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0, "the build failed"
system = engine()
system.load(index)
"""

_BM25 = """
from jnius import autoclass
own = autoclass("io.anserini.search.SimpleSearcher")(str(index / "lucene"))
own.set_bm25(params["k1"], params["b"])
def by_hand(query):
    return [(hit.docid, hit.score) for hit in own.search(query, 10)]
"""

_SPLADE = """
from jnius import autoclass
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer
tokenizer, model = AutoTokenizer.from_pretrained("/job"), AutoModelForMaskedLM.from_pretrained("/job").eval()
terms = {number: token for token, number in tokenizer.get_vocab().items()}
own = autoclass("io.anserini.search.SimpleImpactSearcher")(str(index / "lucene"))
HashMap, Integer = autoclass("java.util.HashMap"), autoclass("java.lang.Integer")
def by_hand(query):
    batch = tokenizer(query, truncation=True, max_length=256, return_tensors="pt")
    with torch.inference_mode():
        weights = torch.log1p(torch.relu(model(**batch).logits)).amax(1)[0]
    asked = HashMap()
    for number in weights.nonzero()[:, 0].tolist():
        impact = round(params["quantisation"] * float(weights[number]))
        if impact:
            asked.put(terms[number], Integer(impact))
    return [(hit.docid, hit.score) for hit in own.search(asked, 10)]
"""

_DENSE = """
import faiss, torch
from transformers import AutoModel, AutoTokenizer
folder = "/opt/assets/" + params["model"]
tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
def encode(texts, most):
    batch = tokenizer(texts, padding=True, truncation=True, max_length=most, return_tensors="pt")
    with torch.inference_mode():
        states, mask = model(**batch).last_hidden_state, batch["attention_mask"][:, :, None]
        return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1)).numpy()
own, documents = faiss.IndexFlatIP(384), list(corpus)
for start in range(0, len(documents), 16):
    batch = [f"{each.title} {each.text}" for each in documents[start : start + 16]]
    own.add(encode(batch, params["document_tokens"]))
def by_hand(query):
    scores, rows = own.search(encode([query], params["query_tokens"]), 10)
    return [(documents[row].doc_id, score) for row, score in zip(rows[0].tolist(), scores[0].tolist())]
"""

_DENSE_INT8 = """
import faiss, numpy, onnxruntime
from tokenizers import Tokenizer
folder = Path("/opt/assets") / params["model"]
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.no_padding()
tokenizer.enable_truncation(params["query_tokens"])
settings = onnxruntime.SessionOptions()
settings.intra_op_num_threads = settings.inter_op_num_threads = 1
model = onnxruntime.InferenceSession(str(folder / "model.int8.onnx"), settings, providers=["CPUExecutionProvider"])
names, documents = [each.name for each in model.get_inputs()], [document.doc_id for document in corpus]
own = faiss.IndexFlatIP(384)
own.add(numpy.fromfile(index / "vectors.f32", dtype="<f4").reshape(-1, 384))
def by_hand(query):
    ids = numpy.array([tokenizer.encode(query).ids])
    given = {"input_ids": ids, "attention_mask": numpy.ones_like(ids), "token_type_ids": numpy.zeros_like(ids)}
    vector = model.run(None, {name: given[name] for name in names})[0]
    scores, rows = own.search(vector / numpy.linalg.norm(vector), 10)
    return [(documents[row], score) for row, score in zip(rows[0].tolist(), scores[0].tolist())]
"""

_IN_TURN = """
until = time.monotonic() + 15
while time.monotonic() < until:  # a JVM compiles what it finds hot
    for query in warm:
        system.search(query, 10), by_hand(query)
times, spent, same, difference = ([], []), ([], []), 0, 0.0
for number in range(5 * len(queries)):
    query = queries[number % len(queries)]
    answers = [None, None]
    for which in ((0, 1) if number % 2 else (1, 0)):
        start, before = time.perf_counter(), time.process_time()
        answers[which] = system.search(query, 10) if which == 0 else by_hand(query)
        spent[which].append(time.process_time() - before)
        times[which].append(time.perf_counter() - start)
    ours, theirs = answers
    same += [hit.doc_id for hit in ours] == [doc_id for doc_id, _ in theirs]
    difference = max([difference, *(abs(hit.score - score) for hit, (_, score) in zip(ours, theirs))])
figures = [of(each) * 1e3 for of in (statistics.median, statistics.mean) for each in (*times, *spent)]
print("said", json.dumps([same, len(times[0]), difference, *figures]))
"""


# What is asked directly, and over how many documents.
_DIRECTLY = {
    "bm25": (_BM25, 5183),
    "minilm-torch": (_DENSE, 200),
    "minilm": (_DENSE_INT8, 1000),
    "bt-splade-l-small": (_SPLADE, 1000),
}


def main(systems: list[str]) -> int:
    """Measure, print, judge."""
    unknown = sorted(set(systems) - _DIRECTLY.keys())
    if unknown:
        print(f"unknown system {unknown[0]!r}; known: {', '.join(_DIRECTLY)}", file=sys.stderr)
        return 2
    files = {name: (SCIFACT / name).read_bytes() for name in ("corpus.jsonl.gz", "queries.jsonl")}
    checkpoint = _SMALL / "models" / _QUERIES
    if checkpoint.is_dir():
        os.environ["HARNESS_IMAGES"] = str(_SMALL / "images")
        files |= {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    elif not systems or "bt-splade-l-small" in systems:
        print(f"{checkpoint}: no such checkpoint; run `make small` first, or name other systems", file=sys.stderr)
        return 2
    fine = [_judged(system, files) for system in systems or _DIRECTLY]  # all are measured, whatever the first did
    return 0 if all(fine) else 1


def _judged(system: str, files: dict[str, bytes]) -> bool:
    plain, documents = _DIRECTLY[system]
    script = f"DOCUMENTS = {documents}\n{_BUILD}{plain}{_IN_TURN}"
    ((same, queries, difference, *figures),) = printed_by(system, script, files=files, models=_SMALL / "models")
    print(
        f"{system}: {same} of {queries} answers have the same ids in the same order, "
        f"scores differ by at most {difference:.1e}"
    )
    names = ("median latency", "median CPU time", "mean latency", "mean CPU time")
    pairs = dict(zip(names, zip(figures[::2], figures[1::2], strict=True), strict=True))
    for name, (ours, theirs) in pairs.items():
        print(f"{name}: adapter {ours:.3f} ms, plain script {theirs:.3f} ms, ratio {ours / theirs:.3f}")
    slower = any(
        ours > max(1.05 * theirs, theirs + 0.2) for name, (ours, theirs) in pairs.items() if name.endswith("latency")
    )
    return bool(same == queries and difference <= 1e-4 and not slower)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
