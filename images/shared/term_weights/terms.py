"""Weights of tokens as terms of an index: whole numbers under names that survive the indexer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy

# Lucene's reader of ready-made terms cuts at white space, and any term at this many UTF-16 units.
_LONGEST = 255


def names(tokens: Sequence[str]) -> list[str]:
    """Name the term of each token id: the token, unless the indexer would split or cut it.

    Args:
        tokens: the tokeniser's vocabulary, by id.
    """
    known = set(tokens)
    found = []
    for number, token in enumerate(tokens):
        if _survives(token):
            found.append(token)
            continue
        name = f"#{number}"
        while name in known:
            name += "#"
        known.add(name)
        found.append(name)
    return found


def vocabulary(tokenizer: Any, size: int) -> list[str]:
    """Tokens by id; ids that the tokeniser does not know (rows that padding added) get names of their own.

    Args:
        tokenizer: of the ``tokenizers`` library.
        size: rows of the model's vocabulary.
    """
    tokens = [tokenizer.id_to_token(number) for number in range(size)]
    # White space makes them unfit, so that ``names`` gives them a name.
    return [" " if token is None else token for token in tokens]


def quantised(row: Any, scale: float) -> tuple[list[int], list[int]]:
    """Indices and impacts of all that is at least one after scaling and rounding (a half to the even number).

    Args:
        row: float32, shape (terms,).
    """
    (above,) = numpy.nonzero(row > 0)  # of a vocabulary, few
    impacts = numpy.rint(row[above].astype(numpy.float64) * scale).astype(numpy.int64)
    kept = impacts > 0
    return above[kept].tolist(), impacts[kept].tolist()


def by_term(ids: Iterable[int], weights: Iterable[float], *, left_out: set[int], add: bool) -> dict[int, float]:
    """Merge the weights of a term's tokens: their sum (``add``) or the largest.

    Args:
        ids: token ids of a text, without padding.
        weights: of the same tokens.
        left_out: ids that are no terms.
    """
    found: dict[int, float] = {}
    for number, weight in zip(ids, weights, strict=True):
        if number in left_out:
            continue
        if number not in found:
            found[number] = weight
        else:
            found[number] = found[number] + weight if add else max(found[number], weight)
    return found


def named(weights: Mapping[int, float], names: Sequence[str], scale: float) -> dict[str, int]:
    """Impacts by term of weights by token id; see :func:`quantised`."""
    ids = list(weights)
    kept, impacts = quantised(numpy.array([weights[each] for each in ids], dtype=numpy.float32), scale)
    return {names[ids[index]]: impact for index, impact in zip(kept, impacts, strict=True)}


def words(tokens: Sequence[str], weights: Sequence[float], scale: float) -> dict[str, int]:
    """Whole words with their term frequencies, as DeepCT's ``bert_term_sample_to_json.py`` makes them.

    A word has the weight of its first piece; of several occurrences the largest counts; what rounds to less than one
    is dropped.

    Args:
        tokens: word pieces of a document, special ones included.
        weights: of the same pieces.
    """
    whole: list[str] = []
    first: list[float] = []
    for token, weight in zip(tokens, weights, strict=True):
        if token.startswith("##") and whole:
            whole[-1] += token[2:]
        else:
            whole.append(token)
            first.append(weight)
    found: dict[str, int] = {}
    for word, weight in zip(whole, first, strict=True):
        frequency = int(numpy.rint(scale * max(weight, 0.0)))
        if word not in ("[CLS]", "[SEP]", "[PAD]") and frequency >= 1:
            found[word] = max(frequency, found.get(word, 0))
    return found


def _survives(token: str) -> bool:
    return (
        bool(token)
        and not any(letter.isspace() for letter in token)
        and len(token.encode("utf-16-le", "surrogatepass")) // 2 <= _LONGEST
    )
