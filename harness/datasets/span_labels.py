"""Labels by answers that people wrote: a paragraph is relevant if one of its spans is close to an answer.

The rule follows DuReader-retrieval (Qiu et al. 2022, section 2.2 and Algorithm 1): the F1 of a span and an answer,
as bags of tokens, is above a threshold of 0.5.  Short paragraphs of a page are joined to passages of 256 characters; a
passage is relevant if one of its paragraphs is.  The paper does not say what a token is: here it is a character, or a
run of ASCII letters and digits; case, white space and punctuation do not count.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

THRESHOLD = 0.5
CHARACTERS = 256
_TOKEN = re.compile(r"[a-z0-9]+|[^\W_]")
# Cells of one step's matrices: 8 MiB each.
_CELLS = 1 << 20


def split(text: str) -> list[str]:
    """Return a text's tokens."""
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())


def best_f1(text: Sequence[str], answer: Sequence[str], above: float = 0.0) -> float:
    """Return the largest F1 that a span of a text's tokens has with an answer's; 0 where none is above ``above``."""
    wanted, size = Counter(answer), len(answer)
    places: dict[str, list[int]] = defaultdict(list)
    for place, token in enumerate(text):
        if token in wanted:
            places[token].append(place)
    shared = sum(min(wanted[token], len(found)) for token, found in places.items())
    if not shared or 2 * shared <= above * (shared + size):
        return 0.0
    # A longer span cannot be above, even with the whole answer in it.
    width = min(len(text), math.ceil(size * (2 / above - 1))) if above else len(text)
    # A token counts in the spans that begin after ``before``: the answer has it no more often.
    before = np.full(len(text) + width, len(text))
    for token, found in places.items():
        before[found] = ([-1] * wanted[token] + found)[: len(found)]
    starts = np.array(sorted(place for found in places.values() for place in found))
    lengths = np.arange(1, width + 1)
    best = 0.0
    step = max(1, _CELLS // width)
    for first in range(0, len(starts), step):
        begins = starts[first : first + step, None]
        common = np.cumsum(before[begins + lengths - 1] < begins, axis=1)
        best = max(best, float((2 * common / (lengths + size)).max()))
    return best if best > above else 0.0


def is_positive(paragraph: str, answers: Sequence[Sequence[str]], threshold: float = THRESHOLD) -> bool:
    """Return whether a span's F1 with one of the answers, given as tokens, is above the threshold."""
    text = split(paragraph)
    return any(best_f1(text, answer, threshold) for answer in answers)


def join_paragraphs(paragraphs: Sequence[str], characters: int = CHARACTERS) -> list[range]:
    """Return the paragraphs of each passage, as ranges of their places.

    A page of fewer characters is one passage.  Else a paragraph of fewer characters is joined with those that follow
    until both together have more; the last ones of a page may be shorter.
    """
    sizes = [len(paragraph) for paragraph in paragraphs]
    if sum(sizes) < characters:
        return [range(len(sizes))] if sizes else []
    passages, start, held = [], 0, 0
    for place, size in enumerate(sizes):
        held += size
        if held > characters or (place == start and size == characters):
            passages.append(range(start, place + 1))
            start, held = place + 1, 0
    return [*passages, range(start, len(sizes))] if start < len(sizes) else passages


def join_texts(paragraphs: Sequence[str]) -> str:
    """Join texts to one; put a blank only between two Latin letters or digits."""
    joined = ""
    for paragraph in paragraphs:
        gap = " " if joined[-1:].isascii() and joined[-1:].isalnum() and paragraph[:1].isascii() else ""
        joined += (gap if paragraph[:1].isalnum() else "") + paragraph
    return joined
