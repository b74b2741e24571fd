"""The JavaScript engine in its image: its scores follow the BM25 formula."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.launch.images import catalog
from tests.conftest import TOPICS
from tests.images.conftest import DOCUMENTS, Probe

pytestmark = pytest.mark.docker

K1, B = 0.9, 0.4
TEXT = "The river and the glacier, the river and the bridge: \u00dcber den Flu\u00df."
# Lengths and frequencies that differ, words in several documents, one twin.
CORPUS = [
    *({"_id": f"d{n}", "title": topic, "text": f"All about the {topic}. " * (n + 1)} for n, topic in enumerate(TOPICS)),
    *({"_id": each, "title": "", "text": TEXT} for each in ("pair", "twin")),
]
QUERIES = ("the river", "glacier bridge market", "RIVER river", "\u00fcber", "nothing of this", "")

RUN = """
bm25 = engine()
bm25.build(Corpus(Path("/job/more.jsonl"), 12), index, lambda _: None)
bm25.load(index)
"""


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def ranking(query: str, k: int) -> list[tuple[str, float]]:
    """Robertson and Zaragoza 2009, with Lucene's idf (never negative); equal scores in the corpus's order."""
    texts = {str(each["_id"]): words(f"{each['title']} {each['text']}") for each in CORPUS}
    mean = sum(map(len, texts.values())) / len(texts)
    scores = dict.fromkeys(texts, 0.0)
    for word in words(query):
        matching = sum(word in text for text in texts.values())
        idf = math.log(1 + (len(texts) - matching + 0.5) / (matching + 0.5))
        for doc_id, text in texts.items():
            tf = Counter(text)[word]
            scores[doc_id] += idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * len(text) / mean))
    found = [(doc_id, score) for doc_id, score in scores.items() if score > 0]
    return sorted(found, key=lambda each: -each[1])[:k]


def test_scores_follow_the_formula(probe: Probe, tmp_path: Path) -> None:
    params = catalog.system("bm25-node").params
    assert (params["k1"], params["b"]) == (K1, B)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "more.jsonl").write_text("".join(json.dumps(each) + "\n" for each in CORPUS))
    lines = f"""
for query in {QUERIES!r}:
    say([[hit.doc_id, hit.score] for hit in bm25.search(query, 5)])
    say([[hit.doc_id, hit.score] for hit in bm25.search_batch([query, "river"], 5)[0]])
bm25.close()
"""
    answers = probe("bm25-node", RUN + lines)
    for query, alone, batched in zip(QUERIES, answers[::2], answers[1::2], strict=True):
        expected = ranking(query, 5)
        assert [doc_id for doc_id, _ in alone] == [doc_id for doc_id, _ in expected], query
        assert [score for _, score in alone] == pytest.approx([score for _, score in expected], rel=1e-12)
        assert batched == alone


def test_engine_describes_itself_and_a_missing_index(probe: Probe) -> None:
    lines = """
bm25 = engine()
done = []
bm25.build(corpus, index, done.append)
say(bm25.libraries())
bm25.load(index)
say([bm25.threads(), bm25.device(), sorted(path.name for path in index.iterdir())])
say([hit.doc_id for hit in bm25.search("coffee \\U0001f600 caf\\u00e9s", 3)])
say(sorted(bm25.stages_s()))
bm25.close()
try:
    engine().load(Path("/nowhere"))
except RuntimeError as error:
    say(str(error))
"""
    libraries, facts, cafe, stages, message = probe("bm25-node", lines)
    assert libraries.keys() == {"node", "v8"}
    assert facts == [{"javascript": 1, "v8_pool": 1}, "cpu", ["bm25.jsonl"]]
    assert cafe == [DOCUMENTS[2]["_id"]] and stages == ["retrieve"]
    assert message.startswith("the engine says: Error: ENOENT") and "/nowhere" in message


@pytest.mark.parametrize("system", ["bm25-node", pytest.param("null", marks=pytest.mark.soak)])
def test_node_system_meets_the_contract(system: str) -> None:
    done = CliRunner().invoke(main, ["conformance", system, "--wide"])
    assert done.exit_code == 0, done.output
    assert "fail" not in done.output and "answers batches as it answers single queries" in done.output
