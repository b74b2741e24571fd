"""The BMP engine in its image, over small checkpoints, and its blocks over random impacts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.images.impact import BUILT, PLAIN, Ask

pytestmark = pytest.mark.docker
LIKE = {"model": "splade-v2-distil", "block_size": 8, "document_backend": "torch", "backend": "torch"}


def test_bmp_ranks_as_dot_products_and_as_the_library_called_bare(ask: Ask) -> None:
    lines = """
import bmp
of_document, of_query = plain("splade-v2-distil", 30), plain("splade-v2-distil", 10)
vectors = {doc_id: of_document(text) for doc_id, text in documents.items()}
bare = bmp.Searcher(str(index / "blocks.bmp"))
for query in queries:
    weights = of_query(query)
    score = lambda doc_id: sum(weight * vectors[doc_id].get(term, 0) for term, weight in weights.items())
    best = sorted((-score(doc_id), doc_id) for doc_id in vectors if score(doc_id))
    # The scale that weights have, a block that comes last, and no threshold.
    guarded = {**{term: float(weight) for term, weight in weights.items()}, " scale": 32.0, " 1": 1.0}
    say([[hit.doc_id, hit.score] for hit in system.search(query, 50)])
    say([[doc_id, -score] for score, doc_id in best])
    say(list(zip(*bare.search(guarded, k=1001, alpha=1.0, beta=1.0))))
system.verify_index(corpus, index)
say([system.threads(), sorted(system.stages_s()), sorted(system.libraries()), sorted(p.name for p in index.iterdir())])
batched = [[hit.doc_id for hit in hits] for hits in system.search_batch(queries, 10)]
say([batched, [[hit.doc_id for hit in system.search(query, 10)] for query in queries]])
"""
    *rankings, facts, (batched, alone) = ask("bmp-splade-tiny", BUILT + PLAIN + lines, **LIKE)
    assert len(rankings) == 18
    for ours, dots, bare in zip(*(rankings[start::3] for start in range(3)), strict=True):
        assert _by_score(ours) == _by_score(dots) == _by_score(bare)
        assert [score for _, score in ours] == sorted((score for _, score in ours), reverse=True)
    assert len(rankings[0]) > 20
    threads, stages, libraries, files = facts
    assert threads == {"bmp": 1, "torch_intraop": 1, "torch_interop": 1} and stages == [
        "encode",
        "retrieve",
        "tokenise",
        "weigh",
    ]
    assert {"bmp", "torch", "tokenizers"} <= set(libraries)
    assert files == ["blocks.bmp", "built-with.json", "highest.npy"]
    assert batched == alone


# Blocks of random documents, asked at every kind of k: hits, scores and their number are those of a full scan.
_RANDOM = """
import random, tempfile
import block_max
draw = random.Random(SEED)
wrong = []
for case in range(40):
    names = [f"t{number}" for number in range(draw.choice([3, 20, 300]))]
    size, top = draw.choice([1, 2, 7, 33, 300, 1200]), draw.choice([3, 40, 255])
    vectors = {
        f"d {number}": {name: draw.randint(1, top) for name in draw.sample(names, min(len(names), draw.randint(0, 30)))}
        for number in range(size)
    }
    folder = Path(tempfile.mkdtemp())
    blocks = block_max.Blocks(folder, names, draw.choice([1, 8, 32, 256]), compress=draw.random() < 0.5)
    for doc_id, vector in vectors.items():
        blocks.add(doc_id, vector)
    blocks.finish()
    made = block_max.BlockMax(folder, names)
    assert len(made) == size
    for _ in range(20):
        asked = draw.sample(names, min(len(names), draw.choice([1, 2, 8])))
        query = {name: draw.randint(1, draw.choice([2, 32])) for name in asked}
        k = draw.choice([1, 2, 5, 9, 10, 11, 50, 99, 100, 101, 999, 1000, 1001, 2000])
        score = lambda doc_id: sum(weight * vectors[doc_id].get(name, 0) for name, weight in query.items())
        best = sorted((score(doc_id) for doc_id in vectors), reverse=True)
        ids, scores = made.search(query, k)
        right = [value for value in best if value][:k]
        if not right == scores == [score(doc_id) for doc_id in ids] or len({*ids}) < len(ids):
            wrong.append([case, k, query])
say(wrong)
"""


def test_answers_over_random_impacts_are_exact(ask: Ask) -> None:
    (wrong,) = ask("bmp-splade-tiny", _RANDOM.replace("SEED", "7"), **LIKE)
    assert wrong == []


def test_limits_of_bmp_are_kept(ask: Ask) -> None:
    lines = """
