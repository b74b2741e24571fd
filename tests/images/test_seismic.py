"""The seismic engine in its image, over small checkpoints."""

from __future__ import annotations

import pytest

from tests.images.impact import BUILT, PLAIN, Ask

pytestmark = pytest.mark.docker
LIKE = {"document_backend": "torch", "backend": "torch", "model": "splade-v2-distil"}
# Seismic with all of a query's lists read to their end.
EXACT = {"query_cut": 1000, "heap_factor": 0.0}


def test_exact_setting_ranks_as_dot_products_and_as_seismics_own_scan(ask: Ask) -> None:
    lines = """
import numpy, seismic
from harness.driver.adapter import Corpus
of_document, of_query = plain("splade-v2-distil", 30), plain("splade-v2-distil", 10)
vectors = {doc_id: of_document(text) for doc_id, text in documents.items()}
text = seismic.get_seismic_string()
as_arrays = lambda vector: (numpy.array(list(vector), dtype=text), numpy.array(list(vector.values()), numpy.float32))
scan = seismic.SeismicDataset()
for doc_id, vector in vectors.items():
    scan.add_document(doc_id, *as_arrays(vector))
quick = engine(query_cut=10, heap_factor=0.9)
quick.load(index)
for query in queries:
    weights = of_query(query)
    score = lambda doc_id: sum(weight * vectors[doc_id].get(term, 0) for term, weight in weights.items())
    best = sorted((-score(doc_id), doc_id) for doc_id in vectors if score(doc_id))
    say([[hit.doc_id, hit.score] for hit in system.search(query, 50)])
    say([[doc_id, -score] for score, doc_id in best])
    say([[doc_id, score] for _, score, doc_id in scan.search("", *as_arrays(weights), 50) if score])
    say([[hit.score, score(hit.doc_id)] for hit in quick.search(query, 5)])
say([system.threads(), sorted(system.stages_s()), sorted(system.libraries()), sorted(p.name for p in index.iterdir())])
batched = [[hit.doc_id for hit in hits] for hits in system.search_batch(queries, 10)]
say([batched, [[hit.doc_id for hit in system.search(query, 10)] for query in queries]])
"""
    *rankings, facts, (batched, alone) = ask("seismic-splade-tiny", BUILT + PLAIN + lines, **LIKE, **EXACT)
    assert len(rankings) == 24
    for ours, dots, scan, quick in zip(*(rankings[start::4] for start in range(4)), strict=True):
        assert _by_score(ours) == _by_score(dots) == _by_score(scan)
        assert [score for _, score in ours] == sorted((score for _, score in ours), reverse=True)
        assert all(score == dot for score, dot in quick), "an approximate hit has its exact score"
    assert len(rankings[0]) > 20 and len(rankings[3]) == 5
    threads, stages, libraries, files = facts
    assert threads == {"seismic": 1, "torch_intraop": 1, "torch_interop": 1} and stages == [
        "encode",
        "retrieve",
        "tokenise",
        "weigh",
    ]
    assert {"pyseismic-lsr", "torch", "tokenizers"} <= set(libraries)
    assert files == ["built-with.json", "short.index.seismic"]
    assert batched == alone


def test_odd_queries_and_other_systems_and_weights_too_large(ask: Ask) -> None:
    lines = """
odd = ["", "  ", "\\U0001f600", "\\ud800", "coffee\\x00", "river " * 5000, 'AND (foo* "']
say([[len(system.search(query, k)) for k in (1, 3, 1000)] for query in odd])
system.verify_index(corpus, index)
say(sorted(hit.doc_id for hit in system.search("old river", 1000) if hit.doc_id.startswith("tw")))
say(refused(lambda: engine(n_postings=5).load(index)))
say(refused(lambda: engine(query_cut=0)))
say(refused(lambda: engine(heap_facter=1)))
say(refused(lambda: adapter.ENGINE({k: v for k, v in params.items() if k != "doc_cut"}, Envelope("t", 1, 1), assets)))
say(refused(lambda: engine(method="deepct", head="term_weight")))
say(refused(lambda: system.verify_index(Corpus(Path("/job/more.jsonl"), 23), index)))
large = Path("/index/large")
large.mkdir()
say(refused(lambda: engine(quantisation=100_000).build(corpus, large, lambda _: None)))
wide = engine()
wide.names = [f"t{number}" for number in range(70_000)]
(large / "lines").write_text(json.dumps({"id": "a b", "vector": {"t69999": 3, "t1": 1}}) + "\\n")
wide.index([large / "lines"], large, large)
wide.open(large)
say([[hit.doc_id, hit.score] for hit in wide.find({"t69999": 2, "t5": 9}, 3)])
"""
    odd, ids, *errors, wide = ask("seismic-splade-tiny", BUILT + lines, **LIKE, **EXACT)
    assert all(one <= 1 and one <= three <= 3 <= max(3, all_) for one, three, all_ in odd)
    assert odd[5][1] == 3 and {"twin a", "twin b"} <= set(ids)
    assert errors[0] == "the index was built with n_postings 3500, the system asks for 5; build it again"
    assert errors[1] == "query_cut must be at least 1, and heap_factor at least 0"
    assert errors[2] == "unknown parameter 'heap_facter'; did you mean 'heap_factor'?"
    assert errors[3] == "the parameter 'doc_cut' is missing"
    assert errors[4] == "method is 'deepct', must be one of splade, unicoil"
    assert "documents, not 2" in errors[5]
    assert "Seismic keeps whole numbers up to 2048: lower quantisation" in errors[6]
    assert wide == [["a b", 6.0]]


def _by_score(ranking: list[list[object]]) -> list[list[object]]:
    """Return a ranking with equal scores in the order of ids."""
    return sorted(ranking, key=lambda hit: (-float(str(hit[1])), str(hit[0])))
