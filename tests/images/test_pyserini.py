"""The engine that calls Pyserini's LuceneSearcher, held to the engine ``lucene``."""

from __future__ import annotations

import pytest

from harness.launch.images import catalog
from tests.images.conftest import DOCUMENTS, Probe

pytestmark = pytest.mark.docker

# What both engines are asked; a lone surrogate is no text, and the page has more words than Lucene allows a query.
ASKED = """
found = engine(k1=0.82, b=0.68)
found.build(corpus, index, lambda _: None)
found.load(index)
page = " ".join(f"word{number}" for number in range(5000)) + " coffee"
queries = ["mountains of ice", "throw molten rock", "coffee", "", "  ", "the of and", "zzz", "\\U0001f600",
           'AND (foo* "', "mountains " * 2000, "\\ud800 coffee", page]
for query in queries:
    say([[hit.doc_id, hit.score] for hit in found.search(query, 3)])
"""


def test_pyserini_ranks_as_bm25_and_as_its_users_call_it(probe: Probe) -> None:
    own = """
from pyserini.search.lucene import LuceneSearcher
theirs = LuceneSearcher(str(index / "lucene"))
theirs.set_bm25(0.82, 0.68)
say([[[hit.docid, hit.score] for hit in theirs.search(query, k=3)] for query in queries[:3]])
say([[[hit.doc_id, hit.score] for hit in hits] for hits in found.search_batch(queries[:4], 3)])
say([found.threads(), list(found.stages_s()), found.libraries(), found.shares_batches()])
found.close()
"""
    *bridged, users, batch, (threads, stages, libraries, shares) = probe("pyserini", ASKED + own)
    plain = probe("bm25", ASKED)
    assert bridged == plain, "ids and scores, to the last bit"
    assert [len(hits) for hits in plain] == [3, 2, 1, 0, 0, 0, 0, 1, 0, 3, 1, 1]
    assert plain[2][0][0] == DOCUMENTS[2]["_id"]
    assert users == bridged[:3] and batch == bridged[:4] and shares
    assert threads == {"jvm_available_processors": 1} and stages == ["retrieve", "read"]
    assert libraries["pyserini"] == "1.6.0" and libraries["anserini"] == "1.7.1"


def test_pyserini_searches_other_languages_and_refuses_foreign_indexes(probe: Probe) -> None:
    lines = """
german = engine(language="de")
german.build(corpus, index, lambda _: None)
german.load(index)
say([[hit.doc_id for hit in german.search(query, 3)] for query in ("Gletscher", "glaciers", "moving")])
for adapt in (engine(), engine(language="zh")):
    say(refused(lambda: adapt.load(index)))
say(refused(lambda: engine(languge="de")))
"""
    found, english, chinese, misspelt = probe("pyserini", lines)
    assert found == [[], ["glacier"], []], "moving finds move by its English stem alone"
    assert english == "the index was built with language 'de', the system asks for 'en'; build it again"
    assert chinese == "the index was built with language 'de', the system asks for 'zh'; build it again"
    assert misspelt == "unknown parameter 'languge'; did you mean 'language'?"


def test_pyserini_has_bm25s_parameters_and_one_image_for_all_envelopes() -> None:
    pyserini, bm25 = catalog.system("pyserini"), catalog.system("bm25")
    assert pyserini.params == bm25.params
    assert catalog.system("pyserini-tuned").params == catalog.system("bm25-tuned").params
    assert pyserini.shared_locks["jvm"] == bm25.shared_locks["jvm"], "one Java for both"
    assert pyserini.for_job("build", gpus=1).image == pyserini.image, "PyTorch does nothing here, with GPUs neither"
