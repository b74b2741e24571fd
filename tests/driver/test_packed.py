"""Packed rankings come out as they went in, to the last bit; what the driver would refuse does not go in."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from harness.driver.component import pack, unpack
from harness.driver.hits import BadAnswer
from harness.records import Hit


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_ids_and_scores_are_the_same_to_the_last_bit(count: int) -> None:
    rng = random.Random(3)
    odd = [1.7976931348623157e308, 5e-324, 0.1 + 0.2, 0.0, -0.0, -1e-300, -3]
    scores = sorted([*odd, *(rng.gauss(0, 1) * 10 ** rng.randint(-300, 300) for _ in range(count))], reverse=True)[
        :count
    ]
    hits = [Hit(f"caf\u00e9 \U0001f600{n}", score) for n, score in enumerate(scores)]
    ids, found = unpack(json.loads(json.dumps(pack(hits, count))))
    assert ids == [hit.doc_id for hit in hits]
    assert [score.hex() for score in found] == [float(score).hex() for score in scores]


GOOD = [Hit("a", 2.0), Hit("b", 1.0)]


@pytest.mark.parametrize(
    ("hits", "said"),
    [
        (None, "search returned NoneType, not a list or tuple of hits"),
        (iter(GOOD), "search returned list_iterator"),
        ([*GOOD, None], "rank 3: NoneType, not a Hit"),
        ([*GOOD, ("c", 0.5)], "rank 3: tuple, not a Hit"),
        ([*GOOD, Hit("c", 0.5), Hit("d", 0.25)], "4 hits, asked for 3"),
        ([*GOOD, Hit("a", 0.5)], "rank 3: document 'a' comes twice"),
        ([*GOOD, Hit("c", 1.5)], "rank 3: score 1.5 is above the one before, 1.0"),
        ([Hit("a", float("nan"))], "rank 1: the score is nan"),
        ([Hit("a", float("inf"))], "rank 1: the score is inf"),
        ([Hit("a", 10**400)], "rank 1: the score is too large"),
        ([Hit("a", True)], "rank 1: the score is bool, not a plain float"),
        ([Hit("a", "1")], "rank 1: the score is str, not a plain float"),
        ([Hit("a", None)], "rank 1: the score is NoneType, not a plain float"),
        ([Hit(7, 1.0)], "rank 1: the document id is int, not str"),
        ([Hit([], 1.0)], "rank 1: the document id is list, not str"),
    ],
)
def test_what_the_driver_would_refuse_is_refused_in_its_words(hits: Any, said: str) -> None:
    with pytest.raises(BadAnswer) as caught:
        pack(hits, 3)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"ids": ["a"], "scores": None},
        {"ids": ["a"], "scores": "?"},
        {"ids": ["a"], "scores": "AAAA"},
        {"ids": ["a"], "scores": ""},
        {"ids": "a", "scores": "AAAAAAAAAAA="},
        {"ids": ["a", "b"], "scores": "AAAAAAAAAAA="},
    ],
)
def test_what_is_not_packed_is_a_bad_answer(reply: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer, match=r"^the engine's reply has "):
        unpack(reply)
