"""English stems of ``bm25s`` and ``pisa`` are Lucene's, as its ``PorterStemmer`` answered for these words."""

from __future__ import annotations

import importlib

import pytest

from harness.launch.images import catalog

# Word -> Lucene's stem.  Snowball's own `porter` has another one for most of them.
LUCENE = {
    # Porter's later rules
    **{"technology": "technolog", "technologies": "technolog", "possibly": "possibl", "irreversibly": "irrevers"},
    **{"assembly": "assembl", "assemblies": "assembl", "reliably": "reliabl", "wobbly": "wobbl", "analogical": "analog"},
    # no measure before the ending, or another ending
    **{"bly": "bly", "ably": "abli", "logy": "logi", "apology": "apolog", "etymologie": "etymologi"},
    # one and two letters
    **{"s": "s", "us": "us", "as": "as", "5s": "5s", "ey": "ey", "𝒜s": "𝒜"},
    # doubled consonants
    **{"trekking": "trek", "revved": "rev", "hopping": "hop", "falling": "fall", "hissing": "hiss", "fizzed": "fizz"},
    **{"0aced": "0ace", "accing": "ac", "aééed": "aé", "blyying": "bly", "abcyyed": "abci", "ayying": "ayi"},
    # the rules that both have
    **{"relational": "relat", "happily": "happili", "agreed": "agre", "controlling": "control", "skies": "ski"},
}


@pytest.fixture
def stem(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(catalog.images_dir() / "shared"))
    return importlib.import_module("analysis.porter").Porter().stem_words


def test_stems_are_lucenes(stem: object) -> None:
    assert callable(stem)
    assert dict(zip(LUCENE, stem(list(LUCENE)), strict=True)) == LUCENE
