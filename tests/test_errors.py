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


def test_known_names_and_the_hint_are_there_only_where_no_name_is_near() -> None:
    known = ["system-8", "system-7"]
    assert (
        str(UnknownName("system", "sistem-7", known, "see x")) == "unknown system 'sistem-7'. Did you mean 'system-7'?"
    )
    assert (
        str(UnknownName("system", "bm25", known, "see x")) == "unknown system 'bm25'; known: system-7, system-8; see x"
    )
    assert str(UnknownName("system", "bm25", [])) == "unknown system 'bm25'; known: none"


@pytest.mark.parametrize(("name", "said"), [("b", ". Did you mean 'bb'?"), ("xyz", "; known: bb.")])
def test_reason_why_an_unknown_name_may_be_right_is_there_in_any_case(name: str, said: str) -> None:
    text = str(UnknownName("system", name, ["bb"], besides="Yours is elsewhere"))
    assert text == f"unknown system '{name}'{said} Yours is elsewhere"


def test_a_long_message_keeps_its_place_and_its_remedy() -> None:
    text = str(HarnessError(f"suite.toml: key '{'x' * 1_000_000}' is unknown; remove it"))
    assert len(text) < 2100
    assert text.startswith("suite.toml: key 'xxx") and text.endswith("xxx' is unknown; remove it")
