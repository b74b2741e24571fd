"""TREC's formats: SGML documents (``<DOC>``) or tab-separated ones, topics (``<top>``) or tab-separated ones, qrels."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.datasets import native, source
from harness.datasets.source import DatasetSource, DocumentStream, Format, SourceDocument
from harness.errors import FileError

_DOCUMENTS = ("documents.*", "documents/*", "documents/*/*")
_TOPICS = ("topics", "topics.*")
_QRELS = ("qrels", "qrels.*")
_ID = re.compile(r"<DOCNO>(.*?)</DOCNO>", re.S | re.I)
_TITLE = re.compile(r"<(TITLE|HEADLINE|HL|HEAD|TTL)>(.*?)</\1>", re.S | re.I)
_TEXT = re.compile(r"<(TEXT|LP|LEADPARA)>(.*?)</\1>", re.S | re.I)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<!--.*?-->", re.S)
_TOPIC = re.compile(r"<num>\s*(?:Number:)?\s*([^<]*?)\s*<.*?title>\s*(?:Topic:)?\s*([^<]*)", re.S | re.I)


def _read(folder: Path) -> DatasetSource:
    """Read a folder that has all files.

    Raises:
        FileError: a topic or a judgement is wrong, or there are two files of topics or qrels.
    """
    topics, qrels = source.find_one(folder, _TOPICS), source.find_one(folder, _QRELS)
    queries = source.collect_queries(_topics(topics))
    paths = tuple(sorted(source.find_files(folder, _DOCUMENTS)))
    documents = DocumentStream(str(paths[0].parent), "trec", paths, lambda: _documents(paths))
    return DatasetSource(documents, queries, source.collect_qrels(native.trec_rows(qrels), queries, topics.name))


def _documents(paths: Iterable[Path]) -> Iterator[SourceDocument]:
    for path in paths:
        if source.plain_name(path).endswith(".tsv"):
            for place, fields in source.read_columns(path, ["id text", "id title text"]):
                yield SourceDocument(place, fields[0], fields[1] if len(fields) == 3 else "", fields[-1])
        else:
            yield from _sgml_documents(path)


def _sgml_documents(path: Path) -> Iterator[SourceDocument]:
    """Yield the documents of an SGML file; memory holds one at a time."""
    lines: list[str] | None = None
    begun = size = 0
    for number, line in source.read_lines(path):
        tag = line.strip().upper()
        if tag == "<DOC>":
            if lines is not None:
                break
            lines, begun, size = [], number, 0
        elif tag == "</DOC>" and lines is not None:
            yield _parse_document(f"{path}: line {begun}", "".join(lines))
            lines = None
        elif lines is not None:
            lines.append(line)
            size += len(line)
            if size > source.MAX_TEXT_BYTES:
                most = source.MAX_TEXT_BYTES >> 20
                raise FileError(
                    f"{path}: line {begun}: this <DOC> has more than {most} MiB; end it with a line '</DOC>'"
                )
        elif tag:
            raise FileError(f"{path}: line {number}: expected a line '<DOC>', got {line.strip()[:40]!r}; correct it")
    if lines is not None:
        raise FileError(f"{path}: line {begun}: this <DOC> has no line '</DOC>'; add it, or restore a truncated file")


def _parse_document(place: str, content: str) -> SourceDocument:
    """Return title and text without tags; without a marked text, all that is neither id nor title."""
    doc_id = _ID.search(content)
    if not doc_id:
        raise FileError(f"{place}: this document has no <DOCNO>...</DOCNO>; add it")
    title = _TITLE.search(content)
    marked = [body for _, body in _TEXT.findall(content)]
    # A title inside the text counts once.
    parts = [_TITLE.sub(" ", body) for body in marked] or [_TITLE.sub(" ", _ID.sub(" ", content))]
    return SourceDocument(place, doc_id[1].strip(), _plain(title[2]) if title else "", _plain("\n".join(parts)))


def _plain(marked: str) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", marked)).split())


def _topics(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (place, id, title) of ``<top>`` topics, else of ``id<tab>text`` lines."""
    text = source.read_text(path)
    if "<top>" not in text.lower():
        for place, (query_id, title) in source.read_columns(path, ["id text"]):
            yield place, query_id, title
        return
    number = 1
    for part in re.split(r"(?i)(?=<top>)", text):
        place = f"{path}: line {number}"
        number += part.count("\n")
        if not part.lower().startswith("<top>"):
            continue
        topic = _TOPIC.search(part)
        if not topic:
            raise FileError(f"{place}: this <top> has no <num> with a <title> after it; add them")
        yield place, topic[1], " ".join(html.unescape(topic[2]).split())


FORMAT = Format("TREC", (_DOCUMENTS, _TOPICS, _QRELS), _read)
