"""The adapter contract: verbs, the corpus, and the hits that are accepted."""

from __future__ import annotations

import json
from collections import UserList
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.driver.adapter import Adapter, BadAnswer, Corpus, Document, check_hits
from harness.driver.records import Envelope, Hit


class Least(Adapter):
    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None: ...

    def load(self, index_dir: Path) -> None: ...

    def search(self, query: str, k: int) -> Sequence[Hit]:
        return []


def test_adapter_needs_only_build_load_and_search(tmp_path: Path) -> None:
    assert Adapter.__abstractmethods__ == {"build", "load", "search"}
    envelope = Envelope("cpu1-mem1", 1, 1 << 30)
    adapter = Least({"k1": 0.9}, envelope, tmp_path)
    assert (adapter.params, adapter.envelope, adapter.assets) == ({"k1": 0.9}, envelope, tmp_path)
    assert adapter.stages_s() == adapter.threads() == adapter.libraries() == {}
    assert adapter.device() == "cpu" and adapter.streams() == 1
    assert adapter.search_batch(["one", "two"], 3) == [[], []]
    adapter.close()


def test_corpus_streams_its_documents_repeatedly(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    odd = "one\u2028line\u0085only\r\n, 森林"
    raw = [{"_id": "d1", "title": "t", "text": "first"}, {"_id": "d2", "text": odd}]
    path.write_text("".join(json.dumps(document, ensure_ascii=False) + "\n" for document in raw), encoding="utf-8")
    corpus = Corpus(path, 2)
    assert len(corpus) == 2 and corpus.path == path
    expected = [Document("d1", "t", "first"), Document("d2", "", odd)]
    assert list(corpus) == expected
    assert list(corpus) == expected


GOOD = [Hit("a", 2.0), Hit("b", 1.0), Hit("c", 1.0)]


@pytest.mark.parametrize("answer", [GOOD, tuple(GOOD)])
def test_hits_are_returned_as_pairs(answer: Sequence[Hit]) -> None:
    assert check_hits(answer, 3, 3) == [("a", 2.0), ("b", 1.0), ("c", 1.0)]
    assert check_hits([Hit("a", 3), Hit("b", -2)], 2, 2) == [("a", 3.0), ("b", -2.0)], "whole numbers are scores"
    assert check_hits([], 10, 0) == []


@pytest.mark.parametrize("score", [np.float32(1.5), np.float64(1.5), np.array(1.5), Fraction(3, 2)])
def test_lazy_score_is_refused(score: Any) -> None:
    with pytest.raises(BadAnswer, match="not a plain float"):
        check_hits([Hit("a", score)], 1, 1)


BAD: dict[str, tuple[Any, str]] = {
    "None": (None, "search returned NoneType, not a list or tuple of hits"),
    "a lazy sequence": (UserList(GOOD), "search returned UserList, not a list or tuple of hits"),
    "a generator": ((hit for hit in GOOD), "search returned generator"),
    "a set": ({"a"}, "search returned set"),
    "a text": ("abc", "search returned str"),
    "bytes": (b"abc", "search returned bytes"),
    "an array": (np.zeros(3), "search returned ndarray"),
    "too many": ([*GOOD, Hit("d", 0.0)], "4 hits, asked for 3"),
    "too few": (GOOD[:1], "1 hits, expected 2"),
    "tuples": ([("a", 2.0), ("b", 1.0)], "rank 1: tuple, not a Hit"),
    "a number as id": ([Hit(7, 1.0), GOOD[1]], "rank 1: the document id is int, not str"),
    "an empty id": ([GOOD[0], Hit("", 1.0)], "rank 2: the document id has 0 characters"),
    "a long id": ([Hit("x" * 257, 9.0), GOOD[0]], "rank 1: the document id has 257 characters, allowed are 1 to 256"),
    "a blank in an id": ([Hit("a b", 9.0), GOOD[0]], "rank 1: the document id 'a b' has blanks"),
    "a line end in an id": ([Hit("a\nb", 9.0), GOOD[0]], "rank 1: the document id 'a\\nb' has blanks"),
    "a lone surrogate": ([Hit("\ud800", 9.0), GOOD[0]], "rank 1: the document id '\\ud800' has blanks"),
    "the same twice": ([GOOD[0], Hit("a", 1.0)], "rank 2: document 'a' comes twice"),
    "nan": ([Hit("a", float("nan")), GOOD[1]], "rank 1: the score is nan"),
    "infinity": ([Hit("a", float("inf")), GOOD[1]], "rank 1: the score is inf"),
    "no score": ([Hit("a", None), GOOD[1]], "rank 1: the score is NoneType, not a plain float"),
    "a text as score": ([Hit("a", "2.0"), GOOD[1]], "rank 1: the score is str"),
    "a truth as score": ([Hit("a", True), GOOD[1]], "rank 1: the score is bool, not a plain float"),
    "an endless score": ([Hit("a", 10**400), GOOD[1]], "rank 1: the score is too large"),
    "rising scores": ([GOOD[1], GOOD[0]], "rank 2: score 2.0 is above the one before, 1.0"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_is_refused_with_the_reason(name: str) -> None:
    answer, message = BAD[name]
    with pytest.raises(BadAnswer) as caught:
        check_hits(answer, 3, 2)
    assert str(caught.value).startswith(message)
    str(caught.value).encode("utf-8")  # it will be written down


def test_id_of_the_maximum_length_is_accepted() -> None:
    assert check_hits([Hit("ü" * 256, 1.0)], 1, 1) == [("ü" * 256, 1.0)]
