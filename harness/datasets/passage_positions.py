"""Positions of relevant passages in the documents of a generated collection: ``positions.jsonl`` in its folder.

One line for each contiguous piece of a relevant passage.  Most passages are one piece; a document that was cut and
shuffled may hold several, in the order of the document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, model_validator

from harness.datasets import source
from harness.errors import FileError

POSITIONS = "positions.jsonl"

# The content is held in memory and stored in the results folder.
_MOST_BYTES = 256 << 20
_Offset = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class RelevantPosition:
    """Place of a passage that is relevant for ``query`` in the text of document ``doc``.

    ``start_token``, ``end_token``: tokens of bert-base-uncased in the text without [CLS] and [SEP], from 0, end
    exclusive.  ``start_char``, ``end_char``: the same place in characters.  ``length``: tokens of the document.
    ``depth`` (0 first, 1 last) and ``target_length`` (tokens) are parameters of the generator, if it had them.
    """

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False, defer_build=True)

    query: str
    doc: str
    start_token: _Offset
    end_token: _Offset
    start_char: _Offset
    end_char: _Offset
    length: _Offset
    depth: Annotated[float, Field(ge=0, le=1)] | None = None
    target_length: _Offset | None = None

    @model_validator(mode="after")
    def _is_ordered(self) -> RelevantPosition:
        """Refuse a line of a file; positions that harness makes are not checked."""
        if not (self.start_token < self.end_token <= self.length and self.start_char < self.end_char):
            raise ValueError("the passage ends before it starts, or after the document; correct the line")
        return self

    def to_line(self) -> bytes:
        """Return the record as a line of ``positions.jsonl``; missing values are left out."""
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(fields, ensure_ascii=False).encode("utf-8") + b"\n"


_RECORD: TypeAdapter[RelevantPosition] = TypeAdapter(RelevantPosition)


def find_positions(folder: Path) -> Path | None:
    """Return the file of a dataset's positions; ``None``: the folder has none."""
    return next(iter(source.find_files(folder, (POSITIONS,))), None)


def positions_content(folder: Path) -> bytes:
    """Return the content of a folder's positions, uncompressed; empty without any.

    Raises:
        FileError: it cannot be read, or has more than 256 MiB.
    """
    path = find_positions(folder)
    if path is None:
        return b""
    with source.open_file(path) as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise FileError(f"{path}: has more than {_MOST_BYTES >> 20} MiB; generate a smaller collection")
    return content


def read_positions(path: Path) -> Iterator[RelevantPosition]:
    """Yield the positions of a file in their order; memory holds one line.

    Raises:
        FileError: the file is missing, or a line is wrong.
    """
    return source.read_records(path, _RECORD)
