"""Lucene's English analysis in Python, and the like for other languages that have stems and stop words."""

from __future__ import annotations

import re
from collections.abc import Collection

import Stemmer

# Words as Unicode cuts them (UAX 29) for letters and digits: U.S, don't, 3.5 and 1,000 stay whole.
_WORD = re.compile(r"\w+(?:(?<=[^\W\d_])['’.:·](?=[^\W\d_])\w+|(?<=\d)[.,;'’](?=\d)\w+)*")
_POSSESSIVE = re.compile(r"['’]s$")


class Analyser:
    """Cuts a text into stems of lowercase words, stop words left out.

    Args:
        stems: name of the stemmer in Snowball.
        stops: the stop words.
        possessive: whether words lose an ending ``'s``.
    """

    def __init__(self, stems: str, stops: Collection[str], *, possessive: bool) -> None:
        self._stem = Stemmer.Stemmer(stems).stemWords
        self._stops = frozenset(stops)
        self._possessive = possessive

    def __call__(self, text: str) -> list[str]:
        """Return the tokens in order."""
        words = _WORD.findall(text.lower())
        if self._possessive:
            words = [_POSSESSIVE.sub("", word) for word in words]
        stems: list[str] = self._stem([word for word in words if word not in self._stops])
        return stems
