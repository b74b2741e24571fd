"""The bi-encoder engine in its image."""

from __future__ import annotations

import pytest

from tests.images.conftest import DOCUMENTS, MADE_CLOCK, Probe

pytestmark = pytest.mark.docker

_STAGES = ["encode", "retrieve", "tokenise"]

BUILT = """
minilm = engine()
done = []
minilm.build(corpus, index, done.append)
minilm = engine()
minilm.load(index)
"""


def test_bi_encoder_ranks_by_meaning_and_describes_itself(probe: Probe) -> None:
    lines = """
for query in ("frozen water", "eruption of lava", "a hot drink"):
    say([[hit.doc_id, hit.score] for hit in minilm.search(query, 10)])
say([done[0], done[-1], minilm.threads(), minilm.device(), sorted(minilm.stages_s())])
say([hit.doc_id for hit in minilm.search("", 1)])
minilm.close()
"""
    *rankings, facts, empty = probe("minilm-torch", BUILT + lines)
    best = [ranking[0][0] for ranking in rankings]
    assert best[0] == "glacier"
    assert best[1] in ("volcano", "twin")  # the same text twice
    assert best[2] == DOCUMENTS[2]["_id"]
    for ranking in rankings:
        scores = [score for _, score in ranking]
        assert len(ranking) == len(DOCUMENTS)  # asked for ten, there are four
        assert scores == sorted(scores, reverse=True)
        assert all(-1.001 < score < 1.001 for score in scores)
    first, last, threads, *rest = facts
    assert [first, last, *rest] == [0, len(DOCUMENTS), "cpu", _STAGES]
    assert threads.keys() > {"torch_intraop", "torch_interop", "faiss_omp"}, "and the pools under them"
    assert set(threads.values()) == {1}
    assert len(empty) == 1


@pytest.mark.parametrize(("system", "passes"), [("minilm-torch", 1), ("minilm", 2)])
def test_stages_count_every_moment_of_a_search_once(probe: Probe, system: str, passes: int) -> None:
    lines = """
takes(minilm._model, "tokenise", 1)
takes(minilm._model, "run", 10)
takes(minilm._index, "search", 100)
takes(adapter, "Hit", 1000)
start = now[0]
minilm.search_batch(["frozen water", "lava"], 3)
say([minilm.stages_s(), now[0] - start])
"""
    ((stages, spent),) = probe(system, BUILT + MADE_CLOCK + lines)
    assert stages == {"tokenise": passes, "encode": 10 * passes, "retrieve": 6100} and sum(stages.values()) == spent


def test_an_index_of_another_system_or_version_is_refused(probe: Probe) -> None:
    lines = """
import shutil
def load(adapter, place=index):
    say(refused(lambda: adapter.load(place)))
def changed(**facts):
    place = Path("/index/changed")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(index, place)
    meta = json.loads((place / "built-with.json").read_text())
    (place / "built-with.json").write_text(json.dumps({**meta, **facts}))
    return place
for other in ({"document_tokens": 128}, {"normalise": False}, {"title": "drop"}):
    load(engine(**other))
load(engine(query_tokens=32, faiss_threads=1, query_prefix="q: "))  # the search's own: the index serves them all
for facts in ({"checkpoint_sha256": "0" * 64}, {"format": 2}, {"engine": "impact"}, {"documents": 5}):
    load(engine(), changed(**facts))
(changed() / "built-with.json").unlink()
load(engine(), Path("/index/changed"))
for name in ("vectors.f32", "ids.bin"):
    (changed() / name).write_bytes(b"12345")
    load(engine(), Path("/index/changed"))
"""
    tokens, normalise, title, fine, weights, version, other, count, none, vectors, ids = probe(
        "minilm-torch", BUILT + lines
    )
    assert tokens == "the index was built with document_tokens 256, the system asks for 128; build it again"
    assert normalise == "the index was built with normalise True, the system asks for False; build it again"
    assert title == "the index was built with title 'join', the system asks for 'drop'; build it again"
    assert fine == ""
    assert weights.startswith(f"the index was built with checkpoint_sha256 '{'0' * 64}', the system asks for '")
    assert version == "the index was built with format 2, the system asks for 3; build it again"
    assert other.startswith("the index was built with engine 'impact'")
    assert count == "the index has 4 vectors, 4 ids, 5 documents"
    assert none.startswith("the index has no readable built-with.json")
    assert "damaged" in vectors and "damaged" in ids


def test_invalid_parameter_is_reported(probe: Probe) -> None:
    lines = """
for changes in ({"pooing": "cls"}, {"similarity": "dot"}, {"index": "ivf"}, {"title": "none"}, {"batch_size": 0},
                {"query_tokens": "many"}, {"keep_vectors": True}, {"index": "sq8", "rescore": 4}, {"rescore": -1}):
    say(refused(lambda: engine(**changes)))
say(refused(lambda: engine(pooling="median").build(corpus, index, lambda _: None)))
"""
    unknown, similarity, kind, title, batch, tokens, kept, lacking, negative, pooling = probe("minilm-torch", lines)
    assert unknown.startswith("unknown parameter 'pooing'")
    assert similarity == "similarity is 'dot', must be one of ip, cosine, l2"
    assert kind == "index is 'ivf', must be one of flat, hnsw, ivfpq, sq8, binary"
    assert title == "title is 'none', must be one of join, pair, drop"
    assert batch == "batch_size is 0, must be a whole number, at least 1"
    assert tokens == "query_tokens is 'many', must be a whole number, at least 1"
    assert kept == "keep_vectors: an index 'flat' has its vectors already; it is for ivfpq, sq8, binary"
    assert lacking == "rescore is 4, but the index has no vectors beside codes; add keep_vectors"
    assert negative == "rescore is -1, must be a whole number, 0 for the scores of the codes"
    assert "prepared with the head 'mean', not 'median'" in pooling


def test_missing_gpu_is_reported(probe: Probe) -> None:
    lines = """
import dataclasses
minilm = engine()
minilm.envelope = dataclasses.replace(minilm.envelope, gpus=1)
try:
    minilm.build(corpus, index, lambda _: None)
except RuntimeError as error:
    say(str(error))
"""
    (message,) = probe("minilm-torch", lines)
    assert message.startswith("the envelope has a GPU, but torch 2.13.0+cpu finds no CUDA device")
