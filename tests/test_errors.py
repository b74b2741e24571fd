"""Tests of the words that messages share."""

from __future__ import annotations

import pytest

from harness.errors import HarnessError, UnknownName, counted


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


def test_many_known_names_are_listed_only_where_none_is_near() -> None:
    many = [f"system-{number}" for number in range(70)]
    assert str(UnknownName("system", "sistem-7", many, "see x")) == (
        "unknown system 'sistem-7'. Did you mean 'system-7'? See x"
    )
    assert "; known: system-0, system-1, " in str(UnknownName("system", "bm25", many))


def test_a_long_message_keeps_its_place_and_its_remedy() -> None:
    text = str(HarnessError(f"suite.toml: key '{'x' * 1_000_000}' is unknown; remove it"))
    assert len(text) < 2100
    assert text.startswith("suite.toml: key 'xxx") and text.endswith("xxx' is unknown; remove it")
