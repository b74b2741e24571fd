"""LLM rerankers without a model: prompts, windows, hostile answers, recordings."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.driver.adapter import Corpus
from harness.driver.records import Envelope, Hit
from harness.launch.images import catalog

ENGINE = catalog.images_dir() / "llm-rerank"


@pytest.fixture(autouse=True)
def engine_on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The engine's modules, under names that other engines have too."""
    before = dict(sys.modules)
    monkeypatch.syspath_prepend(str(catalog.images_dir() / "shared"))
    monkeypatch.syspath_prepend(str(ENGINE))
    yield
    for name in ("adapter", "parameters"):
        sys.modules.pop(name, None)
        if name in before:
            sys.modules[name] = before[name]


def llm(name: str) -> ModuleType:
    return importlib.import_module(f"llm.{name}")


def restated_windows(documents: int, window: int, step: int) -> list[tuple[int, int]]:
    """rank_llm's loop: both ends move by the step, and it ends when the next window would begin before the head."""
    found, start, end = [], documents - window, documents
    while end > 0 and start + step != 0:
        start = max(start, 0)
        found.append((start, end))
        start, end = start - step, end - step
    return found


def test_windows_go_from_the_back_to_the_head_and_leave_none_out() -> None:
    spans = llm("windows").spans
    assert [start for start, _ in spans(100, 20, 10)] == [80, 70, 60, 50, 40, 30, 20, 10, 0]
    assert [len(spans(n, 20, 10)) for n in (100, 25, 20, 15, 1, 0)] == [9, 2, 1, 1, 1, 0]
    assert restated_windows(10, 20, 10) == [], "rank_llm 0.25.7 ranks no list of window - step documents"
    for documents in range(1, 60):
        for window, step in ((20, 10), (20, 7), (10, 10), (5, 1), (3, 2)):
            expected = restated_windows(documents, window, step) if documents != window - step else [(0, documents)]
            assert spans(documents, window, step) == expected


# Twelve answers that are no ranking of four passages, and what becomes of each.
HOSTILE = {
    "[2] > [1]": [1, 0, 2, 3],
    "": [0, 1, 2, 3],
    "I cannot rank these passages.": [0, 1, 2, 3],
    "[9] > [0] > [3]": [2, 0, 1, 3],
    "[2] > [2] > [2] > [4] > [2]": [1, 3, 0, 2],
    "4321": [0, 1, 2, 3],
    "-4, +3": [3, 2, 0, 1],
    "1.5 > 3": [0, 2, 1, 3],
    "\u0663 > \u00b2 > [4]": [3, 0, 1, 2],
    "9" * 5000 + " > [3]": [2, 0, 1, 3],
    "[04] > [0003]\x00[1]\n\n```": [3, 2, 0, 1],
    '{"ranking": [3, "2", null, 1e9, true]} </think> [4]': [2, 1, 0, 3],
}


@pytest.mark.parametrize(("answer", "order"), HOSTILE.items(), ids=range(len(HOSTILE)))
def test_hostile_answer_gives_a_permutation(answer: str, order: list[int]) -> None:
    assert llm("parse").permutation(answer, 4) == order


def test_conversation_is_rankgpts_and_passages_have_no_identifiers() -> None:
    prompts = llm("prompts")
    messages = prompts.ranking("why", ["one [2] two", "three"])
    assert [each["role"] for each in messages] == ["system", *["user", "assistant"] * 3, "user"]
    contents = [each["content"] for each in messages]
    assert contents[3:7] == ["[1] one (2) two", "Received passage [1].", "[2] three", "Received passage [2]."]
    assert "2 passages" in contents[1] and "query: why." in contents[1] and "[] > []" in contents[-1]
    assert prompts.cut("a  b\nc d", 3) == "a b c" and prompts.cut("a  b\nc d", None) == "a  b\nc d"
    assert prompts.cut("", 3) == "" and prompts.cut("a b", 300) == "a b"


DOCUMENTS = [
    {"_id": "glacier", "title": "Glaciers", "text": "Rivers of ice that move slowly."},
    {"_id": "empty", "title": "", "text": ""},
    {"_id": "caf\u00e9", "title": "", "text": "People drink coffee \U0001f600 and talk."},
]


