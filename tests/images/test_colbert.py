"""The ColBERT engine in its image answers as when called directly."""

from __future__ import annotations

import docker
import pytest

from harness.launch.images import builder
from tests.images.colbert import SIZES, WHOLE, Inside, documents, queries
from tests.images.conftest import DOCUMENTS, MADE_CLOCK
from tests.support.chance import drawn
from tests.support.container_output import output_of

pytestmark = pytest.mark.docker

# No line of this project: the engine as its README uses it, but for the extensions, which the image has compiled.
PLAIN = """
import importlib.util, json, os, sys
os.environ["GIT_PYTHON_REFRESH"] = "quiet"
import torch
from torch.utils import cpp_extension
def ready(name, sources, **_):
    spec = importlib.util.spec_from_file_location(name, "/opt/colbert/extensions/search.so")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
cpp_extension.load = ready
torch.set_num_threads(1)
from colbert import Searcher
from colbert.data import Collection
from colbert.infra import ColBERTConfig, Run, RunConfig
told = json.loads(sys.argv[1])
with Run().context(RunConfig(nranks=1, experiment="plain", root="/tmp")):
    searcher = Searcher(
        index=told["index"], checkpoint=told["checkpoint"], collection=Collection(data=[""] * told["documents"]),
        config=ColBERTConfig(root="/tmp"),
    )
answers = {}
for size, settings in told["sizes"].items():
    k = settings.pop("k")
    searcher.configure(**settings)
    answers[size] = [list(zip(*searcher.search(query, k=k)[::2])) for query in told["queries"]]
print("answers", json.dumps(answers))
"""


def test_plaid_answers_as_direct_calls_of_the_engine(colbert: Inside) -> None:
    lines = """
made = built(PLAID, given["documents"])
told = {"index": str(made / "plaid"), "checkpoint": "/models/tiny", "documents": len(given["documents"])}
told.update(sizes=SIZES, queries=given["queries"])
plain = [sys.executable, "-c", given["plain"], json.dumps(told)]
said = subprocess.run(plain, check=True, capture_output=True, text=True).stdout
(answers,) = [json.loads(line.removeprefix("answers ")) for line in said.splitlines() if line.startswith("answers ")]
for size, settings in SIZES.items():
    ours = loaded({**PLAID, **settings}, made)
    found = [hits(ours.search(query, settings["k"])) for query in given["queries"]]
    ids = [document["_id"] for document in given["documents"]]
    theirs = [[[ids[number], score] for number, score in answer] for answer in answers[size]]
    say([found, theirs])
"""
    compared = colbert(lines, documents=documents(400), queries=queries(8), plain=PLAIN)
    for size, (ours, theirs) in zip(SIZES, compared, strict=True):
        # A quarter of "ndocs" is scored in full.
        most = min(SIZES[size]["k"], SIZES[size]["ndocs"] // 4)
        for found, wanted in zip(ours, theirs, strict=True):
            assert 5 < len(found) <= most
            assert [doc_id for doc_id, _ in found] == [doc_id for doc_id, _ in wanted]
            assert [score for _, score in found] == pytest.approx([score for _, score in wanted], abs=1e-4)


def test_each_size_scores_the_configured_number_of_passages(colbert: Inside) -> None:
    lines = """
made = built(PLAID, given["documents"])
for settings in SIZES.values():
    ready = loaded({**PLAID, **settings}, made)
    counts = []
    for query in given["queries"]:
        found = ready.search(query, 10)
        counts.append([ready.counts()["candidates"], ready.counts()["scored"], len(found)])
    say(counts)
# The sizes keep apart in one process too, whatever was searched before.
small, large = loaded({**PLAID, **SIZES["s"]}, made), loaded({**PLAID, **SIZES["l"]}, made)
for ready in (small, large, small):
    ready.search("ice water", 10)
    say(ready.counts()["scored"])
"""
    small, medium, large, *again = colbert(lines, documents=documents(800), queries=queries(12))
    for few, more, most in zip(small, medium, large, strict=True):
        assert few[0] <= more[0] <= most[0], "more cells, more candidates"
        assert few[1] == min(64, few[0]) and more[1] == min(256, more[0]) and most[1] == min(1024, most[0])
        assert few[2] == more[2] == most[2] == 10
    assert sum(counts[1] for counts in small) < sum(counts[1] for counts in medium) < sum(counts[1] for counts in large)
    first, second, third = again
    assert first == third < second


def test_search_without_hits_reports_no_counts_of_the_previous_one(colbert: Inside) -> None:
    lines = """
ready = loaded(PLAID, built(PLAID, given["documents"]))
ready.search("ice water", 5)
before = ready.counts()
ready._searcher._searcher.dense_search = lambda vectors, k: ([], [], [])
found = ready.search("ice water", 5)
say([before, len(found), ready.counts(), ready.stages_s()])
"""
    ((before, found, after, stages_s),) = colbert(lines, documents=documents(60))
    assert before["candidates"] >= before["scored"] > 0
    assert found == 0 and after == {**before, "candidates": 0, "scored": 0}, "the query was encoded all the same"
    assert stages_s["retrieve"] >= 0 and stages_s["rerank"] == 0


def test_uncompressed_scores_equal_numpy(colbert: Inside) -> None:
    lines = """
import numpy
EVERY = {**UNCOMPRESSED, "candidates": "all"}
made = built(EVERY, given["documents"])
every = loaded(EVERY, made)
vectors = numpy.load(made / "uncompressed/0.vectors.npy").astype(numpy.float32)
lengths = numpy.load(made / "uncompressed/0.lengths.npy")
firsts = numpy.concatenate([[0], lengths.cumsum()])
for query in given["queries"]:
    asked = every._searcher.encode([query])[0].numpy()
    scores = [
        float((vectors[first:last] @ asked.T).max(0).sum()) for first, last in zip(firsts, firsts[1:], strict=False)
    ]
    order = sorted(range(len(scores)), key=lambda number: (-scores[number], number))[:10]
    say([hits(every.search(query, 10)), [[given["documents"][number]["_id"], scores[number]] for number in order]])
nearest = built(UNCOMPRESSED, given["documents"], "faiss")
ready = loaded({**UNCOMPRESSED, "nprobe": 4096, "faiss_depth": 100_000}, nearest)
say([hits(ready.search(query, 10)) == hits(every.search(query, 10)) for query in given["queries"]])
say([ready._searcher._of.nbytes, len(vectors)])
few = loaded({**UNCOMPRESSED, "nprobe": 1, "faiss_depth": 5}, nearest)
found = few.search(given["queries"][0], 10)
best = dict(hits(every.search(given["queries"][0], 200)))
say([few.counts(), sorted(few.stages_s()), all(abs(best[hit.doc_id] - hit.score) < 1e-4 for hit in found)])
"""
    *pairs, same, (taken_bytes, vectors), (counts, stages, exact) = colbert(
        lines, documents=documents(200), queries=queries(12)
    )
    for ours, theirs in pairs:
        assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=1e-4)
        assert {doc_id for doc_id, _ in ours[:9]} <= {doc_id for doc_id, _ in theirs}
    assert all(same), "with all vectors brought by faiss, nothing is left out"
    assert taken_bytes == 4 * vectors, "of each vector, the passage that it is of"
    assert 0 < counts["candidates"] == counts["scored"] < 200
    assert stages == ["encode", "rerank", "retrieve", "tokenise"] and exact


