"""Learned sparse retrieval in its image, against plain scripts."""

from __future__ import annotations

import docker
import numpy
import pytest

from harness.launch.images import builder, catalog
from tests.images.conftest import CACHE
from tests.images.impact import BUILT, PLAIN, Ask

pytestmark = pytest.mark.docker


@pytest.mark.parametrize("like", ["bt-splade-l", "splade-v2-distil"])
def test_splade_scores_are_dot_products_of_rounded_weights(ask: Ask, like: str) -> None:
    lines = """
names = ("bt-splade-l-document", "bt-splade-l-query") if "query_model" in params else ("splade-v2-distil",) * 2
of_document, of_query = map(plain, names)
vectors = {doc_id: of_document(text) for doc_id, text in documents.items()}
for query in queries:
    weights = of_query(query)
    def score(vector):
        return sum(weight * vector.get(term, 0) for term, weight in weights.items())
    best = sorted((-score(vector), doc_id.encode()) for doc_id, vector in vectors.items() if score(vector))
    say([[hit.doc_id, hit.score] for hit in system.search(query, 50)])
    say([[doc_id.decode(), -score] for score, doc_id in best])
say([system.threads(), sorted(system.stages_s()), system.device(), sorted(system.libraries())])
"""
    torch = {"document_backend": "torch", "backend": "torch"}  # another backend may round a weight the other way
    *rankings, (threads, stages, device, libraries) = ask(like, BUILT + PLAIN + lines, **torch)
    assert len(rankings) == 12
    for ours, theirs in zip(rankings[::2], rankings[1::2], strict=True):
        assert [doc_id for doc_id, _ in ours] == [doc_id for doc_id, _ in theirs]
        # Anserini sets equal scores apart in their last digits.
        assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], rel=1e-6)
    assert len(rankings[0]) > 20
    assert {"twin a", "twin b"} <= {doc_id for doc_id, _ in rankings[0]}
    assert threads == {"jvm_available_processors": 1, "torch_intraop": 1, "torch_interop": 1}
    assert stages == ["encode", "retrieve", "tokenise", "weigh"] and device == "cpu"
    assert {"anserini", "lucene", "java", "torch", "transformers", "tokenizers"} <= set(libraries)


def test_splade_ranks_as_anserinis_own_searcher_does(ask: Ask) -> None:
    lines = """
from jnius import autoclass
of_query = plain("bt-splade-l-query")
own = autoclass("io.anserini.search.SimpleImpactSearcher")(str(index / "lucene"))
weigh = autoclass("java.lang.Integer")
for query in queries:
    weights = autoclass("java.util.HashMap")()
    for term, weight in of_query(query).items():
        weights.put(term, weigh(weight))
    hits = own.search(weights, 10)
    say([[[hit.doc_id, hit.score] for hit in system.search(query, 10)], [[hit.docid, hit.score] for hit in hits]])
batched = system.search_batch(queries, 10)
say([[hit.doc_id for hit in hits] for hits in batched])
say([[hit.doc_id for hit in system.search(query, 10)] for query in queries])
"""
    *rankings, batched, alone = ask("bt-splade-l", BUILT + PLAIN + lines)
    for ours, theirs in rankings:
        assert ours == theirs
    assert sum(bool(ours) for ours, _ in rankings) >= 4
    assert batched == alone


# Each backend in a process of its own, which imports what it needs beside what its parent has imported.
RANK = """
import json, os, sys
from pathlib import Path
import adapter
from term_weights import methods
from harness.driver.adapter import Corpus
from harness.driver.records import Envelope
queries = ["the river of the north", "old glacier ice", "coffee and molten rock", ""]
def rank(params, name, assets):
    system = adapter.ENGINE({**params, "backend": name}, Envelope("test", 1, 1 << 30), assets)
    system.load(Path("/index/made"))
    encoder = system._queries.model
    writer = methods.writer({**params, "document_backend": name}, assets, 1, "cpu")
    ranked = [[[hit.doc_id, hit.score] for hit in system.search(query, 10)] for query in queries]
    lines = writer.lines(list(Corpus(Path("/job/more.jsonl"), 24))[:8], lambda done: None)
    facts = [name, "torch" in sys.modules, system.threads()]
    weights = encoder.run(encoder.tokenise(queries, 256)).tolist()
    print("said", json.dumps([facts, ranked, weights, [line["vector"] for line in lines]]), flush=True)
def ranks(params, *names):
    for name in names:
        child = os.fork()
        if not child:
            rank(params, name, Path("/tmp") / name.partition("-")[0])
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
"""