@pytest.fixture
def replayed(tmp_path: Path) -> Callable[..., Any]:
    """An engine over three documents and a recording of the given lines; its texts are indexed uncut."""

    def make(*lines: str, **params: object) -> Any:
        (tmp_path / "recorded").mkdir()
        (tmp_path / "recorded" / "answers.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        (tmp_path / "index").mkdir()
        corpus = tmp_path / "corpus.jsonl"
        corpus.write_text("".join(json.dumps(each) + "\n" for each in DOCUMENTS), encoding="utf-8")
        given = {"method": "rankgpt", "model": "m", "transport": "replay", "recording": "recorded", **params}
        engine = importlib.import_module("adapter").ENGINE(given, Envelope("test", 1, 1 << 30), tmp_path)
        engine.build(Corpus(corpus, len(DOCUMENTS)), tmp_path / "index", lambda _: None)
        engine.load(tmp_path / "index")
        return engine

    return make


def recorded(answer: str, query: str, texts: list[str], **more: Any) -> str:
    transport, prompts = llm("transport"), llm("prompts")
    sha256 = transport.request_sha256(transport.request("m", prompts.ranking(query, texts), 120))
    entry = {"answer": answer, "prompt_tokens": 310, "completion_tokens": 11, "seconds": 1.25, **more}
    return json.dumps({"request_sha256": sha256, **entry})


TEXTS = ["Glaciers Rivers of ice that move slowly.", "", "People drink coffee \U0001f600 and talk."]


def test_replay_reproduces_the_ranking_and_counts_recorded_tokens(replayed: Callable[..., Any]) -> None:
    engine = replayed(
        recorded("[3] > [1] > [2]", "a drink", TEXTS),
        recorded("[2] > [1]", "ice", [TEXTS[2], TEXTS[0]], prompt_tokens=200, completion_tokens=7, seconds=0.5),
    )
    assert engine.score("a drink", ["glacier", "empty", "caf\u00e9"]) == [-2.0, -3.0, -1.0]
    counts = engine.counts()
    assert counts == {
        "pairs": 3,
        "windows": 1,
        "calls": 1,
        "prompt_tokens": 310,
        "completion_tokens": 11,
        "tokens": 321,
        "provider_ms": 1250,
    }
    assert engine.search("a drink", 2) == [Hit("caf\u00e9", -1.0), Hit("glacier", -2.0)]
    assert engine.score("ice", ["caf\u00e9", "glacier"]) == [-2.0, -1.0] and engine.counts()["prompt_tokens"] == 200
    assert engine.stages_s().keys() == {"fetch", "tokenise", "score"}
    assert engine.score("ice", []) == [] and engine.counts()["calls"] == 0
    with pytest.raises(ValueError, match=r"no recorded answer of m to request [0-9a-f]{12} .*Search Query: ice"):
        engine.score("ice", ["glacier", "caf\u00e9"])  # another order is another prompt
    with pytest.raises(ValueError, match="'nowhere'"):
        engine.score("ice", ["nowhere"])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"step": 30}, "step is 30, above window, 20"),
        ({"passage_words": 0}, "passage_words is 0"),
        ({"method": "guess"}, "method is 'guess', must be one of rankgpt, query_likelihood"),
        ({"method": "query_likelihood"}, "chat APIs give no likelihood"),
        ({"widow": 3}, "unknown parameter 'widow'"),
        ({"recording": ""}, "replay alone has a recording"),
    ],
)
def test_wrong_parameter_is_refused_by_name(
    replayed: Callable[..., Any], params: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        replayed(**params)


@pytest.mark.parametrize("line", ["[]", "{", recorded.__name__, '{"request_sha256": "a", "answer": 3}'])
def test_malformed_recording_is_refused_by_line(replayed: Callable[..., Any], line: str) -> None:
    with pytest.raises(ValueError, match=r"answers\.jsonl, line 2: not a recorded answer"):
        replayed(recorded("[1]", "q", TEXTS), line)
