"""Learned sparse retrieval in its image, against plain scripts."""

from __future__ import annotations

import pytest

from tests.images.impact import BUILT, PLAIN, Ask
from tests.support.chance import drawn

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
ids = lambda hits: [hit.doc_id for hit in hits]
say(list(map(ids, system.search_batch(queries, 10))) == [ids(system.search(query, 10)) for query in queries])
say([system.threads(), sorted(system.stages_s()), system.device(), sorted(system.libraries())])
"""
    torch = {"document_backend": "torch", "backend": "torch"}  # another backend may round a weight the other way
    *rankings, batched, (threads, stages, device, libraries) = ask(like, BUILT + PLAIN + lines, **torch)
    assert len(rankings) == 12 and batched
    for ours, theirs in zip(rankings[::2], rankings[1::2], strict=True):
        assert [doc_id for doc_id, _ in ours] == [doc_id for doc_id, _ in theirs]
        # Anserini sets equal scores apart in their last digits.
        assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], rel=1e-6)
    assert len(rankings[0]) > 20
    assert {"twin a", "twin b"} <= {doc_id for doc_id, _ in rankings[0]}
    assert threads == {"jvm_available_processors": 1, "torch_intraop": 1, "torch_interop": 1}
    assert stages == ["encode", "retrieve", "tokenise", "weigh"] and device == "cpu"
    assert {"anserini", "lucene", "java", "torch", "transformers", "tokenizers"} <= set(libraries)


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


@pytest.mark.parametrize("like", drawn("odd queries", ["bt-splade-l", "unicoil", "deepct", "doct5query"], 2))
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
