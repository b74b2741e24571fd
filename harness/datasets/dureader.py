"""DuReader-retrieval's files, as its baseline archive has them.

``passage-collection/part-00`` ... have the passages, four columns a line of which the third is the text;
``passage-collection/passage2id.map.json`` maps the number of a line, counted from 0 through all parts, to the
passage's id; ``dev/dev.json`` has a question a line with its relevant passages.
"""

from __future__ import annotations

import codecs
import functools
import re
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from harness.datasets import source
from harness.datasets.source import DatasetSource, DocumentStream, Format, SourceDocument
from harness.errors import FileError
from harness.untrusted import decode

_PASSAGES = ("passage-collection/part-*",)
_IDS = ("passage-collection/passage2id.map.json",)
_QUESTIONS = ("dev/dev.json", "dev.json")
_CHUNK = 1 << 20
_ENTRY = re.compile(rb'"(\d{1,12})"\s*:\s*"([^"\\]{1,256})"\s*([,}])')


def _read(folder: Path) -> DatasetSource:
    """Read a folder that has all files; raise FileError if a question is wrong."""
    parts, ids = sorted(source.find_files(folder, _PASSAGES)), source.find_one(folder, _IDS)
    questions = source.find_files(folder, _QUESTIONS)[0]
    topics: list[tuple[str, str, str]] = []
    rows: list[tuple[str, str, str, str]] = []
    for place, raw in source.read_json_lines(questions):
        query_id = source.id_field(place, raw, "question_id")
        topics.append((place, query_id, source.text_field(place, raw, "question")))
        passages = source.list_field(place, raw, "answer_paragraphs", dict, [])
        relevant = [source.id_field(place, passage, "paragraph_id") for passage in passages]
        # A passage may repeat under its question.
        rows += [(place, query_id, doc_id, "1") for doc_id in dict.fromkeys(relevant)]
    queries = source.collect_queries(topics)
    passage_ids = functools.cache(lambda: _PassageIds(ids))
    documents = DocumentStream(
        str(ids.parent),
        "dureader-retrieval",
        (*parts, ids),
        lambda: _documents(parts, ids, passage_ids()),
        lambda: len(passage_ids()),
    )
    return DatasetSource(documents, queries, source.collect_qrels(rows, queries, questions.name))


def _documents(parts: list[Path], ids: Path, passage_ids: _PassageIds) -> Iterator[SourceDocument]:
    number = 0
    for path in parts:
        for place, fields in source.read_columns(path, ["- - text -"]):
            if number >= len(passage_ids):
                raise FileError(
                    f"{place}: passage {number} has no id among the {len(passage_ids)} of {ids.name}; add it"
                )
            yield SourceDocument(place, passage_ids[number], "", fields[2])
            number += 1
    if number < len(passage_ids):
        raise FileError(f"{ids}: {len(passage_ids)} ids for {number} passages; is a part missing?")


class _PassageIds:
    """Ids by number, stored as one byte string: as a dictionary, eight million would take over a GB."""

    def __init__(self, path: Path) -> None:
        self._text = bytearray()
        self._ends = array("Q")
        numbers = array("Q")
        for number, name in _entries(path):
            self._text += name
            self._ends.append(len(self._text))
            numbers.append(number)
        expected = np.arange(len(numbers), dtype=np.uint64)
        keys = np.frombuffer(numbers, np.uint64)
        self._order = None if np.array_equal(keys, expected) else np.argsort(keys, kind="stable")
        if self._order is not None and not np.array_equal(keys[self._order], expected):
            raise FileError(f"{path}: its keys are not each number from 0 to {len(numbers) - 1} once; correct the file")

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        index = number if self._order is None else int(self._order[number])
        return self._text[self._ends[index - 1] if index else 0 : self._ends[index]].decode("utf-8")


def _entries(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield keys and values of one large JSON object on one line; read it in pieces.

    Raises:
        FileError: other text is between them, or the file ends early.
    """
    rest, ended = b"", b""
    with source.open_file(path) as file:
        for piece in iter(lambda: file.read(_CHUNK), b""):
            rest = (
                (rest + piece).lstrip() if ended else (rest + piece).removeprefix(codecs.BOM_UTF8).lstrip(b" \n\r\t{")
            )
            end = 0
            for entry in _ENTRY.finditer(rest):
                if rest[end : entry.start()].strip():
                    break
                decode(entry[2], f"{path}: the id {entry[2][:40]!r}", line=None)
                yield int(entry[1]), entry[2]
                end, ended = entry.end(), entry[3]
            rest = rest[end:]
            if len(rest) > _CHUNK:
                break
    if rest.strip() or ended != b"}":
        near = rest[:40].decode("utf-8", "replace")
        raise FileError(f"{path}: not a JSON object of numbers and ids near {near!r}; correct it")


FORMAT = Format("DuReader-retrieval", (_PASSAGES, _IDS, _QUESTIONS), _read)
