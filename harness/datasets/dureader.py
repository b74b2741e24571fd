"""DuReader-retrieval's files, as its baseline archive has them.

``passage-collection/part-00`` ... hold the passages, four columns a line of which the third is the text;
``passage-collection/passage2id.map.json`` maps the number of a line, counted from 0 through all parts, to the
passage's id; ``dev/dev.json`` holds a question a line with its relevant passages.
"""

from __future__ import annotations

import functools
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness.datasets import line_files, prepare
from harness.datasets.records import Document, Documents, Source
from harness.errors import FileError

PASSAGES = ("passage-collection/part-*",)
IDS = ("passage-collection/passage2id.map.json",)
QUESTIONS = ("dev/dev.json", "dev.json")

_CHUNK = 1 << 20
_ENTRY = re.compile(rb'"(\d{1,12})"\s*:\s*"([^"\\]{1,256})"\s*([,}])')


def read(folder: Path) -> Source:
    """Read a folder whose files are known to be there.

    Raises:
        FileError: a line of the questions is wrong.
    """
    parts = sorted(line_files.find(folder, PASSAGES))
    (ids,) = line_files.find(folder, IDS)
    questions = line_files.find(folder, QUESTIONS)[0]
    topics: list[tuple[str, str, str]] = []
    rows: list[tuple[str, str, str, str]] = []
    for place, raw in line_files.json_lines(questions):
        query_id = line_files.text_of(place, raw, "question_id")
        topics.append((place, query_id, line_files.text_of(place, raw, "question")))
        # A passage may stand twice under its question; it is as relevant as once.
        rows += [(place, query_id, doc_id, "1") for doc_id in dict.fromkeys(_relevant(place, raw))]
    queries = prepare.topics(topics)
    names = functools.cache(lambda: _Names(ids))
    documents = Documents(
        str(ids.parent),
        "dureader-retrieval",
        (*parts, ids),
        lambda: _documents(parts, ids, names()),
        lambda: len(names()),
    )
    return Source(documents, queries, prepare.judgements(rows, queries, questions.name))


def _relevant(place: str, raw: dict[str, Any]) -> Iterator[str]:
    passages = raw.get("answer_paragraphs", [])
    if not isinstance(passages, list) or not all(isinstance(passage, dict) for passage in passages):
        raise FileError(f"{place}: key 'answer_paragraphs' is no list of objects")
    for passage in passages:
        yield line_files.text_of(place, passage, "paragraph_id")


def _documents(parts: list[Path], ids: Path, names: _Names) -> Iterator[Document]:
    number = 0
    for path in parts:
        for place, fields in line_files.columns(path, ["- - text -"]):
            if number >= len(names):
                raise FileError(f"{place}: passage {number} has no id in {ids.name}, which has {len(names)}")
            yield Document(place, names[number], "", fields[2])
            number += 1
    if number < len(names):
        raise FileError(f"{ids}: {len(names)} ids for {number} passages; is a part missing?")


class _Names:
    """Ids by number, held as bytes end to end: as a dictionary, eight million would take over a GB."""

    def __init__(self, path: Path) -> None:
        self._text = bytearray()
        self._ends = array("Q")
        numbers = array("Q")
        for number, name in _entries(path):
            self._text += name
            self._ends.append(len(self._text))
            numbers.append(number)
        expected = np.arange(len(numbers), dtype=np.uint64)
        found = np.frombuffer(numbers, np.uint64)
        self._order = None if np.array_equal(found, expected) else np.argsort(found, kind="stable")
        if self._order is not None and not np.array_equal(found[self._order], expected):
            raise FileError(f"{path}: its keys are not each number from 0 to {len(numbers) - 1} once; mend the file")

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        place = number if self._order is None else int(self._order[number])
        return self._text[self._ends[place - 1] if place else 0 : self._ends[place]].decode("utf-8")


def _entries(path: Path) -> Iterator[tuple[int, bytes]]:
    """Keys and values of one large JSON object, which stands on one line; read in pieces.

    Raises:
        FileError: something else stands between them, or the file ends early.
    """
    rest, ended = b"", b""
    with line_files.opened(path) as file:
        for piece in iter(lambda: file.read(_CHUNK), b""):
            rest = (rest + piece).lstrip() if ended else (rest + piece).lstrip(b" \n\r\t{")
            place = 0
            for found in _ENTRY.finditer(rest):
                if rest[place : found.start()].strip():
                    break
                yield int(found[1]), found[2]
                place, ended = found.end(), found[3]
            rest = rest[place:]
            if len(rest) > _CHUNK:
                break
    if rest.strip() or ended != b"}":
        raise FileError(f"{path}: no JSON object of numbers and ids near {rest[:40].decode('utf-8', 'replace')!r}")
