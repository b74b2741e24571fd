"""Tests of exact and approximate bi-encoder indexes and of interrupted builds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.images.conftest import Probe
from tests.images.dense import SCIFACT

pytestmark = pytest.mark.docker

# Least share of the exact ten best that an approximate index finds on 400 documents of SciFact.
RECALL = {"hnsw": 0.98, "sq8": 0.95, "ivfpq": 0.7, "sq8-rescored": 0.99, "binary": 0.5, "binary-rescored": 0.85}

DOCUMENTS, QUERIES = 400, 12


# Builds every kind of index twice, and asks it what numpy answers from the same vectors.
EACH_INDEX = f"""
import shutil, time
import numpy
from encoder.model import Model
from harness.driver.adapter import Corpus
corpus = Corpus(Path("/job/scifact.jsonl"), {DOCUMENTS})
queries = json.loads(Path("/job/texts.json").read_text())[1]
short = {{"document_tokens": 32, "query_tokens": 32}}
indexes = {{
    "flat": {{}},
    "cosine": {{"similarity": "cosine", "normalise": False}},
    "l2": {{"similarity": "l2"}},
    "ip": {{"normalise": False}},
    "hnsw": {{"index": "hnsw", "hnsw_m": 16, "hnsw_ef_construction": 100, "hnsw_ef_search": 64}},
    "sq8": {{"index": "sq8"}},
    "ivfpq": {{"index": "ivfpq", "ivf_nlist": 16, "ivf_nprobe": 8, "pq_m": 96, "pq_nbits": 7}},
    "sq8-rescored": {{"index": "sq8", "keep_vectors": True, "rescore": 4}},
    "binary": {{"index": "binary"}},
    "binary-rescored": {{"index": "binary", "keep_vectors": True, "rescore": 4}},
}}
# Encoding is the same for all: the model is asked once for each text.
model = Model.load(Path("/opt/assets/all-minilm-l6-v2"), "mean")
texts = [f"{{document.title}} {{document.text}}" for document in corpus]
raw = model.many(texts, 32, 16)
asked = numpy.concatenate([model([query], 32) for query in queries])
ids = [document.doc_id for document in corpus]
unit = lambda rows: rows / numpy.linalg.norm(rows, axis=1, keepdims=True)
exact = {{
    "flat": unit(asked) @ unit(raw).T,
    "cosine": unit(asked) @ unit(raw).T,
    "ip": asked @ raw.T,
    "l2": -((unit(asked)[:, None] - unit(raw)[None]) ** 2).sum(2),
}}
def known(self, documents, done):
    done(len(documents))
    rows = raw[[ids.index(document.doc_id) for document in documents]]
    return unit(rows) if self._model._normalise else rows
adapter.ENGINE._vectors = known

for name, changes in indexes.items():
    dense = engine(**short, **changes)
    place, again = Path("/index") / name, Path("/index/again")
    for folder in (place, again):
        folder.mkdir()
        engine(**short, **changes).build(corpus, folder, lambda _: None)
    equal = all((again / path.name).read_bytes() == path.read_bytes() for path in place.iterdir())
    shutil.rmtree(again)
    dense.load(place)
    truth = exact.get(name, exact["flat"])
    best = [[ids[row] for row in rows] for rows in numpy.argsort(-truth, axis=1, kind="stable")[:, :10]]
    hits = [dense.search(query, 10) for query in queries]
    found = [[hit.doc_id for hit in ranked] for ranked in hits]
    # Documents whose scores differ by rounding alone may change places.
    same = sum(numpy.allclose(*(row[[ids.index(each) for each in ranked]] for ranked in (a, b)), rtol=1e-5, atol=1e-6)
               for row, a, b in zip(truth, best, found))
    recall = sum(len(set(a) & set(b)) for a, b in zip(best, found)) / {10 * QUERIES}
    difference = max(abs(hit.score - truth[number, ids.index(hit.doc_id)])
                     for number, ranked in enumerate(hits) for hit in ranked)
    size = sum(path.stat().st_size for path in place.iterdir() if path.name.startswith("vectors"))
    say([name, same, recall, float(difference), equal, size, sorted(path.name for path in place.iterdir())])
