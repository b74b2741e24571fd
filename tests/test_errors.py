"""Tests of the words that messages share."""

from __future__ import annotations

import pytest

from harness.errors import counted


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "query", "1 query"),
        (0, "query", "0 queries"),
        (2, "fresh process", "2 fresh processes"),
        (1200, "row", "1,200 rows"),
        (3, "day", "3 days"),
    ],
)
def test_counted_noun_has_its_plural(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text
