"""English stems of ``bm25s`` and ``pisa`` are Lucene's, as its ``PorterStemmer`` answered for these words."""

from __future__ import annotations

import importlib
import re

import pytest

from harness.launch.images import catalog

# Words and Lucene's stems: later rules, no measure, one and two letters (as Java counts), doubled consonants, others.
_TABLE = """
technology technolog   technologies technolog   analogical analog   apology apolog   etymologie etymologi   logy logi
possibly possibl   irreversibly irrevers   assembly assembl   assemblies assembl   reliably reliabl   wobbly wobbl
bly bly   ably abli
s s   us us   as as   5s 5s   ey ey   \U0001d49cs \U0001d49c
trekking trek   revved rev   hopping hop   falling fall   hissing hiss   fizzed fizz
0aced 0ace   accing ac   aééed aé   blyying bly   abcyyed abci   ayying ayi
relational relat   happily happili   agreed agre   controlling control   skies ski
"""
LUCENE = dict(line.split() for line in re.split("   |\n", _TABLE.strip()))


@pytest.fixture
def stem(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(catalog.images_dir() / "shared"))
    return importlib.import_module("analysis.porter").Porter().stem_words


def test_stems_are_lucenes(stem: object) -> None:
    assert callable(stem)
    assert dict(zip(LUCENE, stem(list(LUCENE)), strict=True)) == LUCENE
