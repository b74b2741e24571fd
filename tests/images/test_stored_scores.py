"""Second stages over stored vectors: `score` of the dense and the ColBERT engine equals their own full search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.images.colbert import WHOLE, Inside, documents, queries
from tests.images.conftest import Probe
from tests.images.dense import SCIFACT, put_small_checkpoints
from tests.support.chance import drawn

pytestmark = pytest.mark.docker

DENSE = """
import small
from encoder.prepare import prepare
texts, asked = json.loads(Path("/job/texts.json").read_text())
small.make(Path("/index/assets/m"), "bert", texts=texts, layers=3)
base = {"model": "m", "pooling": "mean", "document_tokens": 64, "query_tokens": 32}
prepare(Path("/index/assets"), base)
def loaded(number, changes):
    place = Path(f"/index/{number}")
    place.mkdir()
    made = adapter.ENGINE({**base, **changes}, Envelope("test", 1, 1 << 30), Path("/index/assets"))
    made.build(Corpus(Path("/job/scifact.jsonl"), 40), place, lambda _: None)
    made.load(place)
    return made
kinds = [{}, {"similarity": "l2"}, {"similarity": "cosine", "index": "hnsw"}, {"index": "sq8"},
         {"index": "binary", "keep_vectors": True, "rescore": 4}]
for number, changes in enumerate(kinds):
    ready = loaded(number, changes)
    off = 0.0
    for query in asked:
        hits = ready.search(query, 40)[::-3]
        scores = ready.score(query, [hit.doc_id for hit in hits])
        off = max(off, *(abs(hit.score - each) / max(1, abs(each)) for hit, each in zip(hits, scores, strict=True)))
    say([len(hits), off])
ready.score("gene", [])
say([ready.score("gene", []), ready.counts()["pairs"], sorted(ready.stages_s())])
ready.score("gene", [hit.doc_id for hit in hits])
say(ready.counts())
ready.search("gene", 3)
say([ready.counts(), sorted(ready.stages_s())])
say(refused(lambda: ready.score("gene", [hits[0].doc_id, "nowhere"])))
coded = loaded("ivfpq", {"index": "ivfpq", "ivf_nlist": 2, "pq_m": 4, "pq_nbits": 4})
say(refused(lambda: coded.score("gene", [hits[0].doc_id])))
"""


def test_dense_scores_equal_those_of_the_search(probe: Probe, tmp_path: Path) -> None:
    put_small_checkpoints(tmp_path)
    job = tmp_path / "job"
    (job / "scifact.jsonl").write_text("".join(json.dumps(each) + "\n" for each in SCIFACT.documents(40)))
    (job / "texts.json").write_text(json.dumps(SCIFACT.texts(40, 6)))
    *kinds, empty, counts, searched, unknown, coded = probe("minilm-torch", DENSE)
    assert len(kinds) == 5
    for compared, off in kinds:
        assert compared == 14 and off <= 1e-6
    assert empty == [[], 0, ["fetch", "score", "tokenise"]]
    # "gene" and two special tokens through three layers of 32, and 14 products of 32 dimensions.
    tokens = counts["tokens"]
    encoded = 3 * tokens * (24 * 32**2 + 4 * tokens * 32)
    assert tokens == counts["padded_tokens"] >= 3 and counts["flop"] == encoded + 14 * 2 * 32
    assert {name: counts[name] for name in ("pairs", "windows", "calls")} == {"pairs": 14, "windows": 1, "calls": 1}
    assert counts["parameters"] == searched[0]["parameters"] > 3 * 12 * 32**2
    assert searched[0].keys() == {"flop", "parameters"} and searched[0]["flop"] == encoded, "without faiss"
    assert searched[1] == ["encode", "retrieve", "tokenise"]
    assert unknown == "the index has no document 'nowhere'; rank over the corpus that it was built of"
    assert coded.startswith("an index 'ivfpq' gives no vectors back")


COLBERT = """
params = {**given[given["method"]], **given["changes"]}
made = built(params, given["documents"])
ready = loaded(params, made)
off, compared = 0.0, 0
for query in given["queries"]:
    found = ready.search(query, 1000)
    stages = sorted(ready.stages_s())
    mixed = found[::-2]
    scores = ready.score(query, [hit.doc_id for hit in mixed])
    off = max(off, *(abs(hit.score - score) for hit, score in zip(mixed, scores, strict=True)))
    compared += len(mixed)
say([off, compared, stages, sorted(ready.stages_s())])
every = [document["_id"] for document in given["documents"]]
everything = ready.score(given["queries"][0], every)
alone = [ready.score(given["queries"][0], [doc_id])[0] for doc_id in every[:20]]
say([max(abs(a - b) for a, b in zip(everything, alone)), ready.score("ice", []), ready.counts()["pairs"]])
ready.score(given["queries"][0], every)
import numpy
vectors = sum(sum(json.loads(path.read_text())) for path in made.rglob("doclens.*.json"))
vectors = vectors or sum(int(numpy.load(path).sum()) for path in made.rglob("*lengths.npy"))
say([ready.counts(), vectors, ready.search("ice", 5) and ready.counts()])
refused(ready.score, "ice", ["d 1", "nowhere"])
"""


# Operations of a query of 32 vectors of 128 dimensions with one document vector, and of the query alone.
WORK = {"dessert": (32 * 64, 2 * 32 * 128 * 64 * 7)}
COLBERTS = [(method, changes, *WORK.get(method, (2 * 32 * 128, 0))) for method, changes in WHOLE]


@pytest.mark.parametrize(("method", "changes", "a_vector", "a_query"), drawn("stored scores", COLBERTS, 2))
def test_colbert_scores_equal_those_of_the_full_search(
    colbert: Inside, method: str, changes: dict[str, object], a_vector: int, a_query: int
) -> None:
    said = colbert(COLBERT, method=method, changes=changes, documents=documents(120), queries=queries(6))
    (off, compared, searched, scored), (alone_off, empty, none), (counts, vectors, after), unknown = said
    assert compared > 100 and off <= 1e-5, "a score is a sum of 32 cosines in float32"
    assert searched == ["encode", "rerank", "retrieve", "tokenise"] and scored == ["fetch", "score", "tokenise"]
    assert alone_off <= 1e-5 and empty == [] and none == 0
    encoded = 2 * 32 * (24 * 64**2 + 4 * 32 * 64)
    expected = {"pairs": 120, "windows": 1, "tokens": 32, "padded_tokens": 32, "calls": 1}
    size = counts.pop("parameters")
    assert counts == {**expected, "flop": encoded + a_query + a_vector * vectors}
    assert after.keys() == {"candidates", "scored", "flop", "parameters"}
    assert after["flop"] == encoded and after["parameters"] == size > 2 * 12 * 64**2
    assert unknown == "the index has no document 'nowhere'; rank over the corpus that it was built of"
