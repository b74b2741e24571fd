"""The Lucene engine in its image."""

from __future__ import annotations

import pytest

from tests.images.conftest import DOCUMENTS, Probe

pytestmark = pytest.mark.docker


def test_it_ranks_as_anserinis_own_searcher_does(probe: Probe) -> None:
    lines = """
bm25 = engine()
done = []
bm25.build(corpus, index, done.append)
bm25.load(index)
from jnius import autoclass
own = autoclass("io.anserini.search.SimpleSearcher")(str(index / "lucene"))
own.set_bm25(params["k1"], params["b"])
for query in ("mountains of ice", "throw molten rock", "coffee"):
    say([[[hit.doc_id, hit.score] for hit in bm25.search(query, 3)],
         [[hit.docid, hit.score] for hit in own.search(query, 3)]])
say([done[0], done[-1], bm25.threads(), sorted(path.name for path in index.iterdir())])
say(bm25.libraries())
bm25.close()
"""
    *rankings, facts, libraries = probe("bm25", lines)
    assert all(ours == theirs for ours, theirs in rankings)
    assert [len(ours) for ours, _ in rankings] == [3, 2, 1]
    # Equal texts: the ids decide, and the scores say so.
    (first, first_score), (second, second_score) = rankings[1][0]
    assert (first, second) == ("twin", "volcano")
    assert first_score > second_score
    assert facts == [0, len(DOCUMENTS), {"jvm_available_processors": 1}, ["lucene"]]
    assert "-XX:ActiveProcessorCount=1" in libraries["jvm_options"]
    assert libraries.keys() >= {"anserini", "lucene", "java", "pyjnius"}


def test_odd_queries_are_answered(probe: Probe) -> None:
    lines = """
bm25 = engine()
bm25.build(corpus, index, lambda _: None)
bm25.load(index)
for query in ("", "  ", "the of and", "zzz", "\\U0001f600", "coffee\\x00", 'AND (foo* "', "mountains " * 2000):
    say([hit.doc_id for hit in bm25.search(query, 2)])
"""
    cafe = DOCUMENTS[2]["_id"]
    assert probe("bm25", lines)[:7] == [[], [], [], [], [cafe], [cafe], []]


@pytest.mark.parametrize(
    "lines",
    [
        "engine(build_heap_mib=2).build(corpus, index, lambda _: None)",
        """
bm25 = engine(heap_mib=8)
bm25.build(corpus, index, lambda _: None)
bm25.load(index)
from jnius import autoclass
with adapter._java_errors():
    autoclass("java.util.ArrayList")(100_000_000)
""",
    ],
    ids=["build", "search"],
)
def test_a_full_java_heap_is_a_memory_error(probe: Probe, lines: str) -> None:
    caught = "\ntry:\n" + "\n".join(f"    {line}" for line in lines.splitlines()) + "\nexcept MemoryError as error:\n"
    (message,) = probe("bm25", caught + "    say(str(error))\n")
    assert "java.lang.OutOfMemoryError" in message


def test_it_lives_in_a_quarter_of_a_gibibyte(probe: Probe) -> None:
    lines = """
bm25 = engine(build_heap_mib=64)
bm25.build(corpus, index, lambda _: None)
bm25.load(index)
for _ in range(200):
    hits = bm25.search("mountains of ice", 3)
say(hits[0].doc_id)
"""
    assert probe("bm25", lines, "256m") == ["glacier"]


def test_options_that_every_jvm_gets_do_no_harm(probe: Probe) -> None:
    """What the launcher sets for all JVMs is read by both of ours, and the adapter's own options win."""
    lines = """
import os
os.environ["JAVA_TOOL_OPTIONS"] = "-XX:ActiveProcessorCount=7"
bm25 = engine()
bm25.build(corpus, index, lambda _: None)
bm25.load(index)
say([bm25.threads(), [hit.doc_id for hit in bm25.search("ice", 1)]])
bm25.close()
"""
    assert probe("bm25", lines) == [[{"jvm_available_processors": 1}, ["glacier"]]]
