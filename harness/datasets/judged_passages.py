"""Read judged passages and judged chunks of documents, from which the places of relevant passages follow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from harness.datasets import source
from harness.datasets.passage_matching import JudgedPassage, MatchedPassages
from harness.datasets.passage_positions import RelevantPosition
from harness.errors import FileError
from harness.untrusted import mistake

# The study judged at most 36 chunks of some 256 tokens of each document.
CHUNK_TOKENS, MOST_CHUNKS = 256, 36
_RELEVANT = 1


@dataclass(frozen=True)
class JudgedChunk:
    """Grade of chunk number ``chunk`` (from 0) of a document; ``start_token``: where it starts, if it is known."""

    __pydantic_config__ = ConfigDict(strict=True)

    query: str
    doc: str
    chunk: Annotated[int, Field(ge=0, lt=MOST_CHUNKS)]
    grade: int
    start_token: Annotated[int, Field(ge=0)] | None = None


_PASSAGE: TypeAdapter[JudgedPassage] = TypeAdapter(JudgedPassage)
_CHUNK: TypeAdapter[JudgedChunk] = TypeAdapter(JudgedChunk)


def read_passages(path: Path) -> Iterator[JudgedPassage]:
    """Yield relevant passages from JSON lines ``{"query", "text"}``, with ``"doc"`` where it is known.

    Raises:
        FileError: the file is missing, or a line is wrong.
    """
    yield from _records(path, _PASSAGE)


def read_chunks(path: Path) -> MatchedPassages:
    """Return the first relevant chunk (grade 1 or more) of each pair of query and document.

    The file has JSON lines ``{"query", "doc", "chunk", "grade"}``.  Without ``"start_token"``, chunk n starts at token
    256 n.

    Raises:
        FileError: the file is missing, or a line is wrong.
    """
    first: dict[tuple[str, str], int | None] = {}
    length: dict[tuple[str, str], int] = {}
    for chunk in _records(path, _CHUNK):
        pair = (chunk.query, chunk.doc)
        start = chunk.chunk * CHUNK_TOKENS if chunk.start_token is None else chunk.start_token
        length[pair] = max(length.get(pair, 0), start + CHUNK_TOKENS)
        known = first.setdefault(pair, None)
        if chunk.grade >= _RELEVANT and (known is None or start < known):
            first[pair] = start
    records = [
        RelevantPosition(*pair, start, start + CHUNK_TOKENS, 0, 1, length[pair])
        for pair, start in first.items()
        if start is not None
    ]
    return MatchedPassages(records, len(first))


def _records(path: Path, adapter: TypeAdapter[Any]) -> Iterator[Any]:
    for place, raw in source.read_json_lines(path):
        try:
            yield adapter.validate_json(json.dumps(raw))  # JSON: a dict is not a record in strict Python mode
        except ValidationError as error:
            raise FileError(f"{place}: {mistake(error)}") from None
