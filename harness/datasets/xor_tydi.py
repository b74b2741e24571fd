"""XOR-TyDi's retrieval task: questions in many languages, English passages, answers instead of judgements.

``*_w100.tsv`` is Wikipedia as DPR cuts it (``id text title``, tabs between, quoted as CSV), ``xor_*.jsonl`` the
questions with their answers as published.  What is asked are the questions as translated into English beforehand:
``*_q.jsonl`` (the same lines with translated questions, as published for the baselines) or ``queries.tsv``
(``id<tab>text``).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.datasets import answers, line_files, prepare
from harness.datasets.answers import Answers
from harness.datasets.records import Document, Documents, Source
from harness.errors import FileError

COLLECTION = ("*_w100.tsv",)
QUESTIONS = ("xor_*.jsonl",)
TRANSLATED = ("queries.tsv", "*_q.jsonl")

_MOST_CHARS = 1 << 24  # of a passage


def splits(folder: Path) -> dict[str, Path]:
    """Files of questions by their names, e.g. ``xor_dev_retrieve_eng_span_v1_1``."""
    named = {line_files.plain_name(path).removesuffix(".jsonl"): path for path in line_files.find(folder, QUESTIONS)}
    return {name: path for name, path in named.items() if not name.endswith("_q")}


def read(folder: Path, split: str) -> Source:
    """Read a folder whose files are known to be there.

    Raises:
        FileError: a line is wrong, or a question has no translation.
        UsageError: NLTK's sentence model is not there.
    """
    answers.need_tokenizer()
    collections = line_files.find(folder, COLLECTION)
    if len(collections) > 1:
        raise FileError(f"{folder}: {', '.join(path.name for path in collections)}: which one? leave one of them")
    english = _translated(folder)
    topics: list[tuple[str, str, str]] = []
    known: dict[str, tuple[str, ...]] = {}
    languages: dict[str, str] = {}
    for place, raw in line_files.json_lines(splits(folder)[split]):
        query_id = _id(place, raw)
        if query_id not in english:
            raise FileError(f"{place}: question {query_id!r} has no translation in {' or '.join(TRANSLATED)}; add it")
        topics.append((place, query_id, english[query_id]))
        found = _answers(place, raw)
        if found:
            known[query_id] = found
            if "lang" in raw:
                languages[query_id] = _language(place, raw)
    collection = collections[0]
    documents = Documents(str(collection), "dpr", (collection,), lambda: _documents(collection))
    return Source(documents, prepare.topics(topics), answers=Answers(known, languages))


def _translated(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in line_files.find(folder, TRANSLATED):
        if path.name.startswith("queries"):
            rows = ((place, query_id, text) for place, (query_id, text) in line_files.columns(path, ["id text"]))
        else:
            lines = line_files.json_lines(path)
            rows = ((place, _id(place, raw), line_files.text_of(place, raw, "question")) for place, raw in lines)
        for place, query_id, text in rows:
            if found.setdefault(query_id, text) != text:
                raise FileError(f"{place}: question {query_id!r} is translated in two ways; leave one of them")
    return found


def _id(place: str, raw: dict[str, Any]) -> str:
    value = raw.get("id")
    return str(value) if type(value) is int else line_files.text_of(place, raw, "id")


def _language(place: str, raw: dict[str, Any]) -> str:
    language = line_files.text_of(place, raw, "lang")
    if not language or any(each.isspace() for each in language):
        raise FileError(f"{place}: key 'lang' is {language!r}; write a code such as 'ja'")
    return language


def _answers(place: str, raw: dict[str, Any]) -> tuple[str, ...]:
    """What a text can hold of a question's answers; a question without any (the test set's) is not judged."""
    found = raw.get("answers", [])
    if not isinstance(found, list) or not all(isinstance(answer, str) for answer in found):
        raise FileError(f"{place}: key 'answers' is no list of texts")
    if "" in found:
        raise FileError(f"{place}: an empty answer, which every text holds; remove it")
    return answers.spans(found)


def _documents(path: Path) -> Iterator[Document]:
    """Passages, as DPR reads them: by CSV's rules, and a first line that names the columns is none."""
    csv.field_size_limit(_MOST_CHARS)
    # A quoted passage may go over several lines, and csv counts the lines that it takes.
    rows = csv.reader((line for _, line in line_files.lines(path)), delimiter="\t")
    try:
        for fields in rows:
            if fields[:1] == ["id"] or not fields:
                continue
            place = f"{path}: line {rows.line_num}"
            if len(fields) != 3:
                raise FileError(f"{place}: {len(fields)} fields between tabs, expected 'id text title'")
            if any("\t" in each for each in fields):
                raise FileError(f"{place}: up to here a quote swallows whole lines; close it or double it")
            doc_id, text, title = fields
            yield Document(place, doc_id, title, text)
    except csv.Error as error:
        raise FileError(f"{path}: line {rows.line_num}: not CSV: {error}; mend its quotes") from error
