"""Positions of relevant passages from passages or chunks that were judged apart from their documents.

The rule by which a document holds a passage, changed or not, follows Boytsov et al. (2025): the longest common
substring has 80 % of the passage, else the longest common subsequence has 70 % of it in a window of 1.2 times its
length, moved by a tenth of it.  Both are sequences of tokens of bert-base-uncased, which have neither case nor accents;
punctuation is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import Match, SequenceMatcher
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter

from harness.datasets import source
from harness.datasets.generate.wordpieces import split_tokens
from harness.datasets.passage_positions import RelevantPosition

SUBSTRING, SUBSEQUENCE = 0.8, 0.7
_WINDOW, _STEP = 1.2, 0.1
# Blocks of fewer tokens match by chance.
_LEAST_BLOCK = 3
_UNKNOWN = "[UNK]"
# The study judged at most 36 chunks of some 256 tokens of each document.
CHUNK_TOKENS, MOST_CHUNKS = 256, 36


@dataclass(frozen=True)
class JudgedPassage:
    """Text of a passage that is relevant for ``query``, and its document where that is known."""

    query: str
    text: str
    doc: str | None = None


@dataclass(frozen=True)
class JudgedChunk:
    """Grade of chunk number ``chunk`` (from 0) of a document; ``start_token``: where it starts, if it is known."""

    __pydantic_config__ = ConfigDict(strict=True, defer_build=True)

    query: str
    doc: str
    chunk: Annotated[int, Field(ge=0, lt=MOST_CHUNKS)]
    grade: int
    start_token: Annotated[int, Field(ge=0)] | None = None


_PASSAGE: TypeAdapter[JudgedPassage] = TypeAdapter(JudgedPassage)
_CHUNK: TypeAdapter[JudgedChunk] = TypeAdapter(JudgedChunk)


@dataclass
class MatchedPassages:
    """Positions that were found, of ``pairs`` of a query and a document that were searched."""

    records: list[RelevantPosition] = field(default_factory=list)
    pairs: int = 0


def read_passages(path: Path) -> Iterator[JudgedPassage]:
    """Yield relevant passages from JSON lines ``{"query", "text"}``, with ``"doc"`` where it is known.

    Raises:
        FileError: the file is missing, or a line is wrong.
    """
    return source.read_records(path, _PASSAGE)


def read_chunks(path: Path) -> MatchedPassages:
    """Return the first relevant chunk (grade 1 or more) of each pair of query and document.

    The file has JSON lines ``{"query", "doc", "chunk", "grade"}``.  Without ``"start_token"``, chunk n starts at token
    256 n.

    Raises:
        FileError: the file is missing, or a line is wrong.
    """
    first: dict[tuple[str, str], int] = {}
    length: dict[tuple[str, str], int] = {}
    for chunk in source.read_records(path, _CHUNK):
        pair = (chunk.query, chunk.doc)
        start = chunk.chunk * CHUNK_TOKENS if chunk.start_token is None else chunk.start_token
        length[pair] = max(length.get(pair, 0), start + CHUNK_TOKENS)
        if chunk.grade > 0:
            first[pair] = min(start, first.get(pair, start))
    records = [
        RelevantPosition(*pair, start, start + CHUNK_TOKENS, 0, 1, length[pair]) for pair, start in first.items()
    ]
    return MatchedPassages(records, len(length))


@dataclass(frozen=True)
class _Words:
    """Tokens with letters or digits, the place of each among all tokens, and characters of all tokens."""

    words: list[str]
    places: list[int]
    spans: list[tuple[int, int]]


def _split(texts: Sequence[str]) -> Iterator[_Words]:
    for tokens, spans in split_tokens(texts):
        kept = [(token, place) for place, token in enumerate(tokens) if token == _UNKNOWN or token.strip("#").isalnum()]
        yield _Words([token for token, _ in kept], [place for _, place in kept], spans)


def match_passages(
    documents: Iterable[tuple[str, str]], passages: Iterable[JudgedPassage], relevant: Iterable[tuple[str, str]]
) -> MatchedPassages:
    """Find the passages of each query in its relevant documents; memory holds the passages and one document.

    Args:
        documents: ids and texts of the relevant documents, in any order.
        passages: judged relevant.
        relevant: pairs of a query and a document.
    """
    of_query: dict[str, list[tuple[JudgedPassage, _Words]]] = {}
    listed = list(passages)
    for passage, words in zip(listed, _split([each.text for each in listed]), strict=True):
        if words.words:
            of_query.setdefault(passage.query, []).append((passage, words))
    queries_of: dict[str, list[str]] = {}
    for query, doc in dict.fromkeys(relevant):
        if query in of_query:
            queries_of.setdefault(doc, []).append(query)
    found = MatchedPassages()
    for doc, text in documents:
        (document,) = _split([text])
        for query in queries_of.get(doc, ()):
            wanted = [words for passage, words in of_query[query] if passage.doc in (None, doc)]
            found.pairs += bool(wanted)
            for words in wanted:
                place = find_words(document.words, words.words)
                if place is not None:
                    found.records.append(_position((query, doc), document, words, *place))
    return found


def _position(pair: tuple[str, str], document: _Words, passage: _Words, start: int, end: int) -> RelevantPosition:
    """Return the position of words ``start`` to ``end``, with the punctuation around them that the passage has."""
    length = len(document.spans)
    first = max(0, document.places[start] - passage.places[0])
    after = len(passage.spans) - passage.places[-1]
    last = min(length, document.places[end - 1] + after)
    return RelevantPosition(*pair, first, last, document.spans[first][0], document.spans[last - 1][1], length)


def find_words(document: Sequence[str], passage: Sequence[str]) -> tuple[int, int] | None:
    """Return the place (start, end) of a passage among a document's words; ``None``: it is not there."""
    size = len(passage)
    if not size or not document:
        return None
    exact = _find_exact(document, passage)
    if exact is not None:
        return exact, exact + size
    matcher = SequenceMatcher(None, document, passage, autojunk=False)
    block = matcher.find_longest_match()
    if block.size >= SUBSTRING * size:
        return _around((block,), 0, len(document), size)
    start = _best_window(document, passage)
    if start is None:
        return None
    end = min(len(document), start + round(_WINDOW * size))
    blocks = SequenceMatcher(None, document[start:end], passage, autojunk=False).get_matching_blocks()
    long = [each for each in blocks if each.size >= _LEAST_BLOCK]
    return _around(long or (max(blocks, key=lambda each: each.size),), start, len(document), size)


