"""MUVERA in the ColBERT engine's image: what its encodings find, MaxSim orders as PLAID does."""

from __future__ import annotations

import pytest

from tests.images.colbert import Inside, documents, queries

pytestmark = pytest.mark.docker


def test_muvera_finds_by_encodings_and_orders_by_the_engines_maxsim(colbert: Inside) -> None:
    lines = """
import numpy
from engine.fde import FixedEncodings
WIDE = {**MUVERA, "chunk_documents": 50}
vectors_of = {**UNCOMPRESSED, "candidates": "all", "chunk_documents": 50}
kept = built(vectors_of, given["documents"], "kept")
files = sorted((kept / "uncompressed").glob("*.vectors.npy"))
vectors = numpy.concatenate([numpy.load(path) for path in files])
lengths = numpy.concatenate([numpy.load(str(path).replace("vectors", "lengths")) for path in files])
made = built(WIDE, given["documents"])
say([len(files), sorted(path.name for path in (made / "muvera").iterdir() if "fde" in path.name)])
own = FixedEncodings(128, repetitions=20, planes=4, inner=8, final=0, seed=12345).documents(vectors, lengths)
ready, every = loaded({**WIDE, "candidates": 10}, made), loaded({**WIDE, "candidates": 1000}, made)
stored = ready._searcher._faiss.reconstruct_n(0, 120)
say(float(numpy.abs(stored - own).max()))
encodings = ready._searcher._encodings
for query in given["queries"]:
    found, counts = ready.search(query, 5), ready.counts()
    nearest = numpy.argsort(-own @ encodings.query(ready._searcher.encode([query])[0].numpy()))[:10]
    scores = ready.score(query, [f"d {number}" for number in nearest])
    best = sorted(zip(scores, nearest.tolist()), key=lambda each: (-each[0], each[1]))[:5]
    say([hits(found), [[f"d {number}", score] for score, number in best], counts])
    exact = every.score(query, [document["_id"] for document in given["documents"]])
    say([[hit.score for hit in every.search(query, 10)], sorted(exact, reverse=True)[:10]])
graph = {**WIDE, "fde_index": "hnsw", "final": 256}
made = built(graph, given["documents"], "graph")
flat = {hit.doc_id for hit in every.search(given["queries"][0], 10)}
found = loaded({**graph, "candidates": 60}, made).search(given["queries"][0], 10)
say([len(found), len({hit.doc_id for hit in found} & flat), loaded(graph, made)._searcher._faiss.d])
refused(engine({**graph, "final": 128}).load, made)
coded = {**WIDE, "fde_index": "sq8", "candidates": 10}
eight = loaded(coded, built(coded, given["documents"], "eight"))
shared = [len({hit.doc_id for hit in eight.search(query, 10)} & {hit.doc_id for hit in ready.search(query, 10)})
          for query in given["queries"]]
say([shared, (made.parent / "eight/muvera/fde.faiss").stat().st_size])
refused(engine, {**MUVERA, "fde_index": "ivf"})
refused(engine, {**MUVERA, "planes": 9})
refused(engine({**MUVERA, "inner": 129}).build, corpus(given["documents"][:5], "few"), folder("none"), lambda _: None)
"""
    (files, names), off, *answers, (found, shared, dimensions), other, (eight, size), ivf, planes, inner = colbert(
        lines, documents=documents(120), queries=queries(4)
    )
    assert files == 3 and names == ["fde.faiss"], "files of chunks are removed"
    # A vector that rounds to the other side of a plane moves to another cell.
    assert off <= 1e-2
    for (ours, theirs, counts), (first, exact) in zip(answers[::2], answers[1::2], strict=True):
        assert [doc_id for doc_id, _ in ours] == [doc_id for doc_id, _ in theirs]
        assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=1e-4)
        assert counts.items() >= {"candidates": 10, "scored": 10}.items()
        assert first == pytest.approx(exact, abs=1e-4), "with all documents as candidates, MaxSim alone decides"
    assert found == 10 and shared >= 4 and dimensions == 256
    assert other.startswith("the index was built with final 256")
    assert sum(eight) >= 36, "of four tens, a quarter of the bytes loses few"
    assert 120 * 2560 < size < 1.2 * 120 * 2560
    assert ivf == "fde_index is 'ivf', must be one of flat, sq8, hnsw" and planes == "planes is 9, must be 0 to 8"
    assert inner == "inner is 129, a token vector has 128 dimensions"
