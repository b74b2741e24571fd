"""Every way in which an answer can be bad has its own words; a good one passes unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, overload

import numpy as np
import pytest

from harness.driver.hits import BadAnswer, check
from harness.records import Hit

GOOD = [Hit("a", 2.0), Hit("b", 1.0), Hit("c", 1.0)]


class Lazy(Sequence[Hit]):
    """Would do its work when it is looked at: after the clock has stopped."""

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Hit]: ...
    def __getitem__(self, place: int | slice) -> Hit | Sequence[Hit]:
        return GOOD[place]

    def __len__(self) -> int:
        return len(GOOD)


@pytest.mark.parametrize("answer", [GOOD, tuple(GOOD)])
def test_a_list_of_hits_is_given_back_as_pairs(answer: Sequence[Hit]) -> None:
    assert check(answer, 3, 3) == [("a", 2.0), ("b", 1.0), ("c", 1.0)]


@pytest.mark.parametrize("score", [np.float32(1.5), np.float64(1.5), np.array(1.5), Fraction(3, 2)])
def test_a_number_that_may_still_have_work_to_do_is_refused(score: Any) -> None:
    with pytest.raises(BadAnswer, match="not a plain float"):
        check([Hit("a", score)], 1, 1)


def test_whole_numbers_are_scores() -> None:
    assert check([Hit("a", 3), Hit("b", -2)], 2, 2) == [("a", 3.0), ("b", -2.0)]


def test_an_empty_answer_is_good_where_none_are_needed() -> None:
    assert check([], 10, 0) == []


BAD: dict[str, tuple[Any, str]] = {
    "None": (None, "search returned NoneType, not a list or tuple of hits"),
    "a lazy sequence": (Lazy(), "search returned Lazy, not a list or tuple of hits"),
    "a generator": ((hit for hit in GOOD), "search returned generator"),
    "a set": ({"a"}, "search returned set"),
    "a text": ("abc", "search returned str"),
    "bytes": (b"abc", "search returned bytes"),
    "an array": (np.zeros(3), "search returned ndarray"),
    "too many": ([*GOOD, Hit("d", 0.0)], "4 hits, asked for 3"),
    "too few": (GOOD[:1], "1 hits, expected 2"),
    "tuples": ([("a", 2.0), ("b", 1.0)], "rank 1: tuple, not a Hit"),
    "a number as id": ([Hit(7, 1.0), GOOD[1]], "rank 1: the document id is int, not str"),  # type: ignore[arg-type]
    "an empty id": ([GOOD[0], Hit("", 1.0)], "rank 2: the document id has 0 characters"),
    "a long id": ([Hit("x" * 257, 9.0), GOOD[0]], "rank 1: the document id has 257 characters, allowed are 1 to 256"),
    "a blank in an id": ([Hit("a b", 9.0), GOOD[0]], "rank 1: the document id 'a b' has blanks"),
    "a line end in an id": ([Hit("a\nb", 9.0), GOOD[0]], "rank 1: the document id 'a\\nb' has blanks"),
    "a lone surrogate": ([Hit("\ud800", 9.0), GOOD[0]], "rank 1: the document id '\\ud800' has blanks"),
    "the same twice": ([GOOD[0], Hit("a", 1.0)], "rank 2: document 'a' comes twice"),
    "nan": ([Hit("a", float("nan")), GOOD[1]], "rank 1: the score is nan"),
    "infinity": ([Hit("a", float("inf")), GOOD[1]], "rank 1: the score is inf"),
    "no score": ([Hit("a", None), GOOD[1]], "rank 1: the score is NoneType, not a plain float"),  # type: ignore[arg-type]
    "a text as score": ([Hit("a", "2.0"), GOOD[1]], "rank 1: the score is str"),  # type: ignore[arg-type]
    "a truth as score": ([Hit("a", True), GOOD[1]], "rank 1: the score is bool, not a plain float"),
    "an endless score": ([Hit("a", 10**400), GOOD[1]], "rank 1: the score is too large"),
    "rising scores": ([GOOD[1], GOOD[0]], "rank 2: score 2.0 is above the one before, 1.0"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_is_refused_with_the_reason(name: str) -> None:
    answer, said = BAD[name]
    with pytest.raises(BadAnswer) as caught:
        check(answer, 3, 2)
    assert str(caught.value).startswith(said)
    str(caught.value).encode("utf-8")  # it will be written down


def test_an_id_of_the_longest_allowed_length_passes() -> None:
    assert check([Hit("ü" * 256, 1.0)], 1, 1) == [("ü" * 256, 1.0)]
