"""TREC's formats: SGML documents (``<DOC>``) or tab-separated ones, topics (``<top>``) or tab-separated ones, qrels."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from harness.datasets import source
from harness.datasets.source import DatasetSource, DocumentStream, Format, SourceDocument
from harness.errors import FileError

_DOCUMENTS = ("documents.*", "documents/*", "documents/*/*")
_TOPICS = ("topics", "topics.*")
_QRELS = ("qrels", "qrels.*")
# Each pattern takes a time that grows with the text alone: no two of its parts match the same characters.
_ID = re.compile("<(DOCNO)>", re.I)
_TITLE = re.compile("<(TITLE|HEADLINE|HL|HEAD|TTL)>", re.I)
_TEXT = re.compile("<(TEXT|LP|LEADPARA)>", re.I)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
# A topic, also of the XML files of later tracks: <topic number="1"> <query> ... </query> </topic>.
_TOPIC = re.compile(r"<(top|topic)(?:\s[^<>]*)?>", re.I)
_NUMBER = re.compile(r"<(num|number|identifier|id|qid|topicid)(?:\s[^<>]*)?>", re.I)
_NUMBER_ATTRIBUTE = re.compile(r"""\s(?:number|num|id|qid)\s*=\s*("[^"]*"|'[^']*')""", re.I)
# Tags that end a part of a topic.  Others are marks in it, or its own characters, and are treated as in documents.
_PART = re.compile(
    r"</?(?:top|topic|topics|num|number|identifier|id|qid|topicid|title|query|desc|description|question|narr|narrative"
    r"|con|concepts?|dom|smry|summary|fac|def|nat|time|note|subtopics?|keywords?|headline)(?:\s[^<>]*)?/?>"
    # Any other that begins a line, but for the marks of HTML.
    r"|^[ \t]*<(?!/|(?:a|b|i|u|em|strong|sub|sup|tt|code|br|p|span|font|small|big|q|s)\b)[A-Za-z][\w-]*>",
    re.I | re.M,
)
# The elements of a topic that may be the query, by the name after a folder's '#', with their label and usual tag.
_PARTS = {
    "title": (re.compile(r"<(title|query)(?:\s[^<>]*)?>", re.I), "Topic:", "<title>"),
    "description": (re.compile(r"<(desc|description|question)(?:\s[^<>]*)?>", re.I), "Description:", "<desc>"),
}
_LONG_NUMBER = re.compile("&#[0-9]{4000}")


def _splits(folder: Path) -> dict[str, Path]:
    """Return the parts of topics that can be queries: titles, and descriptions where topics have them."""
    topics = source.find_one(folder, _TOPICS)
    described = _PARTS["description"][0].search(source.read_text(topics))
    return {name: topics for name in _PARTS if name == "title" or described}


def _read(folder: Path, part: str) -> DatasetSource:
    """Read a folder that has all files; queries are that part of the topics.

    Raises:
        FileError: a topic or a judgement is wrong, or there are two files of topics or qrels.
    """
    topics, qrels = source.find_one(folder, _TOPICS), source.find_one(folder, _QRELS)
    queries = source.collect_queries(_topics(topics, part))
    paths = tuple(sorted(source.find_files(folder, _DOCUMENTS)))
    documents = DocumentStream(str(paths[0].parent), "trec", paths, lambda: _documents(paths))
    return source.judged_source(documents, queries, qrels, topics)


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
                raise FileError(f"{path}: line {begun}: this <DOC> exceeds {most} MiB; end it with a line '</DOC>'")
        elif tag:
            raise FileError(f"{path}: line {number}: expected a line '<DOC>', got {line.strip()[:40]!r}; correct it")
    if lines is not None:
        raise FileError(f"{path}: line {begun}: this <DOC> has no line '</DOC>'; add it, or restore a truncated file")


def _parse_document(place: str, content: str) -> SourceDocument:
    """Return title and text without tags; without a marked text, all that is neither id nor title."""
    doc_id = next(_elements(_ID, content), None)
    if doc_id is None:
        raise FileError(f"{place}: this document has no <DOCNO>...</DOCNO>; add it")
    title = next(_elements(_TITLE, content), None)
    marked = [element.body for element in _elements(_TEXT, content)]
    # A title inside the text counts once.
    parts = [_without(_TITLE, body) for body in marked] or [_without(_TITLE, _without(_ID, content))]
    text = _plain(place, "\n".join(parts))
    return SourceDocument(place, doc_id.body.strip(), _plain(place, title.body) if title else "", text)


