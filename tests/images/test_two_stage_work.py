"""The work that two stages report of each query, also of one whose first stage finds nothing."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.driver.adapter import Corpus
from harness.driver.component import Ranking
from harness.driver.records import Envelope, Scalar
from harness.launch.images import catalog
from tests.images.toy import Toy

ENVELOPE = Envelope("e", 1, 1 << 30)


class InProcess:
    """A toy that searches and scores in this process, where a component has a process of its own."""

    def __init__(self, name: str, params: dict[str, Scalar], envelope: Envelope, assets: Path, *, last: str) -> None:
        self.name, self._toy = name, Toy(params, envelope, assets)
        self._stages_s: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def prepare(self, corpus: Corpus, folder: Path) -> None:
        """Build and load."""
        folder.mkdir()
        self._toy.build(corpus, folder, lambda _: None)
        self._toy.load(folder)

    def ranked(self, query: str, k: int) -> Ranking:
        """Search."""
        hits = self._toy.search(query, k)
        self._stages_s, self._counts = self._toy.stages_s(), {"parameters": 5}
        return [hit.doc_id for hit in hits], [hit.score for hit in hits]

    def scored(self, query: str, doc_ids: Sequence[str]) -> Sequence[float]:
        """Score."""
        scores = self._toy.score(query, doc_ids)
        self._stages_s, self._counts = self._toy.stages_s(), {**self._toy.counts(), "parameters": 7}
        return scores

    def stages_s(self) -> dict[str, float]:
        """Return the stages of the last reply, as a component does."""
        return dict(self._stages_s)

    def counts(self) -> dict[str, int]:
        """Return the counts of the last reply."""
        return dict(self._counts)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(catalog.images_dir() / "shared"), *sys.path])
    joined = importlib.import_module("joined.component")
    names = ("words", "letters")
    facts = [joined.ComponentFacts(name, "toy", "", {}) for name in names]
    monkeypatch.setattr(joined, "read_components", lambda: facts)
    monkeypatch.setattr(joined, "Component", lambda facts, *rest, last: InProcess(facts.name, *rest, last=last.name))
    spec = importlib.util.spec_from_file_location("two_stage", catalog.images_dir() / "two-stage" / "adapter.py")
    assert spec and spec.loader
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    texts = {"d1": "red river", "d2": "red stone", "d3": "blue bridge"}
    lines = (json.dumps({"_id": name, "title": "", "text": text}) for name, text in texts.items())
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    params = {"depth": 2, "words.shared": "words", "words.matches": True, "letters.shared": "letters"}
    made = module.ENGINE(params, ENVELOPE, tmp_path)
    for each in made.components:
        each.prepare(Corpus(tmp_path / "corpus.jsonl", 3), tmp_path / each.name)
    return made


def test_query_without_candidates_reports_no_time_and_no_work_of_the_second_stage(engine: Any) -> None:
    assert engine.search("unheard", 2) == [] and "pairs" not in engine.counts(), "nothing was scored yet"
    assert len(engine.search("red", 2)) == 2
    busy, counts = engine.stages_s(), engine.counts()
    assert busy["score"] > 0 and counts == {"pairs": 2, "parameters": 12}
    assert engine.search("unheard", 2) == []
    idle = engine.stages_s()
    assert idle.keys() == busy.keys() and idle["score"] == 0 and idle["retrieve"] > 0
    assert engine.counts() == {"pairs": 0, "parameters": 12}, "the models stay as large"
