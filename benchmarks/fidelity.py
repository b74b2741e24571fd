"""Compare adapters with their engines called directly: ``python -m benchmarks.fidelity [SYSTEM ...]``.

``bm25`` against Anserini's ``SimpleSearcher``; ``minilm-torch`` against a plain script of transformers and faiss;
``bt-splade-l-small`` (of ``make small``) against one of transformers and Anserini's ``SimpleImpactSearcher``; the
others against scripts of their own libraries alone.  Both ways run in one process in the system's container on one
CPU, over documents of SciFact, and answer the same queries in turn, so that a machine that drifts favours none.  Both
are warmed for 15 s with other queries than the timed ones: a compiler that has seen the very queries flatters.
Exit code 1 when ids differ, a score differs by more than 1e-4, or the adapter's median latency or CPU time is more than
5 % and more than 3 microseconds above the script's.
(ColBERT: ``fidelity_colbert``.)
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
from harness.driver.records import Envelope

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
settings.add_session_config_entry("session.x64quantprecision", "1")
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

# Its own parser counts a word once, however often it comes; here a weight says how often.
_TANTIVY = """
import shutil, tantivy
from collections import Counter
from tantivy import Occur, Query
shutil.copytree(index, "/index/own")
opened = tantivy.Index.open("/index/own")
own = opened.searcher()
def by_hand(query):
    counts = Counter(system._analyser.analyze(query))
    each = (Query.boost_query(Query.term_query(opened.schema, "text", term), count) for term, count in counts.items())
    found = own.search(Query.boolean_query([(Occur.Should, one) for one in each]), 10)
    return [(own.doc(address)["id"][0], score) for score, address in found.hits]
"""

_BM25S = """
import bm25s
own, ids = bm25s.BM25.load(index, mmap=True), [each.doc_id for each in corpus]
def by_hand(query):
    rows, scores = own.retrieve([own.get_tokens_ids(system._tokens(query))], k=10, show_progress=False)
    return [(ids[row], score) for row, score in zip(rows[0].tolist(), scores[0].tolist()) if score > 0]
"""

_PISA = """
import numpy, _pisathon
from collections import Counter
own = _pisathon.RetrievalContext()
_pisathon.prepare_index(own, str(index), "block_simdbp", "bm25", "", bm25_k1=params["k1"], bm25_b=params["b"])
def by_hand(query):
    counts = {term: float(count) for term, count in Counter(system._tokens(query)).items()}
    ids, scores, places = (numpy.empty(10, dtype=each) for each in (object, numpy.float32, numpy.int32))
    found = _pisathon.retrieve(
        own, params["algorithm"], [(0, counts)], k=10, threads=1, pretokenised=1, query_weighted=1,
        result_qidxs=places, result_docnos=ids, result_ranks=places, result_scores=scores,
    )
    return list(zip(ids[:found].tolist(), scores[:found].tolist()))
"""

_STATIC = """
import numpy
from model2vec import StaticModel
from tokenizers import Tokenizer
folder = "/opt/assets/static/"
own = StaticModel(numpy.load(folder + "embeddings.npy"), Tokenizer.from_file(folder + "tokenizer.json"), normalize=True)
vectors, ids = numpy.load(index / "vectors.npy"), [each.doc_id for each in corpus]
def by_hand(query):
    scores = vectors @ own.encode([query], max_length=512, use_multiprocessing=False)[0].astype(numpy.float32)
    best = numpy.argpartition(scores, -10)[-10:]
    best = best[numpy.argsort(-scores[best])]
    return [(ids[row], score) for row, score in zip(best.tolist(), scores[best].tolist())]
"""

_IMPACTS = """
import numpy, openvino
from tokenizers import Tokenizer
folder = "/opt/assets/splade-tiny/"
tokenizer = Tokenizer.from_file(folder + "tokenizer.json")
tokenizer.enable_truncation(256)
limits = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": 1}
model = openvino.compile_model(folder + "model.xml", "CPU", limits)
def impacts_of(query):
    ids = numpy.array([tokenizer.encode(query).ids])
    given = {"input_ids": ids, "attention_mask": numpy.ones_like(ids), "token_type_ids": numpy.zeros_like(ids)}
    impacts = numpy.rint(model(given)[0][0] * params["query_quantisation"])
    kept = impacts.nonzero()[0]
    return kept.tolist(), impacts[kept].tolist()