def _find_exact(document: Sequence[str], passage: Sequence[str]) -> int | None:
    text, wanted = f" {' '.join(document)} ", f" {' '.join(passage)} "  # no token has a blank
    at = text.find(wanted)
    return None if at < 0 else text.count(" ", 0, at)


def _around(blocks: Sequence[Match], offset: int, length: int, size: int) -> tuple[int, int]:
    """Return the place of a passage of ``size`` words from the first and the last block that matches."""
    first, last = blocks[0], blocks[-1]
    start = max(0, offset + first.a - first.b)
    return start, max(start + 1, min(length, offset + last.a - last.b + size))


def _best_window(document: Sequence[str], passage: Sequence[str]) -> int | None:
    """Return the start of the window with the longest common subsequence, if that is long enough."""
    size = len(passage)
    width, step, least = round(_WINDOW * size), max(1, round(_STEP * size)), SUBSEQUENCE * size
    bits: dict[str, int] = {}
    for place, word in enumerate(passage):
        bits[word] = bits.get(word, 0) | 1 << place
    shared = np.concatenate(([0], np.cumsum([word in bits for word in document])))
    best, at = 0, None
    for start in range(0, max(1, len(document) - width + step), step):
        end = min(len(document), start + width)
        # No subsequence is longer than the number of shared words.
        if shared[end] - shared[start] >= max(least, best + 1):
            length = _subsequence(document[start:end], bits, size)
            if length >= least and length > best:
                best, at = length, start
    return at


def _subsequence(window: Sequence[str], bits: dict[str, int], size: int) -> int:
    """Return the length of the longest common subsequence, by bits of whole numbers (Hyyro 2004)."""
    whole = (1 << size) - 1
    state = whole
    for word in window:
        both = state & bits.get(word, 0)
        state = (state + both | state - both) & whole
    return size - state.bit_count()
