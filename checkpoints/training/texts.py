"""Pairs of texts that belong together, out of a collection's documents alone: no query, no judgement."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@dataclass(frozen=True)
class Document:
    """A document as word pieces, without special tokens."""

    title: list[int]
    sentences: list[list[int]]


def documents(path: Path, tokenizer: Any) -> list[Document]:
    """Read the documents of a ``corpus.jsonl.gz`` that have a title and at least two sentences."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    parts = [[row["title"], *_SENTENCE_ENDS.split(row["text"])] for row in rows]
    encoded = tokenizer.encode_batch([part for each in parts for part in each], add_special_tokens=False)
    pieces = iter(encoding.ids for encoding in encoded)
    found = []
    for each in parts:
        title, *sentences = [next(pieces) for _ in each]
        long_enough = [sentence for sentence in sentences if len(sentence) > 5]
        if title and len(long_enough) > 1:
            found.append(Document(title, long_enough))
    return found


def batches(
    known: list[Document], size: int, query_tokens: int, document_tokens: int, seed: int, between: tuple[int, ...] = ()
) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Queries and the documents they were taken from, ``size`` at a time, without end.

    A query is the title, or a sentence; either is then left out of its document.  ``between`` stands between title and
    text.  Lengths do not count special tokens before and after.
    """
    order = random.Random(seed)
    pool: list[Document] = []
    while True:
        if len(pool) < size:
            pool = order.sample(known, len(known))
        pairs = [pair(pool.pop(), between, order) for _ in range(size)]
        yield [query[:query_tokens] for query, _ in pairs], [text[:document_tokens] for _, text in pairs]


def pair(document: Document, between: tuple[int, ...], order: random.Random) -> tuple[list[int], list[int]]:
    """Draw a query from a document: its title or a sentence; returns it and the rest of the document."""
    if order.random() < 0.3:
        return document.title, [piece for sentence in document.sentences for piece in sentence]
    out = order.randrange(len(document.sentences))
    left = document.sentences[:out] + document.sentences[out + 1 :]
    text = [piece for sentence in left for piece in sentence]
    return document.sentences[out], [*document.title, *between, *text]