@pytest.mark.parametrize(("method", "changes"), drawn("meaning", WHOLE, 2))
def test_late_interaction_ranks_by_meaning_and_describes_itself(
    colbert: Inside, method: str, changes: dict[str, object]
) -> None:
    lines = """
params = {**given[given["method"]], **given["changes"], "checkpoint": "trained"}
done = []
building = engine(params)
made = folder("made")
building.build(corpus(given["documents"]), made, done.append)
ready = loaded(params, made)
for query in ("slow rivers of frozen ice", "mountains throw molten rock", "people drink hot coffee"):
    say(hits(ready.search(query, 100)))
say([done[0], done[-1], ready.threads(), ready.device(), sorted(ready.stages_s()), building.resumed_s()])
say(sorted(path.name for path in made.iterdir()))
asked = ["frozen water", "a hot drink " * 40, ""]
say([[hits(found) for found in ready.search_batch(asked, 3)], [hits(ready.search(query, 3)) for query in asked]])
"""
    timed = """
takes(ready._tokenised, "_plain", 1)
takes(ready._searcher.checkpoint, "query", 10)
takes(ready._searcher, "search", 100)
takes(adapter, "Hit", 1000)
start = now[0]
ready.search_batch(["ice", "lava"], 3)
say([ready.stages_s(), now[0] - start])
ready.close()
"""
    # PLAID learns its cells from what is there: four documents are too few.
    collection = [*DOCUMENTS, *documents(60)]
    *rankings, facts, files, (batched, alone), (stages, spent) = colbert(
        lines + MADE_CLOCK + timed, method=method, changes=changes, documents=collection
    )
    told = {document["_id"] for document in DOCUMENTS}
    best = [next(doc_id for doc_id, _ in ranking if doc_id in told) for ranking in rankings]
    assert best[0] == "glacier" and best[1] in ("volcano", "twin") and best[2] == DOCUMENTS[2]["_id"]
    for ranking in rankings:
        scores = [score for _, score in ranking]
        assert 0 < len(ranking) <= len(collection) and scores == sorted(scores, reverse=True)
        assert all(0 < score < 32.001 for score in scores), "32 query tokens, each at most one"
    first, last, threads, *rest = facts
    assert [first, last, *rest] == [0, len(collection), "cpu", ["encode", "rerank", "retrieve", "tokenise"], 0.0]
    assert threads.keys() > {"torch_intraop", "torch_interop", "faiss_omp"} and set(threads.values()) == {1}
    assert files == sorted(["built-with.json", "ids.bin", "ids.npy", method])
    for ours, theirs in zip(batched, alone, strict=True):
        assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=1e-4)
    assert stages == {"tokenise": 1, "encode": 10, "retrieve": 6200, "rerank": 0} and sum(stages.values()) == spent


def test_image_has_no_compiler(engine: docker.DockerClient, colbert_image: builder.Image) -> None:
    script = "import shutil; print([shutil.which(name) for name in ('g++', 'cc', 'ninja')])"
    tools = output_of(engine, colbert_image.digest, ["-c", script], entrypoint=["python3"])
    assert tools.decode().strip() == "[None, None, None]"