import bmp, tempfile
import block_max
def made(vectors, names, **given):
    folder = Path(tempfile.mkdtemp())
    blocks = block_max.Blocks(folder, names, given.get("block", 8), compress=False)
    for doc_id, vector in vectors.items():
        blocks.add(doc_id, vector)
    blocks.finish()
    return block_max.BlockMax(folder, names)
bare = bmp.Indexer("/tmp/bare", bsize=8, compress_range=False)
bare.add_document("a", {"x": 300})
bare.add_document("b", {"x": 250})
for number in range(14):
    bare.add_document(f"c{number}", {"x": 1})
bare.finish()
say([list(each) for each in bmp.Searcher("/tmp/bare").search({"x": 1.0}, k=16, alpha=1.0, beta=1.0)])
names = [f"x{number}" for number in range(20)]
heavy = {"a": dict.fromkeys(names, 255), "b": dict.fromkeys(names[:10], 255), "c": {"x0": 1}}
index_of_heavy = made(heavy, names)
say(index_of_heavy.search(dict.fromkeys(names[:8], 32), 3))   # 8 x 32 x 255 = 65,280 fits 16 bits
say(index_of_heavy.search(dict.fromkeys(names, 32), 3))       # 163,200 does not
say(index_of_heavy.search({"x0": 100, "x19": 50}, 3))         # weights above 32
say(refused(lambda: made({"a": {"x0": 256}}, names)))
say(refused(lambda: made({}, names, block=257)))
say(refused(lambda: made({}, [str(number) for number in range(65_535)])))
say(refused(lambda: block_max.BlockMax(Path("/tmp"), names)))
"""
    wrapped, fits, scaled_down, scaled, *errors = ask("bmp-splade-tiny", lines, **LIKE)
    assert [each[:2] for each in wrapped] == [["b", "a"], [250.0 * 32, (300 - 256) * 32.0]], (
        "BMP by itself wraps around"
    )
    assert len(wrapped[0]) == 8, "BMP by itself leaves out the last of two blocks; once it does not, drop the guard"
    assert fits == [["a", "b", "c"], [65280.0, 65280.0, 32.0]]
    (first, second), scores = scaled_down[0][:2], scaled_down[1]
    assert (first, second) == ("a", "b") and 2 * scores[1] == scores[0] <= 65535
    assert scaled == [["a", "b", "c"], [255.0 * 48, 255.0 * 32, 32.0]]
    assert errors[0] == "'a' has an impact of 256; BMP keeps 255 at most: lower quantisation"
    assert errors[1] == "block_size is 257, must be 1 to 256"
    assert errors[2] == "the vocabulary has 65535 terms; BMP numbers 65536 at most"
    assert errors[3] == "the index is damaged: blocks.bmp is missing; build it again"


def test_odd_queries_and_other_systems(ask: Ask) -> None:
    lines = """
odd = ["", "  ", "\\U0001f600", "\\ud800", "coffee\\x00", "river " * 5000, 'AND (foo* "']
say([[len(system.search(query, k)) for k in (1, 3, 1000)] for query in odd])
half = engine(alpha=0.5, beta=0.5)
half.load(index)
say([[[hit.doc_id, hit.score] for hit in each.search("the old river of the north", 3)] for each in (system, half)])
say(refused(lambda: engine(block_size=16).load(index)))
say(refused(lambda: engine(alpha=0)))
say(refused(lambda: engine(block_sice=16)))
say(refused(lambda: adapter.ENGINE({k: v for k, v in params.items() if k != "beta"}, Envelope("t", 1, 1), assets)))
say(refused(lambda: system.verify_index(Corpus(Path("/job/more.jsonl"), 23), index)))
"""
    odd, (whole, half), *errors = ask("bmp-splade-tiny", BUILT + lines, **LIKE)
    assert all(one <= 1 and one <= three <= 3 and three <= all_ for one, three, all_ in odd) and odd[5][1] == 3
    assert len(whole) == len(half) == 3 and half[0][1] <= whole[0][1]
    assert errors[0] == "the index was built with block_size 8, the system asks for 16; build it again"
    assert errors[1] == "alpha is 0.0 and beta 1.0; both must be above 0, and 1 at most"
    assert errors[2] == "unknown parameter 'block_sice'; did you mean 'block_size'?"
    assert errors[3] == "the parameter 'beta' is missing"
    assert errors[4] == "the index has 24 documents, the corpus 23"


def _by_score(ranking: Any) -> list[list[Any]]:
    """Return a ranking with equal scores in the order of ids."""
    return sorted(map(list, ranking), key=lambda hit: (-hit[1], hit[0]))
