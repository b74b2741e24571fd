"""Tests of interrupted, resumed and repeated ColBERT builds."""

from __future__ import annotations

import pytest

from tests.images.colbert import METHODS, Inside, documents
from tests.support.chance import drawn

pytestmark = pytest.mark.docker


@pytest.mark.parametrize("method", drawn("interrupted builds", METHODS, 2))
def test_interrupted_build_resumes(colbert: Inside, method: str) -> None:
    lines = """
import hashlib
from engine.encoding import Encoder
params = {**given[given["method"]], "chunk_documents": 100}
whole = Encoder.documents
seen = []
def counted(self, texts, *others):
    seen.append(len(texts))
    return whole(self, texts, *others)
Encoder.documents = counted
def content(made):
    return {str(path.relative_to(made)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(made.rglob("*")) if path.is_file()}
class Ended(Exception):
    pass
def end_after(number):
    def told(done):
        if done > number:
            raise Ended
    return told
texts = corpus(given["documents"])
# The engine notes where it writes: both in the same place.
made = folder("made")
engine(params).build(texts, made, lambda _: None)
once = made.rename("/index/once")
say([sum(seen), sorted(path.name for path in once.iterdir())])
made = folder("made")
for number in (150, 320):
    seen.clear()
    try:
        engine(params).build(texts, made, end_after(number))
    except Ended:
        say([sum(seen), sorted(path.name for path in made.iterdir())])
seen.clear()
last = engine(params)
last.build(texts, made, lambda _: None)
say([sum(seen), last.resumed_s(), content(made) == content(once)])
# Ended before the last two steps of a build.
(made / "built-with.json").unlink()
(made / ".building").mkdir()
seen.clear()
engine(params).build(texts, made, lambda _: None)
say([hits(loaded(params, made).search("ice water", 5)) == hits(loaded(params, once).search("ice water", 5))])
"""
    everything, first, second, (rest, resumed_s, same), (answers,) = colbert(
        lines, method=method, documents=documents(450)
    )
    assert everything == [450, sorted(["built-with.json", "ids.bin", "ids.npy", method])], (
        "each document is encoded once"
    )
    assert first == [200, [".building"]], "the second hundred was under way"
    assert second == [300, [".building"]], "the first hundred was there"
    assert rest == 150, "three hundred were there"
    assert resumed_s > 0
    assert same, "an index made in three goes has the bytes of one made in one"
    assert answers


def test_builds_are_repeatable_and_large_samples_use_the_engines_code(colbert: Inside) -> None:
    # The engine samples all of so small a collection; told to draw fewer, the rest is encoded chunk by chunk.
    lines = """
import random
from engine import runtime
runtime.start(1, 0)
from colbert.indexing.collection_indexer import CollectionIndexer
def some(self):
    return set(random.sample(range(len(self.collection)), 70))
def fresh(name):
    return hits(loaded(PLAID, built({**PLAID, "chunk_documents": 90}, given["documents"], name)).search("ice water", 8))
say([fresh("one"), fresh("two")])
CollectionIndexer._sample_pids = some
say([fresh("three"), fresh("four")])
"""
    (one, two), (three, four) = colbert(lines, documents=documents(250))
    assert one == two and three == four
    # Other centroids, the same vectors: decompressed scores differ by the residuals' rounding alone.
    scores, others = dict(one), dict(three)
    assert len(scores.keys() & others.keys()) >= 4
    for doc_id in scores.keys() & others.keys():
        assert others[doc_id] == pytest.approx(scores[doc_id], rel=0.05)