class _Element(NamedTuple):
    """An SGML element: its position in the text, and its content."""

    start: int
    end: int
    body: str


def _elements(opening: re.Pattern[str], content: str) -> Iterator[_Element]:
    """Yield the elements that begin with a tag of a pattern and end with its closing tag, one after the other."""
    at, unclosed = 0, set[str]()
    while begin := opening.search(content, at):
        name, at = begin[1].upper(), begin.end()
        end = None if name in unclosed else re.compile(f"</{name}>", re.I).search(content, at)
        if end is None:
            unclosed.add(name)  # nor has a later one a closing tag
            continue
        at = end.end()
        yield _Element(begin.start(), at, content[begin.end() : end.start()])


def _without(opening: re.Pattern[str], content: str) -> str:
    """Return a text with a blank for each element."""
    parts, at = [], 0
    for element in _elements(opening, content):
        parts.append(content[at : element.start])
        at = element.end
    return " ".join([*parts, content[at:]])


def _plain(place: str, marked: str) -> str:
    """Return a text without comments, tags and references, with single blanks."""
    return " ".join(_unescape(place, _TAG.sub(" ", _replaced(marked, "<!--", "-->", lambda _: " "))).split())


def _replaced(marked: str, opening: str, closing: str, change: Callable[[str], str]) -> str:
    """Return a text with each section between two marks changed, and without the marks."""
    parts, at = [], 0
    while (begin := marked.find(opening, at)) >= 0 and (end := marked.find(closing, begin + len(opening))) >= 0:
        parts += [marked[at:begin], change(marked[begin + len(opening) : end])]
        at = end + len(closing)
    return "".join([*parts, marked[at:]])


def _unescape(place: str, text: str) -> str:
    if _LONG_NUMBER.search(text):
        raise FileError(f"{place}: a character reference has thousands of digits; correct it")
    return html.unescape(text)


def _topics(path: Path, wanted: str) -> Iterator[tuple[str, str, str]]:
    """Yield (place, id, title or description) of ``<top>`` topics, else (place, id, text) of ``id<tab>text`` lines."""
    text = source.read_text(path)
    topics = list(_TOPIC.finditer(text))
    if not topics:
        for place, (query_id, title) in source.read_columns(path, ["id text"]):
            yield place, query_id, title
        return
    line = 1 + text.count("\n", 0, topics[0].start())
    for topic, end in zip(topics, [*(following.start() for following in topics[1:]), len(text)], strict=True):
        place = f"{path}: line {line}"
        line += text.count("\n", topic.start(), end)
        content = _replaced(text[topic.end() : end], "<![CDATA[", "]]>", html.escape)
        yield place, *_parse_topic(place, topic, content, wanted)


def _parse_topic(place: str, topic: re.Match[str], content: str, wanted: str) -> tuple[str, str]:
    """Return a topic's id, which may be an attribute of its tag, and its title or description."""
    opening, label, tag = _PARTS[wanted]
    attribute, number = _NUMBER_ATTRIBUTE.search(topic[0]), _NUMBER.search(content)
    query_id = attribute[1][1:-1] if attribute else _part(content, number) if number else ""
    found = opening.search(content, 0 if attribute or number is None else number.end())
    first = _PART.search(content)
    # <topic number="1"> a text </topic>
    bare = attribute and wanted == "title" and (first is None or first[0].lower().startswith("</top"))
    if not query_id or not (found or bare):
        raise FileError(f"{place}: this <{topic[1]}> has no <num> with a {tag} after it; add them")
    text = _plain(place, _without_label(_part(content, found), label))
    return _plain(place, _without_label(query_id, "Number:")), text


def _part(content: str, opening: re.Match[str] | None) -> str:
    """Return the text from a tag to the next part of the topic."""
    start = opening.end() if opening else 0
    end = _PART.search(content, start)
    return content[start : end.start() if end else None]


def _without_label(text: str, label: str) -> str:
    text = text.lstrip()
    return text[len(label) :].lstrip() if text[: len(label)].lower() == label.lower() else text


FORMAT = Format("TREC", (_DOCUMENTS, _TOPICS, _QRELS), _read, _splits, default_split="title")
