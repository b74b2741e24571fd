"""TREC's formats: SGML documents (``<DOC>``) or tab-separated ones, topics (``<top>``) or tab-separated ones, qrels."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.datasets import line_files, native, prepare
from harness.datasets.records import Document, Documents, Source
from harness.errors import FileError

DOCUMENTS = ("documents.*", "documents/*", "documents/*/*")
TOPICS = ("topics", "topics.*")
QRELS = ("qrels", "qrels.*")
_TAB_SEPARATED = ".tsv"

_ID = re.compile(r"<DOCNO>(.*?)</DOCNO>", re.S | re.I)
_TITLE = re.compile(r"<(TITLE|HEADLINE|HL|HEAD|TTL)>(.*?)</\1>", re.S | re.I)
_TEXT = re.compile(r"<(TEXT|LP|LEADPARA)>(.*?)</\1>", re.S | re.I)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<!--.*?-->", re.S)
_TOPIC = re.compile(r"<num>\s*(?:Number:)?\s*([^<]*?)\s*<.*?title>\s*(?:Topic:)?\s*([^<]*)", re.S | re.I)


def read(folder: Path) -> Source:
    """Read a folder whose files are known to be there.

    Raises:
        FileError: a topic or a judgement is wrong, or there are two files of topics or judgements.
    """
    (topics,), (qrels,) = _one(folder, TOPICS), _one(folder, QRELS)
    queries = prepare.topics(_topics(topics))
    paths = tuple(sorted(line_files.find(folder, DOCUMENTS)))
    documents = Documents(str(paths[0].parent), "trec", paths, lambda: _documents(paths))
    return Source(documents, queries, prepare.judgements(native.trec_rows(qrels), queries, topics.name))


def _one(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    found = line_files.find(folder, patterns)
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise FileError(f"{folder}: {names}: which one? leave one of them in the folder")
    return found


def _documents(paths: Iterable[Path]) -> Iterator[Document]:
    for path in paths:
        if line_files.plain_name(path).endswith(_TAB_SEPARATED):
            for place, fields in line_files.columns(path, ["id text", "id title text"]):
                yield Document(place, fields[0], fields[1] if len(fields) == 3 else "", fields[-1])
        else:
            yield from _sgml(path)


def _sgml(path: Path) -> Iterator[Document]:
    """One document after the other; only one is held."""
    lines: list[str] | None = None
    begun = 0
    for number, line in line_files.lines(path):
        tag = line.strip().upper()
        if tag == "<DOC>":
            if lines is not None:
                break
            lines, begun = [], number
        elif tag == "</DOC>" and lines is not None:
            yield _parsed(f"{path}: line {begun}", "".join(lines))
            lines = None
        elif lines is not None:
            lines.append(line)
        elif tag:
            raise FileError(f"{path}: line {number}: expected a line '<DOC>', got {line.strip()[:40]!r}")
    if lines is not None:
        raise FileError(f"{path}: line {begun}: this <DOC> has no line '</DOC>'; is the file cut off?")


def _parsed(place: str, content: str) -> Document:
    """Title and text without tags; where no text is marked, all that is neither id nor title."""
    found = _ID.search(content)
    if not found:
        raise FileError(f"{place}: this document has no <DOCNO>...</DOCNO>; add it")
    title = _TITLE.search(content)
    marked = [body for _, body in _TEXT.findall(content)]
    # A title may stand within the text; it is taken once.
    parts = [_TITLE.sub(" ", body) for body in marked] or [_TITLE.sub(" ", _ID.sub(" ", content))]
    return Document(place, found[1].strip(), _plain(title[2]) if title else "", _plain("\n".join(parts)))


def _plain(marked: str) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", marked)).split())


def _topics(path: Path) -> Iterator[tuple[str, str, str]]:
    """(place, id, title) of ``<top>`` topics, else of ``id<tab>text`` lines."""
    text = "".join(line for _, line in line_files.lines(path))
    if "<top>" not in text.lower():
        for place, (query_id, title) in line_files.columns(path, ["id text"]):
            yield place, query_id, title
        return
    number = 1
    for part in re.split(r"(?i)(?=<top>)", text):
        place = f"{path}: line {number}"
        number += part.count("\n")
        if not part.lower().startswith("<top>"):
            continue
        found = _TOPIC.search(part)
        if not found:
            raise FileError(f"{place}: this <top> has no <num> with a <title> behind it; add them")
        yield place, found[1], " ".join(html.unescape(found[2]).split())
