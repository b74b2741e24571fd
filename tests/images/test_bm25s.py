"""The bm25s engine in its image."""

from __future__ import annotations

import pytest

from tests.images.conftest import DOCUMENTS, Probe
from tests.images.test_porter import LUCENE

pytestmark = pytest.mark.docker


BUILT = """
def engine(**more):
    return adapter.ENGINE({"k1": 0.9, "b": 0.4} | more, Envelope("test", 1, 1 << 30), Path("/"))
own = engine()
done = []
own.build(corpus, index, done.append)
own.load(index)
"""


def test_bm25_is_the_formula_over_its_tokens(probe: Probe) -> None:
    lines = f"""{BUILT}
import math
own.verify_index(corpus, index)
tokens = [own._tokens(f"{{each.title}} {{each.text}}") for each in corpus]
ids = [each.doc_id for each in corpus]
mean = sum(map(len, tokens)) / len(tokens)
def restated(query):
    scores = dict.fromkeys(ids, 0.0)
    for term in own._tokens(query):
        frequency = sum(term in each for each in tokens)
        idf = math.log(1 + (len(ids) - frequency + 0.5) / (frequency + 0.5))
        for name, each in zip(ids, tokens):
            count = each.count(term)
            scores[name] += idf * count / (count + 0.9 * (0.6 + 0.4 * len(each) / mean))
    return sorted(([name, score] for name, score in scores.items() if score), key=lambda hit: -hit[1])
for query in ("mountains of ice", "throw molten rock", "coffee", "ice", "ice ice"):
    say([[[hit.doc_id, hit.score] for hit in own.search(query, 4)], restated(query)])
say([done[0], done[-1], own.threads(), sorted(own.libraries()), sorted(own.stages_s())])
"""
    *rankings, facts = probe("bm25s", lines)
    for ours, restated in rankings:
        names = [name for name, _ in ours]
        assert names == [name for name, _ in restated] and names
        assert [score for _, score in ours] == pytest.approx([score for _, score in restated], abs=1e-5)
    once, twice = rankings[-2][0], rankings[-1][0]
    assert twice[0] == [once[0][0], pytest.approx(2 * once[0][1], rel=1e-5)], "a word that comes twice counts twice"
    assert facts == [0, len(DOCUMENTS), {"numpy": 1}, ["PyStemmer", "bm25s", "numpy"], ["retrieve", "tokenise"]]


def test_queries_without_known_words_find_nothing_and_words_are_cut_as_lucene_does(probe: Probe) -> None:
    lines = f"""{BUILT}
for query in ("", "the of and", "zzz", "\\U0001f600", "coffee\\x00", "\\ud800 coffee", "coffee " * 3000):
    say([hit.doc_id for hit in own.search(query, 2)])
say(own._tokens("The U.S. paid 1,000.5 for Bob's well-kept ice; don't_ask 3.5%"))
own.close()
"""
    no_text, stops, unknown, face, null, half, long, tokens = probe("bm25s", lines)
    cafe = DOCUMENTS[2]["_id"]
    assert no_text == stops == unknown == face == [] and null == half == long == [cafe]
    assert tokens == ["u.", "paid", "1,000.5", "bob", "well", "kept", "ic", "don't_ask", "3.5"]


def test_bm25s_and_pisa_have_lucenes_tokens(probe: Probe) -> None:
    text = f"The U.S. paid 1,000.5 for Bob's and JAMES’S well-kept ICE, don't they? {' '.join(LUCENE)}"
    lucene = f"""
from jvm import languages, runtime
runtime.start(["-Xmx256m"], runtime.jar(Path("/opt/assets")))
from jnius import autoclass
tokens = autoclass("io.anserini.analysis.AnalyzerUtils").analyze(languages.analyzer("en"), {text!r})
say([tokens.get(place) for place in range(tokens.size())] if hasattr(tokens, "size") else list(tokens))
"""
    (wanted,) = probe("bm25", lucene)
    assert len(wanted) > len(LUCENE) and {"technolog", "us", "trek", "jame"} <= {*wanted}
    more = {"quantise": False, "algorithm": "maxscore"}
    for name in ("bm25s", "pisa"):
        given = {"k1": 0.9, "b": 0.4, **(more if name == "pisa" else {})}
        engine = f'adapter.ENGINE({given}, Envelope("test", 1, 1 << 30), Path("/"))'
        assert probe(name, f"say({engine}._tokens({text!r}))") == [wanted]


def test_unknown_parameters_and_other_indexes_are_refused(probe: Probe) -> None:
    lines = f"""{BUILT}
for more in ("heap_mib", 1), ("language", "zh"), ("k1", -1), ("k1", "0.9"), ("b", 1.1), ("language", "de"), ("k1", 1.2):
    say(refused(lambda: engine(**dict([more])).load(index)))
"""
    heap, chinese, *wrong, german, other = probe("bm25s", lines)
    assert wrong == [
        "k1 is -1, must be a number from 0 to inf",
        "k1 is '0.9', must be a number from 0 to inf",
        "b is 1.1, must be a number from 0 to 1",
    ]
    assert heap == "unknown parameter 'heap_mib'; this engine reads b, k1, language"
    assert chinese.startswith("language is 'zh', must be one of da, de, ")
    assert "built with language 'en', the system asks for 'de'" in german
    assert "built with k1 0.9, the system asks for 1.2" in other


def test_documents_without_words_are_indexed_and_never_found(probe: Probe) -> None:
    lines = """
from harness.driver.adapter import Document
bm25s = adapter.ENGINE({"k1": 0.9, "b": 0.4}, Envelope("test", 1, 1 << 30), Path("/"))
nothing = [Document("a", "", ""), Document("b", "", "the of")]
bm25s.build(nothing, index, lambda _: None)
bm25s.verify_index(nothing, index)
bm25s.load(index)
say(bm25s.search("ice", 3))
"""
    assert probe("bm25s", lines) == [[]]


@pytest.mark.parametrize("name", ["bm25s", "tantivy"])
def test_image_and_catalogue_know_the_same_languages(probe: Probe, name: str) -> None:
    from harness.launch.images import catalog

    assert sorted(catalog.system(name).languages) == sorted(probe(name, "say(sorted(adapter.LANGUAGES))")[0])
