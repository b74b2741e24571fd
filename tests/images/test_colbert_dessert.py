"""DESSERT in the ColBERT engine's image: hashes of the encoder's vectors, in an index of the stated size."""

from __future__ import annotations

import pytest

from tests.images.colbert import DESSERT, Inside, documents, queries

pytestmark = pytest.mark.docker


def test_dessert_scores_the_hashes_of_the_encoders_vectors(colbert: Inside) -> None:
    lines = """
import numpy
from engine.signatures import Signatures
EVERY, SMALL = {**UNCOMPRESSED, "candidates": "all", "chunk_documents": 50}, {**DESSERT, "chunk_documents": 50}
kept = built(EVERY, given["documents"], "kept")
files = sorted((kept / "uncompressed").glob("*.vectors.npy"))
vectors = numpy.concatenate([numpy.load(path) for path in files]).astype(numpy.float32)
lengths = numpy.concatenate([numpy.load(str(path).replace("vectors", "lengths")) for path in files])
firsts = lengths.cumsum() - lengths
made = built(SMALL, given["documents"])
ready, exact = loaded({**SMALL, "ncells": 100_000}, made), loaded(EVERY, kept)
projections = numpy.load(made / "dessert/projections.npy")
say([len(files), list(projections.shape), sorted(path.name for path in (made / "dessert").iterdir())])
def signs(rows):
    return (rows @ projections.reshape(-1, 128).T > 0).reshape(-1, 64, 7)
documents = signs(vectors)
for query in given["queries"]:
    asked = signs(exact._searcher.encode([query])[0].numpy())
    counts = numpy.stack([(documents == each).all(-1).sum(-1) for each in asked])
    scores = ((numpy.maximum.reduceat(counts, firsts, axis=1) / 64) ** (1 / 7)).mean(0)
    found = ready.search(query, 1000)
    off = max(abs(scores[int(hit.doc_id.split()[1])] - hit.score) for hit in found)
    best = [hit.doc_id for hit in exact.search(query, 10)]
    say([len(found), off, ready.counts(), len({hit.doc_id for hit in found[:10]} & set(best))])
few = loaded({**SMALL, "ncells": 1, "scored": 20}, made)
found = few.search(given["queries"][0], 100)
best = dict(hits(ready.search(given["queries"][0], 1000)))
say([few.counts(), len(found), all(best[hit.doc_id] == hit.score for hit in found)])
size = sum(path.stat().st_size for path in (made / "dessert").iterdir())
centroids = len(numpy.load(made / "dessert/centroids.npy"))
say([size, len(vectors), centroids])
"""
    (files, shape, names), *answers, (counts, hits, same), (size, vectors, centroids) = colbert(
        lines, documents=documents(120), queries=queries(4)
    )
    assert files == 3 and shape == [64, 7, 128]
    assert names == ["centroids.npy", "hashes.npy", "lengths.npy", "members-ends.npy", "members.npy", "projections.npy"]
    for found, off, counted, _ in answers:
        assert counted.items() >= {"candidates": 120, "scored": 120}.items() and found == 120
        # A vector that rounds to the other side of a plane moves one count of one query vector.
        assert off <= 1e-3
    shared = [same for *_, same in answers]
    # Random weights put all documents close together; by chance it would be .8 of ten.
    assert sum(shared) / len(shared) >= 2.5
    assert 20 == counts["scored"] == hits < counts["candidates"] and same
    # The formula of docs/engines/colbert.md.
    tables, bits = int(DESSERT["tables"]), int(DESSERT["bits"])
    formula = vectors * (tables + 4) + centroids * (2 * 128 + 8) + 2 * 120 + 4 * tables * bits * 128
    assert size == pytest.approx(formula, rel=0.05)
