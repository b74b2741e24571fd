"""Porter's English stems as Lucene's ``PorterStemmer`` computes them: Snowball's, corrected where the two differ.

Snowball's ``porter`` is Porter, "An algorithm for suffix stripping", *Program* 14(3), 1980.  Lucene follows Martin
Porter's later program: -bli becomes -ble, -logi becomes -log, and words of one and two letters keep their form.
Before -ed and -ing, Lucene undoubles every consonant but l, s and z, Snowball only nine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import Stemmer

_LONGEST_KEPT = 2  # in the 16-bit units that Java counts
# Words that end in -bli or -logi after Porter's first step.
_LATER_RULE = re.compile(r"((?P<root>.*)(?:bl|log))(?:[iy](?:(?:ed|ing)?s?)|ies)", re.DOTALL)
# Words that end in a doubled consonant without -ed or -ing; Snowball undoubles nine itself.  Every second y of a run is
# a consonant.
_DOUBLED = re.compile(r"(.*(?:([^aeioulszybdfgmnprt])\2|(?:(?:^|[aeiou])y|[^aeiouy])(?:yy)+))(?:ed|ing)s?", re.DOTALL)
# A vowel before a consonant, which makes Porter's measure 1 or more; y is a vowel after a consonant.
_MEASURED = re.compile(r"(?:[aeiou]|(?<=[^aeiou])y)[^aeiou]")


class Porter:
    """A stemmer of lowercase English words."""

    def __init__(self) -> None:
        self._snowball = Stemmer.Stemmer("porter")

    def stem_words(self, words: Sequence[str]) -> list[str]:
        """Return the stem of each word."""
        return list(map(self._corrected, words, self._snowball.stemWords(words)))

    def _corrected(self, word: str, stem: str) -> str:
        if len(word) <= _LONGEST_KEPT and len(word.encode("utf-16-le")) <= 2 * _LONGEST_KEPT:
            return word
        # Snowball's stem shows which ending its first step left.
        if (found := _LATER_RULE.fullmatch(word)) and stem == f"{found[1]}i" and _MEASURED.search(found["root"]):
            return found[1] if found[1].endswith("log") else self._snowball.stemWord(f"{found[1]}e")
        if (found := _DOUBLED.fullmatch(word)) and stem in (found[1], f"{found[1][:-1]}i"):
            (stem,) = self.stem_words([found[1][:-1]])
        return stem
