"""The tantivy engine in its image."""

from __future__ import annotations

import pytest

from tests.images.conftest import DOCUMENTS, Probe

pytestmark = pytest.mark.docker


def test_bm25_ranks_as_tantivys_own_query_parser_does(probe: Probe) -> None:
    lines = """
import shutil, tantivy
bm25 = engine()
done = []
bm25.build(corpus, index, done.append)
bm25.verify_index(corpus, index)
bm25.load(index)
shutil.copytree(index, "/tmp/own")
own = tantivy.Index.open("/tmp/own")
own.register_tokenizer("en", bm25._analyser)
for query in ("mountains of ice", "throw molten rock", "coffee", "ice ice"):
    hits = own.searcher().search(own.parse_query(query, ["text"]), 3).hits
    say([[[hit.doc_id, hit.score] for hit in bm25.search(query, 3)],
         [[own.searcher().doc(address)["id"][0], score] for score, address in hits]])
say([done[0], done[-1], bm25.threads(), bm25.libraries(), sorted(bm25.stages_s())])
for query in ("", "the of and", "zzz", "\\U0001f600", "coffee\\x00", 'AND (foo* "', "\\ud800 coffee", "coffee " * 3000):
    say([hit.doc_id for hit in bm25.search(query, 2)])
bm25.close()
for params in ({"k1": 0.9}, {"language": "zh"}, {"language": "de"}):
    say(refused(lambda: adapter.ENGINE(params, Envelope("test", 1, 1 << 30), Path("/")).load(index)))
"""
    *rankings, facts, no_text, stops, unknown, face, null, syntax, half, long, k1, chinese, german = probe(
        "tantivy", lines
    )
    *rankings, (twice, once) = rankings
    assert [ours for ours, _ in rankings] == [theirs for _, theirs in rankings]
    assert [len(ours) for ours, _ in rankings] == [3, 2, 1]
    assert twice[0] == [once[0][0], pytest.approx(2 * once[0][1])], "a word that comes twice counts twice, as in Lucene"
    first, last, threads, libraries, stages = facts
    assert (first, last, threads) == (0, len(DOCUMENTS), {"tantivy": 1}) and libraries == {"tantivy": "0.27.0"}
    assert stages == ["retrieve", "tokenise"]
    cafe = DOCUMENTS[2]["_id"]
    assert no_text == stops == unknown == face == syntax == [] and null == half == long == [cafe]
    assert k1 == "unknown parameter 'k1'; this engine reads language, build_heap_mib"
    assert chinese.startswith("language is 'zh', must be one of da, de, ")
    assert "built with language 'en', the system asks for 'de'" in german