"""


def test_exact_index_is_exact_and_approximate_index_is_close(probe: Probe, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "scifact.jsonl").write_text("".join(json.dumps(each) + "\n" for each in SCIFACT.documents(DOCUMENTS)))
    (job / "texts.json").write_text(json.dumps(SCIFACT.texts(0, QUERIES)))
    answers = {name: rest for name, *rest in probe("minilm-torch", EACH_INDEX)}
    for name in ("flat", "cosine", "ip", "l2"):
        same, recall, difference, equal, size, _ = answers[name]
        assert recall == 1 and same == QUERIES, name
        assert difference < 1e-4
        assert equal, "two builds of one corpus give the same bytes"
        assert size == DOCUMENTS * 384 * 4
    for name, least in RECALL.items():
        _, recall, _, equal, _, files = answers[name]
        assert least <= recall, (name, recall)
        assert equal, name
        assert "vectors.faiss" in files
    assert answers["sq8"][4] < DOCUMENTS * 384 * 1.1 and answers["ivfpq"][4] < answers["sq8"][4] * 2
    assert answers["hnsw"][2] < 1e-4, "its scores are exact, its candidates are not"
    assert 1e-4 < answers["sq8"][2] < 0.02 and answers["ivfpq"][2] > answers["sq8"][2]
    for name in ("sq8-rescored", "binary-rescored"):
        assert answers[name][2] < 1e-4, "scores are those of the vectors"
        assert {"vectors.faiss", "vectors.f32"} <= set(answers[name][5])
    assert answers["binary"][4] < DOCUMENTS * 384 / 8 + 1000


def test_an_approximate_index_of_too_few_documents_is_refused(probe: Probe) -> None:
    lines = """
for changes in ({"index": "ivfpq"}, {"index": "ivfpq", "ivf_nlist": 2, "pq_nbits": 1, "pq_m": 7}):
    say(refused(lambda: engine(**changes).build(corpus, index, lambda _: None)))
"""
    few, uneven = probe("minilm-torch", lines)
    assert few.startswith("ivf_nlist 1024 and pq_nbits 8 are learned from at least 1024 documents, there are 4")
    assert uneven == "pq_m is 7, must divide the 384 dimensions of a vector"


def test_interrupted_build_resumes_and_ends_in_the_same_bytes(probe: Probe) -> None:
    lines = """
from encoder.model import Model
whole = Path("/index/whole")
whole.mkdir()
engine(shard_documents=1).build(corpus, whole, lambda _: None)

encoded = []
run = Model.run
Model.run = lambda self, batch: encoded.append(len(batch)) or run(self, batch)

def cut(done):
    if done == 3:
        raise KeyboardInterrupt

def attempt(progress, **changes):
    encoded.clear()
    dense = engine(**{"shard_documents": 1, **changes})
    told = []
    try:
        dense.build(corpus, index, lambda done: (told.append(done), progress(done)))
        ended = "built"
    except KeyboardInterrupt:
        ended = "cut short"
    say([ended, sum(encoded) - (1 if encoded else 0), dense.resumed_s() > 0, told[0], told[-1]])

attempt(cut)
left = sorted(path.name for path in (index / ".building" / "shards").iterdir() if path.is_dir())
say(left)
attempt(lambda _: None)
say([sorted(path.name for path in index.iterdir()),
     all((index / path.name).read_bytes() == path.read_bytes() for path in whole.iterdir())])