def test_backends_rank_identically(ask: Ask) -> None:
    lines = """
import os, shutil, subprocess
import term_weights.prepare
engine().build(corpus, index, lambda _: None)
for one, other in (("torch", "torch-bf16"), ("onnxruntime", "onnxruntime-int8"), ("openvino", "openvino-bf16")):
    place = Path("/tmp") / one
    shutil.copytree(Path("/job/models") / params["model"], place / params["model"])
    os.symlink("/opt/assets/anserini", place / "anserini")
    backends = {"backend": one, "document_backend": other}
    (place / "system.json").write_text(json.dumps({"build_params": {**params, **backends}, "search_params": {}}))
    assert term_weights.prepare.main([str(place), str(place / "system.json")]) == 0
ranks(params, "torch", "torch-bf16")
exported = ["onnxruntime", "onnxruntime-int8", "openvino", "openvino-bf16"]
subprocess.run([sys.executable, "-c", f"{script}ranks({params!r}, *{exported!r})"], check=True)
"""
    facts, *kinds = zip(*ask("splade-v2-distil", f"{RANK}script = {RANK!r}\n{lines}"), strict=True)
    names = [name for (name, _, _) in facts]
    assert names == ["torch", "torch-bf16", "onnxruntime", "onnxruntime-int8", "openvino", "openvino-bf16"]
    assert [torch for (_, torch, _) in facts] == [True, True, False, False, False, False]
    assert all(set(threads.values()) == {1} for (_, _, threads) in facts)
    rankings, weights, impacts = (dict(zip(names, values, strict=True)) for values in kinds)
    exact = rankings["torch"]
    for name in ("onnxruntime", "openvino"):
        assert numpy.abs(numpy.array(weights[name]) - numpy.array(weights["torch"])).max() <= 1e-4
        for ours, theirs in zip(impacts[name], impacts["torch"], strict=True):
            # A weight that lies on the edge may round the other way.
            assert all(abs(ours.get(term, 0) - theirs.get(term, 0)) <= 1 for term in {*ours, *theirs})
            assert sum(ours.get(term, 0) != theirs.get(term, 0) for term in {*ours, *theirs}) <= 0.01 * len(theirs)
        for ours, theirs in zip(rankings[name], exact, strict=True):
            assert [doc_id for doc_id, _ in ours] == [doc_id for doc_id, _ in theirs]
            assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], rel=5e-3)
    for name in ("torch-bf16", "onnxruntime-int8", "openvino-bf16"):
        for ours, theirs in zip(rankings[name], exact, strict=True):
            assert len({doc_id for doc_id, _ in ours} & {doc_id for doc_id, _ in theirs}) >= 0.8 * len(theirs)


def test_interrupted_build_resumes(ask: Ask) -> None:
    lines = """
import hashlib
def content(place):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(place.rglob("*.jsonl"))}
import jvm.indexing
kept = jvm.indexing.Indexer.build_files
seen = []
def keep(self, files, place, staged):
    seen.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in files])
    kept(self, files, place, staged)
jvm.indexing.Indexer.build_files = keep
whole = engine()
whole.build(corpus, index, lambda _: None)
say([whole.resumed_s(), sorted(path.name for path in index.iterdir())])
again = Path("/index/again")
again.mkdir()
class Enough(Exception): pass
def stop(done):
    if done > 12: raise Enough
try:
    engine().build(corpus, again, stop)
except Enough:
    say(sorted(path.name for path in again.rglob("0*")))
done = []
resumed = engine()
resumed.build(corpus, again, done.append)
left = sorted(path.name for path in again.iterdir())
say([resumed.resumed_s() > 0, done[:3], seen[0] == seen[1], len(seen[0]), left])
"""
    fresh, left, resumed = ask("bt-splade-l", lines)
    assert fresh == [0.0, ["built-with.json", "lucene"]]
    assert left[0] == "000000"
    assert resumed == [True, [0, 8, 9], True, 3, ["built-with.json", "lucene"]]


@pytest.mark.parametrize("like", ["bt-splade-l", "unicoil", "deepct", "doct5query"])
def test_odd_queries_are_answered(ask: Ask, like: str) -> None:
    lines = """
odd = ["", "  ", "the of and", "\\U0001f600", "\\ud800", "coffee\\x00", "river " * 5000, 'AND (foo* "']
say([[hit.doc_id for hit in system.search(query, 3)] for query in odd])
say(system.libraries()["jvm_options"])
system.search("river", 3)
say(system.counts())
from term_weights import methods
from harness.driver.adapter import Document
long = [Document("long", "", "market " * times + "zebra") for times in (400, 100_000)]
short, whole = methods.writer(params, assets, 1, "cpu").lines(long, lambda done: None)
say([short == whole, "zebra" in json.dumps(whole)])
"""
    answers, options, work, (same, zebra) = ask(like, BUILT + lines)
    # The encoder of queries alone: one that only documents have is not in a query's work.
    assert work.keys() == ({"flop", "parameters"} if like in ("bt-splade-l", "unicoil") else set())
    assert all(count > 1000 for count in work.values())
    assert len(answers) == 8 and all(len(answer) == len(set(answer)) <= 3 for answer in answers)
    assert len(answers[6]) == 3
    if like in ("deepct", "doct5query"):
        assert answers[:4] == [[], [], [], []]
    # Behind the 100,000th token, nothing of an encoded document is seen; text that is kept whole has it.
    assert same if like == "bt-splade-l" else zebra == (like == "doct5query")
    assert "-XX:ActiveProcessorCount=1" in options


def test_the_impact_image_is_small(engine: docker.DockerClient) -> None:
    image = builder.ImageBuilder(engine, CACHE).ensure_engine(catalog.system("bt-splade-l"))
    assert image.size_bytes <= 1.6e9
