"""What an adapter is given, and what it need not say."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness.driver.adapter import Adapter, Corpus, Document
from harness.records import Envelope, Hit


class Least(Adapter):
    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None: ...

    def load(self, index_dir: Path) -> None: ...

    def search(self, query: str, k: int) -> Sequence[Hit]:
        return []


def test_build_load_and_search_are_all_that_is_needed(tmp_path: Path) -> None:
    envelope = Envelope("cpu1-mem1", 1, 1 << 30)
    adapter = Least({"k1": 0.9}, envelope, tmp_path)
    assert (adapter.params, adapter.envelope, adapter.assets) == ({"k1": 0.9}, envelope, tmp_path)
    assert adapter.stages_s() == adapter.threads() == adapter.libraries() == {}
    assert adapter.device() == "cpu" and adapter.streams() == 1
    assert adapter.search_batch(["one", "two"], 3) == [[], []]
    adapter.close()


@pytest.mark.parametrize("verb", ["build", "load", "search"])
def test_an_adapter_without_a_verb_cannot_be_made(tmp_path: Path, verb: str) -> None:
    class Without(Least):
        pass

    Without.__abstractmethods__ = frozenset({verb})
    assert getattr(getattr(Adapter, verb), "__isabstractmethod__", False)
    with pytest.raises(TypeError, match=verb):
        Without({}, Envelope("e", 1, 1), tmp_path)


def test_the_corpus_streams_documents_as_often_as_asked(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    odd = "one\u2028line\u0085only\r\n, 森林"
    raw = [{"_id": "d1", "title": "t", "text": "first"}, {"_id": "d2", "text": odd}]
    path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in raw), encoding="utf-8")
    corpus = Corpus(path, 2)
    assert len(corpus) == 2 and corpus.path == path
    expected = [Document("d1", "t", "first"), Document("d2", "", odd)]
    assert list(corpus) == expected
    assert list(corpus) == expected
