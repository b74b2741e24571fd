"""Lucene's English analysis in Python, and the like for other languages that have stems and stop words."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from math import inf

import Stemmer

from analysis.porter import Porter

# Words as Unicode cuts them (UAX 29) for letters and digits: U.S, don't, 3.5 and 1,000 stay whole.
_WORD = re.compile(r"\w+(?:(?<=[^\W\d_])['’.:·](?=[^\W\d_])\w+|(?<=\d)[.,;'’](?=\d)\w+)*")
_POSSESSIVE = re.compile(r"['’]s$")


class Analyser:
    """Cuts a text into stems of lowercase words, stop words left out.

    Args:
        stems: name of the stemmer in Snowball; ``porter`` is Lucene's (:class:`Porter`).
        stops: the stop words.
        possessive: whether words lose an ending ``'s``.
    """

    def __init__(self, stems: str, stops: Collection[str], *, possessive: bool) -> None:
        self._stem = Porter().stem_words if stems == "porter" else Stemmer.Stemmer(stems).stemWords
        self._stops = frozenset(stops)
        self._possessive = possessive

    def __call__(self, text: str) -> list[str]:
        """Return the tokens in order."""
        # The stemmer takes no half of a surrogate pair.
        words = _WORD.findall(text.encode("utf-8", "replace").decode("utf-8").lower())
        if self._possessive:
            words = [_POSSESSIVE.sub("", word) for word in words]
        stems: list[str] = self._stem([word for word in words if word not in self._stops])
        return stems


def check_bm25(params: Mapping[str, str | float]) -> None:
    """Refuse a ``k1`` or ``b`` that is no number, or outside the formula.

    Raises:
        ValueError: names it, and what is allowed.
    """
    for name, most in (("k1", inf), ("b", 1)):
        value = params[name]
        if isinstance(value, bool | str) or not 0 <= value <= most:
            raise ValueError(f"{name} is {value!r}, must be a number from 0 to {most}")