"""

# BMP is exact with a scale, a last block, and so large a k that it takes no threshold; see images/bmp/block_max.py.
_BMP = (
    _IMPACTS
    + """
import bmp
terms = [tokenizer.id_to_token(number) for number in range(tokenizer.get_vocab_size())]
own = bmp.Searcher(str(index / "blocks.bmp"))
def by_hand(query):
    asked = {terms[number]: float(impact) for number, impact in zip(*impacts_of(query))}
    ids, scores = own.search({**asked, " scale": 32.0, " 1": 1.0}, k=1001, alpha=1.0, beta=1.0)
    return list(zip(ids, scores))[:10]
"""
)

_SEISMIC = (
    _IMPACTS
    + """
import seismic
own = system._index
texts = numpy.array([str(number) for number in range(tokenizer.get_vocab_size())], dtype=seismic.get_seismic_string())
def by_hand(query):
    numbers, impacts = impacts_of(query)
    asked = texts[numbers], numpy.array(impacts, dtype=numpy.float32)
    found = own.search("", *asked, 10, params["query_cut"], params["heap_factor"])
    return [(doc_id, score) for _, score, doc_id in found]
"""
)

_IN_TURN = """
def ranked(pairs):  # of equal scores any document may come first, or be the last one in
    return [doc_id for doc_id, score in sorted(pairs, key=lambda each: (-each[1], each[0])) if score > pairs[-1][1]]
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
    same += ranked([(hit.doc_id, hit.score) for hit in ours]) == ranked(theirs)
    difference = max([difference, *(abs(hit.score - score) for hit, (_, score) in zip(ours, theirs))])
figures = [of(each) * 1e3 for of in (statistics.median, statistics.mean) for each in (*times, *spent)]
print("said", json.dumps([same, len(times[0]), difference, *figures]))
"""


# The systems to query directly, and their number of documents.
_DIRECTLY = {
    "bm25": (_BM25, 5183),
    "tantivy": (_TANTIVY, 5183),
    "bm25s": (_BM25S, 5183),
    "pisa": (_PISA, 5183),
    "minilm-torch": (_DENSE, 200),
    "minilm": (_DENSE_INT8, 1000),
    "static-minilm": (_STATIC, 5183),
    "bt-splade-l-small": (_SPLADE, 1000),
    "bmp-splade-tiny": (_BMP, 1000),
    "seismic-splade-tiny": (_SEISMIC, 1000),
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
        print(
            f"{checkpoint}: the checkpoint does not exist; run `make small` first, or name other systems",
            file=sys.stderr,
        )
        return 2
    fine = [_judged(system, files) for system in systems or _DIRECTLY]  # a failure does not stop the others
    return 0 if all(fine) else 1


def _judged(system: str, files: dict[str, bytes]) -> bool:
    plain, documents = _DIRECTLY[system]
    script = f"DOCUMENTS = {documents}\n{_BUILD}{plain}{_IN_TURN}"
    ((same, queries, difference, *figures),) = printed_by(system, script, files=files, models=_SMALL / "models")
    print(
        f"{system}: {same} of {queries} answers have the same ids in the same order (equal scores apart), "
        f"scores differ by at most {difference:.1e}"
    )
    names = ("median latency", "median CPU time", "mean latency", "mean CPU time")
    pairs = dict(zip(names, zip(figures[::2], figures[1::2], strict=True), strict=True))
    for name, (ours, theirs) in pairs.items():
        print(f"{name}: adapter {ours:.3f} ms, plain script {theirs:.3f} ms, ratio {ours / theirs:.3f}")
    # Medians, because other work on the machine decides a mean of fractions of a millisecond.
    slower = any(
        ours > max(1.05 * theirs, theirs + 0.003) for name, (ours, theirs) in pairs.items() if name.startswith("median")
    )
    return bool(same == queries and difference <= 1e-4 and not slower)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