# What was made with other parameters, or is not whole, is made again.
attempt(cut)
attempt(lambda _: None, document_prefix="passage: ")
attempt(cut)
(index / ".building" / "shards" / "000001" / "done.json").unlink()
attempt(lambda _: None)
"""
    first, left, second, ended, _, other, _, mended = probe("minilm-torch", lines)
    # A model that is loaded encodes one empty text to see how long its vectors are; it is not counted.
    assert first == ["cut short", 3, False, 0, 3]
    assert left[:2] == ["000000", "000001"]
    assert second[0] == "built" and second[1] in (1, 2) and second[2:] == [True, 0, 4]
    assert ended == [["built-with.json", "ids.bin", "ids.npy", "vectors.f32"], True]
    assert other == ["built", 4, False, 0, 4]
    assert mended[0] == "built" and mended[1] >= 2


# Codes restated in numpy: a byte a dimension between its least and greatest value, and a bit for its sign.
RESTATED = """
import faiss, faiss_index, numpy
draw = numpy.random.default_rng(7)
rows = draw.standard_normal((3000, 64), dtype=numpy.float32)
rows[:, :8] *= 3
asked = rows[:40] + draw.standard_normal((40, 64), dtype=numpy.float32)
shard = Path("/index/shard")
shard.mkdir()
numpy.save(shard / faiss_index.VECTORS, rows)
base = {"document_tokens": 8, "query_tokens": 8, "keep_vectors": True}
low, span = rows.min(0), rows.max(0) - rows.min(0)
bytes_of = numpy.clip((rows - low) / span * 255, 0, 255).astype(int)
decoded = (low + (bytes_of + 0.5) / 255 * span).astype(numpy.float32)
nearest = {
    "sq8": {"ip": -asked @ decoded.T, "l2": ((asked[:, None] - decoded[None]) ** 2).sum(2)},
    "binary": dict.fromkeys(("ip", "l2"), ((asked >= 0)[:, None] != (rows >= 0)[None]).sum(2).astype(numpy.float32)),
}
truth = {"ip": asked @ rows.T, "l2": -((asked[:, None] - rows[None]) ** 2).sum(2)}
for kind in nearest:
    for similarity, rescore in (("ip", 0), ("ip", 3), ("l2", 0), ("l2", 3)):
        import parameters
        given = {**base, "index": kind, "similarity": similarity, "rescore": rescore}
        settings = parameters.settings(parameters.complete(given))
        place = Path("/index") / f"{kind}-{similarity}-{rescore}"
        place.mkdir()
        faiss_index.build(faiss_index.Shards([shard]), place, settings, lambda _: None)
        index = faiss_index.load(place, settings, 64)
        values, found = index.search(asked, 10)
        scores, distances = faiss_index.scores(values, settings), nearest[kind][similarity]
        wanted = truth[similarity] if rescore else -distances
        off = max(float(abs(wanted[n, found[n]] - scores[n]).max()) for n in range(40))
        # Of candidates with one distance any may be left out.
        wrong = 0
        for number in range(40):
            last = numpy.sort(distances[number])[10 * max(rescore, 1) - 1]
            slack = 1e-3 if kind == "sq8" else 0
            sure = numpy.flatnonzero(distances[number] < last - slack)
            missed = sorted(set(sure.tolist()) - set(found[number].tolist()))
            wrong += bool((distances[number, found[number]] > last + slack).any())
            wrong += bool(missed) and float(wanted[number, missed].max()) > float(scores[number].min()) + 1e-3
        ordered = bool((numpy.diff(scores, axis=1) <= 0).all())
        again = faiss_index.scores_of(index, found[0].astype(numpy.int64), asked[:1], settings) if rescore else None
        say([kind, similarity, rescore, off, int(wrong), ordered, again is None or again == scores[0].tolist()])
"""


def test_codes_and_rescoring_equal_a_restatement(probe: Probe) -> None:
    answers = probe("minilm-torch", RESTATED)
    assert len(answers) == 8
    for kind, similarity, rescore, off, wrong, ordered, again in answers:
        assert off <= (0 if kind == "binary" and not rescore else 1e-3), (kind, similarity, rescore)
        assert wrong == 0 and ordered and again, (kind, similarity, rescore)


def test_loaded_vectors_take_no_anonymous_memory(probe: Probe) -> None:
    lines = """
import faiss_index, numpy, parameters
draw = numpy.random.default_rng(7)
shard = Path("/index/shard")
shard.mkdir()
numpy.save(shard / faiss_index.VECTORS, draw.standard_normal((40_000, 384), dtype=numpy.float32))
def anonymous():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024
for kind, changes in (("flat", {}), ("sq8", {}), ("binary", {"keep_vectors": True, "rescore": 4})):
    given = {"document_tokens": 8, "query_tokens": 8, "index": kind, **changes}
    settings = parameters.settings(parameters.complete(given))
    place = Path("/index") / kind
    place.mkdir()
    faiss_index.build(faiss_index.Shards([shard]), place, settings, lambda _: None)
    query = draw.standard_normal((1, 384), dtype=numpy.float32)
    before = anonymous()
    index = faiss_index.load(place, settings, 384)
    index.search(query, 10)
    say([kind, anonymous() - before])
"""
    grown = dict(probe("minilm-torch", lines))
    assert grown.keys() == {"flat", "sq8", "binary"}
    assert all(mib < 4 for mib in grown.values()), grown  # 59 MiB of vectors, 15 of bytes
